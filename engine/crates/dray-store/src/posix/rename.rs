//! Renames an entry without replacing another entry.

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::{Errno, Result};

/// An entry: its folder and its name in this folder.
type Place<'a> = (BorrowedFd<'a>, &'a [u8]);

/// Renames an entry, unless the new name exists.
///
/// A file system may be unable to rename without replacing, for example NFS. A file then gets a
/// second hard link with the new name, and loses the old name. This is also atomic. A folder cannot
/// have a second link. So the call first looks for the new name. If another program creates an empty
/// folder with this name in the meantime, the renamed folder replaces the empty folder.
///
/// # Errors
/// [`Errno::EXIST`] if the new name exists; errors of the file system.
pub fn rename_new(from: Place<'_>, to: Place<'_>) -> Result<()> {
    let ((folder, old), (new_folder, new)) = (from, to);
    match rustix::fs::renameat_with(folder, old, new_folder, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        other => return other,
    }
    match rustix::fs::linkat(folder, old, new_folder, new, AtFlags::empty()) {
        Ok(()) => rustix::fs::unlinkat(folder, old, AtFlags::empty()),
        // Linux answers `PERM` for a folder.
        Err(Errno::PERM) => match rustix::fs::statat(new_folder, new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(folder, old, new_folder, new),
            Err(errno) => Err(errno),
        },
        Err(errno) => Err(errno),
    }
}
