//! Helpers for tests of sweeps: interrupted copies, and the data that a walk finds.

use super::{Notes, bytes, options, picture, sink_setup_claiming, source_setup_of, source_store};
use dray_core::options::{Durability, Options};
use dray_core::{End, Error, ErrorKind};
use dray_runtime::sweep::{PartialData, WalkEvent, WalkRoot, walk};
use dray_runtime::{local, sink};
use dray_session::Outcome;
use dray_store::wrap::{Around, Call, Hook, Operation};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns a time one day later, to make files look old. A test cannot change the change time of a
/// file.
pub fn tomorrow() -> SystemTime {
    SystemTime::now() + DAY
}

pub fn look(place: &WalkRoot, now: SystemTime) -> (Vec<PartialData>, Vec<Error>) {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    walk(place, now, &mut |met| {
        match met {
            WalkEvent::Folder | WalkEvent::Young(_) => {}
            WalkEvent::PartialData(one) => found.push(one),
            WalkEvent::Unreadable(error) => unreadable.push(error),
        }
        ControlFlow::Continue(())
    })
    .expect("the root is there");
    (found, unreadable)
}

pub fn source(scratch: &Path) -> PathBuf {
    let from = scratch.join("from");
    fs::create_dir_all(from.join("run")).expect("a folder");
    for (seed, name) in ["run/a", "run/b"].into_iter().enumerate() {
        fs::write(from.join(name), bytes(seed as u64 + 1, 3_000_000)).expect("a file");
    }
    from
}

/// A store wrapper that fails reads beyond the middle of a file, when the first part is durable.
pub struct Breaks;

impl Hook for Breaks {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        if call.operation == Operation::Read && call.range.offset > 2_000_000 {
            std::thread::sleep(Duration::from_millis(300));
            return Err(Error::new(ErrorKind::PermissionDenied, End::Source, "read"));
        }
        Ok(())
    }
}

/// Returns the options of the copies that are interrupted.
pub fn durable_options() -> Options {
    Options {
        // With this option, data that was written before the fault is in the log.
        durability: Durability::Object,
        ..options()
    }
}

/// Copies `from` to `to`. Every file fails after some of its objects.
pub fn copy_in_part(from: &Path, to: &Path) {
    let sink = sink_setup_claiming(to, &durable_options(), &["run"]);
    copy_in_part_to(from, sink.expect("a destination"));
    assert!(!own_names(to).is_empty(), "something is unfinished");
}

/// Does the same as [`copy_in_part`] with any sink.
pub fn copy_in_part_to(from: &Path, sink: sink::Setup) {
    let store = Arc::new(Around::new(source_store(from), Breaks));
    let source = source_setup_of(store, &durable_options());
    local::run(source, sink, &Notes::default(), |_| {}).expect("started");
}

/// Returns the names of dray's own files below a folder.
pub fn own_names(at: &Path) -> Vec<String> {
    let mut names: Vec<String> = picture(at).into_keys().collect();
    names.retain(|name| name.contains(".dray-"));
    names
}

pub fn arrives(from: &Path, to: &Path) {
    let sink = sink_setup_claiming(to, &options(), &["run"]).expect("a destination");
    copy_to(from, sink);
    let mut got = picture(to);
    got.retain(|name, _| !name.contains(".dray-"));
    assert!(got == picture(from), "another tree has arrived");
}

/// Copies `from` to a sink.
pub fn copy_to(from: &Path, sink: sink::Setup) {
    let source = source_setup_of(source_store(from), &options());
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(matches!(ends.sink.0, Outcome::Done(_)), "{:?}", ends.sink.0);
}
