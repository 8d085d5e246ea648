//! The sink's files: what stands at a path, partial files and their records, durability, names.

use crate::sink::handles::{Handles, OpenFile};
use crate::sink::peek;
use crate::sink::place::{self, Destination, Lease, Log};
use dray_core::checksum::Summer;
use dray_core::options::Options;
use dray_core::{
    ByteRange, ContentKey, End, Error, ErrorKind, FileIndex, Metadata, RelPath, Result, Sums,
};
use dray_log::trust;
use dray_log::{Ending, FileBegin, FileNumber, LoggedFile, ObjectLog, PartialFile};
use dray_session::sink::{
    Facts, InspectItem, InspectTask, Inspected, PublishItem, Resume, SyncItem as Wanted,
};
use dray_store::{Attributes, MadeDir, PartialId, PartialRequest, Publish, ReadPurpose, SyncItem};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Folders made by this transfer that are remembered as empty but for what it puts there.
const FRESH_FOLDERS_MAX: usize = 1 << 16;

/// Bytes read back at once.
const PIECE: usize = 256 * 1024;

/// What a sync is told: paths, because handles may be closed meanwhile.
pub(super) enum SyncPath {
    Partial(RelPath),
    Small(RelPath),
    Published(RelPath),
    Adopted(RelPath),
}

pub(super) fn sync_path(
    item: Wanted,
    open: &HashMap<FileIndex, Arc<OpenFile>>,
) -> Option<SyncPath> {
    match item {
        Wanted::Partial(index) => open
            .get(&index)
            .map(|open| SyncPath::Partial(open.path.clone())),
        Wanted::Small(path) => Some(SyncPath::Small(path)),
        Wanted::Published(path) => Some(SyncPath::Published(path)),
        Wanted::Adopted(path) => Some(SyncPath::Adopted(path)),
    }
}

/// Everything the sink's threads share.
pub(super) struct Space {
    destination: Mutex<Destination>,
    store: Arc<dyn dray_store::Store>,
    lease: Option<Lease>,
    handles: Handles,
    options: Options,
    /// Used by the one thread that looks.
    fresh: Mutex<HashSet<RelPath>>,
    /// Folders that have an entry which may not be durable yet: a folder or a partial file was made
    /// in them.
    touched: Mutex<HashSet<RelPath>>,
    /// Paths whose partial files stay for the next run.
    kept: Mutex<HashSet<RelPath>>,
    /// Unfinished files of the log that this transfer has met. Others may be another request's.
    met: Mutex<HashSet<RelPath>>,
    /// Whether something could not be listed: what was not met may only not have been seen.
    listing_failed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder_of(path: &RelPath) -> RelPath {
    path.parent().unwrap_or_else(RelPath::root)
}

fn partial_name(path: &RelPath) -> Result<dray_core::Name> {
    let name = path.name().ok_or_else(|| {
        Error::new(ErrorKind::InvalidName, End::Sink, "name the partial file").file(path)
    })?;
    dray_log::place::partial_name(&name)
}

impl Space {
    pub(super) fn new(mut destination: Destination, options: Options) -> Self {
        Self {
            store: Arc::clone(&destination.store),
            handles: Handles::new(Arc::clone(&destination.store)),
            lease: destination.lease.take(),
            destination: Mutex::new(destination),
            options,
            fresh: Mutex::new(HashSet::new()),
            touched: Mutex::new(HashSet::new()),
            kept: Mutex::new(HashSet::new()),
            met: Mutex::new(HashSet::new()),
            listing_failed: AtomicBool::new(false),
        }
    }

    /// Whether this transfer may still write.
    pub(super) fn check_lease(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), Lease::check)
    }

    pub(super) fn inspect(&self, item: InspectItem) -> Inspected {
        let InspectItem { path, task, .. } = item;
        let result = match task {
            InspectTask::Directory => self.make_directory(&path).map(|()| Inspected::Made),
            InspectTask::Symlink { target, metadata } => self
                .make_symlink(&path, &target, &metadata)
                .map(|()| Inspected::Made),
            InspectTask::File(key) => self
                .look(&path, &key)
                .inspect_err(|_| self.keep(&path))
                .map(Inspected::File),
        };
        result.unwrap_or_else(Inspected::Failed)
    }

    fn make_directory(&self, path: &RelPath) -> Result<()> {
        match self.store.make_dir(path)? {
            MadeDir::Created => {
                lock(&self.touched).insert(folder_of(path));
                let mut fresh = lock(&self.fresh);
                if fresh.len() >= FRESH_FOLDERS_MAX {
                    fresh.clear();
                }
                fresh.insert(path.clone());
            }
            MadeDir::Existed => {
                // A run that died may have made it, and its entry may not be durable yet.
                lock(&self.touched).insert(folder_of(path));
                self.refuse_foreign_log(path)?;
            }
        }
        Ok(())
    }

    /// A folder that was there may have a log of its own, of a transfer that is running.
    fn refuse_foreign_log(&self, path: &RelPath) -> Result<()> {
        if self.lease.is_none() {
            return Ok(());
        }
        let folder = path.join(&dray_log::place::log_folder_name()?)?;
        for name in self.store.list_control(&folder)? {
            if let Some(lease) = dray_log::place::lease_of_log(&name) {
                let lease = folder.join(&lease)?;
                place::refuse_if_held(self.store.as_ref(), &lease, &path.to_string())?;
            }
        }
        Ok(())
    }

    fn make_symlink(&self, path: &RelPath, target: &[u8], metadata: &Metadata) -> Result<()> {
        self.check_lease()?;
        let how = self.how(self.options.overwrite != dray_core::options::Overwrite::Never);
        let partial = partial_name(path)?;
        match self
            .store
            .make_symlink(path, &partial, target, metadata, how)
        {
            // `--overwrite never` leaves what stands there.
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    const fn how(&self, replace: bool) -> Publish {
        if replace {
            Publish::Replace
        } else {
            Publish::IfAbsent
        }
    }

    fn look(&self, path: &RelPath, key: &ContentKey) -> Result<Facts> {
        let is_fresh = path
            .parent()
            .is_some_and(|folder| lock(&self.fresh).contains(&folder));
        let existing = if is_fresh {
            None
        } else {
            peek::existing(self.store.as_ref(), path, key)?
        };
        Ok(Facts {
            existing,
            resume: self.resume(path, key)?,
            layout: self.store.layout(path)?,
        })
    }

    fn resume(&self, path: &RelPath, key: &ContentKey) -> Result<Option<Result<Resume, Error>>> {
        let mut guard = lock(&self.destination);
        let destination = &mut *guard;
        let logged_path = destination.prefix.join_path(path)?;
        let (Some(found), Some(file)) = (&destination.found, destination.log.file(&logged_path))
        else {
            return Ok(None);
        };
        let file: LoggedFile = file.clone();
        lock(&self.met).insert(path.clone());
        let partial = peek::found_partial(self.store.as_ref(), path, &file)?;
        let sink = trust::Sink {
            log: &destination.log_words,
            owner: &destination.owner,
            boot_id: &destination.boot_id,
            durability: destination.durability,
        };
        match trust::judge(found, &logged_path, &file, &sink, partial.as_ref(), key) {
            trust::Verdict::Trusted(trusted) => {
                if trusted.must_sync {
                    let name = file.partial.name.clone();
                    self.store
                        .sync_all(&[SyncItem::Partial { path, name: &name }])?;
                    destination.log.file_synced(file.number)?;
                }
                let object_bytes = trusted.object_bytes.get();
                Ok(Some(Ok(Resume {
                    done: trusted.done,
                    object_bytes,
                })))
            }
            trust::Verdict::StartOver(error) => Ok(Some(Err(error))),
            trust::Verdict::Refused(error) => Err(error),
        }
    }

    /// What the log has of a file stays for the next run.
    pub(super) fn keep(&self, path: &RelPath) {
        lock(&self.kept).insert(path.clone());
    }

    /// Something could not be listed.
    pub(super) fn note_failed_listing(&self) {
        self.listing_failed.store(true, Ordering::Release);
    }

    pub(super) fn prepare(
        &self,
        path: &RelPath,
        key: ContentKey,
        object_bytes: u64,
        resume: bool,
    ) -> Result<Arc<OpenFile>> {
        self.check_lease()?;
        let mut guard = lock(&self.destination);
        let destination = &mut *guard;
        let logged_path = destination.prefix.join_path(path)?;
        let logged = destination.log.file(&logged_path).cloned();
        let name = partial_name(path)?;
        if let (true, Some(logged)) = (resume, &logged) {
            let request = PartialRequest {
                name: logged.partial.name.clone(),
                reuse: Some(PartialId {
                    inode: logged.partial.inode,
                    device: logged.partial.device,
                }),
                preallocate: false,
            };
            lock(&self.touched).insert(folder_of(path));
            let partial = self.store.begin(path, key.size, &request)?;
            return Ok(self.handles.adopt(
                path,
                key.size,
                logged.number,
                logged.partial.name.clone(),
                partial,
                false,
            ));
        }
        if let Some(logged) = logged {
            // Committed before the partial file is made anew, or its old records would speak of it.
            destination.log.end_file(logged.number, Ending::Dropped)?;
            destination.log.commit()?;
        }
        let request = PartialRequest {
            name: name.clone(),
            reuse: None,
            preallocate: false,
        };
        let size = key.size;
        let partial = self.store.begin(path, size, &request)?;
        lock(&self.touched).insert(folder_of(path));
        let id = partial.id();
        lock(&self.met).insert(path.clone());
        let number = destination.log.begin_file(FileBegin {
            path: logged_path,
            key,
            object_bytes: NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
            partial: PartialFile {
                name: name.clone(),
                device: id.device,
                inode: id.inode,
                born: 0,
            },
        })?;
        Ok(self.handles.adopt(path, size, number, name, partial, true))
    }

    /// Writes a part of a prepared file.
    pub(super) fn write_at(&self, open: &Arc<OpenFile>, offset: u64, bytes: &[u8]) -> Result<()> {
        self.handles.of(open)?.write_at(offset, bytes)
    }

    /// Makes a range a hole; in a new partial file it is one already.
    pub(super) fn punch(&self, open: &Arc<OpenFile>, range: ByteRange) -> Result<()> {
        if open.is_new {
            Ok(())
        } else {
            self.handles.of(open)?.punch_hole(range)
        }
    }

    pub(super) fn write_small(
        &self,
        path: &RelPath,
        bytes: &[u8],
        metadata: &Metadata,
    ) -> Result<()> {
        let sums = self.options.checksum_attributes.then(|| Sums::of(bytes));
        let attributes = Attributes { metadata, sums };
        self.store
            .write_small(path, &partial_name(path)?, bytes, &attributes)
    }

    pub(super) fn sync(&self, items: &[SyncPath]) -> Result<()> {
        let mut names = Vec::with_capacity(items.len());
        let mut files = Vec::new();
        let mut folders = std::mem::take(&mut *lock(&self.touched));
        for item in items {
            match item {
                SyncPath::Partial(path) | SyncPath::Small(path) => {
                    names.push((path, partial_name(path)?));
                }
                SyncPath::Published(path) => {
                    folders.insert(folder_of(path));
                }
                SyncPath::Adopted(path) => {
                    files.push(path);
                    folders.insert(folder_of(path));
                }
            }
        }
        let partials = names
            .iter()
            .map(|(path, name)| SyncItem::Partial { path, name });
        let files = files.into_iter().map(SyncItem::File);
        let folders = folders.iter().map(SyncItem::Folder);
        let all: Vec<SyncItem<'_>> = partials.chain(files).chain(folders).collect();
        if all.is_empty() {
            Ok(())
        } else {
            self.store.sync_all(&all)
        }
    }

    pub(super) fn log(&self, records: &[(FileNumber, ByteRange, Sums)], _sync: bool) -> Result<()> {
        let log: &mut Log = &mut lock(&self.destination).log;
        for (number, range, sums) in records {
            log.done(*number, *range, *sums)?;
        }
        log.commit()?;
        log.compact_if_worth_it()?;
        Ok(())
    }

    pub(super) fn read_back(
        &self,
        path: &RelPath,
        size: u64,
        small: bool,
        open: Option<&Arc<OpenFile>>,
    ) -> Result<Sums> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let name = match (small, open) {
            (false, Some(open)) => partial_name(&open.path)?,
            _ => partial_name(path)?,
        };
        let handle = self
            .store
            .open_read(&folder.join(&name)?, ReadPurpose::ReadBack)?;
        let mut summer = Summer::new();
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < size {
            let want = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
            let got = handle.read_at(at, &mut piece[..want])?;
            if got == 0 {
                break;
            }
            summer.update(&piece[..got]);
            at += got as u64;
        }
        Ok(summer.finish())
    }

    pub(super) fn publish(&self, open: Option<&Arc<OpenFile>>, item: &PublishItem) -> Result<()> {
        let how = self.how(item.replace);
        let sums = self.options.checksum_attributes.then_some(item.sums);
        let attributes = Attributes {
            metadata: &item.metadata,
            sums,
        };
        if item.small {
            let name = partial_name(&item.path)?;
            if item.size == 0 {
                self.store
                    .write_small(&item.path, &name, &[], &attributes)?;
            }
            return self.store.publish_small(&item.path, &name, how);
        }
        let open = open.ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Sink, "publish the file")
                .cause("its partial file is not open")
        })?;
        self.handles.of(open)?.publish(how, &attributes)?;
        open.set_published();
        Ok(())
    }

    pub(super) fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        self.store.set_directory(path, metadata)
    }

    /// The file has its final name, durably; or what is safe of it stays for the next run.
    pub(super) fn close(&self, open: &Arc<OpenFile>) {
        if open.is_published() {
            // Counts with the next commit; until then a next run finds the name given and the
            // partial file gone, and believes its eyes.
            let _ = lock(&self.destination)
                .log
                .end_file(open.number, Ending::Published);
        } else {
            lock(&self.kept).insert(open.path.clone());
        }
    }

    pub(super) fn discard(&self, open: &Arc<OpenFile>) {
        let mut destination = lock(&self.destination);
        let ended = destination.log.end_file(open.number, Ending::Dropped);
        // Only when the log no longer speaks of it may it go.
        if ended.and_then(|()| destination.log.commit()).is_ok() {
            let _ = self.handles.of(open).and_then(|partial| partial.abort());
        }
    }

    /// A small file that failed has no record and is of no use to the next run.
    pub(super) fn discard_small(&self, path: &RelPath) {
        if let Ok(name) = partial_name(path) {
            let _ = self.store.discard(path, &name);
        }
    }

    /// The transfer is over: nothing of it stays but what failed files keep for the next run.
    pub(super) fn remove_log(&self) -> Result<()> {
        self.check_lease()?;
        let mut destination = lock(&self.destination);
        let (kept, met) = (lock(&self.kept), lock(&self.met));
        // A log that covers more than this request speaks for others too; and what could not be
        // listed was not met. Only what is known to be of no use goes.
        let all_is_ours = destination.is_own_log && !self.listing_failed.load(Ordering::Acquire);
        let is_useless = |path: &RelPath| all_is_ours || met.contains(path);
        self.drop_files(&mut destination, |path| {
            !kept.contains(path) && is_useless(path)
        })?;
        Self::remove_if_empty(&mut destination)
    }

    fn remove_if_empty(destination: &mut Destination) -> Result<()> {
        let is_empty = destination.log.files().next().is_none();
        if is_empty {
            destination.remove_log()
        } else {
            destination.log.commit()
        }
    }

    /// Removes all partial data and the log.
    pub(super) fn purge(&self) -> Result<()> {
        self.check_lease()?;
        let mut destination = lock(&self.destination);
        let (met, is_own) = (lock(&self.met), destination.is_own_log);
        self.drop_files(&mut destination, |path| is_own || met.contains(path))?;
        Self::remove_if_empty(&mut destination)
    }

    fn drop_files(
        &self,
        destination: &mut Destination,
        is_dropped: impl Fn(&RelPath) -> bool,
    ) -> Result<()> {
        let prefix = destination.prefix.clone();
        let below = |path: &RelPath| {
            path.starts_with(&prefix).then(|| {
                let names = path.components().skip(prefix.components().count());
                names
                    .into_iter()
                    .try_fold(RelPath::root(), |joined, name| joined.join(&name))
            })
        };
        let mut dropped = Vec::new();
        for (path, file) in destination.log.files() {
            let Some(path) = below(path).transpose()? else {
                continue;
            };
            if is_dropped(&path) {
                dropped.push((path, file.number, file.partial.name.clone()));
            }
        }
        for (_, number, _) in &dropped {
            destination.log.end_file(*number, Ending::Dropped)?;
        }
        destination.log.commit()?;
        for (path, _, name) in &dropped {
            self.store.discard(path, name)?;
        }
        Ok(())
    }
}
