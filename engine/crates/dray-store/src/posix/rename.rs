//! Renames an entry without replacing another entry.

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::{Errno, Result};

/// An entry: its folder and its name in this folder.
type Place<'a> = (BorrowedFd<'a>, &'a [u8]);

/// Renames an entry, unless the new name exists.
///
/// Some file systems, for example NFS, cannot rename without replacing. A file then gets a second
/// hard link with the new name, and loses the old name, so the call never replaces an entry. A folder
/// cannot have a second link. So the call first looks for the new name, and then renames the folder.
/// If another program creates an empty folder with the new name in the meantime, the renamed folder
/// replaces this empty folder. A rename of a folder never replaces another entry.
///
/// # Errors
/// [`Errno::EXIST`] if the new name exists; other errors of the file system. On a file system
/// without such a rename: [`Errno::PERM`] for a file if the file system has no hard links, or if the
/// kernel permits hard links only to the owner of a file (`fs.protected_hardlinks`). After an error,
/// the file has its old name only, unless the second link cannot be removed.
pub fn rename_new(from: Place<'_>, to: Place<'_>) -> Result<()> {
    let ((folder, old), (new_folder, new)) = (from, to);
    match rustix::fs::renameat_with(folder, old, new_folder, new, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        other => return other,
    }
    let state = rustix::fs::statat(folder, old, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(state.st_mode) != FileType::Directory {
        rustix::fs::linkat(folder, old, new_folder, new, AtFlags::empty())?;
        return match rustix::fs::unlinkat(folder, old, AtFlags::empty()) {
            // Another program has removed the old name, so the new name is the only one.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => {
                // Ignore errors: the caller gets the first one.
                let _ = rustix::fs::unlinkat(new_folder, new, AtFlags::empty());
                Err(errno)
            }
        };
    }
    match rustix::fs::statat(new_folder, new, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => rustix::fs::renameat(folder, old, new_folder, new),
        Err(errno) => Err(errno),
    }
}
