//! Cases for listing: order, options, omitted entries, and bounded memory.

use super::{
    Case, Outcome, always, ensure, ensure_eq, ensure_error, metadata, own_name, path, put, walk,
};
use crate::store::Store;
use crate::types::{Attributes, Capabilities, ControlMode, ListOptions, Publish};
use dray_core::options::Links;
use dray_core::{EntryKind, ErrorKind, Name, RelPath};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a tree is listed depth first",
        lacks: always,
        run: depth_first,
    },
    Case {
        name: "the top is listed as asked",
        lacks: always,
        run: tops,
    },
    Case {
        name: "a folder can be skipped",
        lacks: always,
        run: skip,
    },
    Case {
        name: "dray's own names are not listed",
        lacks: always,
        run: reserved,
    },
    Case {
        name: "links are listed or refused",
        lacks: no_links,
        run: links,
    },
    Case {
        name: "100 000 entries are listed as they are found",
        lacks: always,
        run: many,
    },
];

fn no_links(can: &Capabilities) -> Option<&'static str> {
    (!can.symlinks).then_some("symbolic links")
}

/// Folders of the tree that most cases list.
pub(super) const FOLDERS: [&str; 5] = ["a", "a/b", "a/b/c", "d", "a-b"];
/// Files of the tree that most cases list. Each has one byte.
pub(super) const FILES: [&str; 5] = ["a/1", "a/b/2", "a/b/c/3", "4", "a-b/5"];

fn build(store: &dyn Store) -> Outcome {
    for folder in FOLDERS {
        store.make_dir(&path(folder))?;
    }
    for file in FILES {
        put(store, &path(file), b"x")?;
    }
    Ok(())
}

fn depth_first(store: &dyn Store) -> Outcome {
    build(store)?;
    store.set_directory(&path("d"), &metadata(123, 0))?;
    all_depth_first(store)?;
    for item in store.list(&path("d"), &ListOptions::default())? {
        let listed = item?;
        if listed.kind == EntryKind::DirectoryEnd {
            let state = store.stat(&path("d"))?;
            let expected = match store.capabilities().sets_times {
                true => Some(123),
                false => state.map(|state| state.modified.seconds),
            };
            ensure_eq!(
                Some(listed.metadata.modified.seconds),
                expected,
                "the folder's time at its end"
            );
        }
    }
    Ok(())
}

/// Checks that a listing contains the whole tree of [`build`].
pub(super) fn all_depth_first(store: &dyn Store) -> Outcome {
    // `walk` checks that each folder ends after its contents.
    let mut listed = walk(store, &RelPath::root(), &ListOptions::default())?;
    listed.sort();
    let expected = [
        "4", "a", "a-b", "a-b/", "a-b/5", "a/", "a/1", "a/b", "a/b/", "a/b/2", "a/b/c", "a/b/c/",
        "a/b/c/3", "d", "d/",
    ];
    ensure_eq!(listed, expected, "the listing, sorted");
    Ok(())
}

fn tops(store: &dyn Store) -> Outcome {
    build(store)?;
    tops_as_asked(store)
}

/// Lists several tops in the tree of [`build`] with several options.
pub(super) fn tops_as_asked(store: &dyn Store) -> Outcome {
    let options = ListOptions::default();
    let contents = ListOptions {
        contents: true,
        ..options
    };
    let flat = ListOptions {
        recursive: false,
        ..options
    };
    ensure_eq!(walk(store, &path("4"), &options)?, ["4"], "a file");
    ensure_eq!(
        walk(store, &path("a/b/2"), &flat)?,
        ["2"],
        "a file further down"
    );
    ensure_eq!(
        walk(store, &path("a/b/c"), &options)?,
        ["c", "c/3", "c/"],
        "a folder"
    );
    ensure_eq!(
        walk(store, &path("a/b/c"), &contents)?,
        ["3"],
        "its contents"
    );
    ensure_error(
        store.list(&path("none"), &options),
        ErrorKind::NotFound,
        "listing nothing",
    )?;
    ensure_error(
        store.list(&path("4"), &contents),
        ErrorKind::NotADirectory,
        "listing the contents of a file",
    )?;
    let mut listed = store.list(&path("a"), &flat)?;
    match listed.next() {
        Some(Err(error)) => {
            ensure_eq!(error.kind, ErrorKind::IsADirectory, "a folder not entered");
        }
        other => ensure!(false, "a folder not entered: found {other:?}"),
    }
    ensure!(listed.next().is_none(), "more follows a folder not entered");
    Ok(())
}

fn skip(store: &dyn Store) -> Outcome {
    build(store)?;
    skips_folders(store)
}

/// Checks that folders in the tree of [`build`] can be skipped.
pub(super) fn skips_folders(store: &dyn Store) -> Outcome {
    let mut listed = store.list(&RelPath::root(), &ListOptions::default())?;
    let mut names = Vec::new();
    while let Some(item) = listed.next() {
        let item = item?;
        let name = item.name.to_string();
        if item.kind == EntryKind::Directory && name != "a" {
            listed.skip_folder();
        }
        listed.skip_folder_unless_entered(&item.kind);
        names.push(name);
    }
    names.sort();
    ensure_eq!(
        names,
        ["1", "4", "a", "a", "a-b", "b", "d"],
        "names listed, sorted"
    );
    Ok(())
}

/// Skips after an item that is not the start of a folder. Such a skip must have no effect.
trait SkipElsewhere {
    fn skip_folder_unless_entered(&mut self, kind: &EntryKind);
}

impl SkipElsewhere for Box<dyn crate::store::Lister> {
    fn skip_folder_unless_entered(&mut self, kind: &EntryKind) {
        if *kind != EntryKind::Directory {
            self.skip_folder();
        }
    }
}

fn reserved(store: &dyn Store) -> Outcome {
    store.make_dir(&path("a"))?;
    put(store, &path("a/file"), b"x")?;
    let own = own_name("log")?;
    let meta = metadata(5, 0);
    store.write_small(
        &path("a/next"),
        &own_name("p")?,
        b"x",
        &[],
        &Attributes::of(&meta),
    )?;
    let folder = RelPath::root().join(&own)?;
    store.make_dir(&folder)?;
    put(store, &folder.join(&Name::new(b"inside")?)?, b"x")?;
    if store.capabilities().can_hold_log {
        let log = path("a").join(&own)?.join(&Name::new(b"log")?)?;
        store
            .open_control(&log, ControlMode::Create)?
            .append(b"x")?;
    }
    let listed = walk(store, &RelPath::root(), &ListOptions::default())?;
    ensure_eq!(listed, ["a", "a/file", "a/"], "the listing");
    let options = ListOptions {
        own: true,
        ..ListOptions::default()
    };
    let mut listed = walk(store, &RelPath::root(), &options)?;
    listed.sort_unstable();
    let mut own = vec![
        own.to_string(),
        format!("{own}/"),
        "a".to_owned(),
        "a/".to_owned(),
        format!("a/{}", own_name("p")?),
    ];
    if store.capabilities().can_hold_log {
        let logs = own_name("log")?;
        own.extend([format!("a/{logs}"), format!("a/{logs}/")]);
    }
    own.sort_unstable();
    ensure_eq!(listed, own, "the listing of dray's own names");
    Ok(())
}

fn links(store: &dyn Store) -> Outcome {
    let name = own_name("l")?;
    let meta = metadata(5, 0);
    store.make_symlink(&path("link"), &name, b"../\xff", &meta, Publish::IfAbsent)?;
    let with = |links| ListOptions {
        links,
        ..ListOptions::default()
    };
    for top in [RelPath::root(), path("link")] {
        let mut listed = store.list(&top, &with(Links::Keep))?;
        let kind = listed.next().transpose()?.map(|listed| listed.kind);
        let expected = EntryKind::Symlink {
            target: b"../\xff".to_vec(),
        };
        ensure_eq!(kind, Some(expected), "the link listed");
        let mut listed = store.list(&top, &with(Links::Refuse))?;
        let refused = listed.next().unwrap_or_else(|| Ok(never()));
        ensure_error(refused, ErrorKind::Unsupported, "the link refused")?;
        ensure!(listed.next().is_none(), "more follows the link");
    }
    Ok(())
}

/// Returns an item that matches no expectation. A case uses it in place of a missing item if the
/// listing ends too early, so that the check of the item fails.
fn never() -> crate::types::Listed {
    crate::types::Listed {
        depth: 0,
        name: Name::new(b"nothing").unwrap_or_else(|_| unreachable!("a good name")),
        kind: EntryKind::DirectoryEnd,
        metadata: dray_core::Metadata::default(),
        layout: dray_core::Layout::Single(dray_core::TargetId(0)),
        identity: Vec::new(),
    }
}

/// Checks that a listing does not hold all names in memory. The case deletes every second file
/// after the first two items were listed. A listing that had read all names in advance would still
/// list the deleted files. So the case fails if the listing contains too many deleted files.
fn many(store: &dyn Store) -> Outcome {
    const ENTRIES: usize = 100_000;
    const HELD_MAX: usize = 20_000;
    let meta = metadata(5, 0);
    let attributes = Attributes::of(&meta);
    let partial = own_name("s")?;
    let folder = path("many");
    store.make_dir(&folder)?;
    for index in 0..ENTRIES {
        let file = folder.join(&Name::new(format!("{index:06}").as_bytes())?)?;
        let id = store.write_small(&file, &partial, b"", &[], &attributes)?;
        store.publish_small(&file, &partial, id, Publish::IfAbsent)?;
    }
    let listed = store.list(&folder, &ListOptions::default())?;
    ensure_eq!(listed.count(), ENTRIES + 2, "items listed");

    let mut listed = store.list(&folder, &ListOptions::default())?;
    let first: Vec<_> = listed.by_ref().take(2).collect();
    ensure_eq!(first.len(), 2, "items listed at once");
    let mut kept = 0;
    for index in 0..ENTRIES {
        if index % 2 == 1 {
            let file = folder.join(&Name::new(format!("{index:06}").as_bytes())?)?;
            store.remove(&file)?;
        } else {
            kept += 1;
        }
    }
    // The remaining items may be names that the lister had already read, and the end of the folder.
    let rest = listed.filter(Result::is_ok).count();
    let bound = kept + HELD_MAX / 2 + 1;
    ensure!(
        rest <= bound,
        "{rest} items came after half of {ENTRIES} files were removed, expected at most {bound}"
    );
    ensure!(
        rest + HELD_MAX >= kept,
        "{rest} items came of {kept} files that stayed"
    );
    Ok(())
}
