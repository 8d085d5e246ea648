//! A transfer that has opened its destination blocks only other sessions of the same transfer. If a
//! [`Destination`] is dropped before its transfer begins, no log remains.

use dray_core::options::Durability;
use dray_core::{End, ErrorKind, LogChoice, RelPath, Result, TransferId};
use dray_runtime::sink::{Destination, DestinationRequest};
use dray_store::{PosixOptions, PosixStore};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

fn open(top: &Path, folder: &str, claims: &[&str]) -> Result<Destination> {
    open_with(top, folder, claims, None)
}

fn open_with(
    top: &Path,
    folder: &str,
    claims: &[&str],
    log: Option<LogChoice>,
) -> Result<Destination> {
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
        log,
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
fn a_log_in_memory_is_refused_if_an_earlier_run_left_a_log() {
    let scratch = tempfile::tempdir().expect("a folder");
    let opened = open(scratch.path(), "", &[]).expect("a destination");
    let logs = scratch.path().join(".dray-log");
    let entries = fs::read_dir(&logs).expect("a folder");
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
    let log = paths.find(is_log).expect("a log");
    let bytes = fs::read(&log).expect("read");
    drop(opened);
    let in_memory = || open_with(scratch.path(), "", &[], Some(LogChoice::Memory)).map(|_| ());
    assert_eq!(in_memory(), Ok(()));
    fs::create_dir_all(&logs).expect("a folder");
    fs::write(&log, &bytes).expect("written");
    let error = in_memory().expect_err("a log exists");
    assert_eq!(error.kind, ErrorKind::Unsupported);
    let name = log
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    assert!(error.cause.contains(name), "{error}");
    assert!(
        fs::read(&log).expect("read") == bytes,
        "the log is unchanged"
    );
}

/// Transfers to nested and neighbouring trees begin concurrently, many times. No transfer blocks
/// another transfer, or removes the log of another transfer or the folder of that log.
#[test]
fn concurrent_transfers_are_all_admitted_and_leave_no_log() {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(scratch.path().join("a/b")).expect("folders");
    let begin = Barrier::new(4);
    let end = Barrier::new(4);
    let places: [(&str, &[&str]); 4] = [
        ("", &[]),
        ("a/b", &[]),
        ("a", &["x", "y"]),
        ("a", &["y", "z"]),
    ];
    for round in 0..40 {
        std::thread::scope(|scope| {
            for (folder, claims) in places {
                let (begin, end, scratch) = (&begin, &end, scratch.path());
                scope.spawn(move || {
                    begin.wait();
                    let opened = open(scratch, folder, claims);
                    assert!(opened.is_ok(), "round {round}: {:?}", opened.err());
                    if round % 2 == 0 {
                        end.wait();
                    }
                    drop(opened);
                    if round % 2 == 1 {
                        end.wait();
                    }
                });
            }
        });
        for folder in ["", "a", "a/b"] {
            assert!(
                !has_log(&scratch.path().join(folder)),
                "round {round}: {folder}"
            );
        }
    }
}

/// While one session of a transfer is open, a second session of the same transfer is refused.
#[test]
fn one_transfer_has_one_session() {
    let scratch = tempfile::tempdir().expect("a folder");
    let held = open(scratch.path(), "", &[]).expect("a destination");
    let error = open(scratch.path(), "", &[]).map(|_| ()).expect_err("held");
    assert_eq!(error.kind, ErrorKind::LeaseHeld);
    assert!(error.cause.contains("transfer tree"), "{error}");
    drop(held);
    assert!(open(scratch.path(), "", &[]).is_ok());
}
