//! A partial file on a server, written over several connections.
//!
//! Invariant: data counts as durable only after a sync of a handle that was open while all the data
//! was written. If the server's host restarts in between, the data is lost, and a handle opened
//! later would not show the loss.
//!
//! A server has one dirty flag for each file, which all handles share. A write sets the flag before
//! its bytes reach the storage. A sync clears the flag and makes durable only the bytes that have
//! reached the storage. If a write sets the flag before a sync and its bytes arrive after the sync,
//! the next sync finds no flag and ignores these bytes. So before each sync, the sink truncates the
//! file to its current length, which sets the flag again.

use crate::client::{Mode, RemoteFile, RemoteState};
use crate::ledger::{Ledger, Mark};
use crate::server::{OWN_MODE, Server, WRITES, is_lost};
use dray_core::lock::LockExt;
use dray_core::{ByteRange, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::{Attributes, Partial, PartialId, Publish};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The partial files of a sink, by path.
#[derive(Default)]
pub(crate) struct Partials {
    /// Partial files with data that is not durable yet.
    pub(crate) dirty: Mutex<HashMap<RelPath, Arc<Open>>>,
    /// Partial files that are open.
    pub(crate) begun: Mutex<HashMap<RelPath, Weak<Open>>>,
    /// Partial files whose data this process has made durable.
    pub(crate) clean: Mutex<HashSet<RelPath>>,
}

/// An open partial file. The module documentation describes its syncs.
pub(crate) struct Open {
    server: Arc<Server>,
    partials: Arc<Partials>,
    /// Final path of the file.
    path: RelPath,
    /// Path of the partial file.
    partial: RelPath,
    id: PartialId,
    /// Handle whose sync makes data durable.
    first: Mutex<Option<Arc<RemoteFile>>>,
    /// Further handles, by the number of their login.
    others: Mutex<Vec<Option<Arc<RemoteFile>>>>,
    ledger: Ledger,
    /// Length of the file in bytes.
    bytes: AtomicU64,
    /// True if written data may be lost.
    is_doubted: AtomicBool,
    /// Locked during a sync and during a change of the length, because a server answers a second
    /// sync immediately while the first is in progress.
    syncing: Mutex<()>,
    /// Attributes with which the file was prepared for publishing.
    is_ready: Mutex<Option<Ready>>,
}

/// Attributes for a published file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ready {
    mode: u32,
    modified: ModifiedTime,
    sums: Option<Sums>,
}

impl Ready {
    const fn of(attributes: &Attributes<'_>) -> Self {
        Self {
            mode: file_mode(attributes.metadata.mode),
            modified: attributes.metadata.modified,
            sums: attributes.sums,
        }
    }
}

impl Open {
    pub(crate) fn new(
        (server, partials): (&Arc<Server>, &Arc<Partials>),
        (path, partial): (&RelPath, &RelPath),
        (id, bytes): (PartialId, u64),
        file: RemoteFile,
    ) -> Arc<Self> {
        let open = Arc::new(Self {
            server: Arc::clone(server),
            partials: Arc::clone(partials),
            path: path.clone(),
            partial: partial.clone(),
            id,
            first: Mutex::new(Some(Arc::new(file))),
            others: Mutex::default(),
            ledger: Ledger::default(),
            bytes: AtomicU64::new(bytes),
            is_doubted: AtomicBool::new(false),
            syncing: Mutex::new(()),
            is_ready: Mutex::default(),
        });
        partials
            .begun
            .lock_unpoisoned()
            .insert(partial.clone(), Arc::downgrade(&open));
        open
    }

    pub(crate) const fn id(&self) -> PartialId {
        self.id
    }

    /// Opens the same file again with another login.
    fn reopen(&self, login: usize) -> Result<Arc<RemoteFile>> {
        open_same(&self.server, &self.path, &self.partial, self.id, login).map(Arc::new)
    }

    fn first(&self) -> Result<Arc<RemoteFile>> {
        if self.is_doubted.load(Ordering::SeqCst) {
            return Err(
                Server::error(ErrorKind::Unreachable, "write the file", &self.path)
                    .cause(
                        "the connection to the server was lost, and written data may be lost \
                        too",
                    )
                    .remedy("run the same command again; durable data is kept and not sent again"),
            );
        }
        let mut first = self.first.lock_unpoisoned();
        if let Some(file) = &*first {
            return Ok(Arc::clone(file));
        }
        let opened = self.reopen(0)?;
        *first = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn by(&self, login: usize) -> Result<Arc<RemoteFile>> {
        // The first handle must be open during every write, because its sync makes the data
        // durable.
        let first = self.first()?;
        if login == 0 {
            return Ok(first);
        }
        let mut others = self.others.lock_unpoisoned();
        if others.len() <= login {
            others.resize(login + 1, None);
        }
        if let Some(Some(file)) = others.get(login) {
            return Ok(Arc::clone(file));
        }
        let opened = self.reopen(login)?;
        others[login] = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Drops a handle whose connection was lost.
    fn forget(&self, login: usize) {
        if login == 0 {
            self.is_doubted.store(true, Ordering::SeqCst);
        } else if let Some(slot) = self.others.lock_unpoisoned().get_mut(login) {
            *slot = None;
        }
    }

    /// Records that the file has data that must be made durable. Called when a change is sent and
    /// again when the server has answered, because a sync in between may reach the server before
    /// the change.
    pub(crate) fn soil(self: &Arc<Self>) {
        self.ledger.changed();
        *self.is_ready.lock_unpoisoned() = None;
        let mut dirty = self.partials.dirty.lock_unpoisoned();
        // The entry replaces an earlier file with the same name.
        dirty.insert(self.partial.clone(), Arc::clone(self));
        self.partials.clean.lock_unpoisoned().remove(&self.partial);
    }

    /// Sends a change of the file and records it.
    fn change(self: &Arc<Self>, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.soil();
        let changed = change();
        // Record the change even after an error, because the change may have reached the server.
        self.soil();
        changed
    }

    fn write(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> Result<()> {
        let lease = self.server.logins.lease(WRITES, bytes.len() as u64)?;
        let login = *lease;
        let file = match self.by(login) {
            Ok(file) => file,
            Err(error) => {
                if is_lost(&error) {
                    lease.broken();
                }
                return Err(error);
            }
        };
        let end = offset.saturating_add(bytes.len() as u64);
        // A sync sends the length of the file, so no write may extend the file during a sync.
        let longer =
            (end > self.bytes.load(Ordering::SeqCst)).then(|| self.syncing.lock_unpoisoned());
        let written = self.change(|| file.write(offset, bytes, self.server.pages));
        if longer.is_some() {
            self.bytes.fetch_max(end, Ordering::SeqCst);
        }
        drop(longer);
        match written {
            Ok(()) => {
                lease.carried();
                Ok(())
            }
            Err(error) => {
                if is_lost(&error) {
                    self.forget(login);
                    lease.broken();
                }
                Server::about(&self.path, Err(error))
            }
        }
    }

    /// Starts a sync. Returns the handle and the length of the file, and a mark for the changes
    /// that the sync covers. Returns `None` if all data is already durable.
    fn start_sync(&self) -> Result<Option<Started<'_>>> {
        let one = self.syncing.lock_unpoisoned();
        if self.ledger.is_clean() {
            return Ok(None);
        }
        let file = self.first()?;
        Ok(Some(Started {
            // Take the mark before the sync is sent. The sync may miss a change that the server has
            // not answered by then, so the mark must not cover this change.
            mark: self.ledger.mark(),
            bytes: self.bytes.load(Ordering::SeqCst),
            file,
            _one: one,
        }))
    }

    fn end_sync(&self, mark: Mark, synced: Result<()>) -> Result<()> {
        if let Err(error) = synced {
            self.is_doubted.store(true, Ordering::SeqCst);
            return Server::about(&self.path, Err(error));
        }
        let mut dirty = self.partials.dirty.lock_unpoisoned();
        self.ledger.settled(mark);
        let is_own = dirty
            .get(&self.partial)
            .is_some_and(|open| std::ptr::eq(&**open, self));
        if is_own && self.ledger.is_clean() {
            dirty.remove(&self.partial);
            self.partials
                .clean
                .lock_unpoisoned()
                .insert(self.partial.clone());
        }
        Ok(())
    }

    /// Closes all handles, because no other client can open the name while a handle is open.
    fn close(&self) {
        *self.first.lock_unpoisoned() = None;
        self.others.lock_unpoisoned().clear();
    }

    /// Removes the file from the list of partial files.
    fn forget_name(&self) {
        self.close();
        self.partials.dirty.lock_unpoisoned().remove(&self.partial);
        self.partials.clean.lock_unpoisoned().remove(&self.partial);
    }

    /// Does all steps of publishing except the rename. May take long if the server must read the
    /// whole file for its checksum.
    fn ready(self: &Arc<Self>, attributes: &Attributes<'_>) -> Result<()> {
        let wanted = Ready::of(attributes);
        // Sync before the handle is closed, because a later handle could not make the data durable.
        // Sync before the note about the source is set, because the note contains the file's time,
        // and a sync changes this time.
        sync_all(std::slice::from_ref(self))?;
        let found = self.found()?;
        if !self.server.has_mark(&self.partial, self.id)? {
            return Err(self.gone("publish the file"));
        }
        if let Some(sums) = &wanted.sums {
            let compared = self.server.compare(&self.partial, sums);
            compared.map_err(|error| error.file(&self.path)).map(drop)?;
        }
        let noted = (wanted.modified, wanted.sums);
        self.server.set_note(&self.partial, &found, noted)?;
        if wanted.mode != OWN_MODE {
            let asked = self.server.asked(&self.partial)?;
            let set = Server::client()?.set_mode(&self.server.login(), &asked, wanted.mode);
            Server::about(&self.path, set)?;
        }
        *self.is_ready.lock_unpoisoned() = Some(wanted);
        Ok(())
    }

    /// Returns the state of the partial file. Fails if another file has its name.
    fn found(&self) -> Result<RemoteState> {
        let found = self.server.look(&self.partial)?;
        found
            .filter(|found| Server::is_that(found, self.id))
            .ok_or_else(|| self.gone("publish the file"))
    }

    fn publish(self: &Arc<Self>, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let ready = *self.is_ready.lock_unpoisoned();
        if ready != Some(Ready::of(attributes)) || !self.ledger.is_clean() {
            self.ready(attributes)?;
        }
        self.close();
        // Rename last, in a separate request. The request checks again which file has the partial
        // name.
        self.server
            .give_name(&self.path, &self.partial, self.id, how)?;
        self.forget_name();
        Ok(())
    }

    fn gone(&self, operation: &str) -> dray_core::Error {
        Server::error(ErrorKind::NotFound, operation, &self.path)
            .cause("the partial file was removed or replaced")
            .remedy("run the same command again")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut begun = self.partials.begun.lock_unpoisoned();
        // Another file may have the name now, so remove the entry only if it is this file.
        if begun
            .get(&self.partial)
            .is_some_and(|open| open.strong_count() == 0)
        {
            begun.remove(&self.partial);
        }
    }
}

/// A sync in progress. No other sync of the same file starts while this value exists.
struct Started<'a> {
    file: Arc<RemoteFile>,
    bytes: u64,
    mark: Mark,
    _one: MutexGuard<'a, ()>,
}

/// Makes the writes to these files durable, concurrently.
///
/// # Errors
/// The first error. Then none of the files counts as durable.
pub(crate) fn sync_all(files: &[Arc<Open>]) -> Result<()> {
    // Lock the files in a fixed order, so that two calls cannot wait for each other.
    let mut files: Vec<&Arc<Open>> = files.iter().collect();
    files.sort_by(|one, other| one.partial.as_bytes().cmp(other.partial.as_bytes()));
    let mut started: Vec<(&Arc<Open>, Started<'_>)> = Vec::new();
    for open in files {
        started.extend(open.start_sync()?.map(|one| (open, one)));
    }
    let handles: Vec<(&RemoteFile, u64)> = started
        .iter()
        .map(|(_, one)| (&*one.file, one.bytes))
        .collect();
    let synced = match handles.is_empty() {
        true => return Ok(()),
        false => Server::client().and_then(|client| client.sync_each(&handles)),
    };
    let mut all = Ok(());
    for (number, (open, one)) in started.iter().enumerate() {
        let answer = match &synced {
            Ok(each) => each.get(number).cloned(),
            Err(error) => Some(Err(error.clone())),
        };
        // Record the result of each file, even after an earlier file has failed.
        let ended = open.end_sync(
            one.mark,
            answer.unwrap_or_else(|| Err(Server::unanswered())),
        );
        all = all.and(ended);
    }
    all
}

/// Returns the permission bits for a file. The server's own user always gets read and write
/// permission.
pub(crate) const fn file_mode(mode: u32) -> u32 {
    (mode & 0o777) | 0o600
}

/// Opens a partial file of an earlier run, if it is still the same file.
pub(crate) fn open_same(
    server: &Arc<Server>,
    path: &RelPath,
    partial: &RelPath,
    id: PartialId,
    login: usize,
) -> Result<RemoteFile> {
    // Open the file as shared, because a handle of a process that has just ended, or another handle
    // of this process, may still be open.
    let opened = server
        .open_file(partial, login, Mode::UpdateShared)
        .map_err(|error| error.file(path))?;
    let found = Server::about(path, opened.state(false))?;
    if Server::is_that(&found, id) && server.has_mark(partial, id)? {
        return Ok(opened);
    }
    Err(Server::error(ErrorKind::NotFound, "resume the file", path)
        .cause("another file already has the name of the partial file"))
}

/// Handle of an open partial file, as a sink uses it.
pub(crate) struct RemotePartial(pub(crate) Arc<Open>);

impl Partial for RemotePartial {
    fn id(&self) -> PartialId {
        self.0.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.0.write(offset, bytes)
    }

    fn punch_hole(&self, range: ByteRange) -> Result<()> {
        // The protocol has no holes, so write zeros.
        let zeros = vec![0; usize::try_from(range.length.min(ZEROS_BYTES)).unwrap_or(0)];
        let mut at = range.offset;
        while at < range.end() {
            let length = (range.end() - at).min(ZEROS_BYTES);
            let piece = &zeros[..usize::try_from(length).unwrap_or(zeros.len())];
            self.write_at(at, piece)?;
            at += length;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let open = &self.0;
        Server::about(&open.path, open.first()?.read(offset, buffer, false))
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        let open = &self.0;
        let file = open.first()?;
        let alone = open.syncing.lock_unpoisoned();
        let cut = open.change(|| file.truncate(size_bytes));
        if cut.is_ok() {
            open.bytes.store(size_bytes, Ordering::SeqCst);
        }
        drop(alone);
        Server::about(&open.path, cut)
    }

    fn sync(&self) -> Result<()> {
        sync_all(std::slice::from_ref(&self.0))
    }

    fn ready(&self, attributes: &Attributes<'_>) -> Result<()> {
        self.0.ready(attributes)
    }

    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        self.0.publish(how, attributes)
    }

    fn abort(&self) -> Result<()> {
        let open = &self.0;
        open.forget_name();
        open.server
            .discard(&open.path, &open.partial, Some(open.id))
    }
}

/// Number of zeros in one write, in bytes.
const ZEROS_BYTES: u64 = 1 << 20;
