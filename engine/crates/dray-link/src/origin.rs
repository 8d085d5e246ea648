//! The store and path from which an announced file is read.

use dray_core::{RelPath, Result};
use dray_store::{Noted, ReadHandle, ReadState, Store};
use std::sync::{Arc, Mutex, OnceLock};

/// Source of an announced file's bytes.
pub struct Origin {
    /// Store of the file.
    pub store: Arc<dyn Store>,
    /// Path of the file in its store.
    pub path: RelPath,
    /// Text that messages put before the path, with its separator.
    pub top: Arc<str>,
    /// Offset in the file of the first byte to send. Not zero if the transfer copies a byte range.
    pub offset: u64,
    /// Size and modification time of the whole file, as listed.
    pub listed: ReadState,
    /// Handle that all reads of a large file share, once it is open.
    pub handle: OnceLock<Arc<dyn ReadHandle>>,
    /// Fields of the inode, and a hash of its attributes, as they were before the first read. A
    /// change that concerns only attributes replaces them with the new values.
    pub noted: Mutex<Option<Noted>>,
    /// True if reads may share a handle. False if objects are drawn at random from all files,
    /// because the handles of all files would then stay open.
    pub is_shared: bool,
}

impl Origin {
    /// Opens the file for a single read.
    fn open(&self) -> Result<Arc<dyn ReadHandle>> {
        let opened = self.store.open_listed(&self.path, &self.listed);
        opened.map(Arc::from)
    }

    /// Calls `read` with a handle. Reads of parts of a large file use the shared handle if
    /// `is_shared` is true; other reads open the file for one call. A failed open is not stored, so
    /// a later call opens the file again.
    pub fn with_handle<T>(
        &self,
        is_whole: bool,
        read: impl FnOnce(&Arc<dyn ReadHandle>) -> Result<T>,
    ) -> Result<T> {
        if is_whole || !self.is_shared {
            return read(&self.open()?);
        }
        if let Some(handle) = self.handle.get() {
            return read(handle);
        }
        let opened = self.open()?;
        opened.settle()?;
        read(self.handle.get_or_init(|| opened))
    }
}
