//! Reading one file by several connections.

use crate::client::{Found, RemoteFile, client};
use crate::url::Url;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How old the server's word on size and time may be: asking for each object would cost a round trip
/// each. Whoever publishes the copy asks once more (guess, revisit).
const STATE_AGE: Duration = Duration::from_secs(1);

/// One of a file's connections: opened when all before it are busy.
#[derive(Default)]
struct Slot {
    file: Mutex<Option<Arc<RemoteFile>>>,
    /// Reads under way.
    busy: AtomicU32,
}

/// A file of a server, open by one connection or more.
pub(crate) struct RemoteReader {
    url: Url,
    path: RelPath,
    slots: Vec<Slot>,
    pages: bool,
    /// Whether it may be opened once only.
    is_once: bool,
    seen: Mutex<(Found, Instant)>,
}

impl RemoteReader {
    /// Opens the file at the server of `url`, by the first of so many connections.
    pub(crate) fn open(
        url: &Url,
        path: &RelPath,
        (connections, pages, is_once): (u32, bool, bool),
    ) -> Result<Self> {
        let first = Arc::new(client()?.open(&url.at(path, 0)?)?);
        let found = first.state(false)?;
        if found.is_folder {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                End::Source,
                "open the file",
            ));
        }
        let count = if is_once { 1 } else { connections.max(1) };
        let slots: Vec<Slot> = (0..count).map(|_| Slot::default()).collect();
        if let Some(slot) = slots.first() {
            *slot.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
        }
        Ok(Self {
            url: url.clone(),
            path: path.clone(),
            slots,
            pages,
            is_once,
            seen: Mutex::new((found, Instant::now())),
        })
    }

    /// The connection with the fewest reads under way, the earliest of several.
    fn choose(&self) -> (usize, &Slot) {
        let mut best = (0, &self.slots[0]);
        let mut least = u32::MAX;
        for (number, slot) in self.slots.iter().enumerate() {
            let busy = slot.busy.load(Ordering::Relaxed);
            if busy < least {
                (best, least) = ((number, slot), busy);
            }
        }
        best
    }

    fn file(&self, number: usize, slot: &Slot) -> Result<Arc<RemoteFile>> {
        let mut file = slot.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        if self.is_once {
            return Err(lost());
        }
        let opened = Arc::new(client()?.open(&self.url.at(&self.path, number)?)?);
        *file = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// A connection that failed is not used again: whoever tries again gets another.
    fn forget(slot: &Slot, failed: &Arc<RemoteFile>) {
        let mut file = slot.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_ref().is_some_and(|file| Arc::ptr_eq(file, failed)) {
            *file = None;
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let (number, slot) = self.choose();
        slot.busy.fetch_add(1, Ordering::Relaxed);
        let read = self.file(number, slot).and_then(|file| {
            let read = file.read(offset, buffer, self.pages);
            let is_lost =
                |error: &Error| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut);
            if read.as_ref().is_err_and(is_lost) {
                Self::forget(slot, &file);
            }
            read
        });
        slot.busy.fetch_sub(1, Ordering::Relaxed);
        read
    }

    /// Size and time; no older than [`STATE_AGE`], or `anew`.
    pub(crate) fn found(&self, anew: bool) -> Result<Found> {
        let (found, at) = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !anew && at.elapsed() < STATE_AGE {
            return Ok(found);
        }
        let asked = Instant::now();
        let found = self.file(0, &self.slots[0])?.state(true)?;
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = (found, asked);
        Ok(found)
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, End::Source, "read the file")
        .cause("its connection was lost, and the permission to read it was for one opening")
        .remedy("ask for the copy again: it goes on from what is safe")
}

/// What a store gives out: handles of one opening may be many.
pub(crate) struct Handle(pub(crate) Arc<RemoteReader>);

impl ReadHandle for Handle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let reader = &self.0;
        let read = reader.read(offset, buffer);
        read.map_err(|error| error.file(&reader.path))
    }

    // One long read is one question to the server; its pieces would be as many round trips.
    fn is_direct(&self) -> bool {
        true
    }

    fn state(&self) -> Result<ReadState> {
        let found = self.0.found(false);
        let found = found.map_err(|error| error.file(&self.0.path))?;
        Ok(ReadState {
            size: found.size,
            modified: found.modified,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let rest = ByteRange::between(offset, self.state()?.size);
        Ok((!rest.is_empty()).then_some(rest))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}
