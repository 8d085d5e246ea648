//! Pools of Ceph clusters as sources and destinations.

use crate::store_kind::{Location, Looked, OpenedSink, OpenedSource, StoreKind, Writable};
use dray_core::options::{Durability, Options};
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result};
use dray_store::Store;
use dray_store_rados::{RadosStore, SCHEME, Url};
use std::sync::Arc;

/// Owner that is recorded in logs in a pool. User numbers of this host have no meaning in the
/// cluster. Any client that can open the log may resume the transfer.
pub const OWNER: &[u8] = b"rados";

/// The kind of store of Ceph pools.
pub(crate) struct RadosPools;

impl StoreKind for RadosPools {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        if !Url::is_meant(typed) {
            return Ok(None);
        }
        let url = Url::parse(typed)?;
        let end = typed.iter().position(|byte| *byte == b'?');
        let place = &typed[..end.unwrap_or(typed.len())];
        let is_folder = place.ends_with(b"/") || url.path.is_root();
        Ok(Some(Arc::new(RadosLocation { url, is_folder })))
    }
}

#[derive(Debug)]
struct RadosLocation {
    url: Url,
    is_folder: bool,
}

impl RadosLocation {
    /// Returns the location of the top of the namespace.
    fn above(&self) -> Url {
        self.url.with_path(&RelPath::root())
    }
}

impl Location for RadosLocation {
    fn words(&self) -> String {
        self.url.to_string()
    }

    fn path(&self) -> RelPath {
        self.url.path.clone()
    }

    fn is_folder(&self) -> bool {
        self.is_folder
    }

    fn top(&self) -> String {
        self.url.top()
    }

    fn with_path(&self, path: &RelPath) -> Arc<dyn Location> {
        Arc::new(Self {
            url: self.url.with_path(path),
            is_folder: self.is_folder,
        })
    }

    fn identity(&self, end: End) -> String {
        let Url { access, .. } = &self.url;
        let cluster = format!("{:?} {:?}", access.conf, access.user);
        let place = format!("{:?} {:?}", self.url.top(), self.url.path);
        match end {
            End::Sink => format!("Rados({place} {cluster})"),
            _ => format!("Rados({place} {cluster} contents: {})", self.is_folder),
        }
    }

    fn shared_store(&self) -> Option<String> {
        Some(format!("{:?} {:?}", self.url.top(), self.url.access))
    }

    fn open_source(&self, _is_compared: bool) -> Result<OpenedSource> {
        let store = RadosStore::open(self.above(), End::Source)?;
        Ok(OpenedSource::of(Arc::new(store)))
    }

    fn offers_checksum(&self) -> bool {
        true
    }

    fn checksum(&self) -> Result<Option<Checksum>> {
        let store = RadosStore::open(self.above(), End::Source)?;
        store.checksum(&self.url.path)
    }

    fn writable(&self) -> Result<&dyn Writable> {
        Ok(self)
    }

    fn object_bytes(&self) -> Option<u64> {
        Some(self.url.layout.transfer_bytes())
    }
}

impl Writable for RadosLocation {
    fn is_swept(&self) -> bool {
        true
    }

    fn refuse_options(&self, options: &Options) -> Result<()> {
        if options.durability == Durability::None {
            let error = Error::new(ErrorKind::InvalidRequest, End::Here, "run the command");
            return Err(error
                .cause(
                    "a Ceph pool makes every write durable, so --durability none is not possible",
                )
                .remedy("run the command without --durability none"));
        }
        Ok(())
    }

    fn open_sink(&self) -> Result<OpenedSink> {
        let sink = RadosStore::open(self.url.clone(), End::Sink)?;
        sink.make_root()?;
        self.opened(sink)
    }

    fn look(&self) -> Result<Looked> {
        let sink = RadosStore::open(self.url.clone(), End::Sink)?;
        let exists = sink.stat(&RelPath::root())?.is_some();
        let opened = self.opened(sink)?;
        let near = Arc::clone(&opened.store);
        let folder = exists.then_some(opened);
        Ok(Looked { near, folder })
    }
}

impl RadosLocation {
    fn opened(&self, sink: RadosStore) -> Result<OpenedSink> {
        // The folders above the destination may contain logs of larger transfers.
        let above = sink.elsewhere(&RelPath::root())?;
        Ok(OpenedSink {
            store: Arc::new(sink),
            above: Some((Arc::new(above), self.url.path.clone())),
            owner: Some(OWNER.to_vec()),
        })
    }
}
