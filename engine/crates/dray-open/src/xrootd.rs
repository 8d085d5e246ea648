//! XRootD servers as sources and destinations.

use crate::store_kind::{
    ChecksumNeed, Location, Looked, OpenedSink, OpenedSource, StoreKind, Writable,
};
use dray_core::options::{Durability, Options};
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result};
use dray_store::ReadOnly;
use dray_store::Store;
use dray_store_xrootd::{SinkOptions, Url, XrootdOptions, XrootdSink, XrootdStore};
use std::sync::Arc;

/// Owner that is recorded in logs at an XRootD server. User numbers of this host have no meaning at
/// the server. Any caller whose credentials can open the log may resume the transfer.
pub const OWNER: &[u8] = b"xrootd";

/// Ends the process. If a client library was loaded, no exit handlers run, because the handlers
/// destroy objects that the threads of the library still use.
pub fn end_process(code: u8) -> ! {
    if dray_store_rados::is_loaded() || dray_store_gridftp::is_loaded() {
        dray_store_rados::end_process(code);
    }
    dray_store_xrootd::end_process(code)
}

/// The kind of store of servers that speak XRootD.
pub(crate) struct XrootdServers;

impl StoreKind for XrootdServers {
    fn scheme(&self) -> &'static str {
        "root://"
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        if !Url::is_meant(typed) {
            return Ok(None);
        }
        let text = std::str::from_utf8(typed);
        let text =
            text.map_err(|_| usage("the URL is not UTF-8 text", "write the URL in UTF-8"))?;
        let url = Url::parse(text)?;
        let place = text.split_once('?').map_or(text, |(place, _)| place);
        let is_folder = place.ends_with('/') || url.path().is_root();
        Ok(Some(Arc::new(XrootdLocation { url, is_folder })))
    }
}

fn usage(cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
        .cause(cause)
        .remedy(remedy)
}

#[derive(Debug)]
struct XrootdLocation {
    url: Url,
    is_folder: bool,
}

impl Location for XrootdLocation {
    fn words(&self) -> String {
        self.url.to_string()
    }

    fn path(&self) -> RelPath {
        self.url.path().clone()
    }

    fn is_folder(&self) -> bool {
        self.is_folder
    }

    fn top(&self) -> String {
        format!("{}//", self.url.server())
    }

    fn with_path(&self, path: &RelPath) -> Arc<dyn Location> {
        Arc::new(Self {
            url: self.url.with_path(path),
            is_folder: self.is_folder,
        })
    }

    fn identity(&self, end: End) -> String {
        let Self { url, is_folder } = self;
        match end {
            End::Sink => format!("Xrootd({url:?})"),
            _ => format!("Xrootd(XrootdSource {{ url: {url:?}, contents: {is_folder} }})"),
        }
    }

    fn open_source(&self, is_compared: bool) -> Result<OpenedSource> {
        let options = XrootdOptions {
            is_compared,
            ..XrootdOptions::default()
        };
        let opened = XrootdStore::open(self.url.clone(), End::Source, options)?;
        let store = Arc::new(ReadOnly(opened.clone()));
        Ok(OpenedSource {
            store,
            need: Box::new(move || match is_compared {
                true if opened.has_new_time() => ChecksumNeed::New,
                true if opened.is_from_several() => ChecksumNeed::Any,
                _ => ChecksumNeed::Optional,
            }),
        })
    }

    fn offers_checksum(&self) -> bool {
        true
    }

    fn checksum(&self) -> Result<Option<Checksum>> {
        dray_store_xrootd::checksum(&self.url, self.url.path())
    }

    fn writable(&self) -> Result<&dyn Writable> {
        if self.url.has_key() {
            let cause = "the destination URL contains the key of a third-party copy (tpc.key), \
                which gives access to a source only";
            return Err(usage(cause, "remove `tpc.key` from the destination URL"));
        }
        Ok(self)
    }
}

impl Writable for XrootdLocation {
    fn refuse_options(&self, options: &Options) -> Result<()> {
        if options.durability == Durability::None {
            return Err(usage(
                "with --durability none, dray could not detect a restart of the server; a \
                    restart may lose data",
                "run the command without --durability none",
            ));
        }
        if options.xattrs {
            return Err(usage(
                "dray copies no extended attributes to an XRootD server",
                "run the command without --xattrs",
            ));
        }
        Ok(())
    }

    fn open_sink(&self) -> Result<OpenedSink> {
        let sink = XrootdSink::open(self.url.clone(), SinkOptions::default())?;
        sink.make_root()?;
        self.opened(sink)
    }

    fn look(&self) -> Result<Looked> {
        let sink = XrootdSink::open(self.url.clone(), SinkOptions::default())?;
        let exists = sink.stat(&RelPath::root())?.is_some();
        let opened = self.opened(sink)?;
        let near = Arc::clone(&opened.store);
        let folder = exists.then_some(opened);
        Ok(Looked { near, folder })
    }
}

impl XrootdLocation {
    fn opened(&self, sink: XrootdSink) -> Result<OpenedSink> {
        // The folders above the destination may contain logs of larger transfers.
        let above = sink.elsewhere(&RelPath::root(), SinkOptions::default())?;
        Ok(OpenedSink {
            store: Arc::new(sink),
            above: Some((Arc::new(above), self.url.path().clone())),
            owner: Some(OWNER.to_vec()),
        })
    }
}
