//! Functions of librados, loaded when the first URL is used.
//!
//! The types are those of `rados/librados.h`. The library keeps its C interface compatible since
//! Ceph 16 (`librados.so.2`).

use dray_core::{End, Error, ErrorKind, Result};
use libloading::Library as Loaded;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Environment variable with the path of librados, if it is not in a library folder of the system.
pub const LIBRARY_VARIABLE: &str = "DRAY_LIBRADOS";

const LIBRARY: &str = "librados.so.2";

/// A handle of librados: a cluster, a pool, an operation, a completion, an iterator or a position.
pub(crate) type Handle = *mut c_void;
type Text = *const c_char;

/// Callback of a completion.
pub(crate) type OnDone = unsafe extern "C" fn(Handle, *mut c_void);
/// Callback of a watch for a notification: argument, notification, watch, notifier, data, length.
pub(crate) type OnNotify = unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut c_void, usize);
/// Callback of a watch for an error: argument, watch, error.
pub(crate) type OnWatchError = unsafe extern "C" fn(*mut c_void, u64, c_int);
/// Type of the function that sends a command to the monitors.
pub(crate) type Command = unsafe extern "C" fn(
    Handle,
    *mut Text,
    usize,
    Text,
    usize,
    *mut *mut c_char,
    *mut usize,
    *mut *mut c_char,
    *mut usize,
) -> c_int;

/// The structure `rados_cluster_stat_t`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ClusterStat {
    pub(crate) kb: u64,
    pub(crate) kb_used: u64,
    pub(crate) kb_avail: u64,
    pub(crate) num_objects: u64,
}

/// The structure `rados_object_list_item`: an object of a listing.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListItem {
    pub(crate) name_length: usize,
    pub(crate) name: *mut c_char,
    namespace_length: usize,
    namespace: *mut c_char,
    locator_length: usize,
    locator: *mut c_char,
}

impl ListItem {
    /// An item to which the library has written nothing.
    pub(crate) const EMPTY: Self = Self {
        name_length: 0,
        name: null_mut(),
        namespace_length: 0,
        namespace: null_mut(),
        locator_length: 0,
        locator: null_mut(),
    };
}

macro_rules! library {
    ($($name:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Functions of the loaded library. The library is never unloaded, because its threads run
        /// until the process ends.
        pub(crate) struct Library {
            _loaded: Loaded,
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            pub(crate) mon_command: Command,
        }

        fn from(loaded: Loaded) -> Result<Library> {
            let wrong = |error: libloading::Error| unusable(format!("{LIBRARY}: {error}"));
            Ok(Library {
                $($name: {
                    let symbol = concat!("rados_", stringify!($name));
                    // SAFETY: the type is that in the header of librados.
                    unsafe { *loaded.get(symbol.as_bytes()).map_err(wrong)? }
                },)*
                // SAFETY: the type is that in the header of librados.
                mon_command: unsafe { *loaded.get(b"rados_mon_command").map_err(wrong)? },
                // SAFETY: the type is that in the header of librados.
                _loaded: loaded,
            })
        }
    };
}

library! {
    create2: fn(*mut Handle, Text, Text, u64) -> c_int;
    conf_read_file: fn(Handle, Text) -> c_int;
    conf_parse_env: fn(Handle, Text) -> c_int;
    conf_set: fn(Handle, Text, Text) -> c_int;
    conf_get: fn(Handle, Text, *mut c_char, usize) -> c_int;
    connect: fn(Handle) -> c_int;
    shutdown: fn(Handle);
    cluster_stat: fn(Handle, *mut ClusterStat) -> c_int;
    wait_for_latest_osdmap: fn(Handle) -> c_int;
    get_instance_id: fn(Handle) -> u64;
    blocklist_add: fn(Handle, *mut c_char, u32) -> c_int;
    buffer_free: fn(*mut c_char);
    ioctx_create: fn(Handle, Text, *mut Handle) -> c_int;
    ioctx_destroy: fn(Handle);
    ioctx_get_id: fn(Handle) -> i64;
    ioctx_set_namespace: fn(Handle, Text);
    set_pool_full_try: fn(Handle);
    object_list_begin: fn(Handle) -> Handle;
    object_list_end: fn(Handle) -> Handle;
    object_list_cursor_free: fn(Handle, Handle);
    object_list_cursor_cmp: fn(Handle, Handle, Handle) -> c_int;
    object_list_slice: fn(
        Handle, Handle, Handle, usize, usize, *mut Handle, *mut Handle,
    );
    object_list: fn(
        Handle, Handle, Handle, usize, Text, usize, *mut ListItem, *mut Handle,
    ) -> c_int;
    object_list_free: fn(usize, *mut ListItem);
    aio_create_completion2: fn(*mut c_void, OnDone, *mut Handle) -> c_int;
    aio_wait_for_complete_and_cb: fn(Handle) -> c_int;
    aio_get_return_value: fn(Handle) -> c_int;
    aio_get_version: fn(Handle) -> u64;
    aio_release: fn(Handle);
    create_write_op: fn() -> Handle;
    release_write_op: fn(Handle);
    write_op_assert_exists: fn(Handle);
    write_op_cmpxattr: fn(Handle, Text, u8, Text, usize);
    write_op_setxattr: fn(Handle, Text, Text, usize);
    write_op_rmxattr: fn(Handle, Text);
    write_op_assert_version: fn(Handle, u64);
    write_op_create: fn(Handle, c_int, Text);
    write_op_write: fn(Handle, Text, usize, u64);
    write_op_write_full: fn(Handle, Text, usize);
    write_op_remove: fn(Handle);
    write_op_truncate: fn(Handle, u64);
    aio_write_op_operate: fn(Handle, Handle, Handle, Text, *mut i64, c_int) -> c_int;
    create_read_op: fn() -> Handle;
    release_read_op: fn(Handle);
    read_op_cmpxattr: fn(Handle, Text, u8, Text, usize);
    read_op_getxattrs: fn(Handle, *mut Handle, *mut c_int);
    read_op_stat: fn(Handle, *mut u64, *mut i64, *mut c_int);
    read_op_read: fn(Handle, u64, usize, *mut c_char, *mut usize, *mut c_int);
    aio_read_op_operate: fn(Handle, Handle, Handle, Text, c_int) -> c_int;
    getxattrs_next: fn(Handle, *mut Text, *mut Text, *mut usize) -> c_int;
    getxattrs_end: fn(Handle);
    lock_exclusive: fn(Handle, Text, Text, Text, Text, *mut c_void, u8) -> c_int;
    unlock: fn(Handle, Text, Text, Text) -> c_int;
    list_lockers: fn(
        Handle, Text, Text, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize,
        *mut c_char, *mut usize, *mut c_char, *mut usize,
    ) -> isize;
    break_lock: fn(Handle, Text, Text, Text, Text) -> c_int;
    watch3: fn(
        Handle, Text, *mut u64, OnNotify, OnWatchError, c_uint, *mut c_void,
    ) -> c_int;
    unwatch2: fn(Handle, u64) -> c_int;
    watch_flush: fn(Handle) -> c_int;
    notify2: fn(Handle, Text, Text, c_int, u64, *mut *mut c_char, *mut usize) -> c_int;
    notify_ack: fn(Handle, Text, u64, u64, Text, c_int) -> c_int;
}

// SAFETY: the structure contains only pointers to functions, which any thread may call.
unsafe impl Sync for Library {}
// SAFETY: as above.
unsafe impl Send for Library {}

static LOADED: OnceLock<Result<Library>> = OnceLock::new();

/// Returns the library. The first call loads it.
///
/// # Errors
/// [`ErrorKind::Unsupported`]. The error names the package to install.
pub(crate) fn library() -> Result<&'static Library> {
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Returns true if this process has loaded the library.
#[must_use]
pub fn is_loaded() -> bool {
    LOADED.get().is_some_and(Result::is_ok)
}

unsafe extern "C" {
    /// The system call `_exit(2)`. The call is safe, because `_exit` has no preconditions.
    safe fn _exit(status: c_int) -> !;
}

/// Ends the process without exit handlers, because the handlers of librados destroy objects that
/// its threads still use.
pub fn end_process(code: u8) -> ! {
    // Ignore an error, because no later code could write the output either.
    let _ = std::io::stdout().flush();
    _exit(code.into())
}

fn load() -> Result<Library> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty());
    let place = named.unwrap_or_else(|| LIBRARY.into());
    // SAFETY: the library is that of the system, or the user of this process has named it. Loading
    // the library runs only the initialisation code of the library.
    match unsafe { Loaded::new(&place) } {
        Ok(loaded) => from(loaded),
        Err(error) => Err(unusable(error.to_string())),
    }
}

fn unusable(cause: String) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        End::Here,
        "load the Ceph client library",
    )
    .cause(cause)
    .remedy(format!(
        "install librados 16 or later (Debian: librados2), or set {LIBRARY_VARIABLE} to the \
             path of {LIBRARY}"
    ))
}
