//! Cases for names and paths: all bytes and lengths that the store does not exclude.

use super::{Case, Outcome, always, ensure_eq, ensure_error, get, metadata, own_name, put, walk};
use crate::ext::StoreExt;
use crate::store::Store;
use crate::types::{Attributes, Capabilities, ListOptions, PartialRequest, SyncItem};
use dray_core::path::NAME_LENGTH_MAX;
use dray_core::{ErrorKind, Name, RelPath};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "names are bytes, up to the longest",
        lacks: always,
        run: names,
    },
    Case {
        name: "paths deeper than PATH_MAX work",
        lacks: no_deep_paths,
        run: deep,
    },
];

/// Length of the deep path in bytes. It exceeds `PATH_MAX`, which is 4096.
const DEEP_BYTES: usize = 5000;

fn no_deep_paths(can: &Capabilities) -> Option<&'static str> {
    (can.path_bytes_max < DEEP_BYTES + 200).then_some("paths of 5200 bytes")
}

fn names(store: &dyn Store) -> Outcome {
    let can = store.capabilities();
    let longest = vec![b'x'; can.name_bytes_max.min(NAME_LENGTH_MAX)];
    if can.name_bytes_max < NAME_LENGTH_MAX {
        let longer = Name::new(&vec![b'y'; can.name_bytes_max + 1])?;
        name_refused(
            store,
            &RelPath::root().join(&longer)?,
            ErrorKind::NameTooLong,
        )?;
    }
    let names: [&[u8]; 8] = [
        &longest,
        b"\xff\xfe not UTF-8",
        b" leading and trailing ",
        b"-rf",
        b"new\nline",
        b"back\\slash",
        b"question?mark",
        "umlaut \u{fc}, emoji \u{1f43f}".as_bytes(),
    ];
    let mut accepted = 0;
    for name in names {
        let is_refused = name
            .iter()
            .any(|byte| can.refused_name_bytes.contains(byte));
        let name = Name::new(name)?;
        let folder = RelPath::root().join(&name)?;
        if is_refused {
            name_refused(store, &folder, ErrorKind::Unsupported)?;
            continue;
        }
        accepted += 1;
        store.make_dir(&folder)?;
        let file = folder.join(&name)?;
        put(store, &file, name.as_bytes())?;
        ensure_eq!(
            get(store, &file)?,
            name.as_bytes(),
            "the file called by that name"
        );
    }
    let listed = walk(store, &RelPath::root(), &ListOptions::default())?;
    ensure_eq!(listed.len(), 3 * accepted, "entries listed");
    Ok(())
}

/// Checks that every call that creates an entry rejects this path.
fn name_refused(store: &dyn Store, path: &RelPath, kind: ErrorKind) -> Outcome {
    ensure_error(store.make_dir(path), kind, "a folder of a refused name")?;
    let request = PartialRequest {
        name: own_name("p")?,
        reuse: None,
    };
    let begun = store.begin(path, 1, &request);
    ensure_error(begun, kind, "a file of a refused name")?;
    let (name, meta) = (own_name("s")?, metadata(5, 0));
    let written = store.write_small(path, &name, b"x", &[], &Attributes::of(&meta));
    ensure_error(written, kind, "a small file of a refused name")
}

fn deep(store: &dyn Store) -> Outcome {
    let name = Name::new(&[b'd'; 99])?;
    let mut folder = RelPath::root();
    let mut depth = 0;
    while folder.as_bytes().len() < DEEP_BYTES {
        folder = folder.join(&name)?;
        store.make_dir(&folder)?;
        depth += 1;
    }
    let file = folder.join(&Name::new(b"leaf")?)?;
    put(store, &file, b"far down")?;
    ensure_eq!(get(store, &file)?, b"far down", "the file at the bottom");
    store.sync_all(&[SyncItem::File(&file), SyncItem::Folder(&folder)])?;
    let listed = walk(store, &RelPath::root(), &ListOptions::default())?;
    ensure_eq!(listed.len(), 2 * depth + 1, "entries listed");
    store.remove(&file)?;
    ensure_eq!(store.stat(&file)?, None, "what is left of it");
    Ok(())
}
