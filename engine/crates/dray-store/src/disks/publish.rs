//! Publishes a file on one disk, and removes files with the same path from the other disks.

use super::Set;
use super::mark::MARK_NAME;
use crate::store::Store;
use crate::types::{FileKind, Publish};
use dray_core::{Error, ErrorKind, RelPath, Result};
use rustix::fd::OwnedFd;

impl Set {
    /// Takes the lock of a path against all threads and processes. It is the lock of one byte in
    /// the mark file of the first disk, and the number of this byte is a hash of the path. A user
    /// who must not write to the mark file locks the folder of the path instead.
    pub(super) fn lock(&self, path: &RelPath) -> Result<OwnedFd> {
        let whole = self.top.join_path(path)?;
        // FNV-1a, because all processes must compute the same hash.
        let hash = whole
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let offset = i64::try_from(hash >> 2).unwrap_or(0);
        let root = self.root.as_deref().unwrap_or(self);
        let mark = RelPath::parse(MARK_NAME)?;
        if let Some(lock) = root.disks[0].store.lock_byte(&mark, offset)? {
            return Ok(lock);
        }
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let first = &self.disks[0].store;
        match first.lock_folder(&folder) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.make_folder_on(0, &folder)?;
                first.lock_folder(&folder)
            }
            other => other,
        }
    }

    /// Calls `publish`, which gives a file on `disk` its final name. Holds the lock of the path, so
    /// that no other publication of this path happens at the same time.
    ///
    /// If another disk has an old file with this path, the old file is removed after `publish`. If
    /// the process ends between the two steps, both files exist. The new file is then the file of
    /// the store, because its inode changed last.
    ///
    /// # Errors
    /// `AlreadyExists` with [`Publish::IfAbsent`], and `IsADirectory` if a folder has the name.
    pub(super) fn publish_on(
        &self,
        disk: usize,
        path: &RelPath,
        how: Publish,
        publish: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.disks.len() == 1 {
            return publish();
        }
        let _lock = self.lock(path)?;
        let mut replaced = Vec::new();
        for (at, other) in self.disks.iter().enumerate() {
            if at == disk {
                continue;
            }
            let found = other.store.look(path).map_err(|error| self.on(at, error))?;
            let Some((state, _)) = found else { continue };
            let refused = match (state.kind, how) {
                (FileKind::Directory, _) => (ErrorKind::IsADirectory, "a folder has this name"),
                (_, Publish::IfAbsent) => (ErrorKind::AlreadyExists, "a file has this name"),
                (_, Publish::Replace) => {
                    replaced.push(at);
                    continue;
                }
            };
            let (kind, cause) = refused;
            let cause = format!("{cause} (disk {})", other.name);
            return Err(Error::new(kind, self.end, "publish the file")
                .file(path)
                .cause(cause));
        }
        publish()?;
        self.note_entry_changed(disk, path);
        self.placer.note((&self.top, path), disk);
        for at in replaced {
            let removed = self.disks[at].store.remove(path);
            removed.map_err(|error| self.on(at, error))?;
            self.note_entry_changed(at, path);
        }
        Ok(())
    }

    /// Notes that the folder of `path` has a changed entry on a disk.
    pub(super) fn note_entry_changed(&self, disk: usize, path: &RelPath) {
        let folder = path.parent().unwrap_or_else(RelPath::root);
        self.folders.note_changed(disk, folder);
    }
}
