//! A partial file of a server, written by several connections.
//!
//! Invariant: what was written is called durable only by the handle that was open all the while. A server
//! whose host began anew in between has lost it, and a handle that was opened afterwards would not know.
//!
//! A server has one flag for a file, whoever has it open: a write sets it before its bytes come to the
//! storage, and a sync takes it back and makes durable what has come. So the next sync would do nothing about
//! bytes that came in between. Before each sync the file is therefore made as long as it is, which sets the
//! flag; nobody but the sync takes it back then.

use crate::client::{Found, Mode, RemoteFile};
use crate::ledger::{Ledger, Mark};
use crate::server::{OWN_MODE, Server, WRITES, is_lost, lock};
use dray_core::{ByteRange, ErrorKind, ModifiedTime, RelPath, Result, Sums};
use dray_store::{Attributes, Partial, PartialId, Publish};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// See the module's head.
pub(crate) struct Open {
    server: Arc<Server>,
    /// The final name.
    path: RelPath,
    /// The partial one.
    partial: RelPath,
    id: PartialId,
    /// Whose sync counts.
    first: Mutex<Option<Arc<RemoteFile>>>,
    /// By the number of the login.
    others: Mutex<Vec<Option<Arc<RemoteFile>>>>,
    ledger: Ledger,
    /// How long the file is.
    bytes: AtomicU64,
    /// What was written may be lost.
    is_doubted: AtomicBool,
    /// Held while it is synced, and while its length changes. A server answers a second sync at once while
    /// the first is under way.
    syncing: Mutex<()>,
    /// What it was made ready with to have its name.
    is_ready: Mutex<Option<Ready>>,
}

/// What a file gets with its name.
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
        server: &Arc<Server>,
        (path, partial): (&RelPath, &RelPath),
        (id, bytes): (PartialId, u64),
        file: RemoteFile,
    ) -> Arc<Self> {
        let open = Arc::new(Self {
            server: Arc::clone(server),
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
        lock(&server.begun).insert(partial.clone(), Arc::downgrade(&open));
        open
    }

    pub(crate) const fn id(&self) -> PartialId {
        self.id
    }

    /// The very file once more.
    fn reopen(&self, login: usize) -> Result<Arc<RemoteFile>> {
        open_same(&self.server, &self.path, &self.partial, self.id, login).map(Arc::new)
    }

    fn first(&self) -> Result<Arc<RemoteFile>> {
        if self.is_doubted.load(Ordering::SeqCst) {
            return Err(
                Server::error(ErrorKind::Unreachable, "write the file", &self.path)
                    .cause("its connection was lost, and what was written by it may be")
                    .remedy("run the same command again; what is safe is not sent again"),
            );
        }
        let mut first = lock(&self.first);
        if let Some(file) = &*first {
            return Ok(Arc::clone(file));
        }
        let opened = self.reopen(0)?;
        *first = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn by(&self, login: usize) -> Result<Arc<RemoteFile>> {
        // Whichever writes, this one is there to make it durable.
        let first = self.first()?;
        if login == 0 {
            return Ok(first);
        }
        let mut others = lock(&self.others);
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

    /// A handle whose connection is gone is not used again.
    fn forget(&self, login: usize) {
        if login == 0 {
            self.is_doubted.store(true, Ordering::SeqCst);
        } else if let Some(slot) = lock(&self.others).get_mut(login) {
            *slot = None;
        }
    }

    /// Notes that there is something to be made durable: when it is sent, and again when it is answered, for
    /// a sync in between may have come to the server before it.
    pub(crate) fn soil(self: &Arc<Self>) {
        self.ledger.changed();
        *lock(&self.is_ready) = None;
        let mut dirty = lock(&self.server.dirty);
        // In the place of one that had the name before.
        dirty.insert(self.partial.clone(), Arc::clone(self));
        lock(&self.server.clean).remove(&self.partial);
    }

    /// Changes the file.
    fn change(self: &Arc<Self>, change: impl FnOnce() -> Result<()>) -> Result<()> {
        self.soil();
        let changed = change();
        // One that failed may have come to the server all the same.
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
        // A sync says how long the file is: no write makes it longer meanwhile.
        let longer = (end > self.bytes.load(Ordering::SeqCst)).then(|| lock(&self.syncing));
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

    /// What has to be made durable, and by which handle; none when all is.
    fn start_sync(&self) -> Result<Option<Started<'_>>> {
        let one = lock(&self.syncing);
        if self.ledger.is_clean() {
            return Ok(None);
        }
        let file = self.first()?;
        Ok(Some(Started {
            // Before the call: what is not answered by now may not be covered by it.
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
        let mut dirty = lock(&self.server.dirty);
        self.ledger.settled(mark);
        let is_own = dirty
            .get(&self.partial)
            .is_some_and(|open| std::ptr::eq(&**open, self));
        if is_own && self.ledger.is_clean() {
            dirty.remove(&self.partial);
            lock(&self.server.clean).insert(self.partial.clone());
        }
        Ok(())
    }

    /// Lets go of the server's handles: while there is one, nobody else may open the name.
    fn close(&self) {
        *lock(&self.first) = None;
        lock(&self.others).clear();
    }

    /// It is no partial file any more.
    fn forget_name(&self) {
        self.close();
        lock(&self.server.dirty).remove(&self.partial);
        lock(&self.server.clean).remove(&self.partial);
    }

    /// All of publishing but the name. It may take as long as the server reads the file.
    fn ready(self: &Arc<Self>, attributes: &Attributes<'_>) -> Result<()> {
        let wanted = Ready::of(attributes);
        // What is not durable yet stays so without this handle: the next one would not know. And before the
        // note: a sync sets the file's time.
        sync_all(std::slice::from_ref(self))?;
        let found = self.found()?;
        if !self.server.has_mark(&self.partial, self.id)? {
            return Err(self.gone("publish the file"));
        }
        if let Some(sums) = &wanted.sums {
            let compared = self.server.compare(&self.partial, sums);
            compared.map_err(|error| error.file(&self.path))?;
        }
        let noted = (wanted.modified, wanted.sums);
        self.server.set_note(&self.partial, &found, noted)?;
        if wanted.mode != OWN_MODE {
            let asked = self.server.asked(&self.partial)?;
            let set = Server::client()?.set_mode(&self.server.login(), &asked, wanted.mode);
            Server::about(&self.path, set)?;
        }
        *lock(&self.is_ready) = Some(wanted);
        Ok(())
    }

    /// The partial file, which must be this one.
    fn found(&self) -> Result<Found> {
        let found = self.server.look(&self.partial)?;
        found
            .filter(|found| Server::is_that(found, self.id))
            .ok_or_else(|| self.gone("publish the file"))
    }

    fn publish(self: &Arc<Self>, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let ready = *lock(&self.is_ready);
        if ready != Some(Ready::of(attributes)) || !self.ledger.is_clean() {
            self.ready(attributes)?;
        }
        self.close();
        // Only now, and only this: it looks once more which file has the partial name.
        self.server
            .give_name(&self.path, &self.partial, self.id, how)?;
        self.forget_name();
        Ok(())
    }

    fn gone(&self, operation: &str) -> dray_core::Error {
        Server::error(ErrorKind::NotFound, operation, &self.path)
            .cause("its partial file is gone, or another's")
            .remedy("run the same command again")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut begun = lock(&self.server.begun);
        // Another may have its name by now.
        if begun
            .get(&self.partial)
            .is_some_and(|open| open.strong_count() == 0)
        {
            begun.remove(&self.partial);
        }
    }
}

/// A sync that was begun: nobody else begins one of that file meanwhile.
struct Started<'a> {
    file: Arc<RemoteFile>,
    bytes: u64,
    mark: Mark,
    _one: MutexGuard<'a, ()>,
}

/// Makes durable what was written to each of these, all at once.
///
/// # Errors
/// The first of theirs: then nothing of them may be taken to be durable.
pub(crate) fn sync_all(files: &[Arc<Open>]) -> Result<()> {
    // In one order, so that no two wait for each other.
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
        // Each hears how it ended, also after another has failed.
        let ended = open.end_sync(
            one.mark,
            answer.unwrap_or_else(|| Err(Server::unanswered())),
        );
        all = all.and(ended);
    }
    all
}

/// The permission bits of a file: its server's own user is never shut out.
pub(crate) const fn file_mode(mode: u32) -> u32 {
    (mode & 0o777) | 0o600
}

/// Opens a partial file to go on with it, if it is the very one.
pub(crate) fn open_same(
    server: &Arc<Server>,
    path: &RelPath,
    partial: &RelPath,
    id: PartialId,
    login: usize,
) -> Result<RemoteFile> {
    // A handle of a process that has just died, or one of ours, may still be there.
    let opened = server
        .open_file(partial, login, Mode::UpdateShared)
        .map_err(|error| error.file(path))?;
    let found = Server::about(path, opened.state(false))?;
    if Server::is_that(&found, id) && server.has_mark(partial, id)? {
        return Ok(opened);
    }
    Err(
        Server::error(ErrorKind::NotFound, "go on with the file", path)
            .cause("another file has its partial file's name"),
    )
}

/// What the sink holds of an open partial file.
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
        // The protocol knows no holes.
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
        let alone = lock(&open.syncing);
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

/// Bytes of zeros in one write.
const ZEROS_BYTES: u64 = 1 << 20;
