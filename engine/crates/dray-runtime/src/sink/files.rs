//! The files of a sink: existing entries, partial files and their records, durability, and final
//! names.

use crate::sink::asked::Asked;
use crate::sink::begin_records::BeginRecords;
use crate::sink::commits::Commits;
use crate::sink::destination::Destination;
use crate::sink::folders::Folders;
use crate::sink::handles::Handles;
use crate::sink::lease_watch::Lease;
use crate::sink::log_place::below;
use crate::sink::names::Names;
use crate::sink::neighbours::Neighbours;
use crate::sink::other_claims::OtherClaims;
use crate::sink::read_back::ReadBack;
use crate::sink::strays::Strays;
use crate::sink::touched::Touched;
use dray_core::lock::LockExt;
use dray_core::maps::{HashMap, HashSet};
use dray_core::options::{Durability, Options};
use dray_core::{ByteRange, End, Error, ErrorKind, Metadata, Name, RelPath, Result, Sums};
use dray_link::extent::Extent;
use dray_link::open_file::OpenFile;
use dray_log::{Ending, FileNumber, ObjectLog};
use dray_session::sink::PublishItem;
use dray_store::{Attributes, PartialId, Publish};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Maximum number of notices that a session reports at its end.
const NOTICES_MAX: usize = 8;

/// A small file that is written and not published yet.
#[derive(Clone)]
pub(super) struct Small {
    pub(super) name: Name,
    pub(super) id: PartialId,
    pub(super) bytes: u64,
}

/// State that all threads of the sink share.
pub(super) struct Space {
    destination: Mutex<Destination>,
    pub(super) store: Arc<dyn dray_store::Store>,
    pub(super) lease: Option<Lease>,
    pub(super) handles: Handles,
    pub(super) options: Options,
    pub(super) folders: Folders,
    pub(super) asked: Option<Asked>,
    /// True if the transfer is stopping.
    is_over: AtomicBool,
    /// Folders that may need a sync, because an entry was made in them or their attributes were
    /// set.
    pub(super) touched: Touched,
    pub(super) names: Names,
    /// Published files whose attributes were set after their content was synced. These files are
    /// synced again, and their folders are synced too.
    pub(super) unsynced: Mutex<HashSet<RelPath>>,
    /// Published files of the log whose final names may not be durable yet.
    pub(super) undurable: Mutex<HashSet<RelPath>>,
    pub(super) small: Mutex<HashMap<RelPath, Small>>,
    /// Paths and old partial names of published files whose end is not committed in the log yet.
    /// Until the commit, no other file may use the partial name.
    ended: Mutex<Vec<(RelPath, Name)>>,
    pub(super) begin_records: BeginRecords,
    /// Unfinished files of the log that the source has announced in this session.
    pub(super) met: Mutex<HashSet<RelPath>>,
    /// Other transfers' logs; `None` if the store keeps no logs. A thread that needs this lock and
    /// the lock of the destination takes this lock first.
    pub(super) neighbours: Mutex<Option<Neighbours>>,
    pub(super) others: Mutex<OtherClaims>,
    /// Maximum object size in bytes that fits into this session's buffers.
    pub(super) object_bytes_max: u64,
    pub(super) read_back: ReadBack,
    /// Number and total duration of the commits of the log.
    pub(super) commits: Commits,
    /// True if a thread of its own writes the log, while the next data is synced.
    pub(super) logs_apart: bool,
    pub(super) strays: Strays,
    /// The destination as the user named it.
    pub(super) words: String,
    /// Notices to report at the end of the session.
    notices: Mutex<Vec<Error>>,
}

/// Returns the publish mode: whether an existing entry is replaced.
pub(super) const fn how(replace: bool) -> Publish {
    if replace {
        Publish::Replace
    } else {
        Publish::IfAbsent
    }
}

pub(super) fn folder_of(path: &RelPath) -> RelPath {
    path.parent().unwrap_or_else(RelPath::root)
}

/// Converts an error of kind `taken` to `None`, as [`Names::claim`] expects.
pub(super) fn unless<T>(taken: ErrorKind, made: Result<T>) -> Result<Option<T>> {
    match made {
        Err(error) if error.kind == taken => Ok(None),
        made => made.map(Some),
    }
}

impl Space {
    pub(super) fn new(
        mut destination: Destination,
        options: Options,
        object_bytes_max: u64,
    ) -> Self {
        let others = destination.others.take();
        let neighbours = destination.neighbours.take();
        let asked = destination.asked.take();
        let strays = Strays::new(destination.left);
        let form = destination.form();
        let logs_apart = form.is_some_and(|form| form.is_async);
        let words = std::mem::take(&mut destination.words);
        let names = Names::new(Arc::clone(&destination.store), others);
        for (path, file) in destination.log.files() {
            // A logged path outside the destination does not belong to this transfer.
            if let Ok(Some(path)) = below(&destination.prefix, path) {
                names.take(&path, &file.partial.name);
            }
        }
        Self {
            names,
            small: Mutex::new(HashMap::default()),
            ended: Mutex::new(Vec::new()),
            begin_records: BeginRecords::default(),
            unsynced: Mutex::new(HashSet::default()),
            undurable: Mutex::new(HashSet::default()),
            store: Arc::clone(&destination.store),
            handles: Handles::new(Arc::clone(&destination.store)),
            lease: destination.take_lease(),
            logs_apart,
            destination: Mutex::new(destination),
            options,
            folders: Folders::default(),
            asked,
            is_over: AtomicBool::new(false),
            touched: Touched::default(),
            met: Mutex::new(HashSet::default()),
            neighbours: Mutex::new(neighbours),
            others: Mutex::default(),
            object_bytes_max,
            read_back: ReadBack::default(),
            commits: Commits::of(form),
            strays,
            words,
            notices: Mutex::default(),
        }
    }

    /// Adds a notice for the end of the session, up to [`NOTICES_MAX`].
    pub(super) fn tell(&self, notice: Error) {
        let mut notices = self.notices.lock_unpoisoned();
        if notices.len() < NOTICES_MAX {
            notices.push(notice);
        }
    }

    pub(super) fn take_notices(&self) -> Vec<Error> {
        std::mem::take(&mut *self.notices.lock_unpoisoned())
    }

    /// Returns `removed`. If a removal failed, remembers that the end of the session must search
    /// the folder for partial files.
    pub(super) fn noting<T>(&self, path: &RelPath, removed: Result<T>) -> Result<T> {
        if removed.is_err() {
            self.strays.note(&folder_of(path));
        }
        removed
    }

    /// Locks and returns the destination.
    ///
    /// # Errors
    /// If a thread panicked while it held the lock, because the state of the destination is unknown
    /// then.
    pub(super) fn destination(&self) -> Result<MutexGuard<'_, Destination>> {
        self.destination.lock().map_err(|_| {
            Error::new(ErrorKind::Internal, End::Sink, "use the object log")
                .cause("a thread that was using the log panicked")
                .remedy("report this error; run the same command again")
        })
    }

    /// Checks that this transfer still holds the lease.
    pub(super) fn check_lease(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), Lease::check)
    }

    /// Does the same as [`Self::check_lease`], for frequent calls. May use the result of a recent
    /// check.
    pub(super) fn check_lease_often(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), Lease::check_often)
    }

    pub(super) fn commit(&self, destination: &mut Destination) -> Result<()> {
        destination.log.commit()?;
        for (path, name) in self.ended.lock_unpoisoned().drain(..) {
            self.names.release(&path, &name);
        }
        Ok(())
    }

    /// Writes a part of a prepared file.
    pub(super) fn write_at(&self, open: &Arc<OpenFile>, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.handles.of(open)?.write_at(offset, bytes);
        self.noted(open, written)
    }

    /// Fills a part of a prepared file by sharing blocks with the source file. Returns `false` if
    /// the part has to be written instead.
    pub(super) fn share(
        &self,
        open: &Arc<OpenFile>,
        range: ByteRange,
        extent: &Extent,
    ) -> Result<bool> {
        let given = extent.give(&*self.handles.of(open)?, range);
        self.noted(open, given)
    }

    /// Makes a range a hole. A new partial file already is one hole.
    pub(super) fn punch(&self, open: &Arc<OpenFile>, range: ByteRange) -> Result<()> {
        if open.is_one_hole() {
            Ok(())
        } else {
            let punched = self.handles.of(open)?.punch_hole(range);
            self.noted(open, punched)
        }
    }

    pub(super) fn write_small(
        &self,
        path: &RelPath,
        bytes: &[u8],
        holes: &[ByteRange],
        metadata: &Metadata,
    ) -> Result<()> {
        // Check before each small file: if the lease is lost, its new holder may already be
        // writing.
        self.check_lease_often()?;
        let sums = self.wants_sums().then(|| Sums::of(bytes));
        self.make_small(path, bytes, holes, &Attributes { metadata, sums })
            .map(|_| ())
    }

    /// Returns true if the store needs the checksums of files, either to keep or to compare them.
    pub(super) fn wants_sums(&self) -> bool {
        self.options.checksum_attributes || self.store.capabilities().compares_sums
    }

    pub(super) fn make_small(
        &self,
        path: &RelPath,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<Small> {
        // Discard an earlier partial file of this file. It can exist, because the source sends a
        // whole pack again if one file of the pack fails.
        self.discard_small(path)?;
        let write = |name: &Name| {
            let written = self.store.write_small(path, name, bytes, holes, attributes);
            unless(ErrorKind::AlreadyExists, written)
        };
        let (name, id) = self.names.claim(path, write)?;
        let small = Small {
            name,
            id,
            bytes: bytes.len() as u64,
        };
        self.small
            .lock_unpoisoned()
            .insert(path.clone(), small.clone());
        Ok(small)
    }

    /// Removes a failed small file. A small file has no record, so the next run cannot use its
    /// data. A file of the same name that another transfer made stays.
    pub(super) fn discard_small(&self, path: &RelPath) -> Result<()> {
        let small = self.small.lock_unpoisoned().remove(path);
        if let Some(small) = small {
            let discarded = self.store.discard(path, &small.name, Some(small.id));
            self.noting(path, discarded)?;
            self.names.release(path, &small.name);
        }
        Ok(())
    }

    /// Returns the name of a small file's partial file, or `None` if it was published or discarded.
    pub(super) fn small_name(&self, path: &RelPath) -> Option<Name> {
        self.small
            .lock_unpoisoned()
            .get(path)
            .map(|small| small.name.clone())
    }

    pub(super) fn log(&self, records: &[(FileNumber, ByteRange, Sums)]) -> Result<()> {
        let mut destination = self.destination()?;
        // The lock may have been held for longer than a check of the lease is valid.
        self.check_lease_often()?;
        let began = Instant::now();
        for (number, range, sums) in records {
            destination.log.done(*number, *range, *sums)?;
        }
        self.commit(&mut destination)?;
        self.commits.add(began.elapsed());
        destination.log.compact_if_worth_it()?;
        Ok(())
    }

    /// Stops publishing. Releases the threads that wait for a server's checksum.
    pub(super) fn hurry(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.read_back.stop();
        if let Some(check) = self.destination.lock_unpoisoned().final_check() {
            check.give_up();
        }
    }

    /// Returns true after a call of [`Self::hurry`].
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(super) fn publish(&self, open: Option<&Arc<OpenFile>>, item: &PublishItem) -> Result<()> {
        // Do not hold the lock during the comparison, because a server may take long to answer.
        let check = self.destination.lock_unpoisoned().final_check();
        if let Some(check) = check {
            check.compare(&item.sums)?;
        }
        let how = how(item.replace);
        // The stored checksum must cover only bytes that this run has read or written. If earlier
        // bytes were not read again, store no checksum.
        let is_unread = open.is_some_and(|open| open.is_unread());
        let keeps = self.wants_sums() && (!is_unread || self.store.capabilities().compares_sums);
        let sums = keeps.then_some(item.sums);
        let attributes = Attributes {
            metadata: &item.metadata,
            sums,
        };
        if item.small {
            let path = &item.path;
            let small = if item.size == 0 {
                self.make_small(path, &[], &[], &attributes)?
            } else {
                let written = self.small.lock_unpoisoned().get(path).cloned();
                written.ok_or_else(|| no_partial("publish the file"))?
            };
            if small.bytes != item.size {
                let (size, bytes) = (item.size, small.bytes);
                return Err(
                    Error::new(ErrorKind::Internal, End::Sink, "publish the file")
                        .cause(format!(
                            "{bytes} bytes were written, but the file has {size} bytes"
                        ))
                        .remedy("report this error"),
                );
            }
            self.store.publish_small(path, &small.name, small.id, how)?;
            self.small.lock_unpoisoned().remove(path);
            self.names.release(path, &small.name);
            if item.size == 0 {
                self.note_unsynced(path);
            }
            return Ok(());
        }
        let open = open.ok_or_else(|| no_partial("publish the file"))?;
        let partial = self.handles.of(open)?;
        partial.ready(&attributes)?;
        // Check the lease again, because `ready` may have taken minutes. If the lease was lost, its
        // new holder may write under the same partial name.
        self.check_lease()?;
        partial.publish(how, &attributes)?;
        open.set_published();
        self.note_unsynced(&item.path);
        // With `--durability none`, no later step waits until the name is durable.
        if self.options.durability != Durability::None {
            self.undurable.lock_unpoisoned().insert(item.path.clone());
        }
        Ok(())
    }

    fn note_unsynced(&self, path: &RelPath) {
        // With `--durability none`, no file is synced.
        if self.options.durability != Durability::None {
            self.unsynced.lock_unpoisoned().insert(path.clone());
        }
    }

    pub(super) fn touch(&self, folder: RelPath) {
        // With `--durability none`, no folder is synced.
        if self.options.durability != Durability::None {
            self.touched.add(folder);
        }
    }

    pub(super) fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        self.store.set_directory(path, metadata)?;
        self.touch(path.clone());
        Ok(())
    }

    /// Closes a file. If the final name of the file is durable, records the end of the file in the
    /// log. Otherwise the log keeps the record of the file for the next run, because a crash may
    /// still undo the final name.
    pub(super) fn close(&self, open: &Arc<OpenFile>) {
        let is_undurable = self.undurable.lock_unpoisoned().remove(&open.path);
        if open.is_published() && !is_undurable {
            // The log contains this end only after the next commit. After a crash before the
            // commit, the next run finds the final name and no partial file, and counts the file as
            // complete.
            let Ok(mut destination) = self.destination() else {
                return;
            };
            let ended = destination.log.end_file(open.number, Ending::Published);
            if ended.is_ok() {
                self.ended
                    .lock_unpoisoned()
                    .push((open.path.clone(), open.name.clone()));
            }
        }
    }
}

pub(super) fn no_partial(operation: &str) -> Error {
    Error::new(ErrorKind::Internal, End::Sink, operation).cause("the partial file is not open")
}

#[cfg(test)]
mod tests {
    use crate::sink::sync::SyncPath;
    use crate::sink::testing::{key, path, space, store};
    use dray_core::{ByteRange, FileIndex, Metadata, Sums};
    use dray_session::sink::{PublishItem, SyncGroup};

    /// Publishes a file and closes it. Returns true if the log still has a record of the file.
    fn is_kept(is_synced: bool) -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        let space = space(store(folder.path()), None, "test");
        let path = path("large");
        let (open, _) = space.prepare(&path, key(), 5, false, None).expect("begun");
        space.write_at(&open, 0, b"bytes").expect("written");
        let sums = Sums::of(b"bytes");
        let record = (open.number, ByteRange::between(0, 5), sums);
        space.log(&[record]).expect("logged");
        let item = PublishItem {
            index: FileIndex(0),
            path: path.clone(),
            size: 5,
            small: false,
            metadata: Metadata::default(),
            sums,
            replace: true,
        };
        space.publish(Some(&open), &item).expect("published");
        if is_synced {
            let failed = space
                .sync(SyncGroup::Main, &[SyncPath::Published(path)])
                .expect("synced");
            assert!(failed.is_empty(), "{failed:?}");
        }
        space.close(&open);
        space.log(&[]).expect("committed");
        let destination = space.destination().expect("no panic");
        dray_log::ObjectLog::files(&destination.log)
            .next()
            .is_some()
    }

    #[test]
    fn the_record_of_a_published_file_ends_once_its_name_is_durable() {
        assert!(is_kept(false));
        assert!(!is_kept(true));
    }
}
