//! Reads one file over several connections.

use crate::client::{Mode, RemoteFile, RemoteState, client};
use crate::key;
use crate::url::Url;
use dray_core::lock::LockExt;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use dray_store::{ReadHandle, ReadState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// While reads are in progress, the server is asked again for the size and time only if its last
/// answer is older than this. A query after each object would cost one round trip per object. After
/// the last read, the server is always asked. The value is estimated, not measured.
const STATE_AGE: Duration = Duration::from_secs(1);

/// A connection of a file. It is opened when all earlier connections are busy.
#[derive(Default)]
struct Slot {
    file: Mutex<Option<Arc<RemoteFile>>>,
    /// Number of reads in progress.
    busy: AtomicU32,
    /// Number of completed reads.
    ended: AtomicU64,
    /// Number of completed reads at the last query of size and time over this connection.
    judged: AtomicU64,
    /// True if another version of the file was opened on this connection. The connection is then
    /// not used.
    is_other: AtomicBool,
}

impl Slot {
    fn has_unjudged(&self) -> bool {
        self.ended.load(Ordering::SeqCst) != self.judged.load(Ordering::SeqCst)
    }
}

/// The last size and time that the server sent.
struct LastState {
    found: RemoteState,
    at: Instant,
    /// True if the server has sent a state that differs from the state at the opening. The bytes
    /// read may then come from different versions.
    has_changed: bool,
}

/// Options for reading a file.
#[derive(Debug, Clone)]
pub(crate) struct How {
    /// Maximum number of connections.
    pub(crate) connections: u32,
    /// True if the server must send a checksum for each page.
    pub(crate) pages: bool,
    /// True if the file may be opened only once.
    pub(crate) is_once: bool,
    /// Maximum duration of a call in seconds. Set if another server has the file too.
    pub(crate) seconds: Option<u32>,
    /// `Some` if a new modification time is not an error, as long as the size is the same. If the
    /// reader finds a new time, it sets the flag to true. The caller then compares the checksum of
    /// the whole file, because only the checksum shows whether the content has changed.
    pub(crate) new_time: Option<Arc<AtomicBool>>,
}

impl How {
    fn mode(&self) -> Mode {
        self.seconds.map_or(Mode::Read, Mode::Replica)
    }

    /// Returns true if only the time of the file differs and a new time is not an error.
    fn accepts(&self, before: &RemoteState, now: &RemoteState) -> bool {
        let is_same_file = before.size == now.size && before.is_folder == now.is_folder;
        match &self.new_time {
            Some(new_time) if is_same_file => {
                new_time.store(true, Ordering::SeqCst);
                true
            }
            _ => false,
        }
    }
}

/// A file on a server, open on one or more connections.
pub(crate) struct RemoteReader {
    url: Url,
    path: RelPath,
    slots: Vec<Slot>,
    how: How,
    seen: Mutex<LastState>,
}

impl RemoteReader {
    /// Opens the file at the server of `url` on the first connection.
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
            *slot.file.lock_unpoisoned() = Some(first);
        }
        Ok(Self {
            url: url.clone(),
            path: path.clone(),
            slots,
            how,
            seen: Mutex::new(LastState {
                found,
                at: Instant::now(),
                has_changed: false,
            }),
        })
    }

    /// Returns the size and time of the file when it was opened.
    pub(crate) fn opened(&self) -> RemoteState {
        self.seen().found
    }

    /// Treats the open file as the version that was listed with the same size but another time.
    /// Returns false if this reader does not accept a new time.
    pub(crate) fn assume(&self, listed: &ReadState) -> bool {
        let mut seen = self.seen();
        let before = RemoteState {
            modified: listed.modified,
            ..seen.found
        };
        let is_accepted = seen.found.size == listed.size && self.how.accepts(&before, &seen.found);
        if is_accepted {
            seen.found = before;
        }
        is_accepted
    }

    /// Returns true if the file may still be the version that was opened first.
    fn is_accepted(&self, now: &RemoteState) -> bool {
        let opened = self.seen().found;
        is_same(now, &opened) || self.how.accepts(&opened, now)
    }

    fn seen(&self) -> MutexGuard<'_, LastState> {
        self.seen.lock_unpoisoned()
    }

    /// Returns the connection with the fewest reads in progress. If several are equal, returns the
    /// first.
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

    /// Returns the file on a connection, and opens it if necessary. Returns `None` if the server
    /// now has another version than the version that was opened first, and this connection has read
    /// nothing.
    fn file(&self, number: usize, slot: &Slot) -> Result<Option<Arc<RemoteFile>>> {
        let mut file = slot.file.lock_unpoisoned();
        if let Some(file) = &*file {
            return Ok(Some(Arc::clone(file)));
        }
        if self.how.is_once {
            return Err(lost());
        }
        let opened = Arc::new(client()?.open(&self.url.at(&self.path, number)?, self.how.mode())?);
        // The server sent the state with the answer to the opening, so this call sends no request.
        let found = opened.state(false)?;
        // Do not use a new connection that found another state than the first connection. Either
        // the file was replaced and the first connection still reads the old version, or the two
        // connections read different replicas in a cluster, whose times differ. But if the server
        // now sends a new time over the first connection too, it changes the time of the file at
        // each read. Then every later connection finds a new time, and is used.
        let is_new = number > 0 && slot.ended.load(Ordering::SeqCst) == 0;
        let is_other = is_new && !is_same(&found, &self.seen().found);
        if is_other && !(self.accepts_time(&found) && self.has_first_new_time()?) {
            slot.is_other.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        if !self.is_accepted(&found) {
            return Err(self.changed());
        }
        *file = Some(Arc::clone(&opened));
        Ok(Some(opened))
    }

    /// Returns true if the reader tolerates a new time of the file, and the size is unchanged.
    fn accepts_time(&self, found: &RemoteState) -> bool {
        self.how.new_time.is_some() && found.size == self.seen().found.size
    }

    /// Asks the server for the state of the file over the first connection. Returns true if the
    /// server sends another time than before.
    fn has_first_new_time(&self) -> Result<bool> {
        let first = &self.slots[0];
        let Some(file) = self.file(0, first)? else {
            return Ok(false);
        };
        let now = file.state(true);
        Self::forget_if_lost(first, &file, &now);
        Ok(now?.modified != self.seen().found.modified)
    }

    /// Marks the file as changed, so that later reads fail.
    fn changed(&self) -> Error {
        self.seen().has_changed = true;
        changed()
    }

    /// Drops the file of a failed connection. A retry opens it again.
    fn forget(slot: &Slot, failed: &Arc<RemoteFile>) {
        let mut file = slot.file.lock_unpoisoned();
        if file.as_ref().is_some_and(|file| Arc::ptr_eq(file, failed)) {
            *file = None;
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.by_any(|number, slot| self.read_by(number, slot, offset, buffer))
    }

    /// Reads, and then asks for the size and time over the same connection before it returns the
    /// data. Returns the number of bytes and the duration, which excludes the opening of a
    /// connection.
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

    /// Calls `read` with the connection that is least busy. If `read` returns `None`, calls it with
    /// another connection.
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

    /// Reads over one connection. Returns `None` if this connection cannot read the file.
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
        // Count the read as completed before the caller (`by_any`) counts it as no longer in
        // progress. So a thread that sees no reads in progress sees the number of all completed
        // reads.
        slot.ended.fetch_add(1, Ordering::SeqCst);
        Self::forget_if_lost(slot, &file, &read);
        read.map(Some)
    }

    /// Returns the size and time that the file has after the last completed read. If `anew` is
    /// true, always asks the server. If `anew` is false, an answer that is younger than
    /// [`STATE_AGE`] is returned again in two cases: no read has ended since that answer, or reads
    /// of other threads are in progress. In the second case, these threads ask the server again
    /// when their reads end.
    pub(crate) fn found(&self, anew: bool) -> Result<RemoteState> {
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
        // Ask the server for the state of the file over the first connection, and over each
        // connection that has read bytes since the last such query. If a connection was lost, the
        // client opens the file again, and may then read another version on only this connection.
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

    /// Sends a question about the file to a plug-in of the server, over the first connection.
    pub(crate) fn ask(&self, question: &str, wait: Duration) -> Result<String> {
        let Some(file) = self.file(0, &self.slots[0])? else {
            return Err(lost());
        };
        file.ask(question, wait)
    }

    /// Asks the server for the size and time of the file over one connection, and compares both
    /// with the state of the file at the opening.
    fn judge(&self, number: usize, slot: &Slot) -> Result<()> {
        let ended = slot.ended.load(Ordering::SeqCst);
        let Some(file) = self.file(number, slot)? else {
            return Ok(());
        };
        let found = file.state(true);
        Self::forget_if_lost(slot, &file, &found);
        if !self.is_accepted(&found?) {
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

fn is_same(one: &RemoteState, other: &RemoteState) -> bool {
    one.size == other.size && one.modified == other.modified
}

fn changed() -> Error {
    Error::new(ErrorKind::SourceChanged, End::Source, "read the file")
        .cause("the size or modification time of the file changed after the file was opened")
        .remedy("run the same command again when no program writes to the file")
}

fn lost() -> Error {
    Error::new(ErrorKind::Unreachable, End::Source, "read the file")
        .cause(
            "the connection to the server was lost, and the permission to read the file was \
            valid for one opening only",
        )
        .remedy("request the copy again; it resumes from durable data")
}

/// A handle of a store. Several handles may share one open file.
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

    // One long read is one request to the server. Several short reads would cost one round trip
    // each.
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
