//! Helper functions that call only methods of the store traits. Backends do not implement these
//! functions.

use crate::store::{ReadHandle, Store};
use crate::types::{FileKind, MadeDir, SyncItem};
use dray_core::{Metadata, ModifiedTime, RelPath, Result, TargetId};

/// Helper functions for any [`Store`].
pub trait StoreExt {
    /// Creates a folder and its missing parents, each with the mode `mode`, and makes their names
    /// durable. The result says if the folder itself was created or already existed.
    ///
    /// # Errors
    /// The errors of [`Store::make_dir`] and [`Store::sync_each`].
    fn make_dirs(&self, path: &RelPath, mode: u32) -> Result<MadeDir>;

    /// Returns the number of the target named `name`; `None` if the store has not seen the target
    /// yet.
    fn target_named(&self, name: &str) -> Option<TargetId>;

    /// Returns the device number (`st_dev`) of a target; `None` if the store has not seen the
    /// target yet or has no devices.
    fn device_of(&self, target: TargetId) -> Option<u64>;

    /// Returns true if `path` is an existing folder.
    ///
    /// # Errors
    /// The errors of [`Store::stat`].
    fn is_folder(&self, path: &RelPath) -> Result<bool>;

    /// Makes all items durable. The first failed item fails the call.
    ///
    /// # Errors
    /// The errors of [`Store::sync_each`], and the first error among its results.
    fn sync_all(&self, items: &[SyncItem<'_>]) -> Result<()>;
}

impl<S: Store + ?Sized> StoreExt for S {
    fn make_dirs(&self, path: &RelPath, mode: u32) -> Result<MadeDir> {
        if self.is_folder(path)? {
            return Ok(MadeDir::Existed);
        }
        let mut at = RelPath::root();
        let mut made = MadeDir::Existed;
        let mut changed = Vec::new();
        for name in path.components() {
            let above = at.clone();
            at = at.join(&name)?;
            if self.is_folder(&at)? {
                // Do not change the mode of an existing folder.
                made = MadeDir::Existed;
                continue;
            }
            made = self.make_dir(&at)?;
            if made == MadeDir::Created {
                let state = self.stat(&at)?;
                let metadata = Metadata {
                    mode,
                    modified: state.map_or_else(ModifiedTime::default, |state| state.modified),
                    ..Metadata::default()
                };
                self.set_directory(&at, &metadata)?;
                changed.push(above);
            }
        }
        let folders: Vec<_> = changed.iter().map(SyncItem::Folder).collect();
        if !folders.is_empty() {
            self.sync_all(&folders)?;
        }
        Ok(made)
    }

    fn device_of(&self, target: TargetId) -> Option<u64> {
        let known = self.targets();
        known.into_iter().find(|known| known.id == target)?.device
    }

    fn target_named(&self, name: &str) -> Option<TargetId> {
        let targets = self.targets();
        let found = targets.iter().find(|target| target.name == name);
        found.map(|target| target.id)
    }

    fn is_folder(&self, path: &RelPath) -> Result<bool> {
        Ok(self
            .stat(path)?
            .is_some_and(|state| state.kind == FileKind::Directory))
    }

    fn sync_all(&self, items: &[SyncItem<'_>]) -> Result<()> {
        self.sync_each(items)?.into_iter().collect()
    }
}

/// Helper functions for any [`ReadHandle`].
pub trait ReadExt {
    /// Reads until `buffer` is full or the file ends. If the result is less than the length of the
    /// buffer, the file ended.
    ///
    /// # Errors
    /// The errors of [`ReadHandle::read_at`].
    fn read_full_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
}

impl<R: ReadHandle + ?Sized> ReadExt for R {
    fn read_full_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let count = self.read_at(offset + filled as u64, &mut buffer[filled..])?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        Ok(filled)
    }
}
