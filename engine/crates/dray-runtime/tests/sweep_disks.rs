//! A sweep of several disks keeps every partial file that a log on any of the disks names, or that
//! a running transfer on any of the disks may have made.

mod local_common;

use dray_core::{Error, ErrorKind, RelPath};
use dray_runtime::sweep::{PartialData, PartialKind, Removed, WalkRoot, remove};
use dray_runtime::{local, sink};
use dray_session::Outcome;
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::disks::{contents, disks, left, open, partials, sink_of, three_files};
use local_common::sweeps::{DAY, copy_in_part_to, copy_to, durable_options, look, tomorrow};
use local_common::{Notes, sink_setup_claiming, source_setup_of, source_store};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Name of a partial file that is in no log.
const STRAY: &str = ".dray-0123456789abcdef.part";

fn place(dirs: &[PathBuf]) -> WalkRoot {
    WalkRoot::of_disks(dirs, &RelPath::root()).expect("all disks are there")
}

/// Result of removing everything that a walk finds.
type Swept = Vec<(PartialData, Result<Removed, Error>)>;

fn sweep(dirs: &[PathBuf], now: SystemTime) -> Swept {
    let place = place(dirs);
    let (found, unreadable) = look(&place, now);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let removed = |one: PartialData| {
        let removed = remove(&place, &one, now);
        (one, removed)
    };
    found.into_iter().map(removed).collect()
}

/// Number of partial files on each disk before a sweep, and the result of the sweep.
type Did = (Vec<usize>, Swept);

/// A store wrapper that sweeps the disks once, in the middle of a copy.
struct Sweeps {
    dirs: Vec<PathBuf>,
    did: Arc<Mutex<Option<Did>>>,
}

impl Hook for Sweeps {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if call.operation != Operation::Read || call.range.offset < 2_000_000 {
            return Ok(());
        }
        let mut did = self.did.lock().expect("no panic");
        if did.is_none() {
            // Wait until the data that was read before is written.
            std::thread::sleep(Duration::from_millis(300));
            let before = partials(&left(&self.dirs));
            *did = Some((before, sweep(&self.dirs, tomorrow() + 30 * DAY)));
        }
        Ok(())
    }
}

/// Copies `from` to `sink`, and sweeps the disks during the copy. Returns the number of partial
/// files on each disk before the sweep.
fn copy_during_a_sweep(from: &Path, sink: sink::Setup, dirs: &[PathBuf]) -> Vec<usize> {
    let did = Arc::default();
    let hook = Sweeps {
        dirs: dirs.to_vec(),
        did: Arc::clone(&did),
    };
    let store = Arc::new(Around::new(source_store(from), hook));
    let source = source_setup_of(store, &durable_options());
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    let (before, swept) = did.lock().expect("no panic").take().expect("swept");
    let [(held, removed)] = &swept[..] else {
        panic!("only the log of the running copy is found: {swept:?}");
    };
    assert!(held.is_held && held.what == PartialKind::Log, "{held:?}");
    let refused = removed.as_ref().expect_err("in use");
    assert_eq!(refused.kind, ErrorKind::Busy);
    before
}

#[test]
fn a_running_copy_to_all_disks_keeps_its_files_on_each_disk() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    let before = copy_during_a_sweep(&from, sink_of(&dirs), &dirs);
    assert_eq!(before, [1, 1, 1], "each disk had a partial file");
    let got: BTreeMap<_, _> = dirs.iter().flat_map(|dir| contents(dir)).collect();
    assert!(got == contents(&from), "another tree has arrived");
}

#[test]
fn a_running_copy_to_one_of_the_disks_keeps_its_files() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    for (disk, dir) in dirs.iter().enumerate() {
        let to = dir.join("in");
        let sink = sink_setup_claiming(&to, &durable_options(), &["run"]).expect("a destination");
        let before = copy_during_a_sweep(&from, sink, &dirs);
        assert!(before[disk] > 0, "the disk had partial files: {before:?}");
        assert!(contents(&to) == contents(&from), "another tree has arrived");
    }
}

#[test]
fn an_interrupted_copy_keeps_its_files_on_all_disks_while_its_log_exists() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    copy_in_part_to(&from, sink_of(&dirs));
    let before = left(&dirs);
    assert_eq!(partials(&before), [1, 1, 1]);
    let logs = |disk: usize| before[disk].iter().any(|name| name.ends_with(".log"));
    assert_eq!([logs(0), logs(1), logs(2)], [true, false, false]);
    // The walk of each disk finds the log that names the partial file.
    let place = place(&dirs);
    let (found, unreadable) = look(&place, tomorrow());
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let [log] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((log.what, log.files), (PartialKind::Log, 3));
    assert_eq!(log.disk.as_deref(), dirs[0].to_str());
    // The log is younger than an hour.
    let now = SystemTime::now();
    let (young, _) = look(&place, now);
    assert_eq!(
        remove(&place, &young[0], now).expect_err("young").kind,
        ErrorKind::Busy
    );
    assert_eq!(left(&dirs), before);
    copy_to(&from, sink_of(&dirs));
    let got: BTreeMap<_, _> = dirs.iter().flat_map(|dir| contents(dir)).collect();
    assert!(got == contents(&from), "another tree has arrived");
    assert_eq!(partials(&left(&dirs)), [0, 0, 0]);
}

#[test]
fn a_log_on_any_disk_protects_the_files_of_all_disks() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, mut dirs) = (three_files(scratch.path()), disks(scratch.path()));
    copy_in_part_to(&from, sink_of(&dirs));
    // With new marks, the log is on the last disk.
    for dir in &dirs {
        fs::remove_file(dir.join(".dray-disk")).expect("removed");
    }
    dirs.reverse();
    drop(open(&dirs));
    let before = left(&dirs);
    assert_eq!(partials(&before), [1, 1, 1]);
    let (found, unreadable) = look(&place(&dirs), tomorrow());
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let kinds: Vec<_> = found.iter().map(|one| (one.what, one.files)).collect();
    assert_eq!(kinds, [(PartialKind::Log, 3)]);
    // If the log cannot be read, it may name each of the files.
    let log = before[2].iter().find(|name| name.ends_with(".log"));
    fs::write(dirs[2].join(log.expect("a log")), b"not a log").expect("written");
    let (found, unreadable) = look(&place(&dirs), tomorrow());
    assert_eq!((found.len(), unreadable.len()), (0, 1), "{unreadable:?}");
    assert!(unreadable[0].cause.contains("d0"), "{unreadable:?}");
    // Without the log, no transfer can use the files.
    fs::remove_dir_all(dirs[2].join(".dray-log")).expect("removed");
    let swept = sweep(&dirs, tomorrow());
    assert_eq!(swept.len(), 3, "{swept:?}");
    assert_eq!(left(&dirs), [[""; 0]; 3]);
}

#[test]
fn abandoned_data_is_removed_from_every_disk() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    copy_in_part_to(&from, sink_of(&dirs));
    for dir in &dirs {
        let sink = sink_setup_claiming(&dir.join("in"), &durable_options(), &["run"]);
        copy_in_part_to(&from, sink.expect("a destination"));
        fs::create_dir_all(dir.join("deep/.dray-log")).expect("a folder");
        fs::write(dir.join("deep").join(STRAY), b"stray").expect("a file");
        let lease = dir.join("deep/.dray-log/0123456789abcdef.lease");
        fs::write(lease, b"").expect("a file");
    }
    // Only one disk has this folder.
    fs::create_dir(dirs[2].join("only")).expect("a folder");
    fs::write(dirs[2].join("only").join(STRAY), b"stray").expect("a file");
    let before = left(&dirs);
    assert!(
        partials(&before).iter().all(|count| *count >= 3),
        "{before:?}"
    );
    let hour = Duration::from_secs(3_600);
    for (one, removed) in sweep(&dirs, SystemTime::now() + hour / 2) {
        let refused = removed.expect_err("all of it is young");
        assert_eq!(refused.kind, ErrorKind::Busy, "{one:?}");
    }
    assert_eq!(left(&dirs), before);
    for (one, removed) in sweep(&dirs, tomorrow()) {
        let removed = removed.expect("removed");
        assert!(
            matches!(removed, Removed::All { .. }),
            "{one:?} {removed:?}"
        );
    }
    assert_eq!(left(&dirs), [[""; 0]; 3]);
    drop(open(&dirs));
    copy_to(&from, sink_of(&dirs));
}

#[test]
fn a_sweep_of_a_subfolder_reads_the_logs_above_it_on_each_disk() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, dirs) = (three_files(scratch.path()), disks(scratch.path()));
    copy_in_part_to(&from, sink_of(&dirs));
    fs::create_dir_all(dirs[1].join("run/own")).expect("a folder");
    fs::write(dirs[1].join("run/own").join(STRAY), b"stray").expect("a file");
    let run = RelPath::parse(b"run").expect("a path");
    let place = WalkRoot::of_disks(&dirs, &run).expect("all disks are there");
    let (found, unreadable) = look(&place, tomorrow());
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let paths: Vec<_> = found.iter().map(|one| one.path.to_string()).collect();
    assert_eq!(paths, [format!("run/own/{STRAY}")]);
    assert_eq!(found[0].disk.as_deref(), dirs[1].to_str());
    // One disk lacks the folder.
    fs::remove_dir_all(dirs[0].join("run")).expect("removed");
    assert_eq!(look(&place, tomorrow()).0.len(), 1);
}

#[test]
fn a_file_or_a_link_in_place_of_a_folder_does_not_end_the_sweep() {
    let scratch = tempfile::tempdir().expect("a folder");
    let dirs = disks(scratch.path());
    fs::write(dirs[0].join("run"), b"a file").expect("a file");
    symlink(&dirs[2], dirs[1].join("run")).expect("a link");
    let folder = dirs[2].join("run");
    fs::create_dir(&folder).expect("a folder");
    for top in [RelPath::root(), RelPath::parse(b"run").expect("a path")] {
        fs::write(folder.join(STRAY), b"stray").expect("a file");
        let place = WalkRoot::of_disks(&dirs, &top).expect("all disks are there");
        let (found, unreadable) = look(&place, tomorrow());
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let paths: Vec<_> = found.iter().map(|one| one.path.to_string()).collect();
        assert_eq!(paths, [format!("run/{STRAY}")]);
        remove(&place, &found[0], tomorrow()).expect("removed");
        assert!(!folder.join(STRAY).exists());
    }
}

#[test]
fn disks_are_swept_only_if_all_disks_of_the_store_are_given() {
    let scratch = tempfile::tempdir().expect("a folder");
    let dirs = disks(scratch.path());
    fs::write(dirs[1].join(STRAY), b"stray").expect("a file");
    let refused = |dirs: &[PathBuf]| {
        let opened = WalkRoot::of_disks(dirs, &RelPath::root());
        opened.err().expect("refused")
    };
    let missing = refused(&dirs[..2]);
    assert_eq!(missing.kind, ErrorKind::NotFound, "{missing}");
    // A disk of another store is inside a disk.
    let inner = dirs[0].join("inner");
    fs::create_dir(&inner).expect("a folder");
    drop(open(std::slice::from_ref(&inner)));
    let (found, unreadable) = look(&place(&dirs), tomorrow());
    assert_eq!(found.len(), 1);
    let told = &unreadable[0].cause;
    assert!(told.contains("inner has the file"), "{told}");
    let disk = format!("(disk {})", dirs[0].display());
    assert!(told.ends_with(&disk), "{told}");
    let outer = dirs[0].join("outer");
    fs::create_dir(&outer).expect("a folder");
    symlink("nowhere", outer.join(".dray-disk")).expect("a link");
    let unclear = WalkRoot::open(&outer)
        .err()
        .expect("a link counts as a mark");
    assert!(unclear.cause.contains("outer has the file"), "{unclear}");
    let nested = refused(&[inner]);
    assert!(nested.cause.contains("d0 has the file"), "{nested}");
    for dir in &dirs {
        fs::remove_file(dir.join(".dray-disk")).expect("removed");
    }
    let unmarked = refused(&dirs);
    assert_eq!(unmarked.kind, ErrorKind::InvalidRequest, "{unmarked}");
    assert!(
        !dirs[0].join(".dray-disk").exists(),
        "a sweep writes no mark"
    );
}
