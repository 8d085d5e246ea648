//! The conformance suite. Every backend must pass it.
//!
//! ```no_run
//! use dray_store::{MemoryStore, conformance};
//! use dray_core::End;
//! use std::sync::Arc;
//!
//! let report = conformance::run(&|| Arc::new(MemoryStore::new(End::Sink)));
//! println!("{report}");
//! assert!(report.is_passed());
//! ```
//!
//! Each case gets a new, empty store that it can write to and read from. The capabilities of the
//! store decide which cases apply. The report contains each case that does not apply, with the
//! missing capability.

mod control;
mod listing;
mod names;
mod publish;
mod read_only;
mod reading;
mod writing;

pub use read_only::{Item, TreeFactory, run_read_only};

use crate::store::{ReadHandle, Store};
use crate::types::{
    Attributes, Capabilities, ListOptions, Listed, PartialRequest, Publish, ReadPurpose,
};
use dray_core::path::RESERVED_PREFIX;
use dray_core::{EntryKind, Error, ErrorKind, Metadata, ModifiedTime, Name, RelPath};
use std::fmt;
use std::sync::Arc;

/// Function that creates a new, empty store.
pub type Factory<'a> = &'a dyn Fn() -> Arc<dyn Store>;

/// Results of the suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Cases that passed.
    pub passed: Vec<&'static str>,
    /// Cases that do not apply, each with the missing capability.
    pub skipped: Vec<(&'static str, &'static str)>,
    /// Cases that failed, each with a description of the failure.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    /// Returns true if every applicable case passed.
    #[must_use]
    pub const fn is_passed(&self) -> bool {
        self.failed.is_empty() && !self.passed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.passed {
            writeln!(f, "passed   {name}")?;
        }
        for (name, why) in &self.skipped {
            writeln!(f, "skipped  {name}: the store has no {why}")?;
        }
        for (name, why) in &self.failed {
            writeln!(f, "FAILED   {name}: {why}")?;
        }
        let counts = (self.passed.len(), self.skipped.len(), self.failed.len());
        write!(
            f,
            "{} passed, {} skipped, {} failed",
            counts.0, counts.1, counts.2
        )
    }
}

/// Message of a failed case.
#[derive(Debug)]
struct Broken(String);

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(format!("an unexpected error: {error}"))
    }
}

type Outcome = Result<(), Broken>;

struct Case {
    name: &'static str,
    /// Returns the missing capability; `None` if the case applies.
    lacks: fn(&Capabilities) -> Option<&'static str>,
    run: fn(&dyn Store) -> Outcome,
}

/// Runs all cases.
///
/// # Panics
/// If a thread of a case panics.
#[must_use]
pub fn run(make: Factory<'_>) -> Report {
    run_without(make, &[])
}

/// Runs all cases except `left_out`, which are reported as skipped. Some cases may take too long
/// with a remote store.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_without(make: Factory<'_>, left_out: &[&str]) -> Report {
    let mut report = Report::default();
    let groups = [
        writing::CASES,
        names::CASES,
        publish::CASES,
        reading::CASES,
        listing::CASES,
        control::CASES,
    ];
    for case in groups.into_iter().flatten() {
        if left_out.contains(&case.name) {
            report.skipped.push((case.name, "time for it"));
            continue;
        }
        let store = make();
        if let Some(why) = (case.lacks)(&store.capabilities()) {
            report.skipped.push((case.name, why));
            continue;
        }
        match (case.run)(&*store) {
            Ok(()) => report.passed.push(case.name),
            Err(Broken(why)) => report.failed.push((case.name, why)),
        }
    }
    report
}

const fn always(_: &Capabilities) -> Option<&'static str> {
    None
}

macro_rules! ensure {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err($crate::conformance::Broken(format!($($words)*)));
        }
    };
}
use ensure;

macro_rules! ensure_eq {
    ($left:expr, $right:expr, $what:expr) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err($crate::conformance::Broken(format!(
                "{}: found {left:?}, expected {right:?}",
                $what
            )));
        }
    };
}
use ensure_eq;

/// Succeeds if `result` is an error of the kind `kind` and the error contains the file.
fn ensure_error<T>(result: Result<T, Error>, kind: ErrorKind, what: &str) -> Outcome {
    match result {
        Ok(_) => Err(Broken(format!("{what} went well, expected {kind:?}"))),
        Err(error) => {
            ensure_eq!(error.kind, kind, what);
            ensure!(error.file.is_some(), "{what}: the error names no file");
            ensure!(!error.cause.is_empty(), "{what}: the error gives no cause");
            Ok(())
        }
    }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap_or_else(|_| RelPath::root())
}

/// Returns one of dray's own names.
fn own_name(text: &str) -> Result<Name, Broken> {
    Ok(Name::new(&[RESERVED_PREFIX, text.as_bytes()].concat())?)
}

fn metadata(seconds: i64, nanoseconds: u32) -> Metadata {
    Metadata {
        mode: 0o640,
        modified: ModifiedTime {
            seconds,
            nanoseconds,
        },
        xattrs: Vec::new(),
    }
}

/// Returns bytes that depend on the offset and the seed.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed)
        .collect()
}

/// Writes and publishes a file through a partial file.
fn put(store: &dyn Store, path: &RelPath, bytes: &[u8]) -> Outcome {
    put_with(store, path, bytes, &metadata(1_000_000, 0))
}

fn put_with(store: &dyn Store, path: &RelPath, bytes: &[u8], metadata: &Metadata) -> Outcome {
    let request = PartialRequest {
        name: own_name("put")?,
        reuse: None,
    };
    let partial = store.begin(path, bytes.len() as u64, &request)?;
    partial.write_at(0, bytes)?;
    partial.sync()?;
    partial.publish(Publish::Replace, &Attributes::of(metadata))?;
    Ok(())
}

fn read_all(handle: &dyn ReadHandle) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = handle.read_at(bytes.len() as u64, &mut buffer)?;
        if count == 0 {
            return Ok(bytes);
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn get(store: &dyn Store, path: &RelPath) -> Result<Vec<u8>, Broken> {
    let handle = store.open_read(path, ReadPurpose::Transfer)?;
    read_all(&*handle)
}

/// Returns the paths of a listing in the order of the listing. The end of a folder is `path/`.
fn walk(store: &dyn Store, top: &RelPath, options: &ListOptions) -> Result<Vec<String>, Broken> {
    let mut above: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for item in store.list(top, options)? {
        let Listed {
            depth, name, kind, ..
        } = item?;
        let here = |above: &[String]| [above, &[name.to_string()]].concat().join("/");
        match kind {
            EntryKind::DirectoryEnd => {
                let ended = above.pop();
                ensure_eq!(ended, Some(name.to_string()), "the folder that ends");
                found.push(here(&above) + "/");
            }
            EntryKind::Directory => {
                found.push(here(&above));
                ensure_eq!(depth, above.len(), "the depth of a folder");
                above.push(name.to_string());
                continue;
            }
            _ => found.push(here(&above)),
        }
        ensure_eq!(depth, above.len(), "the depth of an entry");
    }
    ensure!(above.is_empty(), "folders without an end: {above:?}");
    Ok(found)
}
