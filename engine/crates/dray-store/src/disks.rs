//! Store of whole files that are spread over several disks.
//!
//! The root is a list of folders, one on each disk. A folder of the store exists on every disk, and
//! a file exists on one disk. So every file is a plain file that other programs can read. New files
//! go to the disks by free space ([`spread`]). Each disk is a storage target.
//!
//! Invariants:
//! - A call for a path looks on all disks. If several disks have a file with the path, the file
//!   whose inode changed last is the file of the store. A publication removes the other files.
//! - All publications of a path take the lock of this path (`publish.rs`).
//! - Control files are on the first disk. The mark of each disk contains the number of the disk
//!   (`mark.rs`), so the first disk stays the same.
//! - Each path is resolved by the [`PosixStore`] of one disk, so no path leads out of this disk's
//!   folder.

mod control;
mod find;
mod folders;
mod list;
mod mark;
mod partial;
mod place;
mod publish;
mod spread;

pub use mark::MARK_NAME;
#[cfg(test)]
mod tests;

use crate::TargetMap;
use crate::posix::{PosixOptions, PosixStore};
use crate::store::{ControlFile, Lister, Partial, ReadHandle, Store};
use crate::types::{
    Attributes, Capabilities, ControlMode, FileKind, FileState, FreeSpace, Holding, ListOptions,
    MadeDir, PartialId, PartialRequest, Publish, ReadPurpose, SyncItem, Target,
};
use dray_core::{
    ByteRange, End, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Sums, TargetId,
};
use folders::FolderStates;
use mark::Marks;
use partial::Moved;
use place::Placer;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Maximum number of disks of a store.
pub const DISKS_MAX: usize = 64;

/// Options for opening a [`DisksStore`]. All fields except the last have the meaning of the fields
/// of [`PosixOptions`].
#[derive(Debug, Clone, Copy, Default)]
pub struct DisksOptions {
    /// Read and write large files without the page cache.
    pub direct: bool,
    /// Preallocate space.
    pub preallocates: bool,
    /// Let copies share blocks with their source files.
    pub shares_blocks: bool,
    /// Open a sink without marking new disks, to plan a copy or to sweep. The caller must not create
    /// files in the store.
    pub only_looks: bool,
}

/// Several folders, one on each disk, as one tree of files.
#[derive(Debug, Clone)]
pub struct DisksStore(Arc<Set>);

#[derive(Debug)]
struct Disk {
    store: PosixStore,
    /// The folder as configured.
    name: String,
    device: u64,
    /// Locked during a sync of this disk that covers folders. The kernel reports a lost change of a
    /// folder to one sync only, so a concurrent sync of the same folder could report success.
    folder_sync: Mutex<()>,
}

#[derive(Debug)]
struct Set {
    disks: Vec<Disk>,
    /// Store of the disks' whole folders, if this store is a subfolder of them; otherwise `None`.
    root: Option<Arc<Set>>,
    /// Path of the root of this store below the folders of the disks.
    top: RelPath,
    end: End,
    capabilities: Capabilities,
    placer: Arc<Placer>,
    moved: Arc<Moved>,
    folders: FolderStates,
}

impl DisksStore {
    /// Opens the folders `dirs`. If no folder has a mark, a sink marks all folders. A sink also
    /// marks a new empty folder at the end of the list.
    ///
    /// # Errors
    /// `NotFound` if a folder does not exist, or has no mark and other folders have one. In both
    /// cases a disk is probably not mounted. `InvalidRequest` if folders are nested or belong to
    /// different stores. Errors of [`PosixStore::open`].
    pub fn open(dirs: &[PathBuf], end: End, options: &DisksOptions) -> Result<Self> {
        if dirs.is_empty() || dirs.len() > DISKS_MAX {
            return Err(Error::new(ErrorKind::InvalidRequest, end, "open the disks")
                .cause(format!("{} folders are given", dirs.len()))
                .remedy(format!(
                    "give between 1 and {DISKS_MAX} folders, one on each disk"
                )));
        }
        let mut disks: Vec<Disk> = Vec::with_capacity(dirs.len());
        let mut found = BTreeSet::new();
        for dir in dirs {
            let name = dir.display().to_string();
            let options = PosixOptions {
                targets: TargetMap::new([(RelPath::root(), name.clone())]),
                direct: options.direct,
                preallocates: options.preallocates,
                shares_blocks: options.shares_blocks,
                ..PosixOptions::default()
            };
            let store = PosixStore::open(dir, end, options).map_err(|error| match error.kind {
                ErrorKind::NotFound => error.remedy("mount the disk, or create the folder"),
                _ => error,
            })?;
            let identity = store.root_identity()?;
            if !found.insert(identity) {
                return Err(wrong(
                    end,
                    format!("{name} is the same folder as another folder of the list"),
                ));
            }
            let device = identity.0;
            disks.push(Disk {
                store,
                name,
                device,
                folder_sync: Mutex::default(),
            });
        }
        refuse_nested(dirs, end)?;
        let disks = Marks::read(disks)?.check(end, end == End::Sink && !options.only_looks)?;
        let capabilities = common(&disks);
        Ok(Self(Arc::new(Set {
            placer: Arc::new(Placer::new(disks.len())),
            moved: Arc::default(),
            folders: FolderStates::default(),
            disks,
            root: None,
            top: RelPath::root(),
            end,
            capabilities,
        })))
    }

    /// Opens each disk as a separate store. Returns the stores with the folders as configured.
    ///
    /// # Errors
    /// If the folder of a disk cannot be opened.
    pub fn each_disk(&self) -> Result<Vec<(String, PosixStore)>> {
        let each = self.0.disks.iter().enumerate().map(|(at, disk)| {
            let opened = disk.store.open_below(&RelPath::root());
            let store = opened.map_err(|error| self.0.on(at, error))?;
            Ok((disk.name.clone(), store))
        });
        each.collect()
    }

    /// Opens the folder at `path` on all disks as a separate store. Both stores use the same state
    /// to choose the disk of a new file: the bytes assigned to each disk, and the disks already
    /// chosen for single files. Creates the folder on the disks on which it is missing.
    ///
    /// # Errors
    /// `NotFound` if the folder exists on no disk, `NotADirectory`, `PathEscapes`.
    pub fn open_folder(&self, path: &RelPath) -> Result<Self> {
        if path.is_root() {
            return Ok(self.clone());
        }
        let mut disks = Vec::with_capacity(self.0.disks.len());
        for (at, disk) in self.0.disks.iter().enumerate() {
            let opened = match disk.store.open_below(path) {
                Err(error) if error.kind == ErrorKind::NotFound => {
                    match self.0.make_folder_on(at, path)? {
                        true => disk.store.open_below(path),
                        false => Err(error),
                    }
                }
                other => other,
            };
            disks.push(Disk {
                store: opened.map_err(|error| self.0.on(at, error))?,
                name: disk.name.clone(),
                device: disk.device,
                folder_sync: Mutex::default(),
            });
        }
        Ok(Self(Arc::new(Set {
            disks,
            root: Some(self.0.root.clone().unwrap_or_else(|| Arc::clone(&self.0))),
            top: self.0.top.join_path(path)?,
            end: self.0.end,
            capabilities: self.0.capabilities,
            placer: Arc::clone(&self.0.placer),
            moved: Arc::clone(&self.0.moved),
            folders: FolderStates::default(),
        })))
    }
}

fn wrong(end: End, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, end, "open the disks")
        .cause(cause)
        .remedy("give one folder on each disk; no folder may be inside another folder")
}

/// Refuses a folder inside another folder. Its files would exist twice in the merged tree.
fn refuse_nested(dirs: &[PathBuf], end: End) -> Result<()> {
    let real: Vec<PathBuf> = dirs
        .iter()
        .map(|dir| dir.canonicalize().unwrap_or_else(|_| dir.clone()))
        .collect();
    for (at, dir) in real.iter().enumerate() {
        let above = real.iter().enumerate();
        let mut above = above.filter(|(other, above)| *other != at && dir.starts_with(above));
        if let Some((other, _)) = above.next() {
            let cause = format!("{} is inside {}", dirs[at].display(), dirs[other].display());
            return Err(wrong(end, cause));
        }
    }
    Ok(())
}

/// Returns the capabilities that all disks have.
fn common(disks: &[Disk]) -> Capabilities {
    let each = disks.iter().map(|disk| disk.store.capabilities());
    let all = each.reduce(|a, b| Capabilities {
        publish_if_absent: a.publish_if_absent && b.publish_if_absent,
        time_precision_nanoseconds: a
            .time_precision_nanoseconds
            .max(b.time_precision_nanoseconds),
        holes: a.holes && b.holes,
        xattrs: a.xattrs && b.xattrs,
        symlinks: a.symlinks && b.symlinks,
        name_bytes_max: a.name_bytes_max.min(b.name_bytes_max),
        path_bytes_max: a.path_bytes_max.min(b.path_bytes_max),
        ..a
    });
    Capabilities {
        can_hold_log_parts: false,
        is_on_disks: true,
        folder_versions: false,
        ..all.unwrap_or(Capabilities::MINIMAL)
    }
}

fn target_of(disk: usize) -> TargetId {
    TargetId(u32::try_from(disk).unwrap_or(u32::MAX))
}

impl Store for DisksStore {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities
    }

    fn targets(&self) -> Vec<Target> {
        let disks = self.0.disks.iter().enumerate();
        disks
            .map(|(at, disk)| Target {
                id: target_of(at),
                name: disk.name.clone(),
                device: Some(disk.device),
            })
            .collect()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        self.layout_for(path, 0)
    }

    fn layout_for(&self, path: &RelPath, size_bytes: u64) -> Result<Layout> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let disk = match self.0.find(path)? {
            Some(found) if found.state.kind != FileKind::Directory => found.disk,
            _ => {
                if self.0.find(&folder)?.is_none() {
                    let operation = "find the storage target of the file";
                    return Err(Error::new(ErrorKind::NotFound, self.0.end, operation)
                        .file(path)
                        .cause("the folder of the file does not exist"));
                }
                self.0.choose(path, size_bytes)
            }
        };
        Ok(Layout::Single(target_of(disk)))
    }

    fn free_space(&self, path: &RelPath) -> Result<FreeSpace> {
        let mut sum = FreeSpace {
            free_bytes: 0,
            total_bytes: 0,
        };
        let mut counted = BTreeSet::new();
        for (at, disk) in self.0.disks.iter().enumerate() {
            if counted.insert(disk.device) {
                let space = disk.store.free_space(path);
                let space = space.map_err(|error| self.0.on(at, error))?;
                sum.free_bytes = sum.free_bytes.saturating_add(space.free_bytes);
                sum.total_bytes = sum.total_bytes.saturating_add(space.total_bytes);
            }
        }
        Ok(sum)
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        list::open(&self.0, top, options)
    }

    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        self.0.with(path, |store| store.open_read(path, purpose))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        Ok(self.0.find(path)?.map(|found| found.state))
    }

    fn check_place(&self) -> Result<()> {
        let mut disks = self.0.disks.iter();
        disks.try_for_each(|disk| disk.store.check_place())
    }

    fn born(&self, path: &RelPath) -> Result<u64> {
        self.0.with(path, |store| store.born(path))
    }

    fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        self.0.with(path, |store| store.holding(path))
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        self.0.with(path, |store| store.known_sums(path))
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        self.0.make_dir(path)
    }

    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let set = self
            .0
            .on_each_with(path, |store| store.set_directory(path, metadata));
        // Noted after the change, also after an error: a sync that began before may not cover it.
        for disk in 0..self.0.disks.len() {
            self.0.folders.note_changed(disk, path.clone());
        }
        set
    }

    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        self.0.with(path, |store| store.set_file(path, metadata))
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()> {
        let disk = self.0.find(path)?.map_or(0, |found| found.disk);
        self.0.publish_on(disk, path, how, || {
            self.0.healing(disk, path, |store| {
                store.make_symlink(path, partial, text, metadata, how)
            })
        })
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        Ok(Box::new(partial::begin(
            &self.0, path, size_bytes, request,
        )?))
    }

    fn write_small(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        let write = |store: &PosixStore| store.write_small(path, partial, bytes, holes, attributes);
        partial::write_small(&self.0, path, partial, bytes.len() as u64, &write)
    }

    fn publish_small(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
        how: Publish,
    ) -> Result<()> {
        let disk = self.0.disk_of_partial(path, partial, id)?;
        self.0.publish_on(disk, path, how, || {
            let published = self.0.disks[disk]
                .store
                .publish_small(path, partial, id, how);
            published.map_err(|error| self.0.on(disk, error))
        })
    }

    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()> {
        self.0.on_each(|store| store.discard(path, partial, only))
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        self.0.sync_each(items)
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        // The first disk has the control files of a folder, so it comes last.
        let disks = self.0.disks.iter().enumerate().rev();
        for (at, disk) in disks {
            disk.store
                .remove(path)
                .map_err(|error| self.0.on(at, error))?;
            self.0.note_entry_changed(at, path);
        }
        Ok(())
    }

    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        self.0.open_control(path, mode)
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        let removed = self.0.disks[0].store.remove_control(path);
        removed.map_err(|error| self.0.on(0, error))
    }

    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>> {
        let names = self.0.disks[0].store.list_control(folder);
        let mut names = names.map_err(|error| self.0.on(0, error))?;
        names.retain(|name| !folder.join(name).is_ok_and(|path| self.0.is_mark(&path)));
        Ok(names)
    }
}

impl Set {
    /// Returns true for the path of the mark of a disk. The mark is no part of the tree.
    fn is_mark(&self, path: &RelPath) -> bool {
        self.top.is_root() && path.as_bytes() == mark::MARK_NAME
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        let found = self.find(path)?;
        if let Some(found) = &found
            && found.state.kind != FileKind::Directory
        {
            // Let the disk with the entry report the error.
            return self.disks[found.disk].store.make_dir(path);
        }
        let mut made = match found {
            Some(_) => MadeDir::Existed,
            None => MadeDir::Created,
        };
        for disk in 0..self.disks.len() {
            let one = self.healing(disk, path, |store| store.make_dir(path))?;
            if one == MadeDir::Existed {
                made = MadeDir::Existed;
            }
        }
        Ok(made)
    }

    fn on_each(&self, work: impl Fn(&PosixStore) -> Result<()>) -> Result<()> {
        let mut disks = self.disks.iter().enumerate();
        disks.try_for_each(|(at, disk)| work(&disk.store).map_err(|error| self.on(at, error)))
    }

    /// Does `work` on each disk that has the entry. Returns an error if no disk has the entry.
    fn on_each_with(&self, path: &RelPath, work: impl Fn(&PosixStore) -> Result<()>) -> Result<()> {
        let mut is_done = false;
        let mut missing = None;
        for (at, disk) in self.disks.iter().enumerate() {
            match work(&disk.store) {
                Ok(()) => is_done = true,
                Err(error) if error.kind == ErrorKind::NotFound => missing = Some(error),
                Err(error) => return Err(self.on(at, error)),
            }
        }
        match missing {
            Some(error) if !is_done => Err(error.file(path)),
            _ => Ok(()),
        }
    }

    fn choose(&self, path: &RelPath, size_bytes: u64) -> usize {
        let file = (&self.top, path);
        self.placer.disk(file, size_bytes, |disk| self.free(disk))
    }

    /// Returns the free bytes of a disk, 0 if the disk does not report them, and `None` if the
    /// store has no such disk.
    fn free(&self, disk: usize) -> Option<u64> {
        let disk = self.disks.get(disk)?;
        let space = disk.store.free_space(&RelPath::root());
        Some(space.map_or(0, |space| space.free_bytes))
    }
}
