//! Tests of leftovers of earlier transfers. A successful copy removes the files that no transfer
//! can resume, and reports the files that other transfers can resume.

mod local_common;

use dray_core::options::{Durability, Options};
use dray_runtime::local;
use dray_session::{Event, Outcome};
use local_common::{
    Notes, bytes, copy, destination, failing_store, options, picture, sink_setup_claiming,
    sink_store, source_setup_of,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const STRAY: &str = ".dray-0123456789abcdef.part";

struct Scene {
    scratch: TempDir,
    from: PathBuf,
    to: PathBuf,
}

impl Scene {
    /// Creates a source with the large file `run/a`, and an empty destination.
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("run")).expect("a folder");
        fs::create_dir(&to).expect("a folder");
        fs::write(from.join("run/a"), bytes(3, 5_000_000)).expect("a file");
        Self { scratch, from, to }
    }

    /// Copies as another transfer, which fails in the middle of `run/a`.
    fn break_off(&self, claims: &[&str]) {
        let source = failing_store(&self.from, 3, 0.02);
        // With this option, data that was written before the fault is in the log.
        let options = Options {
            durability: Durability::Object,
            rate: Some(4_000_000),
            ..options()
        };
        let sink = sink_setup_claiming(&self.to, &options, claims).expect("a destination");
        let source = source_setup_of(source, &options);
        let notes = Notes::default();
        let ends = local::run(source, sink, &notes, |_| {}).expect("started");
        let events = notes.0.into_inner().expect("no panic while noting");
        assert!(
            self.to.join(".dray-log").exists(),
            "it broke off: {ends:?}, {events:?}"
        );
    }

    /// Copies `from` and returns the notices.
    fn arrives(&self, from: &Path) -> Vec<String> {
        let (ends, events) = copy(from, &self.to, &options());
        assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
        let told = events.iter().filter_map(|event| match event {
            Event::Notice(error) => Some(error.to_string()),
            _ => None,
        });
        told.collect()
    }

    /// Fails the test unless the folder has the modification time of its source.
    fn assert_same_time(&self, folder: &str) {
        let time = |top: &Path| {
            let state = fs::metadata(top.join(folder)).expect("a folder");
            state.modified().expect("a time")
        };
        assert_eq!(time(&self.to), time(&self.from));
    }

    fn own_files(&self) -> Vec<String> {
        let is_own = |name: &String| name.contains(".dray-");
        picture(&self.to).into_keys().filter(is_own).collect()
    }
}

#[test]
fn the_next_run_removes_partial_files_that_no_log_speaks_of() {
    let scene = Scene::new();
    scene.break_off(&[]);
    fs::write(scene.to.join("run").join(STRAY), b"half").expect("written");
    assert_eq!(scene.arrives(&scene.from), [""; 0]);
    assert_eq!(scene.own_files(), [""; 0]);
    scene.assert_same_time("run");
}

#[test]
fn a_folder_keeps_its_time_when_a_partial_file_is_removed() {
    let scene = Scene::new();
    scene.break_off(&[]);
    fs::rename(scene.from.join("run/a"), scene.from.join("run/b")).expect("renamed");
    scene.arrives(&scene.from);
    assert_eq!(scene.own_files(), [""; 0]);
    scene.assert_same_time("run");
}

#[test]
fn empty_leases_and_logs_are_removed() {
    let scene = Scene::new();
    let logs = scene.to.join(".dray-log");
    fs::create_dir(&logs).expect("a folder");
    fs::write(logs.join("00000000000000aa.lease"), b"").expect("written");
    fs::write(logs.join("00000000000000bb.lease"), b"").expect("written");
    fs::write(logs.join("00000000000000bb.log"), b"").expect("written");
    assert_eq!(scene.arrives(&scene.from), [""; 0]);
    assert_eq!(scene.own_files(), [""; 0]);
}

#[test]
fn a_held_log_stays() {
    let scene = Scene::new();
    let store = sink_store(&scene.to).expect("opened");
    let held = destination(store, None, &options(), &["other"]).expect("free");
    fs::write(scene.to.join(STRAY), b"half").expect("written");
    assert_eq!(scene.arrives(&scene.from), [""; 0]);
    assert_eq!(scene.own_files().len(), 4, "{:?}", scene.own_files());
    drop(held);
}

#[test]
fn resumable_data_of_another_transfer_stays_and_is_reported() {
    let scene = Scene::new();
    scene.break_off(&["run"]);
    let left = scene.own_files();
    let other = scene.scratch.path().join("other");
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("b"), bytes(2, 1000)).expect("a file");
    let told = scene.arrives(&other);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("1 interrupted transfer"), "{told:?}");
    assert!(told[0].contains("dray log sweep"), "{told:?}");
    assert_eq!(scene.own_files(), left);
}
