//! Removes the entries of a copy, except those that must stay. The caller's function decides for
//! each entry. The remaining entries are reported.
//!
//! Works like [`super::remove`], but checks each entry immediately before its removal. So an entry
//! that changed or appeared after the caller's decision to remove the copy stays.

use super::{Given, above, failed};
use dray_api::api_path::ApiPath;
use dray_config::roots::Root;
use dray_core::{ModifiedTime, Name, RelPath, Result};
use dray_store::{FileKind, StoreExt, SyncItem};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{Access, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Maximum depth of folders. All folders on the current path are open during the walk. The value is
/// estimated, not measured.
const DEPTH_MAX: usize = 128;

/// Maximum number of remaining entries in the report.
const NAMED_MAX: usize = 5;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The current state of an entry that is not a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification.
    pub modified: ModifiedTime,
    /// The target text, if the entry is a link.
    pub link: Option<Vec<u8>>,
}

/// Returns the reason if an entry must stay. The path of the entry is relative to the copy's top
/// folder.
pub type Judge<'j> = dyn FnMut(&RelPath, &Seen) -> Result<Option<String>> + 'j;

/// Counts of removed and remaining entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Freed {
    /// Number of entries that were removed, or that a dry run would remove.
    pub removed: u64,
    /// Number of entries that stay.
    pub kept: u64,
    /// The first remaining entries: the path of each, relative to the copy's top folder, and the
    /// reason why the entry stays.
    pub named: Vec<(RelPath, String)>,
}

/// Removes the entries for which `judge` returns no reason to keep them, and then the empty
/// folders. With `is_dry`, only counts these entries. An entry that cannot be inspected or removed
/// stays, with the error as the reason.
///
/// # Errors
/// `NotFound` if the copy does not exist. `Cancelled` if the caller has disconnected.
pub fn free(
    root: &Root,
    path: &ApiPath,
    given: &Given,
    is_dry: bool,
    judge: &mut Judge<'_>,
) -> Result<Freed> {
    let (folder, name) = above(root, &path.path, "remove the fast copy")?;
    let mut walk = Walk {
        given,
        is_dry,
        judge,
        freed: Freed::default(),
    };
    walk.entry(folder.as_fd(), &name, &RelPath::root(), 0)?;
    if walk.freed.removed > 0 && !is_dry {
        let parent = path.path.parent().unwrap_or_else(RelPath::root);
        root.store().sync_all(&[SyncItem::Folder(&parent)])?;
    }
    Ok(walk.freed)
}

struct Walk<'a, 'j> {
    given: &'a Given,
    is_dry: bool,
    judge: &'a mut Judge<'j>,
    freed: Freed,
}

impl Walk<'_, '_> {
    fn keep(&mut self, below: &RelPath, why: impl Into<String>) {
        self.freed.kept += 1;
        if self.freed.named.len() < NAMED_MAX {
            self.freed.named.push((below.clone(), why.into()));
        }
    }

    fn keep_failed(&mut self, below: &RelPath, errno: Errno) {
        self.keep(
            below,
            failed("remove the fast copy", below)(errno).cause.clone(),
        );
    }

    /// Counts an entry that would be removed, for a dry run. Checks first that the account may
    /// write to the folder, because the folder may belong to another account.
    fn would_remove(&mut self, above: BorrowedFd<'_>, below: &RelPath) {
        let rights = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(above, ".", rights, AtFlags::EACCESS) {
            Err(errno @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) => {
                self.keep_failed(below, errno);
            }
            // Other errors are left to the removal itself.
            _ => self.freed.removed += 1,
        }
    }

    /// Handles one entry of a folder. If the entry is a folder, handles everything below it too.
    fn entry(
        &mut self,
        above: BorrowedFd<'_>,
        name: &Name,
        below: &RelPath,
        depth: usize,
    ) -> Result<()> {
        self.given.check("remove the fast copy")?;
        if name.is_reserved() {
            self.keep(
                below,
                "it belongs to an unfinished transfer that may still resume",
            );
            return Ok(());
        }
        let stat = match rustix::fs::statat(above, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) if depth > 0 => return Ok(()),
            Err(errno) if depth == 0 => return Err(failed("remove the fast copy", below)(errno)),
            Err(errno) => {
                self.keep_failed(below, errno);
                return Ok(());
            }
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return self.folder(above, name, below, depth),
            FileType::RegularFile => FileKind::File,
            FileType::Symlink => FileKind::Symlink,
            _ => FileKind::Special,
        };
        let link = match kind {
            FileKind::Symlink => rustix::fs::readlinkat(above, name.as_bytes(), Vec::new())
                .map(|text| Some(text.into_bytes())),
            _ => Ok(None),
        };
        let link = match link {
            Ok(link) => link,
            Err(errno) => {
                self.keep_failed(below, errno);
                return Ok(());
            }
        };
        let seen = Seen {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: ModifiedTime {
                seconds: stat.st_mtime,
                nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
            link,
        };
        match (self.judge)(below, &seen) {
            Ok(None) if self.is_dry => self.would_remove(above, below),
            Ok(None) => match rustix::fs::unlinkat(above, name.as_bytes(), AtFlags::empty()) {
                Ok(()) => self.freed.removed += 1,
                Err(Errno::NOENT) => {}
                Err(errno) => self.keep_failed(below, errno),
            },
            Ok(Some(why)) => self.keep(below, why),
            Err(error) => self.keep(below, error.cause.clone()),
        }
        Ok(())
    }

    fn folder(
        &mut self,
        above: BorrowedFd<'_>,
        name: &Name,
        below: &RelPath,
        depth: usize,
    ) -> Result<()> {
        if depth == DEPTH_MAX {
            let why = format!("the folder has more than {DEPTH_MAX} nested folders");
            self.keep(below, why);
            return Ok(());
        }
        let kept = self.freed.kept;
        let opened = rustix::fs::openat(above, name.as_bytes(), FOLDER, Mode::empty());
        let opened = opened.and_then(|folder| Ok((Dir::read_from(&folder)?, folder)));
        let (items, folder) = match opened {
            Ok(opened) => opened,
            Err(errno) => {
                self.keep_failed(below, errno);
                return Ok(());
            }
        };
        for item in items {
            let item = match item {
                Ok(item) => item,
                Err(errno) => {
                    self.keep_failed(below, errno);
                    break;
                }
            };
            let name = item.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name = Name::new(name)?;
            let below = below.join(&name)?;
            self.entry(folder.as_fd(), &name, &below, depth + 1)?;
        }
        if self.freed.kept > kept {
            // The folder still holds an entry that stays.
            return Ok(());
        }
        if self.is_dry {
            self.would_remove(above, below);
            return Ok(());
        }
        match rustix::fs::unlinkat(above, name.as_bytes(), AtFlags::REMOVEDIR) {
            Ok(()) => self.freed.removed += 1,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.keep(
                below,
                "another program added a file or folder to this folder during the removal",
            ),
            Err(errno) => self.keep_failed(below, errno),
        }
        Ok(())
    }
}
