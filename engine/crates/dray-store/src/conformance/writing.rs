//! Cases for folders, partial files, small files and durability.

use super::{
    Broken, Case, Outcome, always, ensure, ensure_eq, ensure_error, get, metadata, own_name, path,
    pattern, put, read_all, walk,
};
use crate::ext::StoreExt;
use crate::store::Store;
use crate::types::{
    Attributes, Capabilities, FileKind, ListOptions, MadeDir, PartialId, PartialRequest, Publish,
    ReadPurpose, SyncItem,
};
use dray_core::{ByteRange, EntryKind, ErrorKind, Name, RelPath, Sums};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "folders are made once and stay",
        lacks: always,
        run: folders,
    },
    Case {
        name: "empty files and folders arrive",
        lacks: always,
        run: empty,
    },
    Case {
        name: "writes come in any order, again and again",
        lacks: no_random,
        run: any_order,
    },
    Case {
        name: "threads write one file at once",
        lacks: no_random,
        run: concurrent,
    },
    Case {
        name: "a partial file is continued by its inode",
        lacks: no_random,
        run: reuse,
    },
    Case {
        name: "a hole reads as zeros",
        lacks: no_random,
        run: punch,
    },
    Case {
        name: "abort and discard leave nothing",
        lacks: always,
        run: abort,
    },
    Case {
        name: "small files are written and published apart",
        lacks: always,
        run: small,
    },
    Case {
        name: "groups small and large are made durable",
        lacks: always,
        run: groups,
    },
    Case {
        name: "remove takes files, links and empty folders",
        lacks: always,
        run: remove,
    },
    Case {
        name: "layout and targets agree",
        lacks: always,
        run: layout,
    },
];

fn no_random(can: &Capabilities) -> Option<&'static str> {
    (!can.random_write).then_some("random writes")
}

fn folders(store: &dyn Store) -> Outcome {
    let folder = path("a");
    ensure_eq!(store.stat(&folder)?, None, "what stands there before");
    ensure_eq!(store.make_dir(&folder)?, MadeDir::Created, "the first time");
    ensure_eq!(
        store.make_dir(&folder)?,
        MadeDir::Existed,
        "the second time"
    );
    ensure_eq!(
        store.make_dir(&RelPath::root())?,
        MadeDir::Existed,
        "the root"
    );
    ensure_error(
        store.make_dir(&path("b/c")),
        ErrorKind::NotFound,
        "a folder in none",
    )?;
    ensure_eq!(
        store.make_dirs(&path("b/c/d"), 0o755)?,
        MadeDir::Created,
        "several at once"
    );
    for made in ["b/c", "b/c/d"] {
        let state = store.stat(&path(made))?;
        let kind = state.map(|state| state.kind);
        ensure_eq!(kind, Some(FileKind::Directory), "what stands there after");
        if store.capabilities().mode {
            ensure_eq!(state.map(|state| state.mode), Some(0o755), "its mode");
        }
    }
    put(store, &path("a/file"), b"x")?;
    ensure_error(
        store.make_dir(&path("a/file")),
        ErrorKind::NotADirectory,
        "a folder where a file stands",
    )?;
    ensure_error(
        store.stat(&path("a/file/below")),
        ErrorKind::NotADirectory,
        "looking beneath a file",
    )?;
    ensure_eq!(
        store.stat(&path("none/below"))?,
        None,
        "looking beneath nothing"
    );
    folder_attributes(store, &folder)
}

fn folder_attributes(store: &dyn Store, folder: &RelPath) -> Outcome {
    let wanted = metadata(77, 0);
    let before = store.stat(folder)?;
    store.set_directory(folder, &wanted)?;
    let state = store.stat(folder)?;
    let seconds = state.map(|state| state.modified.seconds);
    if store.capabilities().sets_times {
        ensure!(
            seconds == Some(77) || seconds == Some(76),
            "the folder's time: found {seconds:?}, expected 77"
        );
    } else {
        let before = before.map(|state| state.modified.seconds);
        ensure_eq!(seconds, before, "the folder's time at the store");
    }
    if store.capabilities().mode {
        ensure_eq!(
            state.map(|state| state.mode),
            Some(0o640),
            "the folder's mode"
        );
    }
    let open = dray_core::Metadata {
        mode: 0o750,
        ..wanted
    };
    store.set_directory(folder, &open)?;
    Ok(())
}

fn empty(store: &dyn Store) -> Outcome {
    store.make_dir(&path("hollow"))?;
    put(store, &path("nothing"), b"")?;
    ensure_eq!(get(store, &path("nothing"))?, Vec::<u8>::new(), "its bytes");
    let name = own_name("small")?;
    let attributes = metadata(5, 0);
    let id = store.write_small(&path("nil"), &name, b"", &[], &Attributes::of(&attributes))?;
    store.publish_small(&path("nil"), &name, id, Publish::IfAbsent)?;
    let listed = walk(store, &RelPath::root(), &ListOptions::default())?;
    let mut sorted = listed.clone();
    sorted.sort();
    ensure_eq!(
        sorted,
        ["hollow", "hollow/", "nil", "nothing"],
        "the listing"
    );
    Ok(())
}

fn request(name: &str) -> Result<PartialRequest, Broken> {
    Ok(PartialRequest {
        name: own_name(name)?,
        reuse: None,
    })
}

fn any_order(store: &dyn Store) -> Outcome {
    let bytes = pattern(300_000, 1);
    let file = path("file");
    let partial = store.begin(&file, bytes.len() as u64, &request("p")?)?;
    let cuts: Vec<usize> = (0..bytes.len()).step_by(70_000).rev().collect();
    for _ in 0..2 {
        for &start in &cuts {
            let end = bytes.len().min(start + 70_000);
            partial.write_at(start as u64, &bytes[start..end])?;
        }
    }
    partial.sync()?;
    partial.sync()?;
    let mut back = vec![0; 1000];
    partial.read_at(123_456, &mut back)?;
    ensure_eq!(back, bytes[123_456..124_456].to_vec(), "bytes read back");
    partial.publish(Publish::IfAbsent, &Attributes::of(&metadata(9, 0)))?;
    ensure!(
        get(store, &file)? == bytes,
        "the file differs from what was written"
    );
    Ok(())
}

fn concurrent(store: &dyn Store) -> Outcome {
    const PIECE: usize = 10_000;
    let bytes = pattern(64 * PIECE, 2);
    let file = path("file");
    let partial = store.begin(&file, bytes.len() as u64, &request("p")?)?;
    let results: Vec<dray_core::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (partial, bytes) = (&*partial, &bytes);
                scope.spawn(move || {
                    (thread..64).step_by(8).try_for_each(|piece| {
                        let start = piece * PIECE;
                        partial.write_at(start as u64, &bytes[start..start + PIECE])
                    })
                })
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.filter_map(Result::ok).collect()
    });
    ensure_eq!(results.len(), 8, "threads that ended well");
    for result in results {
        result?;
    }
    partial.sync()?;
    partial.publish(Publish::IfAbsent, &Attributes::of(&metadata(9, 0)))?;
    ensure!(
        get(store, &file)? == bytes,
        "the file differs from what was written"
    );
    Ok(())
}

fn reuse(store: &dyn Store) -> Outcome {
    let file = path("file");
    let fresh = request("p")?;
    let partial = store.begin(&file, 10, &fresh)?;
    let id = partial.id();
    partial.write_at(0, b"first")?;
    partial.sync()?;
    drop(partial);

    let again = PartialRequest {
        reuse: Some(id),
        ..fresh.clone()
    };
    let partial = store.begin(&file, 10, &again)?;
    ensure_eq!(partial.id(), id, "the partial file continued");
    partial.write_at(5, b"again")?;
    drop(partial);
    // A sink that resumes reads the partial file by its own path.
    let place = RelPath::root().join(&fresh.name)?;
    let handle = store.open_read(&place, ReadPurpose::ReadBack)?;
    ensure_eq!(read_all(&*handle)?, b"firstagain", "the partial file read");
    drop(handle);

    let other = PartialRequest {
        reuse: Some(PartialId {
            inode: id.inode.wrapping_add(1),
            ..id
        }),
        ..fresh.clone()
    };
    ensure_error(
        store.begin(&file, 10, &other),
        ErrorKind::NotFound,
        "continuing another file under the name",
    )?;
    let missing = PartialRequest {
        name: own_name("q")?,
        ..again.clone()
    };
    ensure_error(
        store.begin(&file, 10, &missing),
        ErrorKind::NotFound,
        "continuing a missing file",
    )?;

    let partial = store.begin(&file, 10, &again)?;
    let mut back = [0; 10];
    partial.read_at(0, &mut back)?;
    ensure_eq!(&back, b"firstagain", "what the partial file holds");
    // A new partial file must not contain bytes of the deleted file.
    store.discard(&file, &fresh.name, None)?;
    let partial = store.begin(&file, 4, &fresh)?;
    partial.publish(Publish::IfAbsent, &Attributes::of(&metadata(9, 0)))?;
    ensure_eq!(get(store, &file)?, vec![0; 4], "the file begun anew");
    Ok(())
}

fn punch(store: &dyn Store) -> Outcome {
    let mut bytes = pattern(200_000, 3);
    let file = path("file");
    let partial = store.begin(&file, bytes.len() as u64, &request("p")?)?;
    partial.write_at(0, &bytes)?;
    let hole = ByteRange {
        offset: 5_000,
        length: 150_001,
    };
    partial.punch_hole(hole)?;
    bytes[5_000..155_001].fill(0);
    partial.publish(Publish::IfAbsent, &Attributes::of(&metadata(9, 0)))?;
    ensure!(
        get(store, &file)? == bytes,
        "the file differs from what was written"
    );
    Ok(())
}

fn abort(store: &dyn Store) -> Outcome {
    let file = path("file");
    let request = request("p")?;
    let partial = store.begin(&file, 10, &request)?;
    partial.write_at(0, b"0123456789")?;
    partial.abort()?;
    partial.abort()?;
    drop(partial);
    let partial = store.begin(&file, 10, &request)?;
    drop(partial);
    store.discard(&file, &request.name, None)?;
    store.discard(&file, &request.name, None)?;
    let attributes = metadata(9, 0);
    let id = store.write_small(
        &file,
        &request.name,
        b"x",
        &[],
        &Attributes::of(&attributes),
    )?;
    store.discard(&file, &request.name, None)?;
    ensure_eq!(store.stat(&file)?, None, "what stands under the final name");
    let left = store.list_control(&RelPath::root())?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    ensure_error(
        store.publish_small(&file, &request.name, id, Publish::Replace),
        ErrorKind::NotFound,
        "publishing what was discarded",
    )
}

/// Checks that holes read as zeros and that all other bytes are as written.
fn small_with_holes(store: &dyn Store, attributes: &dray_core::Metadata) -> Outcome {
    let (file, name) = (path("a/holes"), own_name("s2")?);
    let all = 200_000;
    let hole = |offset, end| ByteRange::between(offset, end);
    for holes in [
        vec![hole(0, all)],
        vec![hole(0, 65_536)],
        vec![hole(65_536, 131_072)],
        vec![hole(131_072, all)],
        vec![hole(0, 65_536), hole(70_000, 150_000), hole(199_999, all)],
    ] {
        let mut bytes = pattern(all as usize, 6);
        for hole in &holes {
            bytes[hole.offset as usize..hole.end() as usize].fill(0);
        }
        let id = store.write_small(&file, &name, &bytes, &holes, &Attributes::of(attributes))?;
        store.publish_small(&file, &name, id, Publish::Replace)?;
        ensure!(get(store, &file)? == bytes, "holes at {holes:?}");
    }
    Ok(())
}

fn small(store: &dyn Store) -> Outcome {
    let attributes = metadata(1_234_567, 0);
    let bytes = pattern(4321, 4);
    let name = own_name("s1")?;
    store.make_dir(&path("a"))?;
    let file = path("a/file");
    let id = store.write_small(&file, &name, &bytes, &[], &Attributes::of(&attributes))?;
    ensure_eq!(
        store.stat(&file)?,
        None,
        "what stands there before publishing"
    );
    ensure_error(
        store.write_small(
            &file,
            &name,
            &bytes[..10],
            &[],
            &Attributes::of(&attributes),
        ),
        ErrorKind::AlreadyExists,
        "writing under a name that is taken",
    )?;
    store.sync_all(&[SyncItem::Partial {
        path: &file,
        name: &name,
    }])?;
    store.publish_small(&file, &name, id, Publish::IfAbsent)?;
    store.sync_all(&[SyncItem::Folder(&path("a"))])?;
    ensure!(
        get(store, &file)? == bytes,
        "the file differs from what was written"
    );
    let state = store.stat(&file)?;
    ensure_eq!(state.map(|state| state.size), Some(4321), "its size");
    small_with_holes(store, &attributes)?;
    if store.capabilities().mode {
        ensure_eq!(state.map(|state| state.mode), Some(0o640), "its mode");
        for mode in [0o777, 0o444, 0o200, 0o4711] {
            let attributes = dray_core::Metadata {
                mode,
                ..metadata(5, 0)
            };
            let id = store.write_small(&file, &name, b"x", &[], &Attributes::of(&attributes))?;
            store.publish_small(&file, &name, id, Publish::Replace)?;
            let state = store.stat(&file)?;
            ensure_eq!(state.map(|state| state.mode), Some(mode), "its mode");
        }
    }
    Ok(())
}

fn groups(store: &dyn Store) -> Outcome {
    store.sync_all(&[])?;
    let folder = path("many");
    store.make_dir(&folder)?;
    let attributes = metadata(9, 0);
    let mut files = Vec::new();
    for index in 0..100 {
        let name = Name::new(format!("f{index}").as_bytes())?;
        let partial = own_name(&format!("s{index}"))?;
        let file = folder.join(&name)?;
        let id = store.write_small(&file, &partial, b"bytes", &[], &Attributes::of(&attributes))?;
        files.push((file, partial, id));
    }
    let items: Vec<_> = files
        .iter()
        .map(|(path, name, _)| SyncItem::Partial { path, name })
        .collect();
    store.sync_all(&items[..2])?;
    store.sync_all(&items)?;
    for (file, partial, id) in &files {
        store.publish_small(file, partial, *id, Publish::IfAbsent)?;
    }
    let root = RelPath::root();
    let mut items: Vec<_> = files
        .iter()
        .map(|(path, ..)| SyncItem::File(path))
        .collect();
    items.extend([SyncItem::Folder(&folder), SyncItem::Folder(&root)]);
    store.sync_all(&items)?;
    // A missing item must not affect other items, in a small group and in a large group.
    let missing = path("none/f");
    for others in [&items[..1], &items] {
        let group = [&[SyncItem::File(&missing)], others].concat();
        let mut answers = store.sync_each(&group)?.into_iter();
        let first = answers.next().unwrap_or(Ok(()));
        ensure_error(first, ErrorKind::NotFound, "syncing what is not there")?;
        ensure_eq!(answers.len(), others.len(), "answers for the others");
        answers.try_for_each(|answer| answer)?;
    }
    Ok(())
}

fn remove(store: &dyn Store) -> Outcome {
    store.make_dir(&path("a"))?;
    put(store, &path("a/file"), b"x")?;
    ensure_error(
        store.remove(&path("a")),
        ErrorKind::AlreadyExists,
        "removing a folder that is not empty",
    )?;
    for _ in 0..2 {
        store.remove(&path("a/file"))?;
    }
    for _ in 0..2 {
        store.remove(&path("a"))?;
    }
    // A new folder with the same name is another folder, and must not be confused with the deleted
    // one.
    store.make_dir(&path("a"))?;
    put(store, &path("a/file"), b"y")?;
    ensure_eq!(
        get(store, &path("a/file"))?,
        b"y",
        "the file in the new folder"
    );
    Ok(())
}

fn layout(store: &dyn Store) -> Outcome {
    store.make_dir(&path("a"))?;
    let before = store.layout(&path("a/file"))?;
    put(store, &path("a/file"), b"x")?;
    ensure_eq!(
        store.layout(&path("a/file"))?,
        before,
        "the layout of the file"
    );
    let target = before.target_at(0);
    let targets = store.targets();
    let found = targets.iter().find(|known| known.id == target);
    let name = found.map(|known| known.name.clone());
    let Some(name) = name else {
        return Err(Broken(format!("{target} is not among {targets:?}")));
    };
    ensure!(!name.is_empty(), "{target} has no name");
    ensure_eq!(
        store.target_named(&name),
        Some(target),
        "the target of that name"
    );
    for item in store.list(&path("a"), &ListOptions::default())? {
        let listed = item?;
        // A store may choose the target by the name of a file, so a folder may have another one.
        if matches!(listed.kind, EntryKind::File { .. }) {
            ensure_eq!(listed.layout, before, "the layout listed");
        }
    }
    let space = store.free_space(&path("a/file"))?;
    ensure!(
        space.free_bytes <= space.total_bytes,
        "more free than there is: {space:?}"
    );
    let handle = store.open_read(&path("a/file"), ReadPurpose::ReadBack)?;
    ensure_eq!(read_all(&*handle)?, b"x", "the file read back");
    if store.capabilities().xattrs {
        let sums = Some(Sums::of(b"y"));
        let attributes = metadata(5, 0);
        let attributes = Attributes {
            metadata: &attributes,
            sums,
        };
        let name = own_name("s")?;
        let id = store.write_small(&path("a/kept"), &name, b"y", &[], &attributes)?;
        store.publish_small(&path("a/kept"), &name, id, Publish::IfAbsent)?;
        ensure_eq!(
            store.known_sums(&path("a/kept"))?,
            sums,
            "the checksums kept"
        );
        ensure_eq!(
            store.known_sums(&path("a/file"))?,
            None,
            "the checksums of another"
        );
    }
    Ok(())
}
