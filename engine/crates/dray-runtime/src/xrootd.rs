//! An XRootD server as the source of a transfer.

use crate::place::Sources;
use crate::prepare::Targets;
use crate::source::Root;
use dray_core::{Checksum, End, Error, ErrorKind, Name, Result};
use dray_store::{ReadOnly, Store};
use dray_store_xrootd::{Url, XrootdOptions, XrootdStore};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A file or folder of an XRootD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XrootdSource {
    /// Server and path.
    pub url: Url,
    /// A folder's contents, not the folder itself.
    pub contents: bool,
}

fn usage(cause: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "do as told")
        .cause(cause)
        .remedy(remedy)
}

impl XrootdSource {
    /// The one that is read, if it is one: it comes alone.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for a URL that is none, or one beside other sources.
    pub fn read(sources: &[OsString]) -> Result<Option<Self>> {
        let is_url = |source: &&OsString| Url::is_meant(source.as_bytes());
        let Some(source) = sources.iter().find(is_url) else {
            return Ok(None);
        };
        if sources.len() > 1 {
            let cause = "a file of an XRootD server beside other sources";
            return Err(usage(cause, "copy them one by one"));
        }
        let text = source.to_str();
        let text = text.ok_or_else(|| usage("a URL that is no text", "write it in UTF-8"))?;
        let url = Url::parse(text)?;
        let place = text.split_once('?').map_or(text, |(place, _)| place);
        let contents = place.ends_with('/') || url.path().is_root();
        Ok(Some(Self { url, contents }))
    }

    /// Refuses a URL of such a server as a destination.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] says what can be done.
    pub fn refuse_destination(destination: &OsStr) -> Result<()> {
        if !Url::is_meant(destination.as_bytes()) {
            return Ok(());
        }
        Err(usage(
            "dray cp reads from XRootD servers and does not write to them",
            "name a folder or an endpoint, or let the server fetch it: xrdcp --tpc only SRC DST",
        ))
    }

    /// What a copy of it is called; none for a folder's contents.
    #[must_use]
    pub fn name(&self) -> Option<Name> {
        self.url.path().name().filter(|_| !self.contents)
    }

    /// What to read.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] when the XRootD client cannot be loaded.
    pub fn roots(&self, targets: &Targets) -> Result<Vec<Root>> {
        let options = XrootdOptions::default();
        let store = XrootdStore::open(self.url.clone(), End::Source, options)?;
        let store: Arc<dyn Store> = targets.limit(Arc::new(ReadOnly(store)));
        Ok(vec![Root {
            store,
            path: self.url.path().clone(),
            contents: self.contents,
        }])
    }
}

/// Whether it is one file of such a server, which may know its checksum.
pub(crate) const fn may_offer(sources: &Sources) -> bool {
    matches!(
        sources,
        Sources::Xrootd(XrootdSource {
            contents: false,
            ..
        })
    )
}

/// The checksum that a server gives for the one file that is read from it.
///
/// # Errors
/// When it cannot be asked, which is no fault of the copy: reading the file will tell.
pub fn checksum(sources: &Sources) -> Result<Option<Checksum>> {
    match sources {
        Sources::Xrootd(XrootdSource {
            url,
            contents: false,
        }) => dray_store_xrootd::checksum(url, url.path()),
        _ => Ok(None),
    }
}
