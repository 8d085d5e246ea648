//! Runs the conformance suite on every backend of this crate, without and with wrappers.

use dray_core::rate::BytesPerSecond;
use dray_core::{End, RelPath};
use dray_store::wrap::chaos::{ChaosOptions, Fault, Rule};
use dray_store::wrap::limit::LimitOptions;
use dray_store::wrap::{Operation, trace};
use dray_store::{
    DisksOptions, DisksStore, MemoryStore, PosixOptions, PosixStore, StoreExt, WrapOptions,
    conformance, wrap,
};
use std::cell::RefCell;
use std::sync::Arc;

fn check(make: conformance::Factory<'_>, skipped: &[&str]) {
    let report = conformance::run(make);
    assert!(report.is_passed(), "{report}");
    let names: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, skipped);
}

/// Runs the suite with a new folder for each case. All folders are deleted at the end.
fn posix(asked: &PosixOptions) {
    let folders = RefCell::new(Vec::new());
    check(
        &|| {
            let folder = tempfile::tempdir().expect("a folder");
            let store = PosixStore::open(folder.path(), End::Sink, asked.clone()).expect("opens");
            folders.borrow_mut().push(folder);
            Arc::new(store)
        },
        &[],
    );
}

#[test]
fn posix_passes() {
    posix(&PosixOptions::default());
}

#[test]
fn posix_passes_without_openat2() {
    posix(&PosixOptions {
        openat2: false,
        ..PosixOptions::default()
    });
}

#[test]
fn posix_passes_with_direct_io() {
    posix(&PosixOptions {
        direct: true,
        ..PosixOptions::default()
    });
}

#[test]
fn posix_passes_with_space_taken_at_the_beginning() {
    posix(&PosixOptions {
        preallocates: true,
        ..PosixOptions::default()
    });
}

/// Runs the suite with `count` new folders for each case, which stand for disks. Each store is the
/// folder `below` of a store on these disks.
fn disks(count: usize, below: &str, asked: DisksOptions, left_out: &[&str]) {
    let folders = RefCell::new(Vec::new());
    let make = || {
        let folder = tempfile::tempdir().expect("a folder");
        let dirs: Vec<_> = (0..count)
            .map(|at| folder.path().join(at.to_string()))
            .collect();
        for dir in &dirs {
            std::fs::create_dir(dir).expect("made");
        }
        let store = DisksStore::open(&dirs, End::Sink, &asked).expect("opens");
        let below = RelPath::parse(below.as_bytes()).expect("a path");
        store.make_dirs(&below, 0o755).expect("made");
        let store = store.open_folder(&below).expect("opened");
        folders.borrow_mut().push(folder);
        let chaos = ChaosOptions {
            seed: 3,
            end: End::Sink,
            rules: vec![Rule {
                operations: vec![Operation::Read],
                pattern: b"*".to_vec(),
                probability: 0.5,
                fault: Fault::ShortRead,
            }],
        };
        let options = WrapOptions {
            chaos: Some(chaos),
            ..WrapOptions::default()
        };
        wrap(Arc::new(store), options)
    };
    let report = conformance::run_without(&make, left_out);
    assert!(report.is_passed(), "{report}");
    assert_eq!(report.skipped.len(), left_out.len(), "{report}");
}

/// The slowest case. It runs once for several disks.
const MANY: &str = "100 000 entries are listed as they are found";

#[test]
fn disks_pass() {
    disks(3, "", DisksOptions::default(), &[]);
}

#[test]
fn disks_pass_below_their_root() {
    disks(4, "a/b", DisksOptions::default(), &[MANY]);
}

#[test]
fn one_disk_passes() {
    disks(1, "", DisksOptions::default(), &[MANY]);
}

#[test]
fn disks_pass_with_direct_io_and_preallocation() {
    let options = DisksOptions {
        direct: true,
        preallocates: true,
        ..DisksOptions::default()
    };
    disks(2, "", options, &[MANY]);
}

#[test]
fn memory_passes() {
    check(
        &|| Arc::new(MemoryStore::new(End::Sink)),
        &["holes are neither filled nor read"],
    );
}

#[test]
fn wrapped_store_passes_with_short_reads_and_delays() {
    let rule = |operation, probability, fault| Rule {
        operations: vec![operation],
        pattern: b"*".to_vec(),
        probability,
        fault,
    };
    check(
        &|| {
            let options = WrapOptions {
                limit: Some(LimitOptions {
                    whole: Some(BytesPerSecond(4 << 30)),
                    ..LimitOptions::default()
                }),
                chaos: Some(ChaosOptions {
                    seed: 1,
                    end: End::Sink,
                    rules: vec![
                        rule(Operation::Read, 0.5, Fault::ShortRead),
                        rule(
                            Operation::Sync,
                            0.5,
                            Fault::Delay(std::time::Duration::from_micros(100)),
                        ),
                    ],
                }),
                trace: Some(trace::json_lines(std::io::sink())),
            };
            wrap(Arc::new(MemoryStore::new(End::Sink)), options)
        },
        &["holes are neither filled nor read"],
    );
}

/// The suite must fail for a store that discards or corrupts bytes.
#[test]
fn broken_stores_do_not_pass() {
    let null = || -> Arc<dyn dray_store::Store> {
        Arc::new(dray_store::NullStore::new(
            End::Sink,
            dray_store::NullTree::default(),
        ))
    };
    let report = conformance::run(&null);
    assert!(report.failed.len() > 10, "{report}");
    let spoiled = || {
        let rule = Rule {
            operations: vec![Operation::Write],
            pattern: b"*".to_vec(),
            probability: 0.3,
            fault: Fault::FlipBit,
        };
        let options = WrapOptions {
            chaos: Some(ChaosOptions {
                seed: 7,
                end: End::Sink,
                rules: vec![rule],
            }),
            ..WrapOptions::default()
        };
        wrap(Arc::new(MemoryStore::new(End::Sink)), options)
    };
    let report = conformance::run(&spoiled);
    let failed: Vec<_> = report.failed.iter().map(|(name, _)| *name).collect();
    assert!(
        failed.contains(&"threads write one file at once"),
        "{report}"
    );
}
