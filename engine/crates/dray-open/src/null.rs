//! Ends without storage, to measure the rest of the way: a source of made-up bytes, a sink that drops
//! what it was sent after its sums were compared. Everything between is as always.
//!
//! Invariant owned here: what goes to such a sink has no log, no lease and no name, and is never
//! called safe; whoever is at the other end knows it before anything moves.

use crate::export;
use crate::registry::{Location, OpenedSink, OpenedSource, StoreKind, Writable};
use dray_core::options::Options;
use dray_core::units::size;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_runtime::assembly::Threads;
use dray_runtime::pool::Pool;
use dray_runtime::sink::{self, Destination, DestinationRequest};
use dray_runtime::source::{self, Root};
use dray_store::{NullStore, NullTree, Store};
use dray_wire::message::{Connect, Limits};
use dray_wire::negotiate::Agreed;
use std::sync::Arc;

/// How a null end begins.
const SCHEME: &str = "null:";

/// The name of the one file.
const FILE_NAME: &[u8] = b"f0";

/// Seed of the bytes: they are the same in every run, and do not compress.
const SEED: u64 = 1;

/// Files, and folders, of a made-up tree at the most: their numbers fit the names of a listing.
const COUNT_MAX: u64 = 1 << 32;

/// A null end, as it was written: `null:`, `null:SIZE`, `null:SIZExFILES` or
/// `null:SIZExFILESxFOLDERS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Null {
    /// What can be read from it; nothing from `null:`.
    tree: NullTree,
    /// Whether it was written as a number of files.
    is_many: bool,
}

impl Null {
    /// Reads one; none for what does not begin as one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for sizes and counts that are none.
    pub fn read(text: &[u8]) -> Result<Option<Self>> {
        let Some(rest) = text.strip_prefix(SCHEME.as_bytes()) else {
            return Ok(None);
        };
        let bad = || {
            let text = String::from_utf8_lossy(text).escape_debug().to_string();
            Error::new(ErrorKind::InvalidRequest, End::Here, "run the command")
                .cause(format!("{text}: not a null end"))
                .remedy(
                    "write null:, null:SIZE or null:SIZExFILES[xFOLDERS]; a file of this name is ./null:...",
                )
        };
        let rest = std::str::from_utf8(rest).map_err(|_| bad())?;
        let mut tree = NullTree {
            pattern: Some(SEED),
            ..NullTree::default()
        };
        if rest.is_empty() {
            let is_many = false;
            return Ok(Some(Self { tree, is_many }));
        }
        let mut parts = rest.split('x');
        tree.file_bytes = parts
            .next()
            .and_then(|part| size(part).ok())
            .ok_or_else(bad)?;
        let mut count = || match parts.next() {
            None => Ok(None),
            Some(part) => match part.parse() {
                Ok(count @ 1..=COUNT_MAX) => Ok(Some(count)),
                _ => Err(bad()),
            },
        };
        let (files, folders) = (count()?, count()?);
        if parts.next().is_some() {
            return Err(bad());
        }
        tree.files_per_folder = files.unwrap_or(1);
        tree.folders = folders.unwrap_or(0);
        Ok(Some(Self {
            tree,
            is_many: files.is_some(),
        }))
    }

    /// Whether there is anything to read.
    #[must_use]
    pub const fn has_files(&self) -> bool {
        self.tree.files_per_folder > 0
    }

    /// Whether it is several files, which a copy takes as a folder's contents.
    #[must_use]
    pub const fn is_many(&self) -> bool {
        self.is_many
    }

    /// The tree as a store to read from.
    #[must_use]
    pub fn source(&self) -> Arc<dyn Store> {
        Arc::new(NullStore::new(End::Source, self.tree))
    }
}

/// Ends without storage.
pub(crate) struct NullEnds;

impl StoreKind for NullEnds {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn keeps_nothing(&self) -> bool {
        true
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        let null = Null::read(typed)?;
        Ok(null.map(|null| -> Arc<dyn Location> { Arc::new(null) }))
    }
}

impl Location for Null {
    fn words(&self) -> String {
        match self.has_files() {
            true => format!("{SCHEME}{}", self.tree.file_bytes),
            false => SCHEME.to_owned(),
        }
    }

    fn path(&self) -> RelPath {
        match self.is_folder() {
            true => RelPath::root(),
            false => RelPath::parse(FILE_NAME).unwrap_or_else(|_| RelPath::root()),
        }
    }

    fn is_folder(&self) -> bool {
        self.is_many || !self.has_files()
    }

    fn top(&self) -> String {
        SCHEME.to_owned()
    }

    fn with_path(&self, _path: &RelPath) -> Arc<dyn Location> {
        Arc::new(*self)
    }

    fn identity(&self, end: End) -> String {
        match end {
            End::Sink => "Null".to_owned(),
            _ => format!("Null({self:?})"),
        }
    }

    fn refuse_as_source(&self) -> Result<()> {
        if self.has_files() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::InvalidRequest, End::Here, "run the command");
        Err(error
            .cause("null: without a size has no bytes to copy")
            .remedy("write null:SIZE, as null:4GiB"))
    }

    fn open_source(&self, _is_compared: bool) -> Result<OpenedSource> {
        Ok(OpenedSource::of(self.source()))
    }

    fn writable(&self) -> Result<&dyn Writable> {
        if self.has_files() {
            let error = Error::new(ErrorKind::InvalidRequest, End::Here, "run the command");
            return Err(error
                .cause("a null destination has no size")
                .remedy("write null: for it"));
        }
        Ok(self)
    }

    fn keeps_nothing(&self) -> bool {
        true
    }
}

impl Writable for Null {
    fn refuse_options(&self, options: &Options) -> Result<()> {
        if !options.verify {
            return Ok(());
        }
        let error = Error::new(ErrorKind::InvalidRequest, End::Here, "run the command");
        Err(error
            .cause("a null end cannot be read back")
            .remedy("leave --verify out"))
    }

    fn open_sink(&self) -> Result<OpenedSink> {
        Ok(OpenedSink {
            store: Arc::new(NullStore::new(End::Sink, NullTree::default())),
            above: None,
            owner: None,
        })
    }
}

/// A null end that others may read from and write to, in the place of an exported folder.
#[derive(Debug)]
pub struct NullExport {
    /// What it is.
    pub null: Null,
    /// How many threads each end of it has.
    pub threads: Threads,
}

impl NullExport {
    /// The sink that a driver asks for, within `pool` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] when it asks to read back.
    pub fn passive_sink(
        &self,
        connect: &Connect,
        limits: &Limits,
        owner: Vec<u8>,
        pool: u64,
    ) -> Result<(sink::Setup, Arc<Pool>)> {
        if connect.options.verify {
            let error = Error::new(
                ErrorKind::InvalidRequest,
                End::Sink,
                "read back what is written",
            );
            return Err(error
                .cause("a null end keeps nothing")
                .remedy("leave --verify out"));
        }
        let rest = connect.paths.iter().skip(1);
        let claims: Result<Vec<_>> = rest.map(|path| RelPath::parse(path)).collect();
        let claims = claims.map_err(|error| error.at(End::Sink))?;
        let destination = destination(|store| DestinationRequest {
            store,
            above: None,
            claims,
            transfer: connect.transfer.clone(),
            owner,
            durability: connect.options.durability,
            words: "a null end".to_owned(),
        })?;
        let threads = self.threads;
        export::sink_of(destination, connect, limits, pool, threads)
    }

    /// The source that a driver asks for, within `pool` bytes.
    ///
    /// # Errors
    /// For paths and patterns that are none.
    pub fn passive_source(
        &self,
        connect: &Connect,
        agreed: &Agreed,
        pool: u64,
    ) -> Result<source::Setup> {
        let store = self.null.source();
        let root = |path: &Vec<u8>| {
            let trimmed = path.strip_suffix(b"/").unwrap_or(path);
            Ok(Root {
                store: Arc::clone(&store),
                path: RelPath::parse(trimmed).map_err(|error| error.at(End::Source))?,
                top: "/".into(),
                name: None,
                contents: trimmed.len() < path.len() || path.is_empty(),
            })
        };
        let roots: Result<Vec<_>> = connect.paths.iter().map(root).collect();
        export::source_of(roots?, connect, agreed, pool, self.threads)
    }
}

/// A sink that drops everything. Of the request only what it is called counts.
///
/// # Errors
/// As [`Destination::open`], which has nothing to open here.
pub fn destination(
    request: impl FnOnce(Arc<dyn Store>) -> DestinationRequest,
) -> Result<Destination> {
    let store = NullStore::new(End::Sink, NullTree::default());
    Destination::open(request(Arc::new(store)))
}

#[cfg(test)]
mod tests {
    use super::Null;

    #[test]
    fn a_null_end_is_read_as_it_is_written() {
        let read = |text: &str| Null::read(text.as_bytes());
        assert_eq!(read("data/null:1"), Ok(None));
        assert_eq!(read("./null:1"), Ok(None));
        let sink = read("null:").expect("good").expect("null");
        assert!(!sink.has_files());
        let one = read("null:4GiB").expect("good").expect("null");
        assert!(one.has_files() && !one.is_many());
        assert_eq!(one.tree.file_bytes, 4 << 30);
        let many = read("null:1KiBx10x3").expect("good").expect("null");
        assert!(many.is_many());
        assert_eq!((many.tree.files_per_folder, many.tree.folders), (10, 3));
        for wrong in [
            "null:x",
            "null:1x0",
            "null:1x1x1x1",
            "null:1MiBxx",
            "null:-1",
            "null:1x4294967297",
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.cause.contains(wrong), "{error}");
        }
    }
}
