//! One control connection of the library. A session runs one operation at a time.
//!
//! The library calls back on its own threads. Each callback has its own reference to the state of
//! the session, so the state outlives every callback.

use crate::failure::Failure;
use crate::guarded::GuardedBuffer;
use crate::library::{Code, Handle, Library, library};
use dray_core::Result as Outcome;
use dray_core::lock::LockExt;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a server that sends nothing is given up. A server may have to open a file on
/// tape or on a slow disk first. The value is estimated, not measured.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Time for a checksum. A server without a stored checksum reads the whole file.
const CHECKSUM_MAX: Duration = Duration::from_secs(1800);

/// Maximum time to wait for the end of an aborted operation. The library closes the connection and
/// does not wait for the server, so the operation usually ends within milliseconds.
const ABORT_MAX: Duration = Duration::from_secs(10);

/// Bytes that the library may write at a time. A longer range is read in several pieces. The library
/// calls back when the buffer is full, so a slow server must fill it within [`SILENCE_MAX`].
const BUFFER_BYTES: usize = 256 << 10;

/// Maximum length of the listing of a folder, which bounds memory.
const LISTING_BYTES_MAX: usize = 256 << 20;

/// Bytes for the text of a checksum. A longer answer of the server ends the process (see
/// [`GuardedBuffer`]).
const CHECKSUM_BYTES: usize = 1 << 16;

type Result<T> = std::result::Result<T, Failure>;

/// Answer to one request for data.
struct Data {
    length: usize,
    offset: i64,
    is_last: bool,
    failed: Option<(u32, String)>,
}

/// Reports of the callbacks about the running operation.
#[derive(Default)]
struct Progress {
    data: Option<Data>,
    complete: Option<std::result::Result<(), (u32, String)>>,
}

/// State that a session shares with the callbacks.
struct Shared {
    library: &'static Library,
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Shared {
    /// Waits until `take` returns a value. Returns `None` if the time is over.
    fn wait<T>(&self, most: Duration, take: impl Fn(&mut Progress) -> Option<T>) -> Option<T> {
        let until = Instant::now() + most;
        let mut progress = self.progress.lock_unpoisoned();
        loop {
            if let Some(found) = take(&mut progress) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Describes the error of a callback, if there is one.
    ///
    /// # Safety
    /// `error` is null or an error object of the library.
    unsafe fn failed(&self, error: *mut c_void) -> Option<(u32, String)> {
        // SAFETY: the caller passes an error object if the pointer is not null.
        (!error.is_null()).then(|| unsafe { self.library.describe(error) })
    }
}

/// Memory that the library reads or writes. Its address does not change.
struct Memory {
    handle: Handle,
    handle_attributes: Handle,
    attributes: Handle,
    buffer: Box<[u8]>,
    /// Answer to MLST, which the library allocates.
    answer: *mut u8,
    answer_length: usize,
    checksum: Option<GuardedBuffer>,
}

/// A control connection. The first operation connects and authenticates.
pub(crate) struct Session {
    library: &'static Library,
    shared: Arc<Shared>,
    /// A pointer from [`Box::into_raw`]. The session frees it unless `is_abandoned`.
    memory: *mut Memory,
    /// True if an aborted operation has not ended, so the library may still use the memory.
    is_abandoned: bool,
}

// SAFETY: only one thread at a time uses a session, because its methods need `&mut`. The library
// may be called by any thread.
unsafe impl Send for Session {}

impl Session {
    /// Creates a session. Sends nothing.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Unsupported`] if the library cannot be loaded.
    pub(crate) fn new() -> Outcome<Self> {
        let library = library()?;
        let shared = Arc::new(Shared {
            library,
            progress: Mutex::default(),
            changed: Condvar::new(),
        });
        let memory = Box::into_raw(Box::new(Memory {
            handle: null_mut(),
            handle_attributes: null_mut(),
            attributes: null_mut(),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            answer: null_mut(),
            answer_length: 0,
            checksum: None,
        }));
        let mut session = Self {
            library,
            shared,
            memory,
            is_abandoned: false,
        };
        let made = session.initialise();
        made.map_err(|failure| {
            let root = dray_core::RelPath::root();
            failure.at(dray_core::End::Source, "open a GridFTP session", &root)
        })?;
        Ok(session)
    }

    fn initialise(&mut self) -> Result<()> {
        let (library, memory) = (self.library, self.memory);
        let name = c"dray".as_ptr();
        let version = concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast();
        // SAFETY: `memory` is valid, its address does not change, and no other reference to it
        // exists. The texts end with a zero byte, and the library copies them.
        let codes = unsafe {
            let attributes = &raw mut (*memory).handle_attributes;
            [
                (library.handleattr_init)(attributes),
                (library.handleattr_set_cache_all)(attributes, 1),
                (library.handleattr_set_clientinfo)(attributes, name, version, null_mut()),
                (library.handle_init)(&raw mut (*memory).handle, attributes),
                (library.operationattr_init)(&raw mut (*memory).attributes),
            ]
        };
        for code in codes {
            library
                .check(code)
                .map_err(|(code, text)| Failure::Reported(code, text))?;
        }
        Ok(())
    }

    /// Starts an operation. `start` calls the library with the handle, the attributes and the
    /// argument of the callback.
    fn start(&self, start: impl FnOnce(*mut Memory, *mut c_void) -> Code) -> Result<()> {
        *self.shared.progress.lock_unpoisoned() = Progress::default();
        let argument = Arc::into_raw(Arc::clone(&self.shared));
        let code = start(self.memory, argument.cast_mut().cast());
        self.library.check(code).map_err(|(code, text)| {
            // SAFETY: the library refused the operation, so it never calls back with the pointer.
            drop(unsafe { Arc::from_raw(argument) });
            Failure::Reported(code, text)
        })
    }

    /// Waits until the operation has ended.
    fn complete(&mut self, most: Duration) -> Result<()> {
        let ended = self.shared.wait(most, |progress| progress.complete.take());
        match ended {
            Some(Ok(())) => Ok(()),
            Some(Err((code, text))) => Err(Failure::Reported(code, text)),
            None => {
                self.abort();
                Err(Failure::Silent(most.as_secs()))
            }
        }
    }

    /// Ends the running operation. The session cannot be used afterwards.
    fn abort(&mut self) {
        // SAFETY: `memory` is valid. An error means that the operation has ended.
        let code = unsafe { (self.library.abort)(&raw mut (*self.memory).handle) };
        // The reason does not matter, but the library keeps the error until it is looked up.
        let _ = self.library.check(code);
        let ended = self
            .shared
            .wait(ABORT_MAX, |progress| progress.complete.take());
        self.is_abandoned = ended.is_none();
    }

    /// Returns the answer to MLST: the facts about the file or folder.
    pub(crate) fn facts(&mut self, url: &CStr) -> Result<Vec<u8>> {
        let library = self.library;
        // SAFETY: the pointers to `memory` are valid until the operation has ended, and the library
        // copies the URL.
        self.start(|memory, argument| unsafe {
            (library.mlst)(
                &raw mut (*memory).handle,
                url.as_ptr(),
                &raw mut (*memory).attributes,
                &raw mut (*memory).answer,
                &raw mut (*memory).answer_length,
                on_complete,
                argument,
            )
        })?;
        self.complete(SILENCE_MAX)?;
        // SAFETY: the operation has ended, so the library does not use `memory`.
        let memory = unsafe { &mut *self.memory };
        if memory.answer.is_null() {
            return Err(Failure::Broken("the server's answer to MLST has no facts"));
        }
        // SAFETY: the library allocated an answer of this length.
        let bytes = unsafe { std::slice::from_raw_parts(memory.answer, memory.answer_length) };
        let bytes = bytes.to_vec();
        // SAFETY: the library allocated the answer for the caller, and nothing uses it any more.
        unsafe { (library.free)(memory.answer.cast()) };
        memory.answer = null_mut();
        Ok(bytes)
    }

    /// Returns the answer to MLSD: one line for each entry of the folder.
    pub(crate) fn entries(&mut self, url: &CStr) -> Result<Vec<u8>> {
        let library = self.library;
        // SAFETY: as in `facts`.
        self.start(|memory, argument| unsafe {
            (library.machine_list)(
                &raw mut (*memory).handle,
                url.as_ptr(),
                &raw mut (*memory).attributes,
                on_complete,
                argument,
            )
        })?;
        let mut listing = Vec::new();
        self.transfer(|_, bytes| {
            if listing.len() + bytes.len() > LISTING_BYTES_MAX {
                return Err(Failure::Broken("the listing is longer than 256 MiB"));
            }
            listing.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(listing)
    }

    /// Reads the range at `offset`. Returns the number of bytes, which is smaller than the length of
    /// `into` only if the file ends in the range.
    pub(crate) fn read(&mut self, url: &CStr, offset: u64, into: &mut [u8]) -> Result<usize> {
        let too_far = || Failure::Broken("the offset is larger than the protocol permits");
        let first = i64::try_from(offset).map_err(|_| too_far())?;
        let length = i64::try_from(into.len()).map_err(|_| too_far())?;
        let end = first.checked_add(length).ok_or_else(too_far)?;
        let library = self.library;
        // SAFETY: as in `facts`.
        self.start(|memory, argument| unsafe {
            (library.partial_get)(
                &raw mut (*memory).handle,
                url.as_ptr(),
                &raw mut (*memory).attributes,
                null_mut(),
                first,
                end,
                on_complete,
                argument,
            )
        })?;
        let mut filled = 0;
        self.transfer(|at, bytes| {
            // In stream mode the bytes arrive in order.
            if bytes.is_empty() {
                return Ok(());
            }
            let is_next = u64::try_from(at) == Ok(offset + filled as u64);
            let place = into.get_mut(filled..filled + bytes.len());
            let place = place.filter(|_| is_next).ok_or(Failure::Broken(
                "the server sent bytes out of order, or outside the requested range",
            ))?;
            place.copy_from_slice(bytes);
            filled += bytes.len();
            Ok(())
        })?;
        Ok(filled)
    }

    /// Receives the data of the started operation, and waits until the operation has ended. Calls
    /// `take` with the offset and the bytes of each piece.
    fn transfer(&mut self, mut take: impl FnMut(i64, &[u8]) -> Result<()>) -> Result<()> {
        loop {
            let argument = Arc::into_raw(Arc::clone(&self.shared));
            // SAFETY: the buffer is valid until the operation has ended, and this function does not
            // read it before the callback.
            let code = unsafe {
                let buffer = (*self.memory).buffer.as_mut_ptr();
                let handle = &raw mut (*self.memory).handle;
                let argument = argument.cast_mut().cast();
                (self.library.register_read)(handle, buffer, BUFFER_BYTES, on_data, argument)
            };
            if self.library.check(code).is_err() {
                // SAFETY: the library refused the request, so it never calls back.
                drop(unsafe { Arc::from_raw(argument) });
                // The operation has failed before. `complete` returns its error.
                self.complete(SILENCE_MAX)?;
                return Err(Failure::Broken("the server sent no data"));
            }
            let data = self
                .shared
                .wait(SILENCE_MAX, |progress| progress.data.take());
            let Some(data) = data else {
                self.abort();
                return Err(Failure::Silent(SILENCE_MAX.as_secs()));
            };
            if let Some((code, text)) = data.failed {
                // The error of the operation also contains the server's answer.
                self.complete(SILENCE_MAX)?;
                return Err(Failure::Reported(code, text));
            }
            // SAFETY: the callback has returned the buffer, and the length is within the buffer.
            let bytes = unsafe { &(&(*self.memory).buffer)[..data.length.min(BUFFER_BYTES)] };
            if let Err(failure) = take(data.offset, bytes) {
                self.abort();
                return Err(failure);
            }
            if data.is_last {
                return self.complete(SILENCE_MAX);
            }
        }
    }

    /// Returns the server's checksum of the whole file as text.
    pub(crate) fn checksum(&mut self, url: &CStr, algorithm: &CStr) -> Result<String> {
        let library = self.library;
        let mut buffer = GuardedBuffer::new(CHECKSUM_BYTES)
            .map_err(|error| Failure::Reported(0, format!("no memory for a checksum: {error}")))?;
        let text = buffer.as_mut_ptr();
        // SAFETY: as in `facts`. The buffer belongs to `memory`, so it is valid until the operation
        // has ended.
        self.start(|memory, argument| unsafe {
            (*memory).checksum = Some(buffer);
            (library.checksum)(
                &raw mut (*memory).handle,
                url.as_ptr(),
                &raw mut (*memory).attributes,
                text,
                0,
                -1,
                algorithm.as_ptr(),
                on_complete,
                argument,
            )
        })?;
        self.complete(CHECKSUM_MAX)?;
        // SAFETY: the operation has ended, so the library does not use `memory`.
        let buffer = unsafe { &mut (*self.memory).checksum }.take();
        let bytes = buffer.as_ref().map_or(&[][..], GuardedBuffer::bytes);
        let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_abandoned {
            return;
        }
        // SAFETY: no operation runs, so the library does not use the memory after the calls below.
        // Nothing else uses the pointer after `drop`. A handle that was not created is null.
        unsafe {
            let mut memory = Box::from_raw(self.memory);
            let codes = [
                (self.library.handle_destroy)(&raw mut memory.handle),
                (self.library.operationattr_destroy)(&raw mut memory.attributes),
                (self.library.handleattr_destroy)(&raw mut memory.handle_attributes),
            ];
            for code in codes {
                // An error cannot be reported here, but the library keeps it until it is looked up.
                let _ = self.library.check(code);
            }
            if !memory.answer.is_null() {
                (self.library.free)(memory.answer.cast());
            }
        }
    }
}

/// Notes the end of an operation.
///
/// # Safety
/// `argument` is the pointer that [`Session::start`] passed to the library, and is not used again.
unsafe extern "C" fn on_complete(argument: *mut c_void, _: *mut Handle, error: *mut c_void) {
    // SAFETY: `start` made the pointer by `Arc::into_raw`, and the library calls back once.
    let shared = unsafe { Arc::from_raw(argument.cast_const().cast::<Shared>()) };
    // SAFETY: the library passes null or an error object.
    let failed = unsafe { shared.failed(error) };
    shared.progress.lock_unpoisoned().complete = Some(failed.map_or(Ok(()), Err));
    shared.changed.notify_all();
}

/// Notes the arrival of data.
///
/// # Safety
/// `argument` is the pointer that [`Session::transfer`] passed to the library, and is not used
/// again.
unsafe extern "C" fn on_data(
    argument: *mut c_void,
    _: *mut Handle,
    error: *mut c_void,
    _buffer: *mut u8,
    length: usize,
    offset: i64,
    is_last: c_int,
) {
    // SAFETY: `transfer` made the pointer by `Arc::into_raw`, and the library calls back once.
    let shared = unsafe { Arc::from_raw(argument.cast_const().cast::<Shared>()) };
    // SAFETY: the library passes null or an error object.
    let failed = unsafe { shared.failed(error) };
    shared.progress.lock_unpoisoned().data = Some(Data {
        length,
        offset,
        is_last: is_last != 0,
        failed,
    });
    shared.changed.notify_all();
}
