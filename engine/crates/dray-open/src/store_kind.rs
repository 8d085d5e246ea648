//! The interface between locations and the stores that URLs name. A kind of store implements
//! [`StoreKind`] and [`Location`], and knows neither the table of all kinds nor their users.
//!
//! All other modules ask a [`Location`]: which checksum it offers, whether it can be written, and
//! what it refuses. None of them matches on the kind of a store.

use dray_core::options::Options;
use dray_core::{Checksum, End, Error, ErrorKind, RelPath, Result};
use dray_store::Store;
use std::fmt;
use std::sync::Arc;

/// A kind of store: how its URLs begin, and how they are parsed.
pub trait StoreKind: Sync {
    /// The scheme that messages name, with its separator: `root://`.
    fn scheme(&self) -> &'static str;

    /// Returns true if its locations can be destinations.
    fn is_writable(&self) -> bool;

    /// Returns true if it stores nothing. Only commands that measure accept such a store.
    fn keeps_nothing(&self) -> bool {
        false
    }

    /// Parses a location as typed. `None` if `typed` does not begin as a URL of this kind.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for a URL of this kind that is malformed. The message shows
    /// no secret of the URL.
    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>>;
}

/// A file or folder of a store, as a URL names it. Nothing is opened yet.
pub trait Location: fmt::Debug + Send + Sync {
    /// Returns the URL without secrets, for messages.
    fn words(&self) -> String;

    /// Returns the path beneath the root of the store that [`Self::open_source`] returns.
    fn path(&self) -> RelPath;

    /// Returns true if the URL is spelled as a folder: then its contents are meant.
    fn is_folder(&self) -> bool;

    /// Returns the text before a path of this store in messages, with its separator.
    fn top(&self) -> String;

    /// Returns another path of the same store.
    fn with_path(&self, path: &RelPath) -> Arc<dyn Location>;

    /// Returns the text that distinguishes this location from others in a transfer id, as a source
    /// and as a destination. Keep it stable: an interrupted command finds its partial data by this
    /// id.
    fn identity(&self, end: End) -> String;

    /// Returns the text of these sources, which one store reads, in a transfer id. `self` is the
    /// first of them. Keep it stable, as [`Self::identity`].
    fn identity_of_all(&self, sources: &[Arc<dyn Location>]) -> String {
        sources
            .iter()
            .map(|one| one.identity(End::Source))
            .collect()
    }

    /// Returns a key that is equal for locations which one store can read. `None` if the location
    /// is read alone.
    fn shared_store(&self) -> Option<String> {
        None
    }

    /// Refuses a location that has nothing to read.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`].
    fn refuse_as_source(&self) -> Result<()> {
        Ok(())
    }

    /// Opens the store to read from. `is_compared` is true if the caller compares the whole file
    /// with the checksum of the server, so that the store may read replicas whose equality it
    /// cannot check.
    ///
    /// # Errors
    /// Errors of the store.
    fn open_source(&self, is_compared: bool) -> Result<OpenedSource>;

    /// Returns true if the store may know the checksum of the file.
    fn offers_checksum(&self) -> bool {
        false
    }

    /// Returns the checksum that the store has for the file. May block for as long as the server
    /// needs.
    ///
    /// # Errors
    /// If the store cannot be asked. The copy continues: reading the file reports a real problem.
    fn checksum(&self) -> Result<Option<Checksum>> {
        Ok(None)
    }

    /// Returns the interface to write to this location.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the store or this URL is read-only.
    fn writable(&self) -> Result<&dyn Writable> {
        let cause = format!(
            "{}: dray reads from this store and does not write to it",
            self.words()
        );
        Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
                .cause(cause)
                .remedy("name a folder, or an endpoint (dray://HOST/PATH)"),
        )
    }

    /// See [`StoreKind::keeps_nothing`].
    fn keeps_nothing(&self) -> bool {
        false
    }
}

/// A location that can be a destination.
pub trait Writable: Location {
    /// Refuses options that the store cannot fulfil.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] names the option and the remedy.
    fn refuse_options(&self, options: &Options) -> Result<()>;

    /// Opens the folder to write to, and makes it if it is missing.
    ///
    /// # Errors
    /// Errors of the store.
    fn open_sink(&self) -> Result<OpenedSink>;
}

/// A store that is read from.
pub struct OpenedSource {
    /// The store, from its root down.
    pub store: Arc<dyn Store>,
    /// Returns true if the file may only be published after a comparison with the server's
    /// checksum.
    pub needs_checksum: Box<dyn Fn() -> bool + Send + Sync>,
}

impl OpenedSource {
    /// A store whose files need no comparison.
    #[must_use]
    pub fn of(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            needs_checksum: Box::new(|| false),
        }
    }
}

/// A folder that is written to.
pub struct OpenedSink {
    /// The store, from the folder down.
    pub store: Arc<dyn Store>,
    /// The store above the folder and the folder's path in it, where logs of larger transfers lie.
    pub above: Option<(Arc<dyn Store>, RelPath)>,
    /// The owner of a log at this store. `None` for the user of this process.
    pub owner: Option<Vec<u8>>,
}

impl PartialEq for dyn Location {
    fn eq(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.identity(End::Source), one.identity(End::Sink));
        of(self) == of(other)
    }
}

impl Eq for dyn Location {}
