//! Functions of the Globus client library, loaded when the first URL is used.
//!
//! The types are those of `globus_ftp_client.h` and `globus_common.h` of the Grid Community Toolkit.

use dray_core::{End, Error, ErrorKind, Result};
use libloading::Library as Loaded;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Environment variable with the path of the library, if it is not in a library folder of the
/// system.
pub const LIBRARY_VARIABLE: &str = "DRAY_LIBGLOBUS_FTP_CLIENT";

const LIBRARY: &str = "libglobus_ftp_client.so.2";

/// A handle of the library, or a set of attributes: a pointer that the library fills.
pub(crate) type Handle = *mut c_void;
type Text = *const c_char;
/// The type `globus_result_t`. Zero means success.
pub(crate) type Code = u32;
/// Callback at the end of an operation: argument, handle, error.
pub(crate) type OnComplete = unsafe extern "C" fn(*mut c_void, *mut Handle, *mut c_void);
/// Callback of a read: argument, handle, error, buffer, length, offset, end of the data.
pub(crate) type OnData =
    unsafe extern "C" fn(*mut c_void, *mut Handle, *mut c_void, *mut u8, usize, i64, c_int);

macro_rules! library {
    ($($name:ident = $symbol:literal: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Functions of the loaded library. The library is never unloaded, because its threads run
        /// until the process ends.
        pub(crate) struct Library {
            _loaded: Loaded,
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// The structure that describes the module of the FTP client.
            module: *mut c_void,
        }

        fn from(loaded: Loaded) -> Result<Library> {
            let wrong = |error: libloading::Error| unusable(format!("{LIBRARY}: {error}"));
            Ok(Library {
                $($name: {
                    // SAFETY: the type is that in the headers of the library.
                    unsafe { *loaded.get($symbol.as_bytes()).map_err(wrong)? }
                },)*
                // SAFETY: the symbol is a structure. Only its address is used.
                module: unsafe { *loaded.get(b"globus_i_ftp_client_module").map_err(wrong)? },
                _loaded: loaded,
            })
        }
    };
}

library! {
    set_thread_model = "globus_thread_set_model": fn(Text) -> c_int;
    activate = "globus_module_activate": fn(*mut c_void) -> c_int;
    error_get = "globus_error_get": fn(Code) -> *mut c_void;
    error_text = "globus_error_print_friendly": fn(*mut c_void) -> *mut c_char;
    error_answer = "globus_error_ftp_error_get_code": fn(*mut c_void) -> c_int;
    object_free = "globus_object_free": fn(*mut c_void);
    free = "globus_libc_free": fn(*mut c_void);
    handleattr_init = "globus_ftp_client_handleattr_init": fn(*mut Handle) -> Code;
    handleattr_destroy = "globus_ftp_client_handleattr_destroy": fn(*mut Handle) -> Code;
    handleattr_set_cache_all = "globus_ftp_client_handleattr_set_cache_all":
        fn(*mut Handle, c_int) -> Code;
    handleattr_set_clientinfo = "globus_ftp_client_handleattr_set_clientinfo":
        fn(*mut Handle, Text, Text, Text) -> Code;
    handle_init = "globus_ftp_client_handle_init": fn(*mut Handle, *mut Handle) -> Code;
    handle_destroy = "globus_ftp_client_handle_destroy": fn(*mut Handle) -> Code;
    operationattr_init = "globus_ftp_client_operationattr_init": fn(*mut Handle) -> Code;
    operationattr_destroy = "globus_ftp_client_operationattr_destroy": fn(*mut Handle) -> Code;
    abort = "globus_ftp_client_abort": fn(*mut Handle) -> Code;
    mlst = "globus_ftp_client_mlst": fn(
        *mut Handle, Text, *mut Handle, *mut *mut u8, *mut usize, OnComplete, *mut c_void,
    ) -> Code;
    machine_list = "globus_ftp_client_machine_list": fn(
        *mut Handle, Text, *mut Handle, OnComplete, *mut c_void,
    ) -> Code;
    partial_get = "globus_ftp_client_partial_get": fn(
        *mut Handle, Text, *mut Handle, *mut c_void, i64, i64, OnComplete, *mut c_void,
    ) -> Code;
    register_read = "globus_ftp_client_register_read": fn(
        *mut Handle, *mut u8, usize, OnData, *mut c_void,
    ) -> Code;
    checksum = "globus_ftp_client_cksm": fn(
        *mut Handle, Text, *mut Handle, *mut c_char, i64, i64, Text, OnComplete, *mut c_void,
    ) -> Code;
}

// SAFETY: the structure contains pointers to functions, which any thread may call, and a pointer to
// a static structure that this crate does not access.
unsafe impl Sync for Library {}
// SAFETY: as above.
unsafe impl Send for Library {}

static LOADED: OnceLock<Result<Library>> = OnceLock::new();

/// Returns the library. The first call loads it and starts its threads.
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

impl Library {
    /// Returns the code of the server's answer in an error object, and the text of the object. The
    /// code is 0 if the error does not come from an answer. The caller keeps the object.
    ///
    /// # Safety
    /// `error` is an error object of the library.
    pub(crate) unsafe fn describe(&self, error: *mut c_void) -> (u32, String) {
        // SAFETY: the caller passes an error object.
        let code = unsafe { (self.error_answer)(error) };
        // SAFETY: as above. The function returns a new text.
        let text = unsafe { (self.error_text)(error) };
        if text.is_null() {
            return (0, String::new());
        }
        // SAFETY: the text is not null, and ends with a zero byte.
        let owned = unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: the library allocated the text for the caller, and nothing uses it any more.
        unsafe { (self.free)(text.cast()) };
        (u32::try_from(code).unwrap_or(0), owned)
    }

    /// Checks the result of a call.
    ///
    /// # Errors
    /// The code of the server's answer, or 0, and the text of the error.
    pub(crate) fn check(&self, code: Code) -> Result<(), (u32, String)> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library returned the code, and the code was not looked up before.
        let error = unsafe { (self.error_get)(code) };
        // SAFETY: `error_get` returns an error object.
        let described = unsafe { self.describe(error) };
        // SAFETY: `error_get` passed the object to this function, and nothing uses it any more.
        unsafe { (self.object_free)(error) };
        Err(described)
    }
}

fn load() -> Result<Library> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty());
    let place = named.unwrap_or_else(|| LIBRARY.into());
    // SAFETY: the library is that of the system, or the user of this process has named it. Loading
    // the library runs only the initialisation code of the library.
    let loaded = unsafe { Loaded::new(&place) }.map_err(|error| unusable(error.to_string()))?;
    let library = from(loaded)?;
    // Without this model, callbacks run only while a thread polls the library.
    // SAFETY: the text ends with a zero byte, and no module of the library is active yet.
    let model = unsafe { (library.set_thread_model)(c"pthread".as_ptr()) };
    // SAFETY: `module` is the address of the descriptor of the module.
    let started = unsafe { (library.activate)(library.module) };
    match (model, started) {
        (0, 0) => Ok(library),
        _ => Err(unusable(format!(
            "{LIBRARY} does not start (codes {model} and {started})"
        ))),
    }
}

fn unusable(cause: String) -> Error {
    let operation = "load the GridFTP client library";
    Error::new(ErrorKind::Unsupported, End::Here, operation)
        .cause(cause)
        .remedy(format!(
            "install the Globus FTP client library (Debian: libglobus-ftp-client2, EPEL: \
             globus-ftp-client), or set {LIBRARY_VARIABLE} to the path of {LIBRARY}"
        ))
}
