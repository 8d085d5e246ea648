//! Durability of many files at once.
//!
//! Few items are synced one by one. Many are synced by one `syncfs` per file system: each `fsync` is
//! a commit of the file system's journal and a flush of the device's cache, and a group of small
//! files needs only one of both. `syncfs` also writes what others have written there, which is why
//! it is not always the better one.

use super::folders::Folder;
use super::{Place, PosixStore};
use crate::types::SyncItem;
use dray_core::{Error, ErrorKind, Name, RelPath, Result, Status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Items of one file system that are still synced one by one. Measured with
/// `examples/small_files.rs` on ext4, files of 16 KiB, host under load: one `fsync` takes 3 to 5 ms,
/// one `syncfs` 4 to 9 ms for 1 to 64 files, so time alone would say 2; a few more, because `syncfs`
/// also waits for whatever else is dirty on that file system.
pub(super) const SYNC_EACH_MAX: usize = 4;

/// A file system met by this store.
#[derive(Debug)]
pub(super) struct FileSystem {
    /// Kept open from the first sight on: `syncfs` reports a loss of writes to every descriptor
    /// that was open when it happened, once.
    fd: OwnedFd,
    /// Whether a loss was reported. It may have been anybody's writes, so nobody's count any more.
    /// The lock is held during `syncfs`, so that no one is told "durable" while another is told of
    /// the loss.
    has_failed: Mutex<bool>,
}

/// All file systems met by a store, by device number.
#[derive(Debug, Default)]
pub(super) struct FileSystems {
    known: Mutex<HashMap<u64, Arc<FileSystem>>>,
}

impl FileSystems {
    /// The file system `device`, watched from now on. Called for each folder that is opened, so
    /// before anything is written there. `None` when no folder of it could be read so far.
    pub(super) fn of(&self, folder: BorrowedFd<'_>, device: u64) -> Option<Arc<FileSystem>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&device) {
            return Some(Arc::clone(found));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(folder, ".", flags, Mode::empty()).ok()?;
        let new = Arc::new(FileSystem {
            fd,
            has_failed: Mutex::new(false),
        });
        known.insert(device, Arc::clone(&new));
        Some(new)
    }
}

/// An item with the folder it lies in.
struct Found<'a> {
    path: &'a RelPath,
    folder: Arc<Folder>,
    /// What to sync in the folder; `None` for the folder itself.
    name: Option<&'a [u8]>,
}

impl PosixStore {
    pub(super) fn sync_items(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut answers = Vec::with_capacity(items.len());
        let mut groups: BTreeMap<u64, Vec<(usize, Found<'_>)>> = BTreeMap::new();
        for (place, item) in items.iter().enumerate() {
            match self.find(item) {
                Ok(found) => {
                    let group = groups.entry(found.folder.device).or_default();
                    group.push((place, found));
                    answers.push(Ok(()));
                }
                Err(errno) => answers.push(self.answer(path_of(item), errno)?),
            }
        }
        for group in groups.values() {
            self.sync_group(group, &mut answers)?;
        }
        Ok(answers)
    }

    fn find<'a>(&self, item: &SyncItem<'a>) -> rustix::io::Result<Found<'a>> {
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
        Ok(Found { path, folder, name })
    }

    /// The answer for an item that could not be opened.
    ///
    /// # Errors
    /// When that says nothing of the item: there may be no loss at all, and the others would hardly
    /// fare better.
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

    fn sync_group(&self, group: &[(usize, Found<'_>)], answers: &mut [Result<()>]) -> Result<()> {
        if group.len() > SYNC_EACH_MAX {
            return match group.first() {
                Some((_, any)) => self.sync_file_system(any),
                None => Ok(()),
            };
        }
        for (place, found) in group {
            match found.open() {
                Ok(file) => rustix::io::retry_on_intr(|| rustix::fs::fsync(file.fd()))
                    .map_err(|errno| self.place(found.path).error("sync", errno))?,
                // May not be opened for reading, by its mode: the whole file system, then.
                Err(Errno::ACCESS) => self.sync_file_system(found)?,
                Err(errno) => answers[*place] = self.answer(found.path, errno)?,
            }
        }
        Ok(())
    }

    fn sync_file_system(&self, any: &Found<'_>) -> Result<()> {
        let place = self.place(any.path);
        let Some(system) = &any.folder.system else {
            return Err(place.error("sync", Errno::ACCESS));
        };
        let mut has_failed = system
            .has_failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *has_failed {
            return Err(lost(&place));
        }
        rustix::io::retry_on_intr(|| rustix::fs::syncfs(&system.fd)).map_err(|errno| {
            *has_failed = true;
            place.error("sync the file system", errno)
        })
    }
}

fn path_of<'a>(item: &SyncItem<'a>) -> &'a RelPath {
    match *item {
        SyncItem::Folder(path) | SyncItem::File(path) | SyncItem::Partial { path, .. } => path,
    }
}

/// What an `fsync` is asked of.
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

impl Found<'_> {
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
            // A symbolic link has no content but its text, which is durable with its folder.
            Err(Errno::LOOP) => Ok(ToSync::Folder(folder)),
            opened => opened.map(ToSync::File),
        }
    }
}

fn lost(place: &Place) -> Error {
    Error::new(ErrorKind::Io, place.end, "sync the file system")
        .file(&place.path)
        .cause("it lost writes before; what was not durable then is in doubt")
        .remedy("look at the storage, then run the same command again")
        .status(Status::Permanent)
}
