//! GridFTP servers, which can only be sources.

use crate::store_kind::{Location, OpenedSource, StoreKind};
use dray_core::{Checksum, End, RelPath, Result};
use dray_store::ReadOnly;
use dray_store_gridftp::{GridFtpStore, SCHEME, Url};
use std::sync::Arc;

/// The kind of store of servers that speak GridFTP.
pub(crate) struct GridFtpServers;

impl StoreKind for GridFtpServers {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        let url = Url::parse(typed)?;
        Ok(url.map(|url| -> Arc<dyn Location> { Arc::new(GridFtpLocation(url)) }))
    }
}

#[derive(Debug)]
struct GridFtpLocation(Url);

impl GridFtpLocation {
    /// Opens a store whose paths begin at the root of the server.
    fn open(&self) -> Result<GridFtpStore> {
        GridFtpStore::open(&self.0.with_path(&RelPath::root()), End::Source)
    }
}

impl Location for GridFtpLocation {
    fn words(&self) -> String {
        self.0.to_string()
    }

    fn path(&self) -> RelPath {
        self.0.path.clone()
    }

    fn is_folder(&self) -> bool {
        self.0.is_folder
    }

    fn top(&self) -> String {
        self.0.top()
    }

    fn with_path(&self, path: &RelPath) -> Arc<dyn Location> {
        Arc::new(Self(self.0.with_path(path)))
    }

    fn identity(&self, _end: End) -> String {
        let Url {
            server,
            path,
            is_folder,
        } = &self.0;
        format!("GridFtp({server:?} {path:?} contents: {is_folder})")
    }

    fn shared_store(&self) -> Option<String> {
        Some(self.0.server.clone())
    }

    fn open_source(&self, _is_compared: bool) -> Result<OpenedSource> {
        Ok(OpenedSource::of(Arc::new(ReadOnly(self.open()?))))
    }

    fn offers_checksum(&self) -> bool {
        true
    }

    fn checksum(&self) -> Result<Option<Checksum>> {
        self.open()?.checksum(&self.0.path)
    }
}
