//! A folder of a store as a separate store for reading.

use dray_core::{Layout, RelPath, Result};
use dray_store::{
    Capabilities, FileState, FolderVersion, ListOptions, Lister, ReadHandle, ReadOnly, ReadPurpose,
    ReadState, Readable, Store, Target,
};
use std::sync::Arc;

/// Returns the folder `top` of a store as a store for reading.
pub(crate) fn beneath(store: Arc<dyn Store>, top: RelPath) -> Arc<dyn Store> {
    Arc::new(ReadOnly(Beneath { store, top }))
}

/// Returns the path in the store of `path` in its folder `top`.
pub(crate) fn below(top: &RelPath, path: &RelPath) -> Result<RelPath> {
    match (top.is_root(), path.is_root()) {
        (true, _) => Ok(path.clone()),
        (_, true) => Ok(top.clone()),
        _ => RelPath::parse(&[top.as_bytes(), b"/", path.as_bytes()].concat()),
    }
}

/// The folder `top` of a store, as a separate store with this folder as its root.
struct Beneath {
    store: Arc<dyn Store>,
    top: RelPath,
}

impl Readable for Beneath {
    fn kind(&self) -> &'static str {
        "this root"
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn targets(&self) -> Vec<Target> {
        self.store.targets()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        self.store.layout(&below(&self.top, path)?)
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let options = ListOptions {
            contents: options.contents || top.is_root(),
            ..*options
        };
        self.store.list(&below(&self.top, top)?, &options)
    }

    fn folder_version(&self, path: &RelPath) -> Result<Option<FolderVersion>> {
        self.store.folder_version(&below(&self.top, path)?)
    }

    fn open_read(&self, path: &RelPath, purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        self.store.open_read(&below(&self.top, path)?, purpose)
    }

    fn open_listed(&self, path: &RelPath, listed: &ReadState) -> Result<Box<dyn ReadHandle>> {
        self.store.open_listed(&below(&self.top, path)?, listed)
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        self.store.stat(&below(&self.top, path)?)
    }
}
