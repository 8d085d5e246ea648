//! Makes many files durable in one call.
//!
//! A few items are synced one by one. Many items are synced with one `syncfs` for each file system.
//! Each `fsync` commits the file system's journal and flushes the device's cache, and one commit
//! and one flush suffice for a group of small files. `syncfs` also writes the dirty data of other
//! programs, so it can be slower than a few calls of `fsync`.
//!
//! On a file system without a usable `syncfs`, such as a mount of a network file system, several
//! threads sync the items. Otherwise an item on a slow server would delay the items on all servers.

use super::folders::Folder;
use super::{PosixStore, calls};
use crate::types::SyncItem;
use dray_core::{Name, RelPath, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of items of one file system that are synced one by one. Measured with
/// `examples/small_files.rs` on ext4 with files of 16 KiB on a loaded host: one `fsync` takes 3 to
/// 5 ms, and one `syncfs` takes 4 to 9 ms for 1 to 64 files. By time alone the limit would be 2.
/// The limit is higher because `syncfs` also waits for all other dirty data of the file system.
pub(super) const SYNC_EACH_MAX: usize = 4;

/// Number of threads that sync items on a file system without a usable `syncfs`. The value is
/// estimated, not measured.
const SYNC_THREADS: usize = 8;

/// Result of one item. The outer error concerns all items of the call.
type Synced = Result<Result<()>>;

/// An item and the folder that contains it.
struct ItemInFolder<'a> {
    path: &'a RelPath,
    folder: Arc<Folder>,
    /// Name of the item in the folder; `None` if the item is the folder itself.
    name: Option<&'a [u8]>,
}

impl PosixStore {
    pub(super) fn sync_items(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut answers = Vec::with_capacity(items.len());
        let mut groups: BTreeMap<u64, Vec<(usize, ItemInFolder<'_>)>> = BTreeMap::new();
        for (place, item) in items.iter().enumerate() {
            match self.find(item) {
                Ok(found) => {
                    let group = groups.entry(found.folder.device).or_default();
                    group.push((place, found));
                    answers.push(Ok(()));
                }
                Err(errno) => answers.push(self.answer(item.path(), errno)?),
            }
        }
        for group in groups.values() {
            self.sync_group(group, &mut answers)?;
        }
        Ok(answers)
    }

    fn find<'a>(&self, item: &SyncItem<'a>) -> rustix::io::Result<ItemInFolder<'a>> {
        let (path, name) = match *item {
            SyncItem::Folder(path) => (path, None),
            SyncItem::File(path) => (path, Some(super::resolve::split(path.as_bytes()).1)),
            SyncItem::Partial { path, name } => (path, Some(Name::as_bytes(name))),
        };
        let at = match name {
            None => path.as_bytes(),
            Some(_) => super::resolve::split(path.as_bytes()).0,
        };
        let folder = self.folders.at(at)?;
        Ok(ItemInFolder { path, folder, name })
    }

    /// Returns the result for an item that could not be opened.
    ///
    /// # Errors
    /// An error that concerns the host or the storage and not only this item. The caller then fails
    /// the whole call, because all other items would probably fail too.
    fn answer(&self, path: &RelPath, errno: Errno) -> Result<Result<()>> {
        let error = self.place(path).error("sync", errno);
        match errno {
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::ACCESS
            | Errno::PERM => Ok(Err(error)),
            _ => Err(error),
        }
    }

    fn sync_group(
        &self,
        group: &[(usize, ItemInFolder<'_>)],
        answers: &mut [Result<()>],
    ) -> Result<()> {
        if let Some((_, any)) = group.get(SYNC_EACH_MAX)
            && any.syncs_whole()
        {
            return self.sync_file_system(any);
        }
        let waits = group.iter().any(|(_, found)| !found.syncs_whole());
        let threads = if waits { SYNC_THREADS } else { 1 };
        for (place, answer) in self.sync_each_of(group, threads) {
            answers[place] = answer?;
        }
        Ok(())
    }

    /// Syncs the items of a group one by one, and returns the result of each item. The outer error
    /// of an item ends the work, so some items may have no result.
    fn sync_each_of(
        &self,
        group: &[(usize, ItemInFolder<'_>)],
        threads: usize,
    ) -> Vec<(usize, Synced)> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut synced = Vec::new();
            while let Some((place, found)) = group.get(next.fetch_add(1, Ordering::Relaxed)) {
                let answer = self.sync_one(found);
                if answer.is_err() {
                    next.store(group.len(), Ordering::Relaxed);
                }
                synced.push((*place, answer));
            }
            synced
        };
        std::thread::scope(|scope| {
            // The system may refuse to start a thread. This thread then syncs the items itself.
            let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads.min(group.len())).map_while(start).collect();
            let mut synced = work();
            for other in others {
                match other.join() {
                    Ok(more) => synced.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            synced
        })
    }

    fn sync_one(&self, found: &ItemInFolder<'_>) -> Synced {
        match found.open() {
            Ok(file) => calls::fsync(file.fd())
                .map(Ok)
                .map_err(|errno| self.place(found.path).error("sync", errno)),
            // The mode of the file forbids opening it. Sync the whole file system instead, if
            // `syncfs` makes data durable there.
            Err(Errno::ACCESS) if found.syncs_whole() => self.sync_file_system(found).map(Ok),
            Err(Errno::ACCESS) => Err(self.place(found.path).error("sync", Errno::ACCESS)),
            Err(errno) => self.answer(found.path, errno),
        }
    }

    fn sync_file_system(&self, any: &ItemInFolder<'_>) -> Result<()> {
        let place = self.place(any.path);
        match &any.folder.system {
            None => Err(place.error("sync", Errno::ACCESS)),
            Some(system) => system.sync(&place),
        }
    }
}

/// The descriptor or folder on which `fsync` is called.
enum ToSync<'a> {
    File(OwnedFd),
    Folder(BorrowedFd<'a>),
}

impl ToSync<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(fd) => fd.as_fd(),
            Self::Folder(fd) => *fd,
        }
    }
}

impl ItemInFolder<'_> {
    fn syncs_whole(&self) -> bool {
        let system = self.folder.system.as_ref();
        system.is_some_and(|system| system.syncs_whole())
    }

    fn open(&self) -> rustix::io::Result<ToSync<'_>> {
        let folder = self.folder.fd();
        let Some(name) = self.name else {
            return match self.folder.is_readable {
                true => Ok(ToSync::Folder(folder)),
                false => Err(Errno::ACCESS),
            };
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            // A symbolic link has no content except its target. The target becomes durable with the
            // folder.
            Err(Errno::LOOP) => Ok(ToSync::Folder(folder)),
            // The mode permits only writing, so open the file for writing.
            Err(Errno::ACCESS) => {
                let flags = flags.difference(OFlags::RDONLY) | OFlags::WRONLY;
                rustix::fs::openat(folder, name, flags, Mode::empty()).map(ToSync::File)
            }
            opened => opened.map(ToSync::File),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PosixOptions;
    use dray_core::{End, ErrorKind};

    /// A local file system needs no threads, so this test calls the inner function.
    #[test]
    fn threads_keep_the_result_of_each_item() {
        let top = tempfile::tempdir().expect("made");
        let store = PosixStore::open(top.path(), End::Sink, PosixOptions::default());
        let store = store.expect("opened");
        let paths: Vec<RelPath> = (0..30)
            .map(|number| RelPath::parse(format!("f{number}").as_bytes()).expect("a path"))
            .collect();
        for path in paths.iter().filter(|path| path.as_bytes() != b"f17") {
            let name = std::str::from_utf8(path.as_bytes()).expect("text");
            std::fs::write(top.path().join(name), name).expect("written");
        }
        let items: Vec<SyncItem<'_>> = paths.iter().map(SyncItem::File).collect();
        let found = items.iter().map(|item| store.find(item).expect("found"));
        let group: Vec<_> = found.enumerate().collect();
        for threads in [1, SYNC_THREADS] {
            let mut synced = store.sync_each_of(&group, threads);
            synced.sort_by_key(|(place, _)| *place);
            assert_eq!(synced.len(), group.len());
            for (at, (place, answer)) in synced.into_iter().enumerate() {
                let kind = answer
                    .expect("no outer error")
                    .err()
                    .map(|error| error.kind);
                let wanted = (at == 17).then_some(ErrorKind::NotFound);
                assert_eq!((place, kind), (at, wanted), "{threads} threads");
            }
        }
    }
}
