//! Bindings to dray's shared library with a C interface to the XRootD client.
//! plugins/xrootd/xrdcl/dray_xrdcl.h describes the functions of this library. No other module calls
//! it.

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

/// Environment variable with the path of the library, if the library is not in the folder of the
/// program.
pub const LIBRARY_VARIABLE: &str = "DRAY_XRDCL";

const LIBRARY: &str = "libdray-xrdcl.so";
/// Value of `DRAY_XRDCL_VERSION` in the header.
const VERSION: u32 = 5;
/// Value of `DRAY_XRDCL_DIRECTORY` in the header.
const DIRECTORY: u32 = 1;
/// Value of `DRAY_XRDCL_SPECIAL` in the header.
const SPECIAL: u32 = 2;
/// Kind in an error structure that contains no error.
const NO_ERROR: i32 = -1;
/// Value of `DRAY_XRDCL_LOCKED` in the header.
const LOCKED: i32 = 17;
/// Value of `DRAY_XRDCL_NO_ATTRIBUTE` in the header.
const NO_ATTRIBUTE: i32 = 18;
/// Size in bytes of the field `dray_xrdcl_error.words`.
const WORDS_BYTES: usize = 1020;
/// Name of the operation in errors of opening a file.
const OPEN: &str = "open the file";
/// Maximum length in bytes of the answer to a checksum request. A name has at most 16 bytes, and a
/// value at most 128.
const ANSWER_BYTES: u32 = 512;

/// The structure `dray_xrdcl_error` of the header.
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

/// The structure `dray_xrdcl_state` of the header.
#[repr(C)]
#[derive(Default)]
struct RawState {
    size: u64,
    modified: i64,
    flags: u32,
    zero: u32,
    id: u64,
}

/// The structure `dray_xrdcl_file` of the header.
#[repr(C)]
struct RawFile {
    _opaque: [u8; 0],
}

type Take = extern "C" fn(*mut c_void, *const c_char, u64, *const RawState) -> i32;

/// State of the entry at a path on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteState {
    pub(crate) size: u64,
    pub(crate) modified: ModifiedTime,
    pub(crate) is_folder: bool,
    pub(crate) is_special: bool,
    /// Number of the file at its server; 0 if the server does not send one.
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

/// The entries of a folder. The error is set if the list may be incomplete.
pub(crate) type Entries = (Vec<(Result<Name>, RemoteState)>, Option<Error>);

type Words<'a> = *const c_char;

/// Functions of the loaded library. The library is never unloaded, because its threads run until
/// the process ends.
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

/// Type of a library function that sends a request and returns text.
type Asked =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut c_char, u32, *mut RawError) -> i32;

static CLIENT: OnceLock<Result<Client>> = OnceLock::new();

/// Settings of the client: the number of attempts to connect to a server, and the seconds of each
/// attempt. If a server refuses the connection, the client waits for the rest of these seconds
/// before the next attempt. The defaults of the client are five attempts of two minutes. With them,
/// a user with a wrong port would wait four times two minutes for a message, and signals would have
/// no effect. The environment variables `XRD_CONNECTIONRETRY` and `XRD_CONNECTIONWINDOW` override
/// these settings.
const REACHING: [(&CStr, i32); 2] = [(c"ConnectionRetry", 2), (c"ConnectionWindow", 15)];

/// Returns the client. The first call loads the library.
///
/// # Errors
/// [`ErrorKind::Unsupported`]. The error says which software must be built or installed.
pub(crate) fn client() -> Result<&'static Client> {
    CLIENT.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Sets the number of data streams for each login connection. The client uses data streams only
/// with servers that permit them. Call this function before the first URL is used. With 0 or 1, all
/// data uses the login connection.
///
/// # Errors
/// An error if the library cannot be loaded.
pub fn set_substreams(count: u32) -> Result<()> {
    let name = words("SubStreamsPerChannel")?;
    let count = streams::of_channel(count);
    let client = client()?;
    // SAFETY: the text lives until the call returns.
    unsafe { (client.set)(name.as_ptr(), count) };
    Ok(())
}

unsafe extern "C" {
    /// The system call `_exit(2)`. The call is safe, because `_exit` has no preconditions.
    safe fn _exit(status: c_int) -> !;
}

/// Ends the process. If the library was loaded, no exit handlers run, because the handlers of XrdCl
/// destroy objects that its threads and unfinished calls still use.
pub fn end_process(code: u8) -> ! {
    if CLIENT.get().is_none() {
        std::process::exit(code.into());
    }
    // Ignore an error, because no later code could write the output either.
    let _ = std::io::stdout().flush();
    _exit(code.into())
}

/// Returns the possible paths of the library, in the order in which they are tried.
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
    // A name without a slash. The loader searches for it in the library folders of the system.
    places.push(LIBRARY.into());
    places
}

fn load() -> Result<Client> {
    let mut tried = Vec::new();
    for place in places() {
        if place.as_os_str().as_bytes().contains(&b'/') && !place.exists() {
            tried.push(format!("{}: no such file", place.display()));
            continue;
        }
        // SAFETY: the library is dray's own, or the user of this process has named it. Loading it
        // runs only the initialisation of XrdCl.
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
            "build {LIBRARY} with `make build-xrootd` (Debian: install libxrootd-client-dev), and \
                put the library beside the program or set {LIBRARY_VARIABLE} to its path"
        ))
}

fn from(library: Library, place: &OsString) -> Result<Client> {
    let wrong = |error: libloading::Error| unusable(format!("{}: {error}", place.display()));
    // SAFETY: the type is that in the header, and it is the same in all versions of the header.
    let version: unsafe extern "C" fn() -> u32 =
        unsafe { *library.get(b"dray_xrdcl_version").map_err(wrong)? };
    // SAFETY: the function has no preconditions.
    let found = unsafe { version() };
    if found != VERSION {
        let cause = format!(
            "{} has version {found}, but version {VERSION} is needed",
            place.display()
        );
        return Err(unusable(cause));
    }
    macro_rules! entry {
        ($name:literal) => {
            // SAFETY: the types in this file are those in this version of the header.
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
            .cause("the name contains a zero byte")
    })
}

/// Calls a library function with an error structure, and converts the result.
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
    // Make one line of the message. Remove the tag `[ERROR]` at its start, because the tag has no
    // meaning for users of dray.
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
            error.remedy("ask for permission at the server, or use another path")
        }
        _ => error,
    }
}

/// Says how to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// For reading. Fails with [`ErrorKind::Busy`] if another client has the file open for writing.
    Read,
    /// For reading, even if another client has the file open for writing.
    ReadShared,
    /// For reading and writing, exclusively. Fails if any client has the file open.
    Update,
    /// For reading and writing, even if other clients have it open.
    UpdateShared,
    /// Create the file with these permission bits. The file must not exist.
    New(u32),
    /// For reading one of several replicas. Each call takes at most about this number of seconds,
    /// and the client does not reopen the file after a lost connection.
    Replica(u32),
}

impl Mode {
    /// Returns the numbers in the header for the mode and the permission bits.
    const fn numbers(self) -> (u32, u32) {
        match self {
            Self::Read => (0, 0),
            Self::ReadShared => (4, 0),
            Self::Update => (1, 0),
            Self::UpdateShared => (1 | 4, 0),
            // Open the file as shared. Otherwise the server would report an open file as locked,
            // and not as existing.
            Self::New(mode) => (2 | 4, mode),
            Self::Replica(_) => (8, 0),
        }
    }

    /// Returns the maximum duration of a call in seconds; 0 means the client's own setting.
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
    /// Other clients have the file open. Contains the server's message about these clients.
    Locked(String),
}

impl Client {
    /// Opens a file. If the file must be created and another client has it open, the error is
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

    /// Opens a file for writing, exclusively. The result is `Locked` only if other clients have the
    /// file open. An overloaded server gives another error.
    pub(crate) fn open_alone(&'static self, url: &[u8]) -> Result<Alone> {
        match self.open_raw(url, Mode::Update)? {
            Ok(file) => Ok(Alone::Opened(file)),
            Err(raw) if raw.kind == LOCKED => Ok(Alone::Locked(failed(OPEN, &raw).cause)),
            Err(raw) => Err(failed(OPEN, &raw)),
        }
    }

    /// Returns the handle of the opened file, or the error structure of the client.
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
        // SAFETY: the text and the buffers for the results live until the call returns.
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
                .cause("the XRootD client returned no file handle")),
        }
    }

    /// Returns the state of a path on the server. The path may contain a question mark and
    /// parameters.
    pub(crate) fn look(&self, server: &str, path: &[u8]) -> Result<RemoteState> {
        let (server, path) = (words(server)?, words(path)?);
        let mut state = RawState::default();
        call("read the attributes of the file", |error| {
            // SAFETY: the texts and the buffers for the results live until the call returns.
            let looked =
                unsafe { (self.look)(server.as_ptr(), path.as_ptr(), &raw mut state, error) };
            looked.into()
        })?;
        Ok(RemoteState::of(&state))
    }

    /// Lists one folder in the order of the server. If the result contains an error, some servers
    /// of a cluster have not answered, and the list may be incomplete.
    pub(crate) fn list(&self, server: &str, path: &[u8]) -> Result<Entries> {
        let (server, path) = (words(server)?, words(path)?);
        let mut entries: Vec<(Result<Name>, RemoteState)> = Vec::new();
        let context = (&raw mut entries).cast::<c_void>();
        let listed = call("list the folder", |error| {
            // SAFETY: the library passes `context` to `take`. `context` is `entries`, which no
            // other code uses until the call returns. The texts live until the call returns.
            let listed =
                unsafe { (self.list)(server.as_ptr(), path.as_ptr(), take, context, error) };
            listed.into()
        });
        match listed {
            Err(error) if entries.is_empty() => Err(error),
            listed => Ok((entries, listed.err())),
        }
    }

    /// Returns the server's answer to a checksum request, as "NAME VALUE".
    pub(crate) fn checksum(&self, server: &str, query: &[u8]) -> Result<String> {
        ask("get the checksum", self.checksum, server, query)
    }
}

/// Sends a request whose answer is text.
fn ask(operation: &str, asked: Asked, server: &str, query: impl AsRef<[u8]>) -> Result<String> {
    let (server, query) = (words(server)?, words(query)?);
    said(operation, |to, error| {
        // SAFETY: `to` has ANSWER_BYTES bytes. The texts live until the call returns.
        unsafe { asked(server.as_ptr(), query.as_ptr(), to, ANSWER_BYTES, error) }
    })
}

/// Calls a library function that writes text to a buffer of ANSWER_BYTES bytes, and returns the
/// text.
fn said(operation: &str, ask: impl FnOnce(*mut c_char, *mut RawError) -> i32) -> Result<String> {
    let mut answer = vec![0_u8; ANSWER_BYTES as usize];
    call(operation, |error| {
        ask(answer.as_mut_ptr().cast(), error).into()
    })?;
    let text = CStr::from_bytes_until_nul(&answer).map(CStr::to_string_lossy);
    Ok(text.unwrap_or_default().trim().to_owned())
}

/// Callback that appends an entry of a folder to the vector in `context`.
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
    // SAFETY: `context` is the vector of `list`, which does not use the vector until the library
    // call returns.
    let entries = unsafe { &mut *context.cast::<Vec<(Result<Name>, RemoteState)>>() };
    // SAFETY: `name` has `length` bytes, and they live until this function returns.
    let name = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), length) };
    // SAFETY: the state lives until this function returns.
    let state = unsafe { &*state };
    entries.push((Name::new(name), RemoteState::of(state)));
    0
}
