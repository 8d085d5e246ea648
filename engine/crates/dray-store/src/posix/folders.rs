//! A cache of open folders. With an open folder, a look-up of a file does not start at the root.

use super::file_systems::{FileSystem, FileSystems};
use super::layouts::Layouts;
use super::resolve::{Root, split};
use dray_core::TargetId;
use dray_core::lock::LockExt;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Maximum number of folders kept open in the cache: a quarter of 1024, the usual soft limit on
/// open files. A further folder replaces the one that was used least recently.
const FOLDERS_MAX: usize = 256;

/// Number of parts of the cache, each with its own lock. Several parts reduce contention between
/// I/O threads. The value is estimated, not measured.
const SHARDS: usize = 16;

/// Maximum age of a cached folder. If a folder is moved, writes still reach it at its new path for
/// at most this time. The value is estimated, not measured.
const AGE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    /// Device number of the file system of this folder.
    pub(super) device: u64,
    /// Storage target of the files in this folder.
    pub(super) target: TargetId,
    /// True if the folder is open for reading. Otherwise the descriptor can be used only for
    /// look-ups.
    pub(super) is_readable: bool,
    /// File system that is synced for the entries of this folder.
    pub(super) system: Option<Arc<FileSystem>>,
    has_default_acl: OnceLock<bool>,
}

impl Folder {
    fn open(folders: &Folders, path: &[u8]) -> Result<Self> {
        let (fd, is_readable) = folders.root.open_folder(path)?;
        let device = super::device_of(&rustix::fs::fstat(&fd)?);
        Ok(Self {
            device,
            target: folders.layouts.of_folder(fd.as_fd(), path, device),
            is_readable,
            system: folders.file_systems.of(fd.as_fd(), device),
            fd,
            has_default_acl: OnceLock::new(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns true if a default access control list, and not the umask, determines the mode of new
    /// files in this folder. The file system is asked once for each folder.
    pub(super) fn has_default_acl(&self) -> bool {
        *self.has_default_acl.get_or_init(|| {
            let name = c"system.posix_acl_default";
            let mut none: [u8; 0] = [];
            !matches!(
                rustix::fs::fgetxattr(&self.fd, name, &mut none[..]),
                Err(Errno::NODATA | Errno::OPNOTSUPP)
            )
        })
    }
}

#[derive(Debug)]
struct Slot {
    folder: Arc<Folder>,
    found: Instant,
    used: Instant,
}

type Shard = Mutex<HashMap<Box<[u8]>, Slot>>;

#[derive(Debug)]
pub(super) struct Folders {
    root: Arc<Root>,
    layouts: Arc<Layouts>,
    file_systems: FileSystems,
    hasher: RandomState,
    shards: [Shard; SHARDS],
    /// Time when old folders were last closed.
    swept: Mutex<Instant>,
}

impl Folders {
    pub(super) fn new(root: Arc<Root>, layouts: Arc<Layouts>) -> Self {
        Self {
            root,
            layouts,
            file_systems: FileSystems::default(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Shard::default()),
            swept: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn at(&self, path: &[u8]) -> Result<Arc<Folder>> {
        self.at_moment(path, Instant::now())
    }

    fn at_moment(&self, path: &[u8], now: Instant) -> Result<Arc<Folder>> {
        {
            let mut shard = self.shard(path);
            if let Some(slot) = shard.get_mut(path)
                && now.duration_since(slot.found) < AGE_MAX
            {
                slot.used = now;
                return Ok(Arc::clone(&slot.folder));
            }
        }
        let folder = Arc::new(Folder::open(self, path)?);
        self.keep(path, Arc::clone(&folder), now);
        Ok(folder)
    }

    /// Calls `work` with the folder of `path` and the last name of `path`. If the folder was
    /// removed after it was opened, looks the folder up again and repeats the call.
    ///
    /// The root has no containing folder and gives `EISDIR`.
    pub(super) fn beside<T>(
        &self,
        path: &[u8],
        work: impl Fn(&Arc<Folder>, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let (above, name) = split(path);
        if name.is_empty() {
            return Err(Errno::ISDIR);
        }
        let folder = self.at(above)?;
        match work(&folder, name) {
            Err(Errno::NOENT | Errno::STALE) if is_removed(&folder) => {
                self.forget(above);
                work(&self.at(above)?, name)
            }
            other => other,
        }
    }

    /// Removes the folder at `path` from the cache, because it was deleted or replaced.
    pub(super) fn forget(&self, path: &[u8]) {
        self.shard(path).remove(path);
    }

    /// Closes the folders that were opened more than [`AGE_MAX`] ago, at most once in that time. An
    /// open folder would keep the space of a deleted folder allocated and would keep its file
    /// system from being unmounted.
    fn sweep(&self, now: Instant) {
        let mut swept = self.swept.lock_unpoisoned();
        if now.duration_since(*swept) < AGE_MAX {
            return;
        }
        *swept = now;
        drop(swept);
        for shard in &self.shards {
            let mut shard = shard.lock_unpoisoned();
            shard.retain(|_, slot| now.duration_since(slot.found) < AGE_MAX);
        }
    }

    fn keep(&self, path: &[u8], folder: Arc<Folder>, now: Instant) {
        self.sweep(now);
        let slot = Slot {
            folder,
            found: now,
            used: now,
        };
        let mut shard = self.shard(path);
        if shard.len() >= FOLDERS_MAX / SHARDS && !shard.contains_key(path) {
            let oldest = shard.iter().min_by_key(|(_, slot)| slot.used);
            if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
                shard.remove(&oldest);
            }
        }
        shard.insert(path.into(), slot);
    }

    fn shard(&self, path: &[u8]) -> std::sync::MutexGuard<'_, HashMap<Box<[u8]>, Slot>> {
        let at = self.hasher.hash_one(path) as usize % SHARDS;
        self.shards[at].lock_unpoisoned()
    }
}

fn is_removed(folder: &Folder) -> bool {
    rustix::fs::fstat(&folder.fd).is_ok_and(|stat| stat.st_nlink == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_too_old_to_be_used_are_closed() {
        let top = tempfile::tempdir().expect("made");
        let names = ["a", "b", "c", "d", "e", "f"];
        for name in names {
            std::fs::create_dir(top.path().join(name)).expect("made");
        }
        let store = crate::PosixStore::open(
            top.path(),
            dray_core::End::Sink,
            crate::PosixOptions::default(),
        );
        let store = store.expect("opened");
        let folders = &store.folders;
        let now = Instant::now();
        let kept: Vec<_> = names
            .iter()
            .map(|name| folders.at_moment(name.as_bytes(), now).expect("opened"))
            .map(|folder| Arc::downgrade(&folder))
            .collect();
        assert!(kept.iter().all(|folder| folder.strong_count() == 1));
        folders
            .at_moment(b"a", now + AGE_MAX + AGE_MAX)
            .expect("opened");
        assert!(kept.iter().all(|folder| folder.strong_count() == 0));
    }
}
