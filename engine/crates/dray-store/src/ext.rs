//! What follows from the traits alone; nobody implements these.

use crate::store::{ReadHandle, Store};
use crate::types::{FileKind, MadeDir, SyncItem};
use dray_core::{RelPath, Result, TargetId};

/// Conveniences over any [`Store`].
pub trait StoreExt {
    /// Makes a folder and those above it. Tells what became of the folder itself.
    ///
    /// # Errors
    /// As [`Store::make_dir`].
    fn make_dirs(&self, path: &RelPath) -> Result<MadeDir>;

    /// The number of the target with this name, if it was met.
    fn target_named(&self, name: &str) -> Option<TargetId>;

    /// Whether a folder stands at `path`.
    ///
    /// # Errors
    /// As [`Store::stat`].
    fn is_folder(&self, path: &RelPath) -> Result<bool>;

    /// Makes all items durable, or says why one is not.
    ///
    /// # Errors
    /// Those of [`Store::sync_each`], and the first of its answers.
    fn sync_all(&self, items: &[SyncItem<'_>]) -> Result<()>;
}

impl<S: Store + ?Sized> StoreExt for S {
    fn make_dirs(&self, path: &RelPath) -> Result<MadeDir> {
        // The common case is that the parent is there: ask for the folder first.
        match self.make_dir(path) {
            Err(error) if error.kind == dray_core::ErrorKind::NotFound => {}
            other => return other,
        }
        let mut above = RelPath::root();
        let mut made = MadeDir::Existed;
        for name in path.components() {
            above = above.join(&name)?;
            made = self.make_dir(&above)?;
        }
        Ok(made)
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

/// Conveniences over any [`ReadHandle`].
pub trait ReadExt {
    /// Reads until `buffer` is full or the file ends; fewer bytes than asked mean the end.
    ///
    /// # Errors
    /// As [`ReadHandle::read_at`].
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
