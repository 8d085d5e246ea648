//! The interface of a kind of store. Each kind implements [`StoreKind`] and [`Location`], and
//! depends neither on the table of all kinds nor on the code that uses that table.
//!
//! All other modules ask a [`Location`] for its properties, such as its checksum, or whether it can
//! be written. These modules do not depend on the kind of store.

use crate::targets::Targets;
use dray_core::options::Options;
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result};
use dray_store::Store;
use dray_store::lustre::stripes_refused;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A kind of store: the form of its URLs, and their parser.
pub trait StoreKind: Sync {
    /// Returns the URL scheme for messages, with its separator: `root://`.
    fn scheme(&self) -> &'static str;

    /// Returns true if locations of this kind can be destinations.
    fn is_writable(&self) -> bool;

    /// Returns true for null ends, which store nothing. Only commands that measure accept them.
    fn keeps_nothing(&self) -> bool {
        false
    }

    /// Parses a location as typed. Returns `None` if `typed` does not begin like a URL of this
    /// kind.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for a malformed URL of this kind. The message contains no
    /// secrets of the URL.
    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>>;
}

/// A file or folder in a store, as a URL names it. The store is not opened yet.
pub trait Location: fmt::Debug + Send + Sync {
    /// Returns the URL for messages, without secrets.
    fn words(&self) -> String;

    /// Returns the path relative to the root of the store that [`Self::open_source`] returns.
    fn path(&self) -> RelPath;

    /// Returns true if the URL is spelled as a folder. A copy then takes only the folder's
    /// contents.
    fn is_folder(&self) -> bool;

    /// Returns the text that precedes a path of this store in messages, with its separator.
    fn top(&self) -> String;

    /// Returns the location of another path in the same store.
    fn with_path(&self, path: &RelPath) -> Arc<dyn Location>;

    /// Returns the text that represents this location in a transfer id. Different locations have
    /// different texts. The text may depend on `end`. The text must never change, because an
    /// interrupted command finds its partial data by the transfer id.
    fn identity(&self, end: End) -> String;

    /// Returns the text that represents several sources in a transfer id. All these sources are
    /// read from one store, and `self` is the first source. The text must never change, for the
    /// reason given at [`Self::identity`].
    fn identity_of_all(&self, sources: &[Arc<dyn Location>]) -> String {
        sources
            .iter()
            .map(|one| one.identity(End::Source))
            .collect()
    }

    /// Returns a key that is equal for all locations that can be read from one store. Returns
    /// `None` if the location needs a store of its own.
    fn shared_store(&self) -> Option<String> {
        None
    }

    /// Returns the folders of this host in which the store has its files. Returns an empty list if
    /// the files are not on this host.
    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the same location with the settings of `targets`, if its store is on this host.
    /// Returns `None` if the settings do not apply to the store.
    fn on_host(&self, targets: &Targets) -> Option<Arc<dyn Location>> {
        let _ = targets;
        None
    }

    /// Returns an error if the location cannot be a source.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`].
    fn refuse_as_source(&self) -> Result<()> {
        Ok(())
    }

    /// Opens the store to read from. `is_compared` is true if the caller will compare the whole
    /// file with the server's checksum. In this case the store may read parts of the file from
    /// several replicas, although it cannot check that the replicas are equal. The store may also
    /// continue to read a file whose modification time changes.
    ///
    /// # Errors
    /// Errors of the store.
    fn open_source(&self, is_compared: bool) -> Result<OpenedSource>;

    /// Returns true if the store may have a checksum of the file.
    fn offers_checksum(&self) -> bool {
        false
    }

    /// Returns the checksum that the store has for the file, if there is one. May block until the
    /// server has computed the checksum.
    ///
    /// # Errors
    /// If the request fails. The copy continues, because reading the file reports any real problem.
    fn checksum(&self) -> Result<Option<Checksum>> {
        Ok(None)
    }

    /// Returns the interface for writing to this location.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the store or this URL is read-only.
    fn writable(&self) -> Result<&dyn Writable> {
        let cause = format!(
            "{}: dray can read from this storage system, but not write to it",
            self.words()
        );
        Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
                .cause(cause)
                .remedy("choose a folder or an endpoint (dray://HOST/PATH) as the destination"),
        )
    }

    /// Returns true if the location is a null end; see [`StoreKind::keeps_nothing`].
    fn keeps_nothing(&self) -> bool {
        false
    }

    /// Returns the object size in bytes that suits the storage system. Returns `None` if the
    /// default size suits it.
    fn object_bytes(&self) -> Option<u64> {
        None
    }
}

/// A location that can be a destination.
pub trait Writable: Location {
    /// Refuses transfer options that the store does not support.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`]; the error names the option and the remedy.
    fn refuse_options(&self, options: &Options) -> Result<()>;

    /// Returns true if a sweep may search the store for abandoned partial data. The store must list
    /// dray's own files and know the time of their last change.
    fn is_swept(&self) -> bool {
        false
    }

    /// Opens the folder to write to. Makes the folder if it does not exist.
    ///
    /// # Errors
    /// Errors of the store.
    fn open_sink(&self) -> Result<OpenedSink>;

    /// Opens the folder to plan a copy, without changing anything.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the store cannot be opened for a plan. Errors of the store.
    fn look(&self) -> Result<Looked> {
        let operation = "plan the copy";
        Err(Error::new(ErrorKind::Unsupported, End::Sink, operation)
            .cause(format!("dray cannot plan copies to {}", self.words()))
            .remedy("run dray cp without --dry-run"))
    }
}

/// A destination folder that was opened for a plan.
pub struct Looked {
    /// The store of the folder or, if the folder does not exist, a store above it.
    pub near: Arc<dyn Store>,
    /// The folder; `None` if it does not exist. Nothing may be written to it.
    pub folder: Option<OpenedSink>,
}

/// A store that was opened for reading.
pub struct OpenedSource {
    /// The store, with all paths relative to its root.
    pub store: Arc<dyn Store>,
    /// Returns which checksum of the server a copy must be compared with before it is published.
    pub need: Box<dyn Fn() -> ChecksumNeed + Send + Sync>,
}

/// The checksum of the server that a copy must be compared with before it is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumNeed {
    /// None: the copy is also published without a comparison.
    Optional,
    /// A checksum that was requested at any time during the copy.
    Any,
    /// A checksum that is requested after all bytes were read, because the modification time of the
    /// file has changed.
    New,
}

impl OpenedSource {
    /// Returns a store whose files need no comparison.
    #[must_use]
    pub fn of(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            need: Box::new(|| ChecksumNeed::Optional),
        }
    }
}

/// A folder that was opened for writing.
pub struct OpenedSink {
    /// A store whose root is the folder.
    pub store: Arc<dyn Store>,
    /// The store of the exported root, and the path of the folder in it. The folders above may
    /// contain logs of transfers whose destinations include this folder.
    pub above: Option<(Arc<dyn Store>, RelPath)>,
    /// Owner that is recorded in logs of this store; `None` for the user of this process.
    pub owner: Option<Vec<u8>>,
}

impl PartialEq for dyn Location {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.identity(End::Source), one.identity(End::Sink));
        of(self) == of(other)
    }
}

impl Eq for dyn Location {}

/// Returns the location as a destination. Refuses transfer options that its store does not support.
///
/// # Errors
/// The errors of [`Location::writable`] and [`Writable::refuse_options`].
/// [`ErrorKind::Unsupported`] for stripes: a store that a URL names places the bytes of a file
/// itself.
pub(crate) fn writable_with<'a>(
    location: &'a Arc<dyn Location>,
    options: &Options,
) -> Result<&'a dyn Writable> {
    let writable = location.writable()?;
    if options.stripes.is_some() {
        return Err(stripes_refused(End::Sink, &location.words()));
    }
    writable.refuse_options(options)?;
    Ok(writable)
}
