//! A store that buffers writes reports a lost write only once, by failing a later call. After that,
//! earlier writes are not trusted, even if a sync succeeds.

mod local_common;

use dray_core::options::{Durability, Options, ResumeMode};
use dray_core::{End, Error, ErrorKind, Status};
use dray_log::{MemoryFile, recover};
use dray_runtime::local;
use dray_session::Outcome;
use dray_store::wrap::{Around, Call, Hook, Operation};
use dray_store::{PosixOptions, PosixStore, Store};
use local_common::{Notes, bytes, options, sink_setup_of, sink_store, source_setup};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A store wrapper that loses all data written to the large file. As POSIX storage does, the
/// wrapper reports the loss only at a later write: the `nth` one.
struct WritesBehind {
    nth: AtomicU32,
    to: PathBuf,
}

impl Hook for WritesBehind {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        let is_meant = call.operation == Operation::Write;
        if is_meant && self.nth.fetch_sub(1, Ordering::Relaxed) == 1 {
            lose(&self.to);
            let error = Error::new(ErrorKind::Io, End::Sink, "write the file");
            return Err(error.status(Status::Exhausted));
        }
        Ok(())
    }
}

/// Overwrites the partial file's data with zeros.
fn lose(to: &Path) {
    for entry in fs::read_dir(to).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().ends_with(".part") {
            let file = fs::File::options().write(true).open(path).expect("opens");
            let length = file.metadata().expect("a length").len();
            let zeros = vec![0; usize::try_from(length).expect("small")];
            file.write_all_at(&zeros, 0).expect("writes");
        }
    }
}

#[test]
fn a_file_with_a_lost_write_resumes_from_its_durable_ranges() {
    for nth in [1, 2, 5] {
        let scratch = tempfile::tempdir().expect("a folder");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(&from).expect("a folder");
        fs::write(from.join("large"), bytes(9, 700_000)).expect("a file");
        fs::write(from.join("small"), bytes(1, 900)).expect("a file");
        // With this option, no sync comes before the failing write.
        let options = Options {
            durability: Durability::File,
            ..options()
        };
        let run = |store| {
            let sink = sink_setup_of(store, &options, &[]).expect("a destination");
            let source = source_setup(&from, &options);
            let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
            match ends.sink.0 {
                Outcome::Done(totals) => totals,
                other => panic!("write {nth}: {other:?}"),
            }
        };
        let hook = WritesBehind {
            nth: AtomicU32::new(nth),
            to: to.clone(),
        };
        let first = run(Arc::new(Around::new(
            sink_store(&to).expect("a store"),
            hook,
        )));
        assert_eq!((first.files, first.files_failed), (1, 1), "write {nth}");
        assert!(!to.join("large").exists(), "write {nth}");
        let posix = PosixStore::open(&to, End::Sink, PosixOptions::default());
        let second = run(Arc::new(posix.expect("a store")));
        assert_eq!(second.files_failed, 0, "write {nth}");
        for name in ["large", "small"] {
            let read = |top: &Path| fs::read(top.join(name)).expect("read");
            assert!(read(&from) == read(&to), "write {nth}: {name}");
        }
    }
}

/// A store wrapper that loses the written data as soon as the log has records of it. It reports the
/// loss as the error of the next write.
struct LosesRecorded {
    to: PathBuf,
    is_done: Arc<AtomicBool>,
}

/// Returns the number of recorded bytes in the log of the destination.
fn recorded(to: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(to.join(".dray-log")) else {
        return 0;
    };
    let mut paths = entries.map(|entry| entry.expect("an entry").path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
    let Some(bytes) = paths.find(is_log).and_then(|path| fs::read(path).ok()) else {
        return 0;
    };
    let found = recover(&mut MemoryFile::with_bytes(bytes)).expect("readable");
    let files = found
        .into_iter()
        .flat_map(|found| found.files.into_values());
    files.map(|file| file.done.bytes()).sum()
}

impl Hook for LosesRecorded {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        let is_due = call.operation == Operation::Write && recorded(&self.to) > 0;
        if is_due && !self.is_done.swap(true, Ordering::AcqRel) {
            lose(&self.to);
            let error = Error::new(ErrorKind::Io, End::Sink, "write the file");
            return Err(error.status(Status::Exhausted));
        }
        Ok(())
    }
}

/// Copies `from` to a store, with a sync group of three objects.
fn run_in_small_groups(from: &Path, store: Arc<dyn Store>, options: &Options) -> Outcome {
    let mut sink = sink_setup_of(store, options, &[]).expect("a destination");
    sink.machine.sync_group_bytes = 3 * options.object_bytes;
    let source = source_setup(from, options);
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    ends.sink.0
}

#[test]
fn without_syncs_no_recorded_range_counts_after_a_lost_write() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("large"), bytes(9, 3_000_000)).expect("a file");
    // With `trust`, a range that is recorded and lost would be published.
    let options = Options {
        durability: Durability::None,
        resume: ResumeMode::Trust,
        ..options()
    };
    let run = |store| match run_in_small_groups(&from, store, &options) {
        Outcome::Done(totals) => totals,
        other => panic!("{other:?}"),
    };
    let is_done = Arc::new(AtomicBool::new(false));
    let hook = LosesRecorded {
        to: to.clone(),
        is_done: Arc::clone(&is_done),
    };
    let store = Around::new(sink_store(&to).expect("a store"), hook);
    let first = run(Arc::new(store));
    assert!(is_done.load(Ordering::Acquire), "the log had records");
    assert_eq!((first.files, first.files_failed), (0, 1));
    assert_eq!(recorded(&to), 0, "no recorded range counts");
    let second = run(sink_store(&to).expect("a store"));
    assert_eq!((second.files, second.files_failed), (1, 0));
    let read = |top: &Path| fs::read(top.join("large")).expect("read");
    assert!(read(&from) == read(&to));
}

/// A store wrapper that fails one sync of data, and these calls for the log from then on.
struct FailsSyncAndLog {
    to: PathBuf,
    of_log: &'static [Operation],
    error: ErrorKind,
    is_broken: AtomicBool,
}

impl Hook for FailsSyncAndLog {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        let is_sync = matches!(call.operation, Operation::Sync | Operation::SyncEach);
        let is_failed = match is_sync {
            true => recorded(&self.to) > 0 && !self.is_broken.swap(true, Ordering::AcqRel),
            false => {
                self.of_log.contains(&call.operation) && self.is_broken.load(Ordering::Acquire)
            }
        };
        let kind = if is_sync { self.error } else { ErrorKind::Io };
        match is_failed {
            true => Err(Error::new(kind, End::Sink, "use the failing disk")),
            false => Ok(()),
        }
    }
}

fn partials(to: &Path) -> usize {
    let names = fs::read_dir(to).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".part"))
        .count()
}

/// Fails one sync of data with this error, and these calls for the log from then on. Then runs the
/// same copy without faults. Returns the number of partial files after the first run.
fn partials_after(error: ErrorKind, of_log: &'static [Operation]) -> usize {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("large"), bytes(9, 3_000_000)).expect("a file");
    let options = Options {
        durability: Durability::Object,
        ..options()
    };
    let run = |store| run_in_small_groups(&from, store, &options);
    let hook = FailsSyncAndLog {
        to: to.clone(),
        of_log,
        error,
        is_broken: AtomicBool::new(false),
    };
    let store = sink_store(&to).expect("a store");
    let first = run(Arc::new(Around::new(store, hook)));
    assert!(matches!(first, Outcome::Failed(_)), "{first:?}");
    assert!(recorded(&to) > 0, "the log still has the earlier records");
    let found = partials(&to);
    let second = run(sink_store(&to).expect("a store"));
    assert!(matches!(second, Outcome::Done(_)), "{second:?}");
    let read = |top: &Path| fs::read(top.join("large")).expect("read");
    assert!(read(&from) == read(&to));
    found
}

/// The system reports a loss only once. If the log cannot record the loss either, a later run would
/// trust its own sync of the file.
#[test]
fn no_run_continues_a_file_whose_loss_is_not_in_the_log() {
    use Operation::{ControlReplace, ControlSync, ControlWrite};
    let broken = &[ControlWrite, ControlSync, ControlReplace];
    assert_eq!(partials_after(ErrorKind::Io, broken), 0);
    // The log has the mark, although its sync failed.
    assert_eq!(partials_after(ErrorKind::Io, &[ControlSync]), 1);
    // These errors do not prove a loss.
    assert_eq!(partials_after(ErrorKind::NoSpace, broken), 1);
    assert_eq!(partials_after(ErrorKind::Busy, broken), 1);
}
