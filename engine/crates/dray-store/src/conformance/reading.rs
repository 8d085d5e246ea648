//! Cases for reading: ends of files, holes, changes, and paths outside the root.

use super::{
    Case, Outcome, always, ensure, ensure_eq, ensure_error, get, metadata, own_name, path, pattern,
    put, put_with, read_all,
};
use crate::ext::StoreExt;
use crate::store::Store;
use crate::types::{
    Attributes, Capabilities, ControlMode, ListOptions, PartialId, PartialRequest, Publish,
    ReadPurpose, ReadState, SyncItem,
};
use dray_core::{ByteRange, EntryKind, ErrorKind, RangeSet, RelPath};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "reads stop at the end of the file",
        lacks: always,
        run: at_the_end,
    },
    Case {
        name: "a changed file is noticed",
        lacks: always,
        run: changed,
    },
    Case {
        name: "holes are neither filled nor read",
        lacks: no_holes,
        run: sparse,
    },
    Case {
        name: "everything is data where there are no holes",
        lacks: always,
        run: dense,
    },
    Case {
        name: "what cannot be read says so",
        lacks: always,
        run: refused,
    },
    Case {
        name: "no link leads out, on any call",
        lacks: no_links,
        run: escape,
    },
];

fn no_holes(can: &Capabilities) -> Option<&'static str> {
    (!can.holes).then_some("holes")
}

fn no_links(can: &Capabilities) -> Option<&'static str> {
    (!can.symlinks).then_some("symbolic links")
}

fn at_the_end(store: &dyn Store) -> Outcome {
    let bytes = pattern(1000, 5);
    put(store, &path("file"), &bytes)?;
    ends_after(store, &bytes)
}

/// Checks reads at the end of the file `file`. The file has 1000 bytes and ends with `bytes`.
pub(super) fn ends_after(store: &dyn Store, bytes: &[u8]) -> Outcome {
    let handle = store.open_read(&path("file"), ReadPurpose::Transfer)?;
    let mut buffer = vec![0xee; 500];
    let mut filled = 0;
    while filled < 100 {
        let count = handle.read_at(900 + filled as u64, &mut buffer[filled..])?;
        ensure!(
            count > 0,
            "the file ended after {filled} of the last 100 bytes"
        );
        filled += count;
    }
    ensure_eq!(filled, 100, "bytes read at the end");
    ensure!(buffer[..100] == bytes[900..], "wrong bytes at the end");
    ensure!(
        buffer[100..].iter().all(|byte| *byte == 0xee),
        "bytes past the end"
    );
    for offset in [1000, 1001, 1 << 40] {
        ensure_eq!(
            handle.read_at(offset, &mut buffer)?,
            0,
            "bytes read past the end"
        );
    }
    ensure_eq!(handle.read_at(0, &mut [])?, 0, "bytes read into nothing");
    Ok(())
}

/// Returns true if an open file has the time that its writer set. Without
/// [`Capabilities::sets_times`], returns true if the file has a time of the store's clock.
fn has_time(store: &dyn Store, state: &ReadState, seconds: i64) -> bool {
    match store.capabilities().sets_times {
        true => state.modified.seconds == seconds,
        false => state.modified.seconds > CLOCK_SECONDS_MIN,
    }
}

/// A time in the past that is later than every time that a case sets, in seconds since 1970.
const CLOCK_SECONDS_MIN: i64 = 1_700_000_000;

fn changed(store: &dyn Store) -> Outcome {
    put_with(store, &path("file"), b"one", &metadata(10, 0))?;
    let handle = store.open_read(&path("file"), ReadPurpose::Transfer)?;
    let first = handle.state()?;
    ensure!(
        first.size == 3 && has_time(store, &first, 10),
        "size and time: found {first:?}, written 3 bytes with the time 10"
    );
    // After a replacement, the open handle reads the old file, and the name refers to the new file.
    put_with(store, &path("file"), b"second", &metadata(20, 0))?;
    let bytes = read_all(&*handle);
    let state = handle.state();
    if let (Ok(bytes), Ok(state)) = (bytes, state) {
        let is_old = bytes == b"one" && state == first;
        let is_new = state.size == 6 && has_time(store, &state, 20);
        ensure!(is_old || is_new, "{bytes:?} with a state of {state:?}");
    }
    let handle = store.open_read(&path("file"), ReadPurpose::Transfer)?;
    let state = handle.state()?;
    ensure!(
        state.size == 6 && has_time(store, &state, 20),
        "size and time after: found {state:?}, written 6 bytes with the time 20"
    );
    Ok(())
}

fn sparse(store: &dyn Store) -> Outcome {
    const SIZE: u64 = 8 << 30;
    const MIB: u64 = 1 << 20;
    let file = path("sparse");
    let request = PartialRequest {
        name: own_name("p")?,
        reuse: None,
    };
    let partial = store.begin(&file, SIZE, &request)?;
    let data = pattern(MIB as usize, 6);
    let places = [MIB, SIZE / 2];
    for place in places {
        partial.write_at(place, &data)?;
    }
    partial.punch_hole(ByteRange::between(2 * MIB, SIZE / 2))?;
    partial.sync()?;
    partial.publish(Publish::IfAbsent, &Attributes::of(&metadata(5, 0)))?;
    store.sync_all(&[SyncItem::File(&file)])?;

    let mut listed = store.list(&RelPath::root(), &ListOptions::default())?;
    let kind = listed.next().transpose()?.map(|listed| listed.kind);
    let expected = EntryKind::File {
        size: SIZE,
        sparse: true,
    };
    ensure_eq!(kind, Some(expected), "what is listed");

    let handle = store.open_read(&file, ReadPurpose::Transfer)?;
    let mut found = RangeSet::new();
    let mut offset = 0;
    while let Some(run) = handle.next_data(offset)? {
        ensure!(
            run.offset >= offset && !run.is_empty(),
            "a run {run:?} after {offset}"
        );
        found.insert(run);
        offset = run.end();
    }
    ensure!(offset <= SIZE, "data up to {offset}, past the end");
    for place in places {
        let range = ByteRange::between(place, place + MIB);
        ensure!(
            found.contains(range),
            "data at {place} is not found: {found:?}"
        );
    }
    ensure!(
        found.bytes() < 16 * MIB,
        "{} bytes are data, 2 MiB were written",
        found.bytes()
    );
    let mut buffer = vec![1; 4096];
    let count = handle.read_at(SIZE - 4096, &mut buffer)?;
    ensure!(count > 0, "nothing read from the hole at the end");
    ensure!(
        buffer[..count].iter().all(|byte| *byte == 0),
        "a hole does not read as zeros"
    );
    ensure_eq!(handle.next_data(SIZE)?, None, "data past the end");
    Ok(())
}

fn dense(store: &dyn Store) -> Outcome {
    let bytes = pattern(100_000, 7);
    put(store, &path("dense"), &bytes)?;
    put(store, &path("none"), b"")?;
    all_is_data(store)
}

/// Checks that the file `dense` has 100 000 bytes of data, and that `none` is empty.
pub(super) fn all_is_data(store: &dyn Store) -> Outcome {
    let handle = store.open_read(&path("dense"), ReadPurpose::Transfer)?;
    let mut offset = 0;
    while let Some(run) = handle.next_data(offset)? {
        ensure_eq!(run.offset, offset, "where data goes on");
        offset = run.end();
    }
    ensure_eq!(offset, 100_000, "where data ends");
    let handle = store.open_read(&path("none"), ReadPurpose::Transfer)?;
    ensure_eq!(handle.next_data(0)?, None, "data of an empty file");
    Ok(())
}

fn refused(store: &dyn Store) -> Outcome {
    ensure_error(
        store.open_read(&path("none"), ReadPurpose::Transfer),
        ErrorKind::NotFound,
        "opening a missing file",
    )?;
    ensure_error(
        store.open_read(&path("none/below"), ReadPurpose::Transfer),
        ErrorKind::NotFound,
        "opening a file in a missing folder",
    )?;
    put(store, &path("file"), b"x")?;
    ensure_error(
        store.open_read(&path("file/below"), ReadPurpose::Transfer),
        ErrorKind::NotADirectory,
        "opening a file beneath a file",
    )?;
    store.make_dir(&path("folder"))?;
    let read = store
        .open_read(&path("folder"), ReadPurpose::Transfer)
        .and_then(|handle| handle.read_at(0, &mut [0]));
    ensure_error(read, ErrorKind::IsADirectory, "reading a folder")
}

fn escape(store: &dyn Store) -> Outcome {
    // Targets of links: inside and outside the root, relative and absolute, with one and with
    // several components.
    let texts: [&[u8]; 5] = [b"/", b"..", b"../..", b"/proc/self/root", b"inside"];
    store.make_dir(&path("inside"))?;
    put(store, &path("inside/file"), b"x")?;
    let name = own_name("p")?;
    let meta = metadata(5, 0);
    let attributes = Attributes::of(&meta);
    let request = PartialRequest {
        name: name.clone(),
        reuse: None,
    };
    let (link, file, folder) = (path("link"), path("link/file"), path("link/folder"));
    for text in texts {
        store.make_symlink(&link, &name, text, &meta, Publish::Replace)?;
        let escapes = ErrorKind::PathEscapes;
        let read = ReadPurpose::Transfer;
        ensure_error(store.open_read(&file, read), escapes, "open_read")?;
        ensure_error(
            store.open_read(&link, read),
            escapes,
            "open_read of the link",
        )?;
        ensure_error(store.stat(&file), escapes, "stat")?;
        ensure_error(store.layout(&file), escapes, "layout")?;
        ensure_error(store.make_dir(&folder), escapes, "make_dir")?;
        ensure_error(store.make_dir(&link), ErrorKind::NotADirectory, "make_dir")?;
        ensure_error(store.begin(&file, 1, &request), escapes, "begin")?;
        let small = store.write_small(&file, &name, b"x", &[], &attributes);
        ensure_error(small, escapes, "write_small")?;
        let id = PartialId {
            inode: 1,
            device: 1,
            born: 0,
        };
        let publish = store.publish_small(&file, &name, id, Publish::Replace);
        ensure_error(publish, escapes, "publish_small")?;
        let again = store.make_symlink(&file, &name, b"x", &meta, Publish::Replace);
        ensure_error(again, escapes, "make_symlink")?;
        if store.capabilities().can_hold_log {
            let control = store.open_control(&file, ControlMode::Create);
            ensure_error(control, escapes, "open_control")?;
        }
        let under = store.list(&path("link/x"), &ListOptions::default());
        ensure_error(under, escapes, "list")?;
        let listed = super::walk(store, &RelPath::root(), &ListOptions::default())?;
        ensure_eq!(listed.len(), 4, "entries listed, the link not entered");
        ensure_eq!(get(store, &path("inside/file"))?, b"x", "the file inside");
    }
    Ok(())
}
