//! A sweep finds and removes partial data that no transfer will resume. It keeps data that a
//! transfer may still need.

mod local_common;

use dray_core::options::Durability;
use dray_core::{End, Error, ErrorKind};
use dray_core::{RelPath, TransferId};
use dray_open::export::{Export, Within};
use dray_runtime::local;
use dray_runtime::sweep::{
    AGE_MIN, PartialData, PartialKind, Purged, Removed, WalkEvent, WalkRoot, remove, walk,
};
use dray_session::Outcome;
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::sweeps::{DAY, arrives, copy_in_part, look, own_names, source, tomorrow};
use local_common::{
    Notes, destination, options, picture, sink_setup_claiming, sink_store, source_setup_of,
    source_store,
};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

fn place(at: &Path) -> WalkRoot {
    WalkRoot::open(at).expect("a folder")
}

fn found_in(at: &Path, now: SystemTime) -> Vec<PartialData> {
    let (found, unreadable) = look(&place(at), now);
    assert!(unreadable.is_empty(), "{unreadable:?}");
    found
}

/// As [`own_names`], without the folder of logs, which may be empty.
fn own_files(at: &Path) -> Vec<String> {
    let mut names = own_names(at);
    names.retain(|name| !name.ends_with(".dray-log"));
    names
}

/// Purges `folder` in an export of `root`, for a transfer of an owner.
fn purge(root: &Path, folder: &str, claim: &str, transfer: &str, owner: &str) -> Purged {
    let export = Export::open(root.canonicalize().expect("there"), Default::default());
    let within = Within {
        folder: folder.as_bytes().to_vec(),
        claims: vec![RelPath::parse(claim.as_bytes()).expect("a path")],
        transfer: TransferId::new(transfer).expect("an id"),
        owner: owner.as_bytes().to_vec(),
        durability: Durability::None,
        stripes: None,
    };
    let purged = export.expect("opens").purge(within);
    purged.expect("looked at")
}

#[test]
fn a_purge_removes_only_the_data_its_transfer_held_last() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, root) = (source(scratch.path()), scratch.path().join("to"));
    let to = root.join("down");
    copy_in_part(&from, &to);
    let before = picture(&root);
    let another = purge(&root, "down", "run", "other", "uid:0");
    assert_eq!(
        another,
        Purged::GoneOn(TransferId::new("test").expect("an id"))
    );
    assert_eq!(
        purge(&root, "down", "run", "test", "uid:1"),
        Purged::NotOurs
    );
    assert_eq!(
        purge(&root, "down", "run/a", "test", "uid:0"),
        Purged::Larger
    );
    assert_eq!(
        purge(&root, "down", "elsewhere", "test", "uid:0"),
        Purged::Nothing
    );
    assert_eq!(
        purge(&root, "nowhere", "run", "test", "uid:0"),
        Purged::Nothing
    );
    assert!(
        picture(&root) == before,
        "nothing was touched, nothing made"
    );
    let partials = own_names(&to)
        .iter()
        .filter(|name| name.ends_with(".part"))
        .count();
    let Purged::All { files, bytes } = purge(&root, "down", "run", "test", "uid:0") else {
        panic!("it stays: {:?}", own_names(&to));
    };
    assert_eq!(files, partials as u64);
    assert!(bytes > 1_000_000, "{bytes}");
    assert_eq!(own_names(&to), Vec::<String>::new());
    assert_eq!(
        purge(&root, "down", "run", "test", "uid:0"),
        Purged::Nothing
    );
    arrives(&from, &to);
}

#[test]
fn a_purge_that_was_broken_off_at_any_step_is_ended_by_the_next() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, root) = (source(scratch.path()), scratch.path().join("to"));
    let to = root.join("down");
    // A purge removes the partial files, the log, the lease and their folder, in this order. Test a
    // purge that was interrupted before the lease or the folder was removed.
    for kept in [&["lease"][..], &[]] {
        copy_in_part(&from, &to);
        for name in own_names(&to) {
            let path = to.join(&name);
            let is_kept = kept.iter().any(|end| name.ends_with(end));
            if path.is_file() && !is_kept {
                std::fs::remove_file(path).expect("removed");
            }
        }
        let left = own_names(&to);
        assert_eq!(left.len(), 1 + kept.len(), "{left:?}");
        if !kept.is_empty() {
            // A purge of another destination leaves this log alone.
            let elsewhere = purge(&root, "down", "run/a", "test", "uid:0");
            assert_eq!((elsewhere, own_names(&to)), (Purged::Nothing, left));
        }
        let purged = purge(&root, "down", "run", "test", "uid:0");
        assert_eq!(purged, Purged::Nothing);
        assert_eq!(own_names(&to), Vec::<String>::new());
        std::fs::remove_dir_all(&to).expect("removed");
    }
    copy_in_part(&from, &to);
    arrives(&from, &to);
}

#[test]
fn a_purge_before_any_adoption_removes_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, root) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &root);
    let kept = own_files(&root);
    let export = Export::open(root.canonicalize().expect("there"), Default::default());
    let within = Within {
        folder: Vec::new(),
        claims: vec![RelPath::parse(b"run").expect("a path")],
        transfer: TransferId::new("late").expect("an id"),
        owner: b"uid:0".to_vec(),
        durability: Durability::None,
        stripes: None,
    };
    let aside = scratch.path().join("aside");
    let mut sink = sink_setup_claiming(&aside, &options(), &["run"]).expect("a destination");
    sink.destination = export.expect("opens").destination(within).expect("ours").0;
    let source = source_setup_of(source_store(&from), &options());
    let notes = Notes::default();
    let ends = local::run(source, sink, &notes, |stopper| stopper.stop(true));
    let outcome = ends.expect("started").sink.0;
    assert!(matches!(outcome, Outcome::Cancelled), "{outcome:?}");
    assert_eq!(own_files(&root), kept);
    let said = notes.0.into_inner().expect("no panic while noting");
    let wanted = "transfer test has resumed from the partial data";
    assert!(format!("{said:?}").contains(wanted), "{said:?}");
}

#[test]
fn a_purge_does_not_touch_files_that_are_being_written() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, root) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &root);
    let held = sink_setup_claiming(&root, &options(), &["run"]).expect("a destination");
    let before = own_files(&root);
    let export = Export::open(root.canonicalize().expect("there"), Default::default());
    let within = Within {
        folder: Vec::new(),
        claims: vec![RelPath::parse(b"run").expect("a path")],
        transfer: TransferId::new("test").expect("an id"),
        owner: b"uid:0".to_vec(),
        durability: Durability::None,
        stripes: None,
    };
    let error = export.expect("opens").purge(within).expect_err("held");
    assert_eq!(error.kind, ErrorKind::LeaseHeld);
    assert_eq!(own_files(&root), before);
    drop(held);
    arrives(&from, &root);
}

#[test]
fn data_of_an_interrupted_transfer_is_found_and_removed() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, root) = (source(scratch.path()), scratch.path().join("to"));
    let to = root.join("deep/down");
    copy_in_part(&from, &to);
    let store = place(&root);
    let (found, _) = look(&store, tomorrow());
    let [one] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(one.what, PartialKind::Log);
    assert!(one.path.to_string().starts_with("deep/down/.dray-log/"));
    assert_eq!(one.owner.as_deref(), Some(&b"uid:0"[..]));
    assert_eq!(one.transfer.as_ref().map(|id| id.as_str()), Some("test"));
    assert!(!one.is_held);
    let partials = own_names(&to)
        .iter()
        .filter(|name| name.ends_with(".part"))
        .count();
    assert_eq!(one.files, partials as u64);
    let on_disk: u64 = own_names(&to)
        .iter()
        .map(|name| fs::metadata(to.join(name)).expect("a file"))
        .filter(|state| state.is_file())
        .map(|state| state.blocks() * 512)
        .sum();
    assert_eq!(one.bytes, on_disk);
    assert!(one.age(tomorrow()) >= DAY - Duration::from_secs(600));
    let removed = remove(&store, one, tomorrow()).expect("removed");
    let (files, bytes) = (one.files, one.bytes);
    assert_eq!(removed, Removed::All { files, bytes });
    assert_eq!(own_names(&root), [""; 0]);
    arrives(&from, &to);
}

#[test]
fn young_data_is_kept() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &to);
    fs::write(to.join(".dray-0123456789abcdef.part"), b"x").expect("a file");
    let store = place(&to);
    let soon = SystemTime::now() + AGE_MIN - Duration::from_secs(60);
    let (found, _) = look(&store, soon);
    let [one] = &found[..] else {
        panic!("the young partial file is not even told: {found:?}");
    };
    assert!(!one.is_orphan(soon));
    let refused = remove(&store, one, soon).expect_err("too young");
    assert_eq!(refused.kind, ErrorKind::Busy);
    // If the clock is set back, no file counts as old.
    assert!(!one.is_orphan(SystemTime::UNIX_EPOCH));
    arrives(&from, &to);
}

#[test]
fn held_data_is_kept_at_any_age() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &to);
    let store = place(&to);
    let (free, _) = look(&store, tomorrow());
    let setup = sink_setup_claiming(&to, &options(), &["run"]).expect("goes on");
    // A small file that is being written has no record. The lease of its writer protects the file.
    fs::write(to.join("run/.dray-0123456789abcdef.part"), b"x").expect("a file");
    let later = tomorrow() + 30 * DAY;
    let (held, _) = look(&store, later);
    let [one] = &held[..] else {
        panic!("{held:?}");
    };
    assert!(one.is_held && !one.is_orphan(later));
    assert_eq!(
        remove(&store, one, later).expect_err("held").kind,
        ErrorKind::Busy
    );
    let before = own_names(&to);
    let error = remove(&store, &free[0], later).expect_err("it is held by now");
    assert_eq!(error.kind, ErrorKind::LeaseHeld);
    assert!(error.cause.contains("transfer test"), "{error}");
    assert_eq!(own_names(&to), before);
    drop(setup);
}

#[test]
fn a_transfer_that_resumes_between_walk_and_removal_keeps_its_data() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &to);
    let found = found_in(&to, tomorrow());
    copy_in_part(&from, &to);
    let before = own_names(&to);
    let store = place(&to);
    let left = remove(&store, &found[0], tomorrow()).expect("looked");
    assert_eq!(left, Removed::Left);
    assert_eq!(own_names(&to), before);
    arrives(&from, &to);
    assert_eq!(own_names(&to), [""; 0]);
}

/// A store wrapper that begins a transfer during a removal, once, and records the result.
struct Begins {
    to: PathBuf,
    answers: Arc<Mutex<Vec<Option<ErrorKind>>>>,
}

impl Hook for Begins {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        let mut answers = self.answers.lock().expect("no panic");
        if call.operation == Operation::Discard && answers.is_empty() {
            let begun = destination(sink_store(&self.to)?, None, &options(), &["run"]);
            answers.push(begun.err().map(|error| error.kind));
        }
        Ok(())
    }
}

#[test]
fn a_transfer_during_a_removal_is_refused_and_later_starts_over() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &to);
    let found = found_in(&to, tomorrow());
    let answers = Arc::default();
    let hook = Begins {
        to: to.clone(),
        answers: Arc::clone(&answers),
    };
    let store = Arc::new(Around::new(sink_store(&to).expect("a store"), hook));
    let store = WalkRoot::new(store, &to).expect("a place");
    let removed = remove(&store, &found[0], tomorrow()).expect("removed");
    assert!(matches!(removed, Removed::All { files: 1.., .. }));
    let answers = answers.lock().expect("no panic").clone();
    assert_eq!(answers, [Some(ErrorKind::LeaseHeld)]);
    arrives(&from, &to);
}

#[test]
fn one_of_two_concurrent_removals_removes_the_data() {
    for _ in 0..10 {
        let scratch = tempfile::tempdir().expect("a folder");
        let (from, to) = (source(scratch.path()), scratch.path().join("to"));
        copy_in_part(&from, &to);
        let found = found_in(&to, tomorrow());
        let sweep = || {
            let store = place(&to);
            remove(&store, &found[0], tomorrow())
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(sweep);
            (sweep(), other.join().expect("no panic"))
        });
        let did = |result: &dray_core::Result<Removed>| {
            matches!(result, Ok(Removed::All { files: 1.., .. }))
        };
        assert!(did(&one) != did(&other), "{one:?} {other:?}");
        assert_eq!(own_names(&to), [""; 0]);
    }
}

/// A store wrapper that permits the given number of changing calls, and then fails every call, as
/// if its process had died.
struct Dies {
    left: AtomicU64,
}

impl Hook for Dies {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        let changes = matches!(
            call.operation,
            Operation::RemoveControl
                | Operation::Discard
                | Operation::Remove
                | Operation::ControlWrite
                | Operation::ControlLock
        );
        let count = |left: u64| Some(left.saturating_sub(u64::from(changes)));
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        match left {
            Ok(0) => Err(Error::new(ErrorKind::Io, End::Sink, "live")),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_removal_killed_at_any_step_leaves_no_incomplete_data_that_a_transfer_trusts() {
    let mut steps = 0;
    loop {
        let scratch = tempfile::tempdir().expect("a folder");
        let (from, to) = (source(scratch.path()), scratch.path().join("to"));
        copy_in_part(&from, &to);
        let found = found_in(&to, tomorrow());
        let dies = Dies {
            left: AtomicU64::new(steps + 1),
        };
        let dying = Arc::new(Around::new(sink_store(&to).expect("a store"), dies));
        let dying = WalkRoot::new(dying, &to).expect("a place");
        let died = remove(&dying, &found[0], tomorrow()).is_err();
        drop(dying);
        // The log is removed last, so it still names the remaining files.
        let now = found_in(&to, tomorrow());
        match now.iter().find(|one| one.what == PartialKind::Log) {
            Some(log) => assert!(log.files <= found[0].files, "after {steps} steps"),
            None => assert!(died || own_files(&to).is_empty()),
        }
        let is_stray = |one: &PartialData| one.what == PartialKind::Partial;
        assert!(!now.iter().any(is_stray), "after {steps} steps: {now:?}");
        // The next sweep finds the remaining files. A transfer that runs before that sweep succeeds
        // as well.
        if steps % 2 == 0 {
            let store = place(&to);
            for one in &now {
                remove(&store, one, tomorrow()).expect("removed");
            }
            assert_eq!(own_files(&to), [""; 0], "after {steps} steps");
        }
        arrives(&from, &to);
        if !died {
            break;
        }
        steps += 1;
        assert!(steps < 100, "it never ends");
    }
    assert!(steps > 5, "there are steps to die at: {steps}");
}

#[test]
fn a_disk_whose_logs_are_on_another_disk_is_not_swept() {
    let scratch = tempfile::tempdir().expect("a folder");
    let disk = scratch.path().join("d2");
    fs::create_dir_all(disk.join("in")).expect("a folder");
    fs::write(disk.join(".dray-disk"), b"dray-disk 1").expect("a file");
    fs::write(disk.join("in/.dray-0123456789abcdef.part"), b"x").expect("a file");
    for folder in [disk.clone(), disk.join("in")] {
        let refused = WalkRoot::open(&folder).err().expect("refused");
        assert!(refused.cause.contains("one of several disks"), "{refused}");
    }
    let (found, unreadable) = look(&place(scratch.path()), tomorrow());
    assert!(found.is_empty(), "{found:?}");
    assert!(
        unreadable[0].cause.contains("d2 has the file"),
        "{unreadable:?}"
    );
}

#[test]
fn partial_files_are_removed_only_if_no_log_can_name_them() {
    let scratch = tempfile::tempdir().expect("a folder");
    let root = scratch.path();
    let deep = root.join("a/b");
    fs::create_dir_all(&deep).expect("a folder");
    let stray = deep.join(".dray-0123456789abcdef.part");
    fs::write(&stray, b"stray").expect("a file");
    symlink("/etc/passwd", deep.join(".dray-0123456789abcdee.part")).expect("a link");
    // Create entries with names that dray does not use.
    fs::create_dir(deep.join(".dray-0123456789abcded.part")).expect("a folder");
    fs::write(deep.join(".dray-notes"), b"mine").expect("a file");
    let found = found_in(root, tomorrow());
    let paths: Vec<_> = found.iter().map(|one| one.path.to_string()).collect();
    assert_eq!(
        paths,
        [
            "a/b/.dray-0123456789abcdee.part",
            "a/b/.dray-0123456789abcdef.part"
        ]
    );
    // An unreadable log in a parent folder may name these files.
    fs::create_dir(root.join(".dray-log")).expect("a folder");
    let log = root.join(".dray-log/0123456789abcdef.log");
    fs::write(&log, b"not a log").expect("a file");
    let store = place(root);
    let (none, unreadable) = look(&store, tomorrow());
    assert!(none.is_empty(), "{none:?}");
    assert_eq!(unreadable[0].kind, ErrorKind::LogVersion);
    let left = remove(&store, &found[1], tomorrow()).expect("looked");
    assert_eq!(left, Removed::Left);
    fs::remove_dir_all(root.join(".dray-log")).expect("removed");
    for one in &found {
        let removed = remove(&store, one, tomorrow()).expect("removed");
        assert!(matches!(removed, Removed::All { files: 1, .. }));
    }
    assert!(!stray.exists() && deep.join(".dray-notes").exists());
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn a_partial_file_that_a_log_above_the_folder_speaks_of_stays() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (source(scratch.path()), scratch.path().join("to"));
    copy_in_part(&from, &to);
    let inner = to.join("run");
    assert!(!own_names(&inner).is_empty(), "partial files lie there");
    assert_eq!(found_in(&inner, tomorrow()), []);
    fs::remove_dir_all(to.join(".dray-log")).expect("removed");
    assert_eq!(found_in(&inner, tomorrow()).len(), own_names(&inner).len());
}

#[test]
fn a_young_partial_file_without_a_log_is_reported_as_young() {
    let scratch = tempfile::tempdir().expect("a folder");
    fs::write(scratch.path().join(".dray-0123456789abcdef.part"), b"new").expect("a file");
    let place = WalkRoot::open(scratch.path()).expect("there");
    let mut young = Vec::new();
    walk(&place, SystemTime::now(), &mut |met| {
        if let WalkEvent::Young(one) = met {
            young.push(one.path.to_string());
        }
        ControlFlow::Continue(())
    })
    .expect("walked");
    assert_eq!(young, [".dray-0123456789abcdef.part"]);
}

#[test]
fn a_partial_file_made_anew_under_the_name_stays() {
    let scratch = tempfile::tempdir().expect("a folder");
    let stray = scratch.path().join(".dray-0123456789abcdef.part");
    fs::write(&stray, b"old").expect("a file");
    let found = found_in(scratch.path(), tomorrow());
    fs::remove_file(&stray).expect("removed");
    fs::write(&stray, b"new").expect("a file");
    let store = place(scratch.path());
    let left = remove(&store, &found[0], tomorrow()).expect("looked");
    assert_eq!(left, Removed::Left);
    assert_eq!(fs::read(&stray).expect("it is there"), b"new");
}

#[test]
fn remnants_of_a_log_are_removed() {
    let scratch = tempfile::tempdir().expect("a folder");
    let logs = scratch.path().join("a/.dray-log");
    fs::create_dir_all(&logs).expect("a folder");
    fs::write(logs.join("0123456789abcdef.lease"), b"").expect("a file");
    fs::write(logs.join("0123456789abcdef.00000001.objects"), b"part").expect("a file");
    fs::write(logs.join("0123456789abcdee.log.next"), b"half").expect("a file");
    fs::write(logs.join("0123456789abcded.log"), b"").expect("a log that was never made");
    let found = found_in(scratch.path(), tomorrow());
    let kinds: Vec<_> = found.iter().map(|one| one.what).collect();
    assert_eq!(
        kinds,
        [PartialKind::Log, PartialKind::Remnant, PartialKind::Remnant]
    );
    let store = place(scratch.path());
    for one in &found {
        let removed = remove(&store, one, tomorrow()).expect("removed");
        assert!(matches!(removed, Removed::All { files: 0, .. }), "{one:?}");
    }
    assert!(!logs.exists(), "{:?}", own_names(scratch.path()));
}

#[test]
fn links_are_not_followed() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (root, outside) = (scratch.path().join("root"), scratch.path().join("outside"));
    fs::create_dir_all(&root).expect("a folder");
    fs::create_dir_all(outside.join(".dray-log")).expect("a folder");
    fs::write(outside.join(".dray-log/0123456789abcdef.lease"), b"").expect("a file");
    fs::write(outside.join(".dray-0123456789abcdef.part"), b"x").expect("a file");
    symlink(&outside, root.join("link")).expect("a link");
    symlink(outside.join(".dray-log"), root.join(".dray-log")).expect("a link");
    let (found, unreadable) = look(&place(&root), tomorrow());
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(unreadable[0].kind, ErrorKind::PathEscapes);
    assert_eq!(found_in(&outside, tomorrow()).len(), 2);
}

#[test]
fn a_walk_ends_when_the_caller_breaks_it() {
    let scratch = tempfile::tempdir().expect("a folder");
    for number in 0..50 {
        fs::create_dir(scratch.path().join(number.to_string())).expect("a folder");
    }
    let mut folders = 0;
    walk(&place(scratch.path()), tomorrow(), &mut |_| {
        folders += 1;
        match folders < 10 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })
    .expect("the root is there");
    assert_eq!(folders, 10);
}
