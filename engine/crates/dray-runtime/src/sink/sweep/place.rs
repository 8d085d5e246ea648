//! The folders that a sweep walks, and the logs that may name partial files in these folders.
//!
//! Invariant: a root with several disks is opened only if all its disks are there. A log on any of
//! the disks may name a partial file on any other disk.

use super::super::other_logs::{OtherLogs, PartialKey};
use super::is_no_folder;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_store::disks::MARK_NAME;
use dray_store::{DisksOptions, DisksStore, PosixOptions, PosixStore, Store};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Folders to walk, and the stores above them. Logs above a folder may name files in it.
#[derive(Clone)]
pub struct WalkRoot {
    /// One folder, or the folder of each disk.
    pub(super) parts: Vec<Part>,
    /// Path of the walked folder below the folder of each part.
    pub(super) top: RelPath,
    /// True for folders of this host, which may contain disks of another store with several disks.
    is_local: bool,
}

/// A folder, and the store above it.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) store: Arc<dyn Store>,
    above: Option<(Arc<dyn Store>, RelPath)>,
    /// The folder of the disk as the caller wrote it; `None` if the root is not on several disks.
    pub(super) disk: Option<Arc<str>>,
}

impl WalkRoot {
    /// Returns the walk root for the folder at the root of `store`. `path` is the absolute path of
    /// that folder, without symbolic links.
    ///
    /// # Errors
    /// If `path` is invalid, or if the system's root `/` cannot be opened. `InvalidRequest` if the
    /// folder is on a disk of a store with several disks.
    pub fn new(store: Arc<dyn Store>, path: &Path) -> Result<Self> {
        refuse_disk(path, None)?;
        let part = Part {
            store,
            above: above(path)?,
            disk: None,
        };
        Ok(Self {
            parts: vec![part],
            top: RelPath::root(),
            is_local: true,
        })
    }

    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// If the folder cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let store = PosixStore::open(path, End::Sink, PosixOptions::default())?;
        Self::new(Arc::new(store), &real(path)?)
    }

    /// Opens the folder at `top` below the folders `dirs`, which are all disks of one store. Makes
    /// no files.
    ///
    /// # Errors
    /// `NotFound` if a disk is missing. `InvalidRequest` if no folder has the mark of a disk, or if
    /// a folder is on a disk of another store with several disks.
    pub fn of_disks(dirs: &[PathBuf], top: &RelPath) -> Result<Self> {
        let options = DisksOptions {
            only_looks: true,
            ..DisksOptions::default()
        };
        let disks = DisksStore::open(dirs, End::Sink, &options)?.each_disk()?;
        let marked: Result<Vec<bool>> = dirs.iter().map(|dir| is_marked(dir)).collect();
        if !marked?.contains(&true) {
            // The logs of unfinished copies may still name files on all disks, so do not advise to
            // sweep the disks one by one.
            let cause = "none of the folders has the file .dray-disk, which the first copy to \
                several disks writes";
            return Err(refused(cause.to_owned()).remedy(
                "if the folders are disks of one root, run a copy to all of them first; otherwise \
                    sweep each folder alone",
            ));
        }
        let mut parts = Vec::with_capacity(disks.len());
        for (name, store) in disks {
            // The name is not the path if the path is not valid UTF-8.
            let mut all = dirs.iter();
            let dir = all.find(|dir| dir.display().to_string() == name);
            let folder = real(dir.unwrap_or(&PathBuf::from(&name)))?;
            refuse_disk(&folder, Some(&folder))?;
            refuse_disk_below(&store, &folder, top)?;
            parts.push(Part {
                store: Arc::new(store),
                above: above(&folder)?,
                disk: Some(name.into()),
            });
        }
        Ok(Self {
            parts,
            top: top.clone(),
            is_local: true,
        })
    }

    /// Returns the place of the root of any store. Logs above the root are in `above`.
    #[must_use]
    pub fn in_store(store: Arc<dyn Store>, above: Option<(Arc<dyn Store>, RelPath)>) -> Self {
        Self {
            parts: vec![Part {
                store,
                above,
                disk: None,
            }],
            top: RelPath::root(),
            is_local: false,
        }
    }

    /// Returns the logs that may name a partial file of any part.
    pub(super) fn logs(&self) -> Logs {
        let of = |part: &Part| {
            let logs = OtherLogs::all(&part.store, part.above.as_ref());
            (part.clone(), logs)
        };
        Logs(self.parts.iter().map(of).collect())
    }

    /// Returns the stores of all parts except the part number `part`.
    pub(super) fn stores_beside(&self, part: usize) -> Vec<Arc<dyn Store>> {
        let others = self.parts.iter().enumerate();
        let others = others.filter(|(at, _)| *at != part);
        others.map(|(_, other)| Arc::clone(&other.store)).collect()
    }

    /// Returns true if a folder below a part is a disk of another store with several disks.
    ///
    /// # Errors
    /// If it is unknown whether the folder has the mark of a disk.
    pub(super) fn is_disk(&self, part: &Part, folder: &RelPath) -> Result<bool> {
        if !self.is_local {
            return Ok(false);
        }
        has_mark(part.store.as_ref(), folder)
    }
}

impl Part {
    /// Adds the disk to an error.
    pub(super) fn on_disk(&self, error: Error) -> Error {
        match &self.disk {
            Some(disk) => {
                let cause = format!("{} (disk {disk})", error.cause);
                error.cause(cause)
            }
            None => error,
        }
    }
}

/// The logs of all parts of a [`WalkRoot`], and the logs above the parts.
pub(super) struct Logs(Vec<(Part, OtherLogs)>);

impl Logs {
    /// Returns true if any log names the partial file, or may be about to name it; see
    /// [`OtherLogs::speak_of`].
    pub(super) fn speak_of(&mut self, place: &PartialKey) -> Result<bool> {
        for (part, logs) in &mut self.0 {
            let speaks = logs.speak_of(place);
            if speaks.map_err(|error| part.on_disk(error))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the store of the whole host, and the path of a folder in it. `None` for the folder `/`.
fn above(path: &Path) -> Result<Option<(Arc<dyn Store>, RelPath)>> {
    let below = path.strip_prefix("/").unwrap_or(path);
    let below = RelPath::parse(below.as_os_str().as_bytes())?;
    if below.is_root() {
        return Ok(None);
    }
    let all = PosixStore::open(Path::new("/"), End::Sink, PosixOptions::default())?;
    Ok(Some((Arc::new(all), below)))
}

/// Returns the absolute path of a folder, without symbolic links.
fn real(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| {
        Error::new(ErrorKind::NotFound, End::Sink, "find the folder")
            .cause(format!("{}: {error}", path.display()))
    })
}

fn is_marked(folder: &Path) -> Result<bool> {
    let mark = folder.join(OsStr::from_bytes(MARK_NAME));
    match mark.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(
            Error::new(ErrorKind::Io, End::Sink, "search for partial data")
                .cause(format!("{}: {error}", mark.display())),
        ),
    }
}

fn has_mark(store: &dyn Store, folder: &RelPath) -> Result<bool> {
    let mark = folder.join(&Name::new(MARK_NAME)?)?;
    Ok(store.stat(&mark)?.is_some())
}

/// Refuses the path `top` on the disk at `disk`, if the path leads into a disk of another store. A
/// file or a link on the path is no folder to walk.
fn refuse_disk_below(store: &dyn Store, disk: &Path, top: &RelPath) -> Result<()> {
    let mut at = top.clone();
    while let Some(above) = at.parent() {
        match has_mark(store, &at) {
            Ok(false) => {}
            Ok(true) => {
                let folder = disk.join(OsStr::from_bytes(at.as_bytes()));
                return Err(one_of_several_disks(&folder.display().to_string()));
            }
            Err(error) if is_no_folder(&error) => {}
            Err(error) => return Err(error),
        }
        at = above;
    }
    Ok(())
}

/// Refuses a folder that is a disk, or is on a disk, of a store with several disks. The disk at
/// `own` is accepted.
fn refuse_disk(path: &Path, own: Option<&Path>) -> Result<()> {
    for folder in path.ancestors().filter(|folder| Some(*folder) != own) {
        if is_marked(folder)? {
            return Err(one_of_several_disks(&folder.display().to_string()));
        }
    }
    Ok(())
}

/// Returns the error for the folder of one disk. A log on another disk may name its partial files,
/// so the walk of one disk would take these files for files without a log.
pub(super) fn one_of_several_disks(folder: &str) -> Error {
    refused(format!(
        "{folder} has the file .dray-disk, so it is one of several disks, and a log on another \
            disk may name its partial files"
    ))
    .remedy("to remove partial data from all disks, run dray log sweep disks:///DIR,/DIR")
}

fn refused(cause: String) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        End::Sink,
        "search for partial data",
    )
    .cause(cause)
}
