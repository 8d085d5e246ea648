//! The XRootD client, as described in plugins/xrootd/xrdcl/dray_xrdcl.h. Only this module calls it.

mod change;
mod file;
mod places;
mod small_batch;
mod streams;

pub(crate) use file::RemoteFile;
pub(crate) use small_batch::{Renaming, Small};

use dray_core::{End, Error, ErrorKind, ModifiedTime, Name, Result};
use dray_store::ReadState;
use libloading::Library;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Environment variable with the path of the library, if it does not lie beside the program.
pub const LIBRARY_VARIABLE: &str = "DRAY_XRDCL";

const LIBRARY: &str = "libdray-xrdcl.so";
/// `DRAY_XRDCL_VERSION`.
const VERSION: u32 = 5;
/// `DRAY_XRDCL_DIRECTORY`.
const DIRECTORY: u32 = 1;
/// `DRAY_XRDCL_SPECIAL`.
const SPECIAL: u32 = 2;
/// Kind of an error structure without an error.
const NO_ERROR: i32 = -1;
/// `DRAY_XRDCL_LOCKED`.
const LOCKED: i32 = 17;
/// `DRAY_XRDCL_NO_ATTRIBUTE`.
const NO_ATTRIBUTE: i32 = 18;
/// Bytes of `dray_xrdcl_error.words`.
const WORDS_BYTES: usize = 1020;
/// Name of the opening operation in errors.
const OPEN: &str = "open the file";
/// Maximum bytes of an answer to a checksum request: a name of 16, a value of 128.
const ANSWER_BYTES: u32 = 512;

/// `struct dray_xrdcl_error`.
#[repr(C)]
struct RawError {
    kind: i32,
    words: [u8; WORDS_BYTES],
}

impl RawError {
    const fn none() -> Self {
        Self {
            kind: NO_ERROR,
            words: [0; WORDS_BYTES],
        }
    }

    const fn is_none(&self) -> bool {
        self.kind == NO_ERROR
    }
}

/// `struct dray_xrdcl_state`.
#[repr(C)]
#[derive(Default)]
struct RawState {
    size: u64,
    modified: i64,
    flags: u32,
    zero: u32,
    id: u64,
}

/// `struct dray_xrdcl_file`.
#[repr(C)]
struct RawFile {
    _opaque: [u8; 0],
}

type Take = extern "C" fn(*mut c_void, *const c_char, u64, *const RawState) -> i32;

/// State of the entry at a path of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteState {
    pub(crate) size: u64,
    pub(crate) modified: ModifiedTime,
    pub(crate) is_folder: bool,
    pub(crate) is_special: bool,
    /// Number of the file at its server; 0 if the server sends none.
    pub(crate) id: u64,
}

impl RemoteState {
    /// Returns true if the file has this size and time.
    pub(crate) fn is(&self, state: &ReadState) -> bool {
        self.size == state.size && self.modified == state.modified
    }

    const fn of(raw: &RawState) -> Self {
        Self {
            size: raw.size,
            modified: ModifiedTime {
                seconds: raw.modified,
                nanoseconds: 0,
            },
            is_folder: raw.flags & DIRECTORY != 0,
            is_special: raw.flags & SPECIAL != 0,
            id: raw.id,
        }
    }
}

/// Entries of a folder, and an error if the list may be incomplete.
pub(crate) type Entries = (Vec<(Result<Name>, RemoteState)>, Option<Error>);

type Words<'a> = *const c_char;

/// Entry points of the loaded library. It stays loaded, since its threads outlive every call.
pub(crate) struct Client {
    _library: Library,
    set: unsafe extern "C" fn(Words<'_>, i32) -> i32,
    open: unsafe extern "C" fn(Words<'_>, u32, u32, u32, *mut *mut RawFile, *mut RawError) -> i32,
    close: unsafe extern "C" fn(*mut RawFile),
    read: unsafe extern "C" fn(*mut RawFile, u64, *mut c_void, u32, i32, u32, *mut RawError) -> i64,
    state_of: unsafe extern "C" fn(*mut RawFile, i32, u32, *mut RawState, *mut RawError) -> i32,
    server_of: unsafe extern "C" fn(*mut RawFile, *mut c_char, u32, *mut RawError) -> i32,
    look: unsafe extern "C" fn(Words<'_>, Words<'_>, *mut RawState, *mut RawError) -> i32,
    locate: unsafe extern "C" fn(Words<'_>, Words<'_>, u32, *mut c_char, u32, *mut RawError) -> i32,
    look_each: unsafe extern "C" fn(*mut places::RawLooked, u64, u32, *mut RawError) -> i32,
    list: unsafe extern "C" fn(Words<'_>, Words<'_>, Take, *mut c_void, *mut RawError) -> i32,
    ask: unsafe extern "C" fn(*mut RawFile, Words<'_>, u32, *mut c_char, u32, *mut RawError) -> i32,
    checksum: Asked,
    config: Asked,
    space: Asked,
    write: unsafe extern "C" fn(*mut RawFile, u64, *const c_void, u32, i32, *mut RawError) -> i32,
    sync: unsafe extern "C" fn(*mut RawFile, *mut RawError) -> i32,
    truncate: unsafe extern "C" fn(*mut RawFile, u64, *mut RawError) -> i32,
    make_dir: unsafe extern "C" fn(Words<'_>, Words<'_>, u32, i32, *mut RawError) -> i32,
    remove: unsafe extern "C" fn(Words<'_>, Words<'_>, i32, *mut RawError) -> i32,
    set_mode: unsafe extern "C" fn(Words<'_>, Words<'_>, u32, *mut RawError) -> i32,
    set_attribute:
        unsafe extern "C" fn(Words<'_>, Words<'_>, Words<'_>, Words<'_>, *mut RawError) -> i32,
    attribute: unsafe extern "C" fn(
        Words<'_>,
        Words<'_>,
        Words<'_>,
        *mut c_char,
        u64,
        *mut RawError,
    ) -> i64,
    write_small: unsafe extern "C" fn(*mut small_batch::RawSmall, u64, *mut RawError) -> i32,
    move_each:
        unsafe extern "C" fn(Words<'_>, *mut small_batch::RawRenaming, u64, *mut RawError) -> i32,
    sync_each: unsafe extern "C" fn(
        *const *mut RawFile,
        *const u64,
        *mut RawError,
        u64,
        *mut RawError,
    ) -> i32,
}

/// A request with a text as its answer.
type Asked =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, u32, *mut RawError) -> i32;

static CLIENT: OnceLock<Result<Client>> = OnceLock::new();

/// Number of the client's attempts to reach a server, the last one without a wait, and seconds of
/// each attempt. The client's defaults of five times two minutes would leave a user with a wrong
/// port without a message for eight minutes, and signals without effect. The environment
/// (`XRD_CONNECTIONRETRY`, `XRD_CONNECTIONWINDOW`) takes precedence.
const REACHING: [(&CStr, i32); 2] = [(c"ConnectionRetry", 2), (c"ConnectionWindow", 15)];

/// Returns the client; loads it at the first call.
///
/// # Errors
/// [`ErrorKind::Unsupported`] names what to build or install.
pub(crate) fn client() -> Result<&'static Client> {
    CLIENT.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Sets the number of data streams per login connection, for servers that permit it. Call it before
/// the first URL is used. With 0 or 1 the login connection carries all data.
///
/// # Errors
/// If the client cannot be loaded.
pub fn set_substreams(count: u32) -> Result<()> {
    let name = words("SubStreamsPerChannel")?;
    let count = streams::of_channel(count);
    let client = client()?;
    // SAFETY: the text lives until the call returns.
    unsafe { (client.set)(name.as_ptr(), count) };
    Ok(())
}

unsafe extern "C" {
    /// `_exit(2)`: it has no demands.
    safe fn _exit(status: c_int) -> !;
}

/// Ends the process. If the client was loaded, no exit handlers run: XrdCl's handlers destroy objects
/// that its threads and abandoned calls still use.
pub fn end_process(code: u8) -> ! {
    if CLIENT.get().is_none() {
        std::process::exit(code.into());
    }
    // No later code could write what this flush cannot.
    let _ = std::io::stdout().flush();
    _exit(code.into())
}

/// Returns the possible paths of the library, in order.
fn places() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let mut places = Vec::new();
    let program = std::env::current_exe().ok();
    if let Some(folder) = program.as_deref().and_then(std::path::Path::parent) {
        places.push(folder.join(LIBRARY));
        if let Some(above) = folder.parent() {
            places.push(above.join("lib/dray").join(LIBRARY));
            places.push(above.join("lib").join(LIBRARY));
        }
    }
    // Without a slash: the loader searches the system's library folders.
    places.push(LIBRARY.into());
    places
}

fn load() -> Result<Client> {
    let mut tried = Vec::new();
    for place in places() {
        if place.as_os_str().as_bytes().contains(&b'/') && !place.exists() {
            tried.push(format!("{}: not there", place.display()));
            continue;
        }
        // SAFETY: the library is ours or named by whoever runs this; what it runs when it is loaded
        // is XrdCl's own start.
        match unsafe { Library::new(&place) } {
            Ok(library) => return from(library, &place.into_os_string()),
            Err(error) => tried.push(error.to_string()),
        }
    }
    Err(unusable(tried.join("; ")))
}

fn unusable(cause: String) -> Error {
    Error::new(ErrorKind::Unsupported, End::Here, "load the XRootD client")
        .cause(cause)
        .remedy(format!(
            "build it by `make build-xrootd` (on Debian it needs libxrootd-client-dev), and put {LIBRARY} \
             beside the program or name it in {LIBRARY_VARIABLE}"
        ))
}

fn from(library: Library, place: &OsString) -> Result<Client> {
    let wrong = |error: libloading::Error| unusable(format!("{}: {error}", place.display()));
    // SAFETY: the type is that of the header; it is the same in all versions.
    let version: unsafe extern "C" fn() -> u32 =
        unsafe { *library.get(b"dray_xrdcl_version").map_err(wrong)? };
    // SAFETY: it has no demands.
    let found = unsafe { version() };
    if found != VERSION {
        let cause = format!("{}: version {found}, not {VERSION}", place.display());
        return Err(unusable(cause));
    }
    macro_rules! entry {
        ($name:literal) => {
            // SAFETY: the types above are those of the header of this version.
            unsafe { *library.get($name).map_err(wrong)? }
        };
    }
    let client = Client {
        set: entry!(b"dray_xrdcl_set"),
        open: entry!(b"dray_xrdcl_open"),
        close: entry!(b"dray_xrdcl_close"),
        read: entry!(b"dray_xrdcl_read"),
        state_of: entry!(b"dray_xrdcl_state_of"),
        server_of: entry!(b"dray_xrdcl_server_of"),
        look: entry!(b"dray_xrdcl_look"),
        locate: entry!(b"dray_xrdcl_locate"),
        look_each: entry!(b"dray_xrdcl_look_each"),
        list: entry!(b"dray_xrdcl_list"),
        checksum: entry!(b"dray_xrdcl_checksum"),
        ask: entry!(b"dray_xrdcl_ask"),
        config: entry!(b"dray_xrdcl_config"),
        space: entry!(b"dray_xrdcl_space"),
        write: entry!(b"dray_xrdcl_write"),
        sync: entry!(b"dray_xrdcl_sync"),
        truncate: entry!(b"dray_xrdcl_truncate"),
        make_dir: entry!(b"dray_xrdcl_make_dir"),
        remove: entry!(b"dray_xrdcl_remove"),
        set_mode: entry!(b"dray_xrdcl_set_mode"),
        set_attribute: entry!(b"dray_xrdcl_set_attribute"),
        attribute: entry!(b"dray_xrdcl_attribute"),
        write_small: entry!(b"dray_xrdcl_write_small"),
        move_each: entry!(b"dray_xrdcl_move_each"),
        sync_each: entry!(b"dray_xrdcl_sync_each"),
        _library: library,
    };
    for (name, value) in REACHING {
        // SAFETY: the text lives until the call returns.
        unsafe { (client.set)(name.as_ptr(), value) };
    }
    Ok(client)
}

fn words(text: impl AsRef<[u8]>) -> Result<CString> {
    CString::new(text.as_ref()).map_err(|_| {
        Error::new(ErrorKind::InvalidRequest, End::Source, "name the file")
            .cause("a zero byte inside")
    })
}

/// Calls the client with an error buffer and converts the result.
fn call(operation: &str, call: impl FnOnce(*mut RawError) -> i64) -> Result<u64> {
    let mut raw = RawError::none();
    let answer = call(&raw mut raw);
    u64::try_from(answer).map_err(|_| failed(operation, &raw))
}

fn failed(operation: &str, raw: &RawError) -> Error {
    let kind = match raw.kind {
        1 => ErrorKind::NotFound,
        2 => ErrorKind::PermissionDenied,
        3 => ErrorKind::IsADirectory,
        4 => ErrorKind::NotADirectory,
        5 => ErrorKind::Unauthorized,
        6 => ErrorKind::Unreachable,
        7 => ErrorKind::TimedOut,
        8 => ErrorKind::Unsupported,
        9 => ErrorKind::Io,
        10 => ErrorKind::Busy,
        11 => ErrorKind::ChecksumMismatch,
        12 => ErrorKind::InvalidRequest,
        13 => ErrorKind::Internal,
        14 => ErrorKind::AlreadyExists,
        15 => ErrorKind::NoSpace,
        16 => ErrorKind::ReadOnly,
        LOCKED => ErrorKind::Busy,
        NO_ATTRIBUTE => ErrorKind::NotFound,
        19 => ErrorKind::NameTooLong,
        _ => ErrorKind::Other,
    };
    let said = CStr::from_bytes_until_nul(&raw.words).map(CStr::to_string_lossy);
    let said = said.unwrap_or_default();
    // One line; the mark at the start of XrdCl's message is of no use to dray's users.
    let said = said
        .trim()
        .trim_start_matches("[ERROR] ")
        .replace('\n', " ");
    let error = Error::new(kind, End::Source, operation).cause(said);
    match kind {
        ErrorKind::Unauthorized => {
            error.remedy("give credentials that the server accepts, as for xrdcp")
        }
        ErrorKind::Unreachable | ErrorKind::TimedOut => {
            error.remedy("check the server and the network, then run the same command again")
        }
        ErrorKind::NoSpace => error.remedy(
            "free some space at the server and run the same command again; durable data is kept \
             and not sent again",
        ),
        ErrorKind::ReadOnly | ErrorKind::PermissionDenied => {
            error.remedy("give this user permission at the server, or name another path")
        }
        _ => error,
    }
}

/// Mode in which to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// For reading. Fails for a file that another client writes ([`ErrorKind::Busy`]).
    Read,
    /// For reading, even if another client writes it.
    ReadShared,
    /// For reading and writing, exclusively: fails if any client has it open.
    Update,
    /// For reading and writing, even if other clients have it open.
    UpdateShared,
    /// Created with these permission bits; it must not exist.
    New(u32),
    /// For reading from one of several servers with the file: its calls take at most about this
    /// many seconds, and the client does not reopen it after a lost connection.
    Replica(u32),
}

impl Mode {
    /// Returns the header's numbers for mode and permission bits.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Read => (0, 0),
            Self::ReadShared => (4, 0),
            Self::Update => (1, 0),
            Self::UpdateShared => (1 | 4, 0),
            // Shared, so that creation reports an existing file even if a client has it open.
            Self::New(mode) => (2 | 4, mode),
            Self::Replica(_) => (8, 0),
        }
    }

    /// Returns the maximum duration of a call in seconds; 0 for the client's own settings.
    const fn seconds(self) -> u32 {
        match self {
            Self::Replica(seconds) => seconds,
            _ => 0,
        }
    }
}

/// Result of opening a file exclusively.
pub(crate) enum Alone {
    Opened(RemoteFile),
    /// Other clients have the file open; the server's message names them.
    Locked(String),
}

impl Client {
    /// Opens a file. If the file is to be created and another client has it open, the error is
    /// `AlreadyExists`.
    pub(crate) fn open(&'static self, url: &[u8], how: Mode) -> Result<RemoteFile> {
        match self.open_raw(url, how)? {
            Ok(file) => Ok(file),
            Err(raw) => {
                let mut error = failed(OPEN, &raw);
                if raw.kind == LOCKED && matches!(how, Mode::New(_)) {
                    error.kind = ErrorKind::AlreadyExists;
                    error.status = error.kind.default_status();
                }
                Err(error)
            }
        }
    }

    /// Opens a file for writing, exclusively. Only a file that others have open is `Locked`: an
    /// overloaded server gives another error.
    pub(crate) fn open_alone(&'static self, url: &[u8]) -> Result<Alone> {
        match self.open_raw(url, Mode::Update)? {
            Ok(file) => Ok(Alone::Opened(file)),
            Err(raw) if raw.kind == LOCKED => Ok(Alone::Locked(failed(OPEN, &raw).cause)),
            Err(raw) => Err(failed(OPEN, &raw)),
        }
    }

    /// Returns the handle, or the client's own error.
    fn open_raw(
        &'static self,
        url: &[u8],
        how: Mode,
    ) -> Result<std::result::Result<RemoteFile, Box<RawError>>> {
        let url = words(url)?;
        let mut file = std::ptr::null_mut();
        let ((how, mode), seconds) = (how.numbers(), how.seconds());
        let mut raw = Box::new(RawError::none());
        let (to, error) = (&raw mut file, &raw mut *raw);
        // SAFETY: text and room for the answers live until the call returns.
        let opened = unsafe { (self.open)(url.as_ptr(), how, mode, seconds, to, error) };
        if opened < 0 {
            return Ok(Err(raw));
        }
        match NonNull::new(file) {
            Some(file) => Ok(Ok(RemoteFile {
                client: self,
                file,
                seconds,
            })),
            None => Err(Error::new(ErrorKind::Internal, End::Source, OPEN)
                .cause("the XRootD client gave no handle")),
        }
    }

    /// Returns the state of a path on the server; the path may contain a question mark and
    /// parameters.
    pub(crate) fn look(&self, server: &str, path: &[u8]) -> Result<RemoteState> {
        let (server, path) = (words(server)?, words(path)?);
        let mut state = RawState::default();
        call("look at the file", |error| {
            // SAFETY: texts and room for the answers live until the call returns.
            let looked =
                unsafe { (self.look)(server.as_ptr(), path.as_ptr(), &raw mut state, error) };
            looked.into()
        })?;
        Ok(RemoteState::of(&state))
    }

    /// Lists one folder, in the server's order. An error beside entries means that some servers of
    /// a cluster have not answered, and the folder may contain more.
    pub(crate) fn list(&self, server: &str, path: &[u8]) -> Result<Entries> {
        let (server, path) = (words(server)?, words(path)?);
        let mut entries: Vec<(Result<Name>, RemoteState)> = Vec::new();
        let context = (&raw mut entries).cast::<c_void>();
        let listed = call("list the folder", |error| {
            // SAFETY: `take` is given back `context`, which is `entries` and nobody else's until the
            // call returns; the texts live as long.
            let listed =
                unsafe { (self.list)(server.as_ptr(), path.as_ptr(), take, context, error) };
            listed.into()
        });
        match listed {
            Err(error) if entries.is_empty() => Err(error),
            listed => Ok((entries, listed.err())),
        }
    }

    /// Returns the server's answer to a checksum request: "NAME VALUE".
    pub(crate) fn checksum(&self, server: &str, query: &[u8]) -> Result<String> {
        ask("ask for the checksum", self.checksum, server, query)
    }
}

/// Sends a request that is answered with a text.
fn ask(operation: &str, asked: Asked, server: &str, query: impl AsRef<[u8]>) -> Result<String> {
    let (server, query) = (words(server)?, words(query)?);
    said(operation, |to, error| {
        // SAFETY: `to` has ANSWER_BYTES bytes; the texts live until the call returns.
        unsafe { asked(server.as_ptr(), query.as_ptr(), to, ANSWER_BYTES, error) }
    })
}

/// Calls the client with a text buffer of ANSWER_BYTES bytes.
fn said(operation: &str, ask: impl FnOnce(*mut c_char, *mut RawError) -> i32) -> Result<String> {
    let mut answer = vec![0_u8; ANSWER_BYTES as usize];
    call(operation, |error| {
        ask(answer.as_mut_ptr().cast(), error).into()
    })?;
    let text = CStr::from_bytes_until_nul(&answer).map(CStr::to_string_lossy);
    Ok(text.unwrap_or_default().trim().to_owned())
}

/// Appends an entry of a folder to the vector behind `context`.
extern "C" fn take(
    context: *mut c_void,
    name: *const c_char,
    name_bytes: u64,
    state: *const RawState,
) -> i32 {
    let (Ok(length), false) = (
        usize::try_from(name_bytes),
        name.is_null() || state.is_null(),
    ) else {
        return 1;
    };
    // SAFETY: `list` hands in a vector of its own, and waits.
    let entries = unsafe { &mut *context.cast::<Vec<(Result<Name>, RemoteState)>>() };
    // SAFETY: the client gives as many bytes as it says, until this returns.
    let name = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) };
    // SAFETY: as the name.
    let state = unsafe { &*state };
    entries.push((Name::new(name), RemoteState::of(state)));
    0
}
