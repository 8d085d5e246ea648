//! One writer: whoever may write the same files is seen in time, at whatever level its log lies, and
//! who is refused leaves nothing behind.

use dray_core::options::Durability;
use dray_core::{End, ErrorKind, RelPath, Result, TransferId};
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_store::{PosixOptions, PosixStore};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Barrier};

fn open(top: &Path, folder: &str, claims: &[&str]) -> Result<Destination> {
    let posix = || PosixOptions {
        create: true,
        ..PosixOptions::default()
    };
    let store = PosixStore::open(&top.join(folder), End::Sink, posix())?;
    let above = PosixStore::open(top, End::Sink, posix())?;
    let claims = claims.iter();
    Destination::open(DestinationRequest {
        store: Arc::new(store),
        above: Some((Arc::new(above), RelPath::parse(folder.as_bytes())?)),
        claims: claims
            .map(|claim| RelPath::parse(claim.as_bytes()))
            .collect::<Result<_>>()?,
        transfer: TransferId::new(if folder.is_empty() { "tree" } else { "deep" })?,
        owner: b"uid:0".to_vec(),
        durability: Durability::File,
        words: format!("/{folder}"),
    })
}

fn has_log(folder: &Path) -> bool {
    folder.join(".dray-log").exists()
}

#[test]
fn a_transfer_that_does_not_begin_leaves_no_log() {
    let scratch = tempfile::tempdir().expect("a folder");
    let opened = open(scratch.path(), "", &[]).expect("a destination");
    assert!(has_log(scratch.path()));
    drop(opened);
    assert!(!has_log(scratch.path()));
}

#[test]
fn a_log_of_an_earlier_run_does_not_hide_the_writer_above_it() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (deep, kept) = (scratch.path().join("a/b"), scratch.path().join("kept"));
    fs::create_dir_all(&deep).expect("folders");
    // What a run that was killed leaves.
    let killed = open(scratch.path(), "a/b", &[]).expect("a destination");
    fs::create_dir(&kept).expect("a folder");
    for entry in fs::read_dir(deep.join(".dray-log")).expect("a log") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), kept.join(entry.file_name())).expect("copied");
    }
    drop(killed);
    let _ = fs::remove_dir_all(deep.join(".dray-log"));
    fs::rename(&kept, deep.join(".dray-log")).expect("put back");
    let tree = open(scratch.path(), "", &[]).expect("a destination");
    let refused = open(scratch.path(), "a/b", &[]).map(|_| ());
    let error = refused.expect_err("the tree is being written");
    assert_eq!(error.kind, ErrorKind::LeaseHeld);
    assert!(error.cause.contains("transfer tree"), "{error}");
    assert!(has_log(&deep), "what the earlier run has recorded stays");
    drop(tree);
    assert!(open(scratch.path(), "a/b", &[]).is_ok());
}

/// Both begin at once, again and again. Of two trees in each other the outer one does not see the
/// inner one before it enters its folder, so it may go on; the inner one must not.
#[test]
fn of_two_that_begin_at_once_one_gives_way() {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(scratch.path().join("a/b")).expect("folders");
    let begin = Barrier::new(2);
    let end = Barrier::new(2);
    let run = |folder: &str, claims: &[&str], round: u64| {
        begin.wait();
        // Each is first in half of the rounds, by a little more each time.
        if round.is_multiple_of(2) == folder.is_empty() {
            std::thread::sleep(std::time::Duration::from_micros(round * 15));
        }
        let opened = open(scratch.path(), folder, claims);
        let logs = end.wait().is_leader().then(|| {
            let deep = scratch.path().join("a/b");
            (has_log(scratch.path()), has_log(&deep))
        });
        end.wait();
        (opened.map(|_| ()), logs)
    };
    let mut both = 0;
    for round in 0..20 {
        let (outer, inner) = std::thread::scope(|scope| {
            let inner = scope.spawn(|| run("a/b", &[], round));
            (run("", &[], round), inner.join().expect("no panic"))
        });
        let (tree, deep) = outer.1.or(inner.1).expect("one looked");
        assert_eq!(
            deep,
            inner.0.is_ok(),
            "round {round}: who is refused leaves no log"
        );
        assert_eq!(tree, outer.0.is_ok());
        both += u32::from(outer.0.is_ok() && inner.0.is_ok());
        for result in [outer.0, inner.0] {
            let kind = result.map_err(|error| error.kind);
            assert!(
                matches!(kind, Ok(()) | Err(ErrorKind::LeaseHeld)),
                "{kind:?}"
            );
        }
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| run("a", &["x", "y"], round));
            (
                run("a", &["y", "z"], round),
                other.join().expect("no panic"),
            )
        });
        let kinds = [&one.0, &other.0].map(|result| result.as_ref().err().map(|error| error.kind));
        let is_one = kinds.contains(&None) && kinds.contains(&Some(ErrorKind::LeaseHeld));
        assert!(is_one, "round {round}: {kinds:?}");
        assert!(!has_log(&scratch.path().join("a")));
    }
    assert!(both < 20, "the inner one never saw the outer one");
}
