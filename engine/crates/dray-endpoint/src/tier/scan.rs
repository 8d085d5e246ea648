//! Finds the versions below a fast root, and measures them. Follows no link, and opens no file.
//!
//! Invariant owned here: every folder is opened relative to the folder above it. So an application
//! that moves folders cannot lead the walk out of the root.

use dray_api::Timestamp;
use dray_config::roots::Root;
use dray_config::{Completion, Template, Values};
use dray_core::{End, Error, Name, RelPath, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Maximum depth of folders in a version. All folders on the current path are open.
const DEPTH_MAX: usize = 128;

/// Maximum number of versions that one scan of a root finds.
const VERSIONS_MAX: usize = 10_000;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A path that fits the template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) application: String,
    pub(super) version: u64,
    pub(super) path: RelPath,
}

/// Contents of a version at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Measure {
    pub(super) is_folder: bool,
    pub(super) bytes: u64,
    files: u64,
    /// Time of the last change of a file, in nanoseconds since 1970.
    newest: i128,
    /// Sum of the times of all files. The sum changes when the time of any file changes.
    times: i128,
    has_marker: bool,
    /// True if a transfer is writing here, or has left a partial file.
    has_partial: bool,
}

impl Measure {
    /// Returns a text that changes with the number, the sizes and the times of the files.
    pub(super) fn stamp(&self) -> String {
        format!("{}:{}:{:x}", self.files, self.bytes, self.times)
    }

    pub(super) const fn files(&self) -> u64 {
        self.files
    }

    /// Returns true if a file has changed after the time `at`.
    pub(super) fn is_younger(&self, at: Option<Timestamp>) -> bool {
        at.is_none_or(|at| self.newest > i128::from(at.as_ms()) * 1_000_000)
    }

    /// Returns true if the version is complete at the time `now`, in nanoseconds since 1970.
    pub(super) fn is_complete(&self, rule: &Completion, now: i128) -> bool {
        let is_whole = self.files > 0 && !self.has_partial;
        is_whole
            && match rule {
                Completion::Marker(_) => self.has_marker,
                Completion::Quiet(seconds) => {
                    now - self.newest >= i128::from(*seconds) * 1_000_000_000
                }
            }
    }

    fn add(&mut self, stat: &Stat) {
        let time = i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec);
        self.files += 1;
        self.bytes += u64::try_from(stat.st_size).unwrap_or(0);
        self.newest = self.newest.max(time);
        self.times = self.times.wrapping_add(time);
    }
}

pub(super) fn failed(root: &Root, path: &RelPath, errno: Errno) -> Error {
    let operation = format!("inspect /{}/{path}", root.name());
    dray_store::errno::error(End::Here, &operation, path, errno)
}

/// Returns the paths below `root` that fit the template.
///
/// # Errors
/// Errors of the file system. A folder that is deleted during the scan is no error.
pub(super) fn find(root: &Root, template: &Template) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let top = RelPath::root();
    let folder = root.beneath(&top, FOLDER);
    let folder = folder.map_err(|errno| failed(root, &top, errno))?;
    descend(&folder, template, 0, (&top, &Values::default()), &mut found)
        .map_err(|errno| failed(root, &top, errno))?;
    Ok(found)
}

fn descend(
    folder: &OwnedFd,
    template: &Template,
    depth: usize,
    (above, values): (&RelPath, &Values),
    found: &mut Vec<Found>,
) -> rustix::io::Result<()> {
    for name in names(folder)? {
        if found.len() == VERSIONS_MAX {
            return Ok(());
        }
        let Ok(text) = std::str::from_utf8(name.as_bytes()) else {
            continue;
        };
        let mut values = values.clone();
        if name.is_reserved() || !template.take(depth, text, &mut values) {
            continue;
        }
        let Ok(path) = above.join(&name) else {
            continue;
        };
        if depth + 1 == template.depth() {
            if let (Some(application), Some(version)) = (values.application, values.version) {
                found.push(Found {
                    application,
                    version,
                    path,
                });
            }
            continue;
        }
        let below = rustix::fs::openat(folder, name.as_bytes(), FOLDER, Mode::empty());
        match below {
            Ok(below) => descend(&below, template, depth + 1, (&path, &values), found)?,
            // A file or a link does not fit, and a folder may be deleted meanwhile.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            // The versions of other applications must still be found.
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => {
                tracing::debug!("cannot search {path} for versions: {errno}");
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Measures the version at `path`. Returns `None` if the path does not exist, or is a link.
///
/// # Errors
/// Errors of the file system.
pub(super) fn measure(
    root: &Root,
    path: &RelPath,
    rule: Option<&Completion>,
) -> Result<Option<Measure>> {
    let wrong = |errno| failed(root, path, errno);
    let (Some(parent), Some(name)) = (path.parent(), path.name()) else {
        return Ok(None);
    };
    let above = match root.beneath(&parent, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(above) => above,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(wrong(errno)),
    };
    let marker = match rule {
        Some(Completion::Marker(name)) => Some(name.as_bytes()),
        _ => None,
    };
    let mut measure = Measure::default();
    let stat = match rustix::fs::statat(&above, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(wrong(errno)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            measure.is_folder = true;
            add_folder(above.as_fd(), &name, marker, 0, &mut measure).map_err(wrong)?;
        }
        FileType::RegularFile => measure.add(&stat),
        _ => return Ok(None),
    }
    Ok(Some(measure))
}

fn add_folder(
    above: BorrowedFd<'_>,
    name: &Name,
    marker: Option<&[u8]>,
    depth: usize,
    measure: &mut Measure,
) -> rustix::io::Result<()> {
    if depth == DEPTH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let folder = match rustix::fs::openat(above, name.as_bytes(), FOLDER, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    for name in names(&folder)? {
        measure.has_partial |= name.is_reserved();
        let stat = match rustix::fs::statat(&folder, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            add_folder(folder.as_fd(), &name, None, depth + 1, measure)?;
            continue;
        }
        measure.add(&stat);
        let is_file = kind == FileType::RegularFile;
        measure.has_marker |= is_file && marker == Some(name.as_bytes());
    }
    Ok(())
}

fn names(folder: &OwnedFd) -> rustix::io::Result<Vec<Name>> {
    let mut names = Vec::new();
    for item in Dir::read_from(folder)? {
        // Only the names . and .. are not valid here.
        if let Ok(name) = Name::new(item?.file_name().to_bytes()) {
            names.push(name);
        }
    }
    Ok(names)
}
