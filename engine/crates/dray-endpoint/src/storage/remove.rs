//! Removes files, links and folders. On request, removes a folder with everything below it.
//!
//! Each folder is opened relative to its parent, from the root down. So a link that is put into the
//! path during the removal is not followed. Only the folders on the current path are open.

use super::{Given, above, failed};
use dray_api::api_path::ApiPath;
use dray_config::roots::Root;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_store::{StoreExt, SyncItem};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Maximum depth of folders that one call removes. All folders on the current path are open during
/// the removal. The value is estimated, not measured.
const DEPTH_MAX: usize = 128;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes the entry at `path`. Returns the number of removed entries. dray's own files in removed
/// folders are not counted.
///
/// # Errors
/// `NotFound`. `AlreadyExists` for a folder that is not empty, unless `recursive` is set. Entries
/// that were removed before an error stay removed.
pub fn remove(root: &Root, path: &ApiPath, recursive: bool, given: &Given) -> Result<u64> {
    if root.path().is_none() {
        return super::stored::remove(root, path, recursive, given);
    }
    let operation = "remove";
    let (folder, name) = above(root, &path.path, operation)?;
    let removed = match rustix::fs::unlinkat(&folder, name.as_bytes(), AtFlags::empty()) {
        Ok(()) => 1,
        Err(Errno::ISDIR) if recursive => {
            let mut sweep = Sweep { given, removed: 0 };
            sweep.folder(&folder, &name, &path.path, 0)?;
            sweep.removed
        }
        Err(Errno::ISDIR) => {
            rustix::fs::unlinkat(&folder, name.as_bytes(), AtFlags::REMOVEDIR).map_err(
                |errno| {
                    let error = failed(operation, &path.path)(errno);
                    match errno {
                        Errno::NOTEMPTY => error.remedy(
                            "set \"recursive\": true to remove the \
                            contents too",
                        ),
                        _ => error,
                    }
                },
            )?;
            1
        }
        Err(errno) => return Err(failed(operation, &path.path)(errno)),
    };
    let parent = path.path.parent().unwrap_or_else(RelPath::root);
    root.store().sync_all(&[SyncItem::Folder(&parent)])?;
    Ok(removed)
}

struct Sweep<'a> {
    given: &'a Given,
    removed: u64,
}

impl Sweep<'_> {
    /// Empties the folder `name` in `above`, then removes it.
    fn folder(&mut self, above: &OwnedFd, name: &Name, path: &RelPath, depth: usize) -> Result<()> {
        let wrong = failed("remove", path);
        if depth == DEPTH_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, End::Here, "remove")
                .file(path)
                .cause(format!(
                    "the folder has more than {DEPTH_MAX} nested folders"
                ))
                .remedy("remove the inner folders first"));
        }
        let folder =
            rustix::fs::openat(above, name.as_bytes(), FOLDER, Mode::empty()).map_err(&wrong)?;
        // One reading of a folder that changes meanwhile may miss entries. So the loop repeats
        // until a round finds no entry.
        while self.round(&folder, path, depth)? {}
        match rustix::fs::unlinkat(above, name.as_bytes(), AtFlags::REMOVEDIR) {
            Ok(()) => self.removed += 1,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(wrong(errno)),
        }
        Ok(())
    }

    /// Reads the folder once and removes all entries found. Returns true if an entry was removed.
    /// Each round removes at least one entry or fails, so the rounds end when no other program adds
    /// entries.
    fn round(&mut self, folder: &OwnedFd, path: &RelPath, depth: usize) -> Result<bool> {
        let mut has_found = false;
        for item in Dir::read_from(folder).map_err(failed("remove", path))? {
            self.given.check("remove")?;
            let item = item.map_err(failed("remove", path))?;
            let name = item.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name = Name::new(name)?;
            let below = path.join(&name)?;
            if item.file_type() == FileType::Directory {
                self.folder(folder, &name, &below, depth + 1)?;
                has_found = true;
                continue;
            }
            match rustix::fs::unlinkat(folder, name.as_bytes(), AtFlags::empty()) {
                Ok(()) => {
                    self.removed += u64::from(!name.is_reserved());
                    has_found = true;
                }
                Err(Errno::NOENT) => {}
                // The entry is a folder: some file systems do not report the type of an entry in a
                // listing.
                Err(Errno::ISDIR) => {
                    self.folder(folder, &name, &below, depth + 1)?;
                    has_found = true;
                }
                Err(errno) => return Err(failed("remove", &below)(errno)),
            }
        }
        Ok(has_found)
    }
}
