//! Partial files whose names collide, and partial files in other transfers' logs.

mod local_common;

use dray_core::ErrorKind;
use dray_core::options::{Durability, Options, Overwrite};
use dray_runtime::local;
use dray_session::{Event, Outcome};
use local_common::{
    Notes, bytes, copy, failing_store, options, picture, sink_setup, source_setup_of,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Two names with the same 64-bit FNV-1a hash (a published pair).
const TWINS: [&str; 2] = ["8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ"];

fn all_arrives(ends: &local::Ends, events: &[Event], from: &Path, to: &Path) {
    let failed = events.iter().filter(|e| matches!(e, Event::Failed(_)));
    assert_eq!(failed.count(), 0, "{events:?}");
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    let (wanted, got) = (picture(from), picture(to));
    for (name, state) in &wanted {
        assert!(got.get(name) == Some(state), "{name} differs");
    }
    assert!(got.len() == wanted.len(), "left over: {:?}", got.keys());
}

#[test]
fn files_whose_names_have_one_hash_arrive() {
    let object = usize::try_from(options().object_bytes).expect("small");
    let sizes = [100, 3 * object + 1];
    for (first, second) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        let scratch = tempfile::tempdir().expect("a folder");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(&from).expect("a folder");
        // If the same tail is appended to both names, their hashes stay equal. So each tail gives
        // another pair of names with equal hashes.
        for tail in ["", "x", "y"] {
            let at = |twin: usize| from.join(format!("{}{tail}", TWINS[twin]));
            fs::write(at(0), bytes(1, sizes[first])).expect("a file");
            fs::write(at(1), bytes(2, sizes[second])).expect("a file");
        }
        let (ends, events) = copy(&from, &to, &options());
        all_arrives(&ends, &events, &from, &to);
    }
}

#[test]
fn a_link_and_an_empty_file_with_one_hash_arrive() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    std::os::unix::fs::symlink("nowhere", from.join(TWINS[0])).expect("a link");
    fs::write(from.join(TWINS[1]), b"").expect("a file");
    let (ends, events) = copy(&from, &to, &options());
    all_arrives(&ends, &events, &from, &to);
}

/// More files have names with the same hash than a name hash has partial names. A file without a
/// free partial name fails with an error that names the file, and no other file is affected.
#[test]
fn many_names_with_one_hash_fail_with_a_message_at_worst() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    // The hash function has the same state after each of the two names in `TWINS`. So all sequences
    // of four of these names have the same hash.
    for choice in 0..16usize {
        let parts = (0..4).map(|bit| TWINS[choice >> bit & 1]);
        let name: String = parts.collect();
        fs::write(from.join(name), bytes(choice as u64 + 1, 300_000)).expect("a file");
    }
    let (ends, events) = copy(&from, &to, &options());
    let mut failed = 0;
    for event in &events {
        if let Event::Failed(failure) = event {
            failed += 1;
            assert_eq!(failure.error.kind, ErrorKind::LimitExceeded);
            assert!(failure.error.remedy.contains("rename"), "{}", failure.error);
        }
    }
    let Outcome::Done(totals) = ends.sink.0 else {
        panic!("{:?}", ends.sink.0);
    };
    assert_eq!(totals.files + failed, 16);
    let wanted = picture(&from);
    for (name, state) in picture(&to) {
        assert!(wanted.get(&name) == Some(&state), "{name} is right");
    }
}

fn partial_files(at: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().ends_with(".part") {
            found.push(path);
        }
    }
    found
}

/// Copies `from` to `to`. Every file fails after some of its objects.
fn copy_in_part(from: &Path, to: &Path, options: &Options) {
    let source = source_setup_of(failing_store(from, 3, 0.02), options);
    let sink = sink_setup(to, options).expect("a destination");
    local::run(source, sink, &Notes::default(), |_| {}).expect("started");
}

/// The log of an inner folder names a partial file. A copy of the whole tree, in which the file has
/// other content, must leave that partial file alone.
#[test]
fn a_partial_file_that_another_log_speaks_of_stays() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(from.join("inner")).expect("a folder");
    fs::write(from.join("inner/large"), bytes(3, 5_000_000)).expect("a file");
    let options = Options {
        overwrite: Overwrite::Always,
        // With this option, data that was written before the fault is in the log.
        durability: Durability::Object,
        rate: Some(2_000_000),
        ..options()
    };
    copy_in_part(&from.join("inner"), &to.join("inner"), &options);
    let [before] = &partial_files(&to.join("inner"))[..] else {
        panic!("one partial file");
    };
    let inode = fs::metadata(before).expect("a state").ino();

    let other = scratch.path().join("other");
    fs::create_dir_all(other.join("inner")).expect("a folder");
    fs::write(other.join("inner/large"), bytes(4, 4_000_000)).expect("a file");
    let (ends, events) = copy(&other, &to, &options);
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{events:?}");
    assert!(picture(&other)["inner/large"] == picture(&to)["inner/large"]);
    assert_eq!(
        partial_files(&to.join("inner")),
        std::slice::from_ref(before)
    );
    assert_eq!(fs::metadata(before).expect("a state").ino(), inode);

    let (ends, _) = copy(&from.join("inner"), &to.join("inner"), &options);
    assert!(ends.source.1.objects_resumed > 0, "its log still counts");
    let (wanted, got) = (picture(&from), picture(&to));
    assert!(wanted["inner/large"] == got["inner/large"]);
    assert!(wanted.len() == got.len(), "left over: {:?}", got.keys());
}

/// A copy of the whole tree resumes a file with the same content from the log of an inner folder.
#[test]
fn a_partial_file_of_an_inner_log_is_taken_over_by_a_copy_of_the_tree() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(from.join("inner")).expect("a folder");
    fs::write(from.join("inner/large"), bytes(3, 5_000_000)).expect("a file");
    let options = Options {
        durability: Durability::Object,
        rate: Some(2_000_000),
        ..options()
    };
    copy_in_part(&from.join("inner"), &to.join("inner"), &options);
    assert_eq!(partial_files(&to.join("inner")).len(), 1);
    let (ends, events) = copy(&from, &to, &options);
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{events:?}");
    assert!(ends.source.1.objects_resumed > 0, "{:?}", ends.source.1);
    assert!(picture(&from) == picture(&to), "left over");
}

/// A partial file that no log names does not block a transfer.
#[test]
fn an_unlogged_partial_file_is_replaced() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    for folder in [&from, &to] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(from.join(TWINS[0]), bytes(1, 300_000)).expect("a file");
    fs::write(to.join(".dray-4eac0c95540867e4.part"), b"left over").expect("a file");
    let (ends, events) = copy(&from, &to, &options());
    all_arrives(&ends, &events, &from, &to);
}
