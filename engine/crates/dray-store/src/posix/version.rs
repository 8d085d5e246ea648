//! Versions of folders, from the fields of their inodes.

use super::device_of;
use crate::types::FolderVersion;
use dray_core::ModifiedTime;
use rustix::fs::{FileType, Stat};

/// Returns the version of a folder: device, inode number, modification time and change time. POSIX
/// requires that each change of the entries sets both times. Returns `None` if the entry is no
/// folder, or if the file system keeps no times of folders and reports zero.
pub(super) fn of_folder(stat: &Stat) -> Option<FolderVersion> {
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if !is_folder || stat.st_mtime <= 0 || stat.st_ctime <= 0 {
        return None;
    }
    let nanoseconds = |value| u32::try_from(value).unwrap_or(0);
    let modified = (stat.st_mtime, nanoseconds(stat.st_mtime_nsec));
    let changed = (stat.st_ctime, nanoseconds(stat.st_ctime_nsec));
    let mut bytes = Vec::with_capacity(40);
    bytes.extend_from_slice(&device_of(stat).to_le_bytes());
    bytes.extend_from_slice(&stat.st_ino.to_le_bytes());
    for (seconds, nanoseconds) in [modified, changed] {
        bytes.extend_from_slice(&seconds.to_le_bytes());
        bytes.extend_from_slice(&nanoseconds.to_le_bytes());
    }
    let (seconds, nanoseconds) = modified.max(changed);
    Some(FolderVersion {
        bytes,
        changed: ModifiedTime {
            seconds,
            nanoseconds,
        },
    })
}
