//! The toy store of docs/how-to/add-a-store.md. This test compiles the store, checks it with the
//! conformance suite of read-only stores, and copies files from it.

use dray_core::options::{Links, Options};
use dray_core::{ByteRange, End, Error, ErrorKind, ModifiedTime, RelPath, Result, Sums, TargetId};
use dray_open::locations::{Places, Written};
use dray_open::prepare::{self, Request, Targets};
use dray_open::registry::Registry;
use dray_open::store_kind::{Location, OpenedSource, StoreKind};
use dray_runtime::assembly::Content;
use dray_runtime::local;
use dray_runtime::observe::Silent;
use dray_session::Outcome;
use dray_store::conformance::{self, Item};
use dray_wire::message::Selection;
use std::ffi::OsString;
use std::sync::Arc;

// begin: store
use dray_store::{
    Capabilities, FileKind, FileState, FolderEntry, FolderLister, ListOptions, Lister, ReadHandle,
    ReadOnly, ReadPurpose, ReadState, Readable, Target,
};

/// Files in memory: path, bytes (none for a folder), time of last change.
type Shelf = Arc<Vec<(RelPath, Option<Vec<u8>>, ModifiedTime)>>;

struct ToyStore(Shelf);

impl ToyStore {
    fn find(&self, path: &RelPath) -> Option<FileState> {
        let state = |bytes: &Option<Vec<u8>>, modified: ModifiedTime| FileState {
            kind: if bytes.is_some() {
                FileKind::File
            } else {
                FileKind::Directory
            },
            size: bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            modified,
            mode: 0o644,
            inode: 0,
            device: 0,
        };
        if path.is_root() {
            return Some(state(&None, ModifiedTime::default()));
        }
        let found = self.0.iter().find(|(other, ..)| other == path)?;
        Some(state(&found.1, found.2))
    }
}

impl Readable for ToyStore {
    fn kind(&self) -> &'static str {
        "the toy shelf"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::MINIMAL
    }

    fn targets(&self) -> Vec<Target> {
        vec![Target {
            id: TargetId(0),
            name: "toy".to_owned(),
            device: None,
        }]
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        let shelf = Arc::clone(&self.0);
        let entries = move |folder: &RelPath| {
            let inside = shelf
                .iter()
                .filter(|(path, ..)| path.parent().as_ref() == Some(folder));
            let entry = |(path, bytes, modified): &(RelPath, Option<Vec<u8>>, ModifiedTime)| {
                let size = bytes.as_ref().map(|bytes| bytes.len() as u64);
                Some(FolderEntry {
                    name: path.name()?,
                    size,
                    modified: *modified,
                })
            };
            Ok(inside.filter_map(entry).collect())
        };
        Ok(Box::new(FolderLister::new(
            top,
            self.find(top),
            options,
            entries,
        )?))
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        let error = |kind, cause: &str| {
            let error = Error::new(kind, End::Source, "open the file");
            Err(error.file(path).cause(cause))
        };
        match self.find(path).map(|state| state.kind) {
            Some(FileKind::Directory) => error(ErrorKind::IsADirectory, "the entry is a folder"),
            Some(_) => Ok(Box::new(ToyFile(Arc::clone(&self.0), path.clone()))),
            None => error(ErrorKind::NotFound, "the shelf has no such file"),
        }
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        Ok(self.find(path))
    }
}

struct ToyFile(Shelf, RelPath);

impl ToyFile {
    fn bytes(&self) -> (&[u8], ModifiedTime) {
        let found = self.0.iter().find(|(path, ..)| *path == self.1);
        found.map_or((&[], ModifiedTime::default()), |(_, bytes, modified)| {
            (bytes.as_deref().unwrap_or_default(), *modified)
        })
    }
}

impl ReadHandle for ToyFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes().0;
        let start = bytes
            .len()
            .min(usize::try_from(offset).unwrap_or(usize::MAX));
        let count = buffer.len().min(bytes.len() - start);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn state(&self) -> Result<ReadState> {
        let (bytes, modified) = self.bytes();
        Ok(ReadState {
            size: bytes.len() as u64,
            modified,
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let size = self.bytes().0.len() as u64;
        Ok((offset < size).then(|| ByteRange::between(offset, size)))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        Ok(None)
    }
}
// end: store

// begin: kind
/// The URLs `toy://PATH`.
struct Toys;

impl StoreKind for Toys {
    fn scheme(&self) -> &'static str {
        "toy://"
    }

    fn is_writable(&self) -> bool {
        false
    }

    fn parse(&self, typed: &[u8]) -> Result<Option<Arc<dyn Location>>> {
        let Some(rest) = typed.strip_prefix(b"toy://") else {
            return Ok(None);
        };
        let path = RelPath::parse(rest.strip_suffix(b"/").unwrap_or(rest))?;
        let is_folder = rest.ends_with(b"/") || path.is_root();
        Ok(Some(Arc::new(ToyUrl { path, is_folder })))
    }
}

#[derive(Debug)]
struct ToyUrl {
    path: RelPath,
    is_folder: bool,
}

impl Location for ToyUrl {
    fn words(&self) -> String {
        format!("toy://{}", self.path)
    }

    fn path(&self) -> RelPath {
        self.path.clone()
    }

    fn is_folder(&self) -> bool {
        self.is_folder
    }

    fn top(&self) -> String {
        "toy://".to_owned()
    }

    fn with_path(&self, path: &RelPath) -> Arc<dyn Location> {
        Arc::new(Self {
            path: path.clone(),
            is_folder: self.is_folder,
        })
    }

    fn identity(&self, _end: End) -> String {
        format!("{self:?}")
    }

    fn open_source(&self, _is_compared: bool) -> Result<OpenedSource> {
        Ok(OpenedSource::of(Arc::new(ReadOnly(ToyStore(shelf())))))
    }
}
// end: kind

fn shelf() -> Shelf {
    let path = |text: &str| RelPath::parse(text.as_bytes()).expect("a path");
    let modified = ModifiedTime {
        seconds: 1_700_000_000,
        nanoseconds: 0,
    };
    Arc::new(vec![
        (path("run"), None, modified),
        (path("run/large"), Some(vec![7; 3_000_000]), modified),
        (path("run/empty"), Some(Vec::new()), modified),
    ])
}

fn registry() -> Registry {
    Registry::default().with(&Toys)
}

fn read(source: &str, to: &std::ffi::OsStr, recursive: bool) -> Result<Places> {
    let written = Written {
        sources: &[OsString::from(source)],
        destination: to,
        recursive,
        links: Links::Refuse,
        about_one_file: false,
        may_be_null: false,
    };
    Places::read_with(&written, &registry())
}

#[test]
fn the_toy_store_passes_the_suite_of_read_only_stores() {
    let report = conformance::run_read_only(&|items: &[Item]| {
        let entry = |item: &Item| {
            let modified = ModifiedTime {
                seconds: item.modified_seconds,
                nanoseconds: 0,
            };
            (item.path.clone(), item.bytes.clone(), modified)
        };
        Arc::new(ReadOnly(ToyStore(Arc::new(
            items.iter().map(entry).collect(),
        ))))
    });
    assert!(report.is_passed(), "{report}");
}

#[test]
fn a_registered_store_is_copied_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let recursive = true;
    let places = read("toy://run/", folder.path().as_os_str(), recursive).expect("a copy");
    let (source, sink) = prepare::open(&Request {
        places,
        selection: Selection {
            recursive,
            ..Selection::default()
        },
        options: Options::default(),
        content: Content::default(),
        transfer: prepare::new_transfer_id().expect("an id"),
        pool_bytes: 16 << 20,
        targets: Targets::default(),
    })
    .expect("opens");
    let ends = local::run(source, sink, &Silent, |_| {}).expect("runs");
    assert!(matches!(ends.into_outcome().0, Outcome::Done(_)));
    let large = std::fs::read(folder.path().join("large")).expect("arrived");
    assert!(large == vec![7; 3_000_000], "other bytes arrived");
    let empty = std::fs::read(folder.path().join("empty")).expect("arrived");
    assert!(empty.is_empty());
}

#[test]
fn a_read_only_store_is_refused_as_a_destination() {
    let error = read("a", "toy://run/f".as_ref(), false).expect_err("it is read-only");
    assert!(error.to_string().contains("but not write"), "{error}");
    let error = read("toys://run/f", "b".as_ref(), false).expect_err("no such store");
    assert!(error.to_string().contains("toy://"), "{error}");
}
