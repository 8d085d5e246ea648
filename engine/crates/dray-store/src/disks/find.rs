//! Finds entries on the disks, and creates missing folders.

use super::Set;
use crate::StoreExt;
use crate::posix::PosixStore;
use crate::store::Store;
use crate::types::{FileKind, FileState, MadeDir, PartialId, SyncItem};
use dray_core::{Error, ErrorKind, Metadata, ModifiedTime, Name, RelPath, Result};

/// Mode bits that the owner of a folder needs to create entries in it.
const OWNER_ENTERS: u32 = 0o700;

#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) disk: usize,
    pub(super) state: FileState,
    /// Time of the last change of the inode.
    changed: ModifiedTime,
}

impl Found {
    /// Returns true if this file is newer than another file with the same path.
    fn is_newer(&self, other: &Self) -> bool {
        (self.changed, std::cmp::Reverse(self.disk))
            > (other.changed, std::cmp::Reverse(other.disk))
    }
}

impl Set {
    /// Adds the disk to an error.
    pub(super) fn on(&self, disk: usize, error: Error) -> Error {
        match error.kind {
            ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::PathEscapes => error,
            _ => {
                let name = &self.disks[disk].name;
                let cause = format!("{} (disk {name})", error.cause);
                error.cause(cause)
            }
        }
    }

    /// Returns the entry at `path`. If several disks have files with this path, returns the newest
    /// one. A folder that exists on several disks has the newest of its modification times.
    pub(super) fn find(&self, path: &RelPath) -> Result<Option<Found>> {
        let mut best: Option<Found> = None;
        let mut failed = None;
        for (at, disk) in self.disks.iter().enumerate() {
            match disk.store.look(path) {
                Ok(None) => {}
                Ok(Some((state, changed))) => {
                    let found = Found {
                        disk: at,
                        state,
                        changed,
                    };
                    best = Some(best.map_or(found, |best| better(best, found)));
                }
                // Another disk may have the entry below a folder with the name of this file.
                Err(error) if error.kind == ErrorKind::NotADirectory => failed = Some(error),
                Err(error) => return Err(self.on(at, error)),
            }
        }
        match (best, failed) {
            (None, Some(error)) => Err(error),
            (best, _) => Ok(best),
        }
    }

    /// Calls `work` with the disk that has the entry at `path`. If no disk has the entry, the first
    /// disk reports the error.
    pub(super) fn with<T>(
        &self,
        path: &RelPath,
        work: impl Fn(&PosixStore) -> Result<T>,
    ) -> Result<T> {
        let disk = self.find(path)?.map_or(0, |found| found.disk);
        work(&self.disks[disk].store).map_err(|error| self.on(disk, error))
    }

    /// Calls `work` with a disk. If the folder of `path` is missing on this disk and exists on
    /// another disk, creates the folder and calls `work` again.
    pub(super) fn healing<T>(
        &self,
        disk: usize,
        path: &RelPath,
        work: impl Fn(&PosixStore) -> Result<T>,
    ) -> Result<T> {
        let store = &self.disks[disk].store;
        let done = match (work(store), path.parent()) {
            (Err(error), Some(folder)) if error.kind == ErrorKind::NotFound => {
                match self.make_folder_on(disk, &folder)? {
                    true => work(store),
                    false => Err(error),
                }
            }
            (done, _) => done,
        };
        done.map_err(|error| self.on(disk, error))
    }

    /// Creates the folder at `path` and its parent folders on `disk`, if the folder exists on
    /// another disk. Returns true if a folder was created. The new names are durable.
    ///
    /// # Errors
    /// `NotADirectory` or `PathEscapes` if the entry on the other disk is a file or a link.
    pub(super) fn make_folder_on(&self, disk: usize, path: &RelPath) -> Result<bool> {
        let Some(found) = self.find(path)? else {
            return Ok(false);
        };
        let refused = match found.state.kind {
            FileKind::Directory => None,
            FileKind::Symlink => Some((ErrorKind::PathEscapes, "the folder is a symbolic link")),
            _ => Some((
                ErrorKind::NotADirectory,
                "a file with the name of the folder exists",
            )),
        };
        if let Some((kind, cause)) = refused {
            let operation = "open the folder";
            return Err(Error::new(kind, self.end, operation)
                .file(path)
                .cause(cause));
        }
        let store = &self.disks[disk].store;
        let failed = |error| self.on(disk, error);
        let mut at = RelPath::root();
        let mut is_made = false;
        for name in path.components() {
            let above = at.clone();
            at = at.join(&name)?;
            if store.is_folder(&at).map_err(failed)? {
                continue;
            }
            let state = self.disks[found.disk].store.stat(&at).map_err(failed)?;
            if store.make_dir(&at).map_err(failed)? == MadeDir::Created {
                let metadata = Metadata {
                    mode: state.map_or(OWNER_ENTERS, |state| state.mode | OWNER_ENTERS),
                    modified: state.map_or_else(ModifiedTime::default, |state| state.modified),
                    ..Metadata::default()
                };
                store.set_directory(&at, &metadata).map_err(failed)?;
                store
                    .sync_all(&[SyncItem::Folder(&above)])
                    .map_err(failed)?;
                is_made = true;
            }
        }
        Ok(is_made)
    }

    /// Returns the disks that have an entry with the name of a partial file.
    pub(super) fn disks_with_partial(&self, path: &RelPath, partial: &Name) -> Result<Vec<usize>> {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let partial = folder.join(partial)?;
        let mut found = Vec::new();
        for (at, disk) in self.disks.iter().enumerate() {
            match disk.store.look(&partial) {
                Ok(Some(_)) => found.push(at),
                Ok(None) => {}
                Err(error) if error.kind == ErrorKind::NotADirectory => {}
                Err(error) => return Err(self.on(at, error)),
            }
        }
        Ok(found)
    }

    /// Returns the disk of the partial file with the identity `id`. If the file does not exist,
    /// returns a disk on which the caller's operation fails because it does not find the file.
    pub(super) fn disk_of_partial(
        &self,
        path: &RelPath,
        partial: &Name,
        id: PartialId,
    ) -> Result<usize> {
        let on_device = |disk: &usize| self.disks[*disk].device == id.device;
        let disks: Vec<usize> = (0..self.disks.len()).filter(on_device).collect();
        if let [disk] = disks[..] {
            return Ok(disk);
        }
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let partial = folder.join(partial)?;
        for disk in disks {
            let found = self.disks[disk].store.look(&partial);
            let found = found.map_err(|error| self.on(disk, error))?;
            if found.is_some_and(|(state, _)| state.inode == id.inode) {
                return Ok(disk);
            }
        }
        Ok(0)
    }
}

fn better(best: Found, found: Found) -> Found {
    match (best.state.kind, found.state.kind) {
        (FileKind::Directory, FileKind::Directory) => {
            let modified = best.state.modified.max(found.state.modified);
            let state = FileState {
                modified,
                ..best.state
            };
            Found { state, ..best }
        }
        (FileKind::Directory, _) => best,
        (_, FileKind::Directory) => found,
        _ if found.is_newer(&best) => found,
        _ => best,
    }
}
