//! File systems that a store uses. The store keeps a descriptor of each file system open from the
//! first use, so that the kernel reports lost writes to this descriptor.

use super::{ErrorContext, calls};
use dray_core::lock::LockExt;
use dray_core::{Error, ErrorKind, Result, Status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex};

#[derive(Debug)]
pub(super) struct FileSystem {
    /// A descriptor that stays open from the first use. `syncfs` reports lost writes once to each
    /// descriptor that was open when the writes were lost.
    fd: OwnedFd,
    device: u64,
    /// Kind of the file system (`f_type` of `statfs(2)`).
    kind: Option<u64>,
    /// True if `syncfs` makes the data durable and reports lost writes.
    syncs_whole: bool,
    /// True after a reported loss of writes. The loss may concern any file, so no later sync counts
    /// as durable. The lock is held during `syncfs`. Otherwise one thread could report success
    /// while another thread gets the error.
    has_failed: Mutex<bool>,
}

impl FileSystem {
    pub(super) const fn kind(&self) -> Option<u64> {
        self.kind
    }

    pub(super) const fn syncs_whole(&self) -> bool {
        self.syncs_whole
    }

    /// Syncs the whole file system. Errors report the entry at `place`.
    pub(super) fn sync(&self, place: &ErrorContext) -> Result<()> {
        let mut has_failed = self.has_failed.lock_unpoisoned();
        if *has_failed {
            return Err(lost(place));
        }
        calls::syncfs(&self.fd).map_err(|errno| {
            *has_failed = true;
            LOSSES.lock_unpoisoned().insert(self.device);
            place.error("sync the file system", errno)
        })
    }
}

/// Device numbers of the file systems of which a `syncfs` of this process has failed. A store that is
/// opened later calls `fsync` for each file there: the descriptor of its `syncfs` is younger than
/// the loss, so `syncfs` would not report it, but `fsync` reports the loss of each file once.
static LOSSES: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// File systems on which `syncfs` has the same effect as `fsync` of every file: ext2 to ext4, XFS,
/// btrfs, f2fs and tmpfs (linux/magic.h). On FUSE, Lustre and other file systems, `syncfs` may
/// return before any data is durable.
const SYNC_WHOLE: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// First kernel version in which `syncfs` reports lost writes.
const SYNCFS_SAYS: (u32, u32) = (5, 8);

/// Returns the kind of the file system of an open file. On some network file systems this call waits
/// for every server.
pub(super) fn kind_of(fd: BorrowedFd<'_>) -> Option<u64> {
    let found = rustix::fs::fstatfs(fd).ok()?;
    u64::try_from(found.f_type).ok()
}

fn can_sync_whole(kind: Option<u64>) -> bool {
    static KERNEL_SAYS: LazyLock<bool> = LazyLock::new(|| {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let mut numbers = release.split(|byte: char| !byte.is_ascii_digit());
        let mut next = || numbers.next().and_then(|number| number.parse().ok());
        (next().unwrap_or(0), next().unwrap_or(0)) >= SYNCFS_SAYS
    });
    *KERNEL_SAYS && kind.is_some_and(|kind| SYNC_WHOLE.contains(&kind))
}

/// All file systems that a store uses, by device number.
#[derive(Debug, Default)]
pub(super) struct FileSystems {
    known: Mutex<HashMap<u64, Arc<FileSystem>>>,
}

impl FileSystems {
    /// Returns the file system with the device number `device`, and keeps a descriptor of the file
    /// system open from now on. The store calls this function for each folder that it opens, before
    /// it writes to the folder. Returns `None` if no folder of the file system could be opened for
    /// reading yet.
    pub(super) fn of(&self, folder: BorrowedFd<'_>, device: u64) -> Option<Arc<FileSystem>> {
        let mut known = self.known.lock_unpoisoned();
        if let Some(found) = known.get(&device) {
            return Some(Arc::clone(found));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(folder, ".", flags, Mode::empty()).ok()?;
        let kind = kind_of(fd.as_fd());
        let has_lost = LOSSES.lock_unpoisoned().contains(&device);
        let new = Arc::new(FileSystem {
            device,
            kind,
            syncs_whole: can_sync_whole(kind) && !has_lost,
            fd,
            has_failed: Mutex::new(false),
        });
        known.insert(device, Arc::clone(&new));
        Some(new)
    }
}

fn lost(place: &ErrorContext) -> Error {
    Error::new(ErrorKind::Io, place.end, "sync the file system")
        .file(&place.path)
        .cause("the file system lost earlier writes, so data that was not durable yet may be lost")
        .remedy("check the storage, then run the same command again")
        .status(Status::Permanent)
}
