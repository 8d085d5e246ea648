//! After a failure or a stop, a run leaves only files that a later run can resume.

mod local_common;

use dray_core::Error;
use dray_core::options::Options;
use dray_runtime::local;
use dray_session::{Event, Outcome};
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::{
    Notes, bytes, copy, failing_store, options, picture, sink_setup, sink_setup_of, sink_store,
    source_setup, source_setup_of,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn names(at: &Path) -> Vec<String> {
    picture(at).into_keys().collect()
}

fn partial_files(at: &Path) -> Vec<String> {
    let mut names = names(at);
    names.retain(|name| name.ends_with(".part"));
    names
}

/// A store wrapper that creates a folder under the final name of a file just before the file is
/// published.
struct Obstructs(PathBuf);

impl Hook for Obstructs {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if call.operation == Operation::Publish {
            let _ = fs::create_dir(self.0.join(call.path.to_string()));
        }
        Ok(())
    }
}

#[test]
fn small_files_that_get_no_name_leave_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("empty"), b"").expect("a file");
    fs::write(from.join("small"), b"small").expect("a file");
    let store = Around::new(sink_store(&to).expect("a store"), Obstructs(to.clone()));
    let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
    let notes = Notes::default();
    let ends = local::run(source_setup(&from, &options()), sink, &notes, |_| {}).expect("started");
    let events = notes.0.into_inner().expect("no panic while noting");
    let failed = events.iter().filter(|e| matches!(e, Event::Failed(_)));
    assert_eq!(failed.count(), 2);
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    assert_eq!(names(&to), ["empty", "small"], "the folders in their way");
}

/// A store wrapper that acts as another writer: just before a file is published, another file takes
/// the place of the partial file.
struct TakesName(PathBuf);

impl Hook for TakesName {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if call.operation == Operation::Publish {
            let partial = partial_files(&self.0).pop().expect("a partial file");
            let other = self.0.join("other");
            fs::write(&other, b"another's").expect("a file");
            fs::rename(&other, self.0.join(partial)).expect("takes its name");
        }
        Ok(())
    }
}

#[test]
fn anothers_file_under_a_small_files_partial_name_stays() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("small"), b"small").expect("a file");
    let store = Around::new(sink_store(&to).expect("a store"), TakesName(to.clone()));
    let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
    let source = source_setup(&from, &options());
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    let [left] = &partial_files(&to)[..] else {
        panic!("{:?}", names(&to));
    };
    assert_eq!(fs::read(to.join(left)).expect("content"), b"another's");
}

#[test]
fn a_file_without_received_data_leaves_no_partial_file() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("large"), bytes(1, 500_000)).expect("a file");
    let source = source_setup_of(failing_store(&from, 1, 1.0), &options());
    let sink = sink_setup(&to, &options()).expect("a destination");
    local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert_eq!(names(&to), [""; 0]);
    let (ends, _) = copy(&from, &to, &options());
    assert!(matches!(ends.sink.0, Outcome::Done(totals) if totals.files == 1));
    assert_eq!(names(&to), ["large"]);
}

/// Runs a copy and stops it in the middle. Some small files are in transit, and a large file is
/// unfinished.
fn stopped(from: &Path, to: &Path, purge: bool) {
    for index in 0..400u64 {
        fs::write(from.join(format!("a-{index:03}")), bytes(index + 1, 3000)).expect("a file");
    }
    fs::write(from.join("large"), bytes(1, 4_000_000)).expect("a file");
    let options = Options {
        rate: Some(1_500_000),
        ..options()
    };
    let sink = sink_setup(to, &options).expect("a destination");
    let ends = local::run(
        source_setup(from, &options),
        sink,
        &Notes::default(),
        |stopper| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1300));
                stopper.stop(purge);
            });
        },
    );
    let ends = ends.expect("started");
    assert!(
        matches!(ends.sink.0, Outcome::Cancelled),
        "{:?}",
        ends.sink.0
    );
}

#[test]
fn a_purge_leaves_whole_files_only() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    stopped(&from, &to, true);
    let (wanted, got) = (picture(&from), picture(&to));
    assert!(got.len() < wanted.len(), "it was stopped");
    for (name, state) in got {
        assert!(wanted.get(&name) == Some(&state), "{name}");
    }
}

#[test]
fn a_stop_leaves_only_data_that_the_next_run_resumes() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    stopped(&from, &to, false);
    let left = partial_files(&to);
    assert!(left.len() <= 1, "more than the large file's: {left:?}");
    let (ends, _) = copy(&from, &to, &options());
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
    assert_eq!(ends.source.1.objects_resumed > 0, !left.is_empty());
    assert!(picture(&from) == picture(&to));
}
