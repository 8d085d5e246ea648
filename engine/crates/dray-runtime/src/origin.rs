//! The store and the path that an announced file is read from.

use dray_core::{RelPath, Result};
use dray_store::{Noted, ReadHandle, ReadState, Store};
use std::sync::{Arc, Mutex, OnceLock};

/// Where the bytes of an announced file come from.
pub struct Origin {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) path: RelPath,
    /// What callers write before the path.
    pub(crate) top: Arc<str>,
    /// First byte that is sent (a byte range of a file).
    pub(crate) offset: u64,
    /// Size of the whole file, and its time, as listed.
    pub(crate) listed: ReadState,
    pub(crate) handle: OnceLock<Arc<dyn ReadHandle>>,
    /// What the file system noted of it before its first read, but for what explains itself since.
    pub(crate) noted: Mutex<Option<Noted>>,
    /// Whether reads of it may share a handle: not when objects are drawn at random from all files,
    /// which would keep all of them open.
    pub(crate) is_shared: bool,
}

impl Origin {
    /// Opens the file for one read.
    fn open(&self) -> Result<Arc<dyn ReadHandle>> {
        let opened = self.store.open_listed(&self.path, &self.listed);
        opened.map(Arc::from)
    }

    /// Calls `read` with a handle: the one that all reads of a large file share, where that is
    /// wanted. A failed opening is not remembered: a later try may fare better.
    pub(crate) fn with_handle<T>(
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
