//! Cases for publishing: the atomic step that gives a partial file its final name.

use super::{
    Case, Outcome, always, ensure, ensure_eq, ensure_error, get, metadata, own_name, path, put,
    put_with, walk,
};
use crate::ext::ReadExt;
use crate::store::Store;
use crate::types::{
    Attributes, Capabilities, FileKind, ListOptions, PartialId, PartialRequest, Publish,
    ReadPurpose, SmallFile, SmallName,
};
use dray_core::{ErrorKind, Metadata, ModifiedTime, RelPath, Sums};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a partial file is never seen",
        lacks: always,
        run: unseen,
    },
    Case {
        name: "publish if absent, or replace",
        lacks: no_both,
        run: absent_or_replace,
    },
    Case {
        name: "a folder is not replaced by a file",
        lacks: always,
        run: over_folder,
    },
    Case {
        name: "a reader sees the old or the new file",
        lacks: no_atomic,
        run: atomic,
    },
    Case {
        name: "mode and time are kept as declared",
        lacks: always,
        run: attributes,
    },
    Case {
        name: "extended attributes and checksums are kept",
        lacks: no_xattrs,
        run: xattrs,
    },
    Case {
        name: "only the own partial file is published",
        lacks: always,
        run: own,
    },
    Case {
        name: "many small files have an answer each",
        lacks: always,
        run: many,
    },
    Case {
        name: "links are kept and replaced as links",
        lacks: no_links,
        run: links,
    },
];

fn no_both(can: &Capabilities) -> Option<&'static str> {
    let has_both = can.publish_if_absent && can.publish_replace;
    (!has_both).then_some("choice between if-absent and replace")
}

fn no_atomic(can: &Capabilities) -> Option<&'static str> {
    let can_replace = can.atomic_rename && can.publish_replace;
    (!can_replace).then_some("atomic replacement")
}

fn no_xattrs(can: &Capabilities) -> Option<&'static str> {
    (!can.xattrs).then_some("extended attributes")
}

fn no_links(can: &Capabilities) -> Option<&'static str> {
    (!can.symlinks).then_some("symbolic links")
}

fn unseen(store: &dyn Store) -> Outcome {
    let file = path("file");
    let request = PartialRequest {
        name: own_name("p")?,
        reuse: None,
    };
    let partial = store.begin(&file, 3, &request)?;
    let check = |when: &str| {
        ensure_eq!(store.stat(&file)?, None, when);
        let listed = walk(store, &RelPath::root(), &ListOptions::default())?;
        ensure!(listed.is_empty(), "{when}: listed {listed:?}");
        Ok(())
    };
    check("after begin")?;
    partial.write_at(0, b"abc")?;
    check("after the last byte")?;
    partial.sync()?;
    check("after sync")?;
    partial.publish(Publish::IfAbsent, &Attributes::of(&metadata(5, 0)))?;
    ensure_eq!(get(store, &file)?, b"abc", "the file");
    let left = store.list_control(&RelPath::root())?;
    ensure_eq!(left.len(), 1, "names in the folder after publishing");
    Ok(())
}

fn absent_or_replace(store: &dyn Store) -> Outcome {
    let file = path("file");
    put(store, &file, b"old")?;
    let request = PartialRequest {
        name: own_name("p")?,
        reuse: None,
    };
    let partial = store.begin(&file, 3, &request)?;
    partial.write_at(0, b"new")?;
    let meta = metadata(5, 0);
    let attributes = Attributes::of(&meta);
    ensure_error(
        partial.publish(Publish::IfAbsent, &attributes),
        ErrorKind::AlreadyExists,
        "publishing over a file",
    )?;
    ensure_eq!(get(store, &file)?, b"old", "the file that stands there");
    partial.publish(Publish::Replace, &attributes)?;
    ensure_eq!(get(store, &file)?, b"new", "the file after replacing");

    let id = store.write_small(&file, &request.name, b"small", &[], &attributes)?;
    ensure_error(
        store.publish_small(&file, &request.name, id, Publish::IfAbsent),
        ErrorKind::AlreadyExists,
        "publishing a small file over a file",
    )?;
    store.publish_small(&file, &request.name, id, Publish::Replace)?;
    ensure_eq!(get(store, &file)?, b"small", "the file after replacing");
    Ok(())
}

fn over_folder(store: &dyn Store) -> Outcome {
    let file = path("file");
    store.make_dir(&file)?;
    put(store, &path("file/inside"), b"x")?;
    let name = own_name("p")?;
    let meta = metadata(5, 0);
    let attributes = Attributes::of(&meta);
    for how in [Publish::IfAbsent, Publish::Replace] {
        let id = store.write_small(&file, &name, b"new", &[], &attributes)?;
        ensure_error(
            store.publish_small(&file, &name, id, how),
            ErrorKind::IsADirectory,
            "publishing over a folder",
        )?;
        store.discard(&file, &name, Some(id))?;
    }
    ensure_eq!(
        get(store, &path("file/inside"))?,
        b"x",
        "the file in the folder"
    );
    Ok(())
}

fn atomic(store: &dyn Store) -> Outcome {
    const BYTES: usize = 20_000;
    let file = path("file");
    put(store, &file, &[0; BYTES])?;
    let is_done = AtomicBool::new(false);
    let (written, seen) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let handle = store.open_read(&file, ReadPurpose::Transfer)?;
                let mut bytes = vec![0; BYTES];
                match handle.read_full_at(0, &mut bytes) {
                    Ok(count) => bytes.truncate(count),
                    // The store refuses to read a file that was replaced while it was open.
                    Err(error) if error.kind == ErrorKind::SourceChanged => continue,
                    Err(error) => return Err(error.into()),
                }
                let first = bytes.first().copied().unwrap_or(0);
                let is_whole = bytes.len() == BYTES && bytes.iter().all(|byte| *byte == first);
                ensure!(is_whole, "a reader saw parts of two files");
            }
            Ok(())
        });
        let written = (1..=50).try_for_each(|round: u8| put(store, &file, &[round; BYTES]));
        is_done.store(true, Ordering::Relaxed);
        (written, reader.join())
    });
    written?;
    match seen {
        Ok(seen) => seen,
        Err(_) => Err(super::Broken("the reader panicked".to_owned())),
    }
}

fn attributes(store: &dyn Store) -> Outcome {
    let can = store.capabilities();
    let file = path("file");
    let times = [
        (0, 0),
        (1_234_567_890, 123_456_789),
        (-2, 999_999_999),
        (4_000_000_000, 1),
    ];
    for (seconds, nanoseconds) in times {
        for mode in [0o600, 0o644, 0o755, 0o444] {
            let wanted = Metadata {
                mode,
                ..metadata(seconds, nanoseconds)
            };
            put_with(store, &file, b"x", &wanted)?;
            let state = store.stat(&file)?;
            let found = state.map(|state| state.modified).unwrap_or_default();
            let is_kept = found.equal_at(&wanted.modified, can.time_precision_nanoseconds);
            ensure!(
                is_kept,
                "time: found {found:?}, expected {:?}",
                wanted.modified
            );
            if can.mode {
                ensure_eq!(state.map(|state| state.mode), Some(mode), "the mode");
            }
        }
    }
    Ok(())
}

fn xattrs(store: &dyn Store) -> Outcome {
    let file = path("file");
    let mut wanted = metadata(5, 6);
    wanted.mode = 0o444;
    wanted.xattrs = vec![
        (b"user.empty".to_vec(), Vec::new()),
        (b"user.run".to_vec(), b"a\0b\xff".repeat(100)),
    ];
    let sums = Some(Sums::of(b"data"));
    let attributes = Attributes {
        metadata: &wanted,
        sums,
    };
    let name = own_name("p")?;
    let id = store.write_small(&file, &name, b"data", &[], &attributes)?;
    store.publish_small(&file, &name, id, Publish::IfAbsent)?;
    let request = PartialRequest { name, reuse: None };
    let big = path("big");
    let partial = store.begin(&big, 4, &request)?;
    partial.write_at(0, b"data")?;
    partial.publish(Publish::IfAbsent, &attributes)?;

    for with in [true, false] {
        let options = ListOptions {
            xattrs: with,
            ..ListOptions::default()
        };
        for item in store.list(&RelPath::root(), &options)? {
            let found = item?.metadata.xattrs;
            let expected = if with {
                wanted.xattrs.clone()
            } else {
                Vec::new()
            };
            ensure_eq!(found, expected, "the attributes listed");
        }
    }
    for file in [&file, &big] {
        ensure_eq!(store.known_sums(file)?, sums, "the checksums kept");
    }
    let open = store.open_read(&file, ReadPurpose::Transfer)?;
    put(store, &file, b"atad")?;
    ensure_eq!(
        store.known_sums(&file)?,
        None,
        "the checksums after replacing"
    );
    ensure_eq!(
        open.known_sums()?,
        sums,
        "those of the file that was open before"
    );
    Ok(())
}

fn own(store: &dyn Store) -> Outcome {
    let file = path("file");
    let request = PartialRequest {
        name: own_name("p")?,
        reuse: None,
    };
    let mine = store.begin(&file, 4, &request)?;
    mine.write_at(0, b"mine")?;
    let taken = store.begin(&file, 5, &request);
    ensure_error(taken, ErrorKind::AlreadyExists, "beginning under its name")?;
    // Another writer deletes the partial file as a leftover and starts a new one.
    store.discard(&file, &request.name, None)?;
    let other = store.begin(&file, 5, &request)?;
    other.write_at(0, b"other")?;
    mine.abort()?;
    store.discard(&file, &request.name, Some(mine.id()))?;
    let meta = metadata(5, 0);
    ensure_error(
        mine.publish(Publish::Replace, &Attributes::of(&meta)),
        ErrorKind::NotFound,
        "publishing after another took the name",
    )?;
    ensure_eq!(store.stat(&file)?, None, "what stands under the final name");
    other.publish(Publish::Replace, &Attributes::of(&meta))?;
    ensure_eq!(get(store, &file)?, b"other", "the file");
    let id = other.id();
    let state = store.stat(&file)?;
    let found = state.map(|state| (state.inode, state.device));
    ensure_eq!(
        found,
        Some((id.inode, id.device)),
        "inode and device after publishing"
    );
    let attributes = Attributes::of(&meta);
    let mine = store.write_small(&file, &request.name, b"mine", &[], &attributes)?;
    let name = &request.name;
    // Rename the file, so that it still exists and the store cannot reuse its inode number.
    store.publish_small(&path("elsewhere"), name, mine, Publish::Replace)?;
    let other = store.begin(&file, 5, &request)?;
    ensure_error(
        store.publish_small(&file, name, mine, Publish::Replace),
        ErrorKind::NotFound,
        "publishing a small file after another took the name",
    )?;
    let link = path("link");
    let expected = match store.capabilities().symlinks {
        true => ErrorKind::Busy,
        false => ErrorKind::Unsupported,
    };
    ensure_error(
        store.make_symlink(&link, name, b"file", &meta, Publish::Replace),
        expected,
        "making a link by way of a name that is taken",
    )?;
    ensure_eq!(get(store, &file)?, b"other", "the file that stands there");
    other.publish(Publish::Replace, &attributes)?;
    Ok(())
}

fn links(store: &dyn Store) -> Outcome {
    let link = path("link");
    let name = own_name("l")?;
    let meta = metadata(1_000, 0);
    store.make_symlink(&link, &name, b"no/where", &meta, Publish::IfAbsent)?;
    ensure_error(
        store.make_symlink(&link, &name, b"else", &meta, Publish::IfAbsent),
        ErrorKind::AlreadyExists,
        "a link over a link",
    )?;
    store.make_symlink(&link, &name, b"\xffelse", &meta, Publish::Replace)?;
    let state = store.stat(&link)?;
    ensure_eq!(
        state.map(|state| state.kind),
        Some(FileKind::Symlink),
        "its kind"
    );
    let modified = state.map(|state| state.modified);
    let expected = ModifiedTime {
        seconds: 1_000,
        nanoseconds: 0,
    };
    ensure_eq!(modified, Some(expected), "its time");
    let left = store.list_control(&RelPath::root())?;
    ensure_eq!(left.len(), 1, "names in the folder");
    // Publishing replaces the link itself, and not the target of the link.
    put(store, &link, b"file")?;
    let kind = store.stat(&link)?.map(|state| state.kind);
    ensure_eq!(kind, Some(FileKind::File), "its kind after replacing");
    store.make_dir(&path("folder"))?;
    ensure_error(
        store.make_symlink(&path("folder"), &name, b"x", &meta, Publish::Replace),
        ErrorKind::IsADirectory,
        "a link over a folder",
    )
}

fn many(store: &dyn Store) -> Outcome {
    let meta = metadata(5, 0);
    let attributes = Attributes::of(&meta);
    let paths = ["a", "b", "c", "d"].map(path);
    let partials = [
        own_name("a")?,
        own_name("b")?,
        own_name("c")?,
        own_name("d")?,
    ];
    let contents: [&[u8]; 4] = [b"one", b"", b"three", b"four"];
    // The name of one partial file is taken. The three other files must be written nevertheless.
    let taken = store.write_small(&paths[2], &partials[2], b"before", &[], &attributes)?;
    let files = (0..4).map(|number| SmallFile {
        path: &paths[number],
        partial: &partials[number],
        bytes: contents[number],
        holes: &[],
        attributes,
    });
    let mut written = store.write_small_each(&files.collect::<Vec<_>>());
    ensure_eq!(written.len(), 4, "answers to four files");
    ensure_error(
        written.remove(2),
        ErrorKind::AlreadyExists,
        "a name that is taken",
    )?;
    let mut ids = written.into_iter().collect::<Result<Vec<_>, _>>()?;
    ids.insert(2, taken);
    // The store must not publish the file of another writer, and must publish the other files.
    ids[3] = PartialId {
        inode: ids[3].inode.wrapping_add(1),
        ..ids[3]
    };
    let names = (0..4).map(|number| SmallName {
        path: &paths[number],
        partial: &partials[number],
        id: ids[number],
        how: Publish::Replace,
    });
    let mut published = store.publish_small_each(&names.collect::<Vec<_>>());
    ensure_eq!(published.len(), 4, "answers to four names");
    ensure_error(published.remove(3), ErrorKind::NotFound, "another's file")?;
    published.into_iter().collect::<Result<Vec<_>, _>>()?;
    ensure_eq!(get(store, &paths[0])?, b"one", "the first");
    ensure_eq!(get(store, &paths[1])?, b"", "an empty one");
    ensure_eq!(get(store, &paths[2])?, b"before", "what stood there");
    ensure_eq!(store.stat(&paths[3])?, None, "what was not published");
    store.discard(&paths[3], &partials[3], None)?;
    Ok(())
}
