//! Reading one file by several connections.

use crate::client::{Found, Mode, RemoteFile, client};
use crate::key;
use crate::url::Url;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How old the server's word on size and time may be while more of the file is read: asking for each
/// object would cost a round trip each. After the last of the reads it is always asked (guess, revisit).
const STATE_AGE: Duration = Duration::from_secs(1);

/// One of a file's connections: opened when all before it are busy.
#[derive(Default)]
struct Slot {
    file: Mutex<Option<Arc<RemoteFile>>>,
    /// Reads under way.
    busy: AtomicU32,
    /// Reads that have ended.
    ended: AtomicU64,
    /// How many of them ended before the server was last asked by this connection for size and time.
    judged: AtomicU64,
    /// It has opened another version of the file, and is left alone.
    is_other: AtomicBool,
}

impl Slot {
    fn has_unjudged(&self) -> bool {
        self.ended.load(Ordering::SeqCst) != self.judged.load(Ordering::SeqCst)
    }
}

/// What the server has said of size and time.
struct Seen {
    found: Found,
    at: Instant,
    /// Another answer than at the opening has come: what was read is of no one version.
    has_changed: bool,
}

/// How a file is opened and read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// Connections at the most.
    pub(crate) connections: u32,
    /// Whether each page comes with a checksum.
    pub(crate) pages: bool,
    /// Whether it may be opened once only.
    pub(crate) is_once: bool,
    /// How long a call may take, where another server has the file too.
    pub(crate) seconds: Option<u32>,
}

impl How {
    fn mode(self) -> Mode {
        self.seconds.map_or(Mode::Read, Mode::Replica)
    }
}

/// A file of a server, open by one connection or more.
pub(crate) struct RemoteReader {
    url: Url,
    path: RelPath,
    slots: Vec<Slot>,
    how: How,
    seen: Mutex<Seen>,
}

impl RemoteReader {
    /// Opens the file at the server of `url`, by the first of its connections.
    pub(crate) fn open(url: &Url, path: &RelPath, how: How) -> Result<Self> {
        let at = url.at(path, 0)?;
        let first = Arc::new(match how.is_once {
            true => key::open(&at)?,
            false => client()?.open(&at, how.mode())?,
        });
        let found = first.state(false)?;
        if found.is_folder {
            return Err(Error::new(
                ErrorKind::IsADirectory,
                End::Source,
                "open the file",
            ));
        }
        let count = match how.is_once {
            true => 1,
            false => how.connections.max(1),
        };
        let slots: Vec<Slot> = (0..count).map(|_| Slot::default()).collect();
        if let Some(slot) = slots.first() {
            *slot.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
        }
        Ok(Self {
            url: url.clone(),
            path: path.clone(),
            slots,
            how,
            seen: Mutex::new(Seen {
                found,
                at: Instant::now(),
                has_changed: false,
            }),
        })
    }

    /// Size and time when it was opened.
    pub(crate) fn opened(&self) -> Found {
        self.seen().found
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection with the fewest reads under way, the earliest of several.
    fn choose(&self) -> (usize, &Slot) {
        let mut best = (0, &self.slots[0]);
        let mut least = u32::MAX;
        for (number, slot) in self.slots.iter().enumerate() {
            let busy = slot.busy.load(Ordering::SeqCst);
            if busy < least && !slot.is_other.load(Ordering::Relaxed) {
                (best, least) = ((number, slot), busy);
            }
        }
        best
    }

    /// The file as a connection has it open; it is opened if it is not. None: what stands there now is
    /// another version than was opened first, and nothing was read by this connection.
    fn file(&self, number: usize, slot: &Slot) -> Result<Option<Arc<RemoteFile>>> {
        let mut file = slot.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Some(Arc::clone(file)));
        }
        if self.how.is_once {
            return Err(lost());
        }
        let opened = Arc::new(client()?.open(&self.url.at(&self.path, number)?, self.how.mode())?);
        // It came with the opening: nothing more is asked.
        if !is_same(&opened.state(false)?, &self.seen().found) {
            // The first still reads what it has opened; and of a cluster's replicas each has its own time.
            if number > 0 && slot.ended.load(Ordering::SeqCst) == 0 {
                slot.is_other.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            return Err(self.changed());
        }
        *file = Some(Arc::clone(&opened));
        Ok(Some(opened))
    }

    /// From now on nothing that is read counts.
    fn changed(&self) -> Error {
        self.seen().has_changed = true;
        changed()
    }

    /// A connection that failed is not used again: whoever tries again gets another.
    fn forget(slot: &Slot, failed: &Arc<RemoteFile>) {
        let mut file = slot.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_ref().is_some_and(|file| Arc::ptr_eq(file, failed)) {
            *file = None;
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.by_any(|number, slot| self.read_by(number, slot, offset, buffer))
    }

    /// Reads, and asks by the same connection for size and time before anything is given out. Tells how
    /// long that took, without what it took to open a connection.
    pub(crate) fn read_and_ask(&self, offset: u64, buffer: &mut [u8]) -> Result<(usize, Duration)> {
        self.by_any(|number, slot| {
            if self.file(number, slot)?.is_none() {
                return Ok(None);
            }
            let began = Instant::now();
            let read = self.read_by(number, slot, offset, buffer)?;
            if read.is_some() {
                self.judge(number, slot)?;
            }
            Ok(read.map(|read| (read, began.elapsed())))
        })
    }

    /// By the connection that has the least to do; by another one where it reads nothing.
    fn by_any<T>(&self, mut read: impl FnMut(usize, &Slot) -> Result<Option<T>>) -> Result<T> {
        loop {
            let (number, slot) = self.choose();
            slot.busy.fetch_add(1, Ordering::SeqCst);
            let read = read(number, slot);
            slot.busy.fetch_sub(1, Ordering::SeqCst);
            if let Some(read) = read.transpose() {
                return read;
            }
        }
    }

    /// None: not by this connection.
    fn read_by(
        &self,
        number: usize,
        slot: &Slot,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(file) = self.file(number, slot)? else {
            return Ok(None);
        };
        let read = file.read(offset, buffer, self.how.pages);
        // Before it counts as idle: whoever finds all idle knows of all that was read.
        slot.ended.fetch_add(1, Ordering::SeqCst);
        Self::forget_if_lost(slot, &file, &read);
        read.map(Some)
    }

    /// Size and time, as the server knew them after the last read that has ended, or `anew`. While other
    /// reads are under way, whose end will ask again, up to [`STATE_AGE`] old.
    pub(crate) fn found(&self, anew: bool) -> Result<Found> {
        let is_idle = |slot: &Slot| slot.busy.load(Ordering::SeqCst) == 0;
        let are_others = !self.slots.iter().all(is_idle);
        let has_unjudged = self.slots.iter().any(Slot::has_unjudged);
        {
            let seen = self.seen();
            if seen.has_changed {
                return Err(changed());
            }
            let is_young = seen.at.elapsed() < STATE_AGE;
            if !anew && is_young && (are_others || !has_unjudged) {
                return Ok(seen.found);
            }
        }
        let asked = Instant::now();
        // Each by itself: the client opens a file anew when its connection is lost, and may so have
        // come to another version by one connection alone.
        for (number, slot) in self.slots.iter().enumerate() {
            if number == 0 || slot.has_unjudged() {
                self.judge(number, slot)?;
            }
        }
        let mut seen = self.seen();
        if seen.has_changed {
            return Err(changed());
        }
        seen.at = asked;
        Ok(seen.found)
    }

    /// Asks the server something about the file, by the first connection's opening of it.
    pub(crate) fn ask(&self, question: &str, wait: Duration) -> Result<String> {
        let Some(file) = self.file(0, &self.slots[0])? else {
            return Err(lost());
        };
        file.ask(question, wait)
    }

    /// Asks by one connection for size and time, and compares with those of the opening.
    fn judge(&self, number: usize, slot: &Slot) -> Result<()> {
        let ended = slot.ended.load(Ordering::SeqCst);
        let Some(file) = self.file(number, slot)? else {
            return Ok(());
        };
        let found = file.state(true);
        Self::forget_if_lost(slot, &file, &found);
        if !is_same(&found?, &self.seen().found) {
            return Err(self.changed());
        }
        slot.judged.fetch_max(ended, Ordering::SeqCst);
        Ok(())
    }

    fn forget_if_lost<T>(slot: &Slot, file: &Arc<RemoteFile>, answer: &Result<T>) {
        let is_lost =
            |error: &Error| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut);
        if answer.as_ref().is_err_and(is_lost) {
            Self::forget(slot, file);
        }
    }
}

fn is_same(one: &Found, other: &Found) -> bool {
    one.size == other.size && one.modified == other.modified
}

fn changed() -> Error {
    Error::new(ErrorKind::SourceChanged, End::Source, "read the file")
        .cause("its size or modification time is another than when it was opened")
        .remedy("run the same command again once the file is left alone")
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
