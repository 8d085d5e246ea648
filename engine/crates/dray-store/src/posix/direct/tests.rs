use super::{ALIGNMENT, LARGE, aligned};
use crate::posix::{PosixOptions, PosixStore};
use crate::store::Store;
use crate::types::{PartialRequest, ReadPurpose};
use dray_core::{End, Name, RelPath};
use rustix::fs::{FileType, Mode, OFlags};
use std::sync::mpsc;
use std::time::Duration;

/// Calls `each` with a buffer of `bytes` bytes. The buffer starts `past` bytes after an aligned
/// address.
fn memory(bytes: usize, past: usize, each: impl FnOnce(&mut [u8])) {
    let mut whole = vec![0; bytes + 2 * ALIGNMENT];
    let start = whole.as_ptr().addr().next_multiple_of(ALIGNMENT) - whole.as_ptr().addr();
    let byte = |index: usize| (index % 251) as u8;
    let part = &mut whole[start + past..start + past + bytes];
    part.iter_mut()
        .enumerate()
        .for_each(|(at, b)| *b = byte(at));
    each(part);
}

#[test]
fn only_what_is_aligned_at_both_ends_goes_directly() {
    memory(3 * ALIGNMENT + 5, 0, |bytes| {
        assert_eq!(aligned(0, bytes), Some(3 * ALIGNMENT));
        assert_eq!(
            aligned(ALIGNMENT as u64, &bytes[..ALIGNMENT]),
            Some(ALIGNMENT)
        );
        assert_eq!(aligned(1, bytes), None, "the offset");
        assert_eq!(aligned(0, &bytes[1..]), None, "the memory");
        assert_eq!(aligned(0, &bytes[..ALIGNMENT - 1]), None, "less than one");
    });
}

#[test]
fn parts_that_go_directly_and_others_are_one_file() {
    // Use the source folder, because the temporary folder of the host is more often in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let options = PosixOptions {
        direct: true,
        ..PosixOptions::default()
    };
    let store = PosixStore::open(folder.path(), End::Sink, options).expect("opened");
    let path = RelPath::parse(b"file").expect("good");
    let size = LARGE as usize + 5 * ALIGNMENT + 77;
    let request = PartialRequest {
        name: Name::new(b".part").expect("good"),
        reuse: None,
    };
    let partial = store.begin(&path, size as u64, &request).expect("begun");
    memory(size, 0, |bytes| {
        let (head, tail) = bytes.split_at(2 * ALIGNMENT);
        partial.write_at(head.len() as u64, tail).expect("written");
        partial
            .write_at(0, &head[..ALIGNMENT + 9])
            .expect("a part of a block");
        let rest = &head[ALIGNMENT + 9..];
        partial
            .write_at((ALIGNMENT + 9) as u64, rest)
            .expect("from within a block");
    });
    partial.sync().expect("synced");
    let written = std::fs::read(folder.path().join(".part")).expect("there");
    memory(size, 0, |bytes| assert!(written == bytes));
    let part = RelPath::parse(b".part").expect("good");
    let file = store
        .open_read(&part, ReadPurpose::Transfer)
        .expect("opened");
    let direct = OFlags::RDONLY | OFlags::DIRECT;
    let probe = rustix::fs::open(folder.path().join(".part"), direct, Mode::empty());
    assert_eq!(file.is_direct(), probe.is_ok());
    for past in [0, 3] {
        memory(size, past, |bytes| {
            bytes.fill(0);
            let mut filled = 0;
            while filled < size {
                filled += file
                    .read_at(filled as u64, &mut bytes[filled..])
                    .expect("read");
            }
            assert!(written == bytes, "memory {past} bytes off");
        });
    }
}

#[test]
fn only_large_regular_files_are_reopened() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let options = PosixOptions {
        direct: true,
        ..PosixOptions::default()
    };
    let store = PosixStore::open(folder.path(), End::Source, options).expect("opened");
    let (pipe, mode) = (folder.path().join("pipe"), Mode::RUSR | Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).expect("made");
    std::fs::write(folder.path().join("small"), [0; ALIGNMENT]).expect("written");
    // Use another thread, because opening a pipe without a writer would block forever.
    let (opened_in, opened) = mpsc::channel();
    std::thread::spawn(move || {
        for name in ["pipe", "small"] {
            let path = RelPath::parse(name.as_bytes()).expect("good");
            let file = store.open_read(&path, ReadPurpose::Transfer);
            let _ = opened_in.send((name, file.map(|file| file.is_direct())));
        }
    });
    for name in ["pipe", "small"] {
        let opened = opened.recv_timeout(Duration::from_secs(20));
        assert_eq!(opened.expect("nothing is waited for"), (name, Ok(false)));
    }
}
