//! Cases for read-only stores. The caller provides the tree of each case.

use super::listing::{FILES, FOLDERS, all_depth_first, skips_folders, tops_as_asked};
use super::reading::{all_is_data, ends_after};
use super::{
    Broken, Outcome, Report, ensure, ensure_eq, ensure_error, get, metadata, own_name, path,
    pattern, walk,
};
use crate::store::Store;
use crate::types::{Attributes, ListOptions, PartialRequest, ReadPurpose};
use dray_core::{ErrorKind, FileKind, RelPath};
use std::sync::Arc;

/// An entry of a tree that a case reads. In a list of items, a folder comes before its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Path of the entry.
    pub path: RelPath,
    /// Content of a file; `None` for a folder.
    pub bytes: Option<Vec<u8>>,
    /// Time of the last modification, in seconds since 1970.
    pub modified_seconds: i64,
}

/// Function that creates a store with exactly these items.
pub type TreeFactory<'a> = &'a dyn Fn(&[Item]) -> Arc<dyn Store>;

struct Case {
    name: &'static str,
    tree: fn() -> Vec<Item>,
    run: fn(&dyn Store) -> Outcome,
}

const CASES: &[Case] = &[
    Case {
        name: "a tree is listed depth first",
        tree: listed,
        run: all_depth_first,
    },
    Case {
        name: "the top is listed as asked",
        tree: listed,
        run: tops_as_asked,
    },
    Case {
        name: "a folder can be skipped",
        tree: listed,
        run: skips_folders,
    },
    Case {
        name: "dray's own names are not listed",
        tree: || {
            vec![
                file("a", b"x"),
                file(".dray-p", b"x"),
                folder(".dray-log"),
                file(".dray-log/b", b"x"),
            ]
        },
        run: reserved,
    },
    Case {
        name: "reads stop at the end of the file",
        tree: || vec![file("file", &pattern(1000, 5))],
        run: |store| ends_after(store, &pattern(1000, 5)),
    },
    Case {
        name: "everything is data where there are no holes",
        tree: || vec![file("dense", &pattern(100_000, 7)), file("none", b"")],
        run: all_is_data,
    },
    Case {
        name: "bytes, size and time are those of the file",
        tree: || vec![folder("a"), file("a/b c%", &pattern(70_000, 9))],
        run: same,
    },
    Case {
        name: "threads read one file",
        tree: || vec![file("file", &pattern(300_000, 3))],
        run: by_threads,
    },
    Case {
        name: "what cannot be read says so",
        tree: || vec![file("file", b"x"), folder("folder")],
        run: refused,
    },
    Case {
        name: "every writing call is refused",
        tree: || vec![file("file", b"x")],
        run: writes_refused,
    },
];

/// Runs the cases that apply to a read-only store.
///
/// # Panics
/// If a thread of a case panics.
#[must_use]
pub fn run_read_only(make: TreeFactory<'_>) -> Report {
    let mut report = Report::default();
    for case in CASES {
        let store = make(&(case.tree)());
        match (case.run)(&*store) {
            Ok(()) => report.passed.push(case.name),
            Err(Broken(why)) => report.failed.push((case.name, why)),
        }
    }
    report
}

const MODIFIED: i64 = 1_700_000_000;

fn file(at: &str, bytes: &[u8]) -> Item {
    Item {
        path: path(at),
        bytes: Some(bytes.to_vec()),
        modified_seconds: MODIFIED,
    }
}

fn folder(at: &str) -> Item {
    Item {
        path: path(at),
        bytes: None,
        modified_seconds: MODIFIED,
    }
}

fn listed() -> Vec<Item> {
    let folders = FOLDERS.iter().map(|at| folder(at));
    folders
        .chain(FILES.iter().map(|at| file(at, b"x")))
        .collect()
}

fn reserved(store: &dyn Store) -> Outcome {
    let listed = walk(store, &RelPath::root(), &ListOptions::default())?;
    ensure_eq!(listed, ["a"], "the listing");
    Ok(())
}

fn same(store: &dyn Store) -> Outcome {
    let (at, bytes) = (path("a/b c%"), pattern(70_000, 9));
    ensure!(get(store, &at)? == bytes, "other bytes were read");
    let state = store.open_read(&at, ReadPurpose::Transfer)?.state()?;
    ensure_eq!(
        (state.size, state.modified.seconds),
        (70_000, MODIFIED),
        "size and time of the open file"
    );
    let found = store.stat(&at)?;
    let kind = found.as_ref().map(|state| state.kind);
    ensure_eq!(kind, Some(FileKind::File), "the kind of the file");
    let found = found.map(|state| (state.size, state.modified.seconds));
    ensure_eq!(found, Some((70_000, MODIFIED)), "size and time by name");
    let kind = store.stat(&path("a"))?.map(|state| state.kind);
    ensure_eq!(kind, Some(FileKind::Directory), "the kind of the folder");
    let none = store.stat(&path("a/none"))?;
    ensure!(none.is_none(), "a missing file is found: {none:?}");
    Ok(())
}

fn by_threads(store: &dyn Store) -> Outcome {
    let bytes = pattern(300_000, 3);
    let handle = store.open_read(&path("file"), ReadPurpose::Transfer)?;
    let read = |from: usize| {
        let mut buffer = vec![0; 50_000];
        let mut filled = 0;
        while filled < buffer.len() {
            let at = (from + filled) as u64;
            match handle.read_at(at, &mut buffer[filled..]) {
                Ok(0) => return false,
                Ok(count) => filled += count,
                Err(_) => return false,
            }
        }
        buffer == bytes[from..from + 50_000]
    };
    let right = std::thread::scope(|scope| {
        let read = &read;
        let threads: Vec<_> = (0..6)
            .map(|part| scope.spawn(move || read(part * 50_000)))
            .collect();
        threads
            .into_iter()
            .all(|thread| thread.join().unwrap_or(false))
    });
    ensure!(right, "a thread read other bytes, or none");
    Ok(())
}

fn refused(store: &dyn Store) -> Outcome {
    let open = |at: &str| store.open_read(&path(at), ReadPurpose::Transfer);
    ensure_error(open("none"), ErrorKind::NotFound, "opening a missing file")?;
    // Some servers give the same error for a file and for a missing folder.
    match open("file/below") {
        Err(error) => ensure!(
            matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory),
            "opening a file beneath a file: found {:?}",
            error.kind
        ),
        Ok(_) => ensure!(false, "opening a file beneath a file went well"),
    }
    let read = open("folder").and_then(|handle| handle.read_at(0, &mut [0]));
    ensure_error(read, ErrorKind::IsADirectory, "reading a folder")
}

fn writes_refused(store: &dyn Store) -> Outcome {
    let (at, name, refused) = (path("new"), own_name("p")?, ErrorKind::ReadOnly);
    let meta = metadata(5, 0);
    let request = PartialRequest {
        name: name.clone(),
        reuse: None,
    };
    ensure_error(store.make_dir(&at), refused, "make_dir")?;
    ensure_error(store.begin(&at, 1, &request), refused, "begin")?;
    let small = store.write_small(&at, &name, b"x", &[], &Attributes::of(&meta));
    ensure_error(small, refused, "write_small")?;
    ensure_error(store.remove(&path("file")), refused, "remove")?;
    ensure!(
        !store.capabilities().can_hold_log,
        "a store that cannot be written promises to hold a log"
    );
    ensure_eq!(get(store, &path("file"))?, b"x", "the file afterwards");
    Ok(())
}
