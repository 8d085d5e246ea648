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
    /// Prefix that callers write before the path.
    pub top: Arc<str>,
    /// Offset of the first byte to send (for a byte range of a file).
    pub offset: u64,
    /// Size of the whole file and its modification time, as listed.
    pub listed: ReadState,
    /// Handle that reads of a large file share, if it was opened.
    pub handle: OnceLock<Arc<dyn ReadHandle>>,
    /// State that the file system recorded before the first read, updated after changes of
    /// attributes only.
    pub noted: Mutex<Option<Noted>>,
    /// True if reads may share a handle. False if objects are drawn at random from all files, as
    /// all of them would stay open.
    pub is_shared: bool,
}

impl Origin {
    /// Opens the file for a single read.
    fn open(&self) -> Result<Arc<dyn ReadHandle>> {
        let opened = self.store.open_listed(&self.path, &self.listed);
        opened.map(Arc::from)
    }

    /// Calls `read` with a handle: with the shared handle for parts of a large file, if sharing is
    /// enabled. A failed open is not stored: a later attempt may succeed.
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
