//! A transfer that has lost its lease makes no further changes.

mod local_common;

use dray_core::{End, Error, ErrorKind, TransferId};
use dray_log::{BootId, LeaseRecord, LockKind};
use dray_runtime::local;
use dray_session::{Event, Outcome};
use dray_store::wrap::{Around, Call, Hook, Operation};
use local_common::{Notes, options, sink_setup_of, sink_store, source_setup};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Operations that create, rename or delete entries.
const CHANGES: [Operation; 8] = [
    Operation::MakeDir,
    Operation::MakeSymlink,
    Operation::Begin,
    Operation::WriteSmall,
    Operation::Publish,
    Operation::SetDirectory,
    Operation::Discard,
    Operation::Remove,
];

/// Number of threads of a sink. Each thread may have checked the lease just before it is lost.
const THREADS: u32 = 8;

/// Maximum age of a lease check that permits an operation on a small file. Equals the constant of
/// this name in `sink/lease_watch.rs`.
const FRESH: Duration = Duration::from_millis(10);

/// Delay that the wrapper adds to each change after the lease is lost. With this delay, most
/// changes begin later than [`FRESH`] after the loss.
const SLOW: Duration = Duration::from_millis(1);

/// A store wrapper that gives the lease to another transfer at the `nth` call of an operation. It
/// then counts the changes that begin when every earlier lease check has expired.
struct TakesOver {
    operation: Operation,
    nth: AtomicU32,
    to: PathBuf,
    taken: Mutex<Option<Instant>>,
    late: Arc<AtomicU32>,
}

impl Hook for TakesOver {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        // One atomic step: of several threads, exactly one makes the `nth` call.
        let count_down = |left: u32| left.checked_sub(1);
        let left = if call.operation == self.operation {
            let counted = self
                .nth
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, count_down);
            counted.unwrap_or(0)
        } else {
            self.nth.load(Ordering::Acquire)
        };
        if call.operation == self.operation && left == 1 {
            take_over(&self.to);
            *self.taken.lock().expect("whole") = Some(Instant::now());
        } else if left == 0 && CHANGES.contains(&call.operation) {
            let taken = *self.taken.lock().expect("whole");
            let is_late = taken.is_some_and(|taken| taken.elapsed() >= FRESH);
            self.late.fetch_add(u32::from(is_late), Ordering::AcqRel);
            thread::sleep(SLOW);
        }
        Ok(())
    }
}

fn take_over(to: &Path) {
    let record = LeaseRecord {
        epoch: 1_000,
        holder: "another".to_owned(),
        transfer: TransferId::new("other").expect("an id"),
        boot_id: BootId::new(&[7; 16]).expect("sixteen bytes"),
        host: "elsewhere".to_owned(),
        request: 0,
        lock: LockKind::System,
    };
    for entry in fs::read_dir(to.join(".dray-log")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "lease") {
            let file = fs::File::options().write(true).open(path).expect("opens");
            let bytes = record.encode().expect("fits");
            file.write_all_at(&bytes, record.slot_offset())
                .expect("writes");
        }
    }
}

/// A store wrapper that fails every sync, so that no small file is published.
struct NothingSyncs;

impl Hook for NothingSyncs {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        match call.operation {
            Operation::SyncEach => Err(Error::new(ErrorKind::Io, End::Sink, "sync")),
            _ => Ok(()),
        }
    }
}

#[test]
fn small_files_are_cleared_away_only_while_the_lease_is_held() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    for file in 0..40 {
        fs::write(from.join(format!("file-{file}")), b"bytes").expect("a file");
    }
    let late = Arc::new(AtomicU32::new(0));
    let hook = TakesOver {
        operation: Operation::Discard,
        nth: AtomicU32::new(2),
        to: to.clone(),
        taken: Mutex::new(None),
        late: Arc::clone(&late),
    };
    let store = Around::new(sink_store(&to).expect("a store"), NothingSyncs);
    let store = Around::new(Arc::new(store), hook);
    let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
    let source = source_setup(&from, &options());
    local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    let names = fs::read_dir(&to).expect("a folder");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let left = names.filter(|name| name.to_string_lossy().ends_with(".part"));
    assert!(left.count() > 10, "the others stay");
    assert_eq!(late.load(Ordering::Acquire), 0, "removed afterwards");
}

#[test]
fn a_lease_lost_before_a_file_is_begun_ends_the_session() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("large"), vec![1; 500_000]).expect("a file");
    let hook = TakesOver {
        operation: Operation::Layout,
        nth: AtomicU32::new(1),
        to: to.clone(),
        taken: Mutex::new(None),
        late: Arc::new(AtomicU32::new(0)),
    };
    let store = Around::new(sink_store(&to).expect("a store"), hook);
    let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
    let notes = Notes::default();
    let ends = local::run(source_setup(&from, &options()), sink, &notes, |_| {}).expect("started");
    let events = notes.0.into_inner().expect("no panic while noting");
    assert!(
        !events.iter().any(|event| matches!(event, Event::Failed(_))),
        "{events:?}"
    );
    for outcome in [&ends.sink.0, &ends.source.0] {
        let Outcome::Failed(error) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(error.kind, ErrorKind::LeaseLost, "{error}");
    }
}

#[test]
fn nothing_is_named_or_removed_once_the_lease_is_lost() {
    let scratch = tempfile::tempdir().expect("a folder");
    let from = scratch.path().join("from");
    for folder in 0..40 {
        let folder = from.join(format!("folder-{folder}"));
        fs::create_dir_all(&folder).expect("a folder");
        for file in 0..10 {
            fs::write(folder.join(format!("file-{file}")), b"bytes").expect("a file");
        }
    }
    for operation in [
        Operation::MakeDir,
        Operation::WriteSmall,
        Operation::Publish,
        Operation::SetDirectory,
    ] {
        let to = scratch.path().join(format!("{operation:?}"));
        let late = Arc::new(AtomicU32::new(0));
        let hook = TakesOver {
            operation,
            nth: AtomicU32::new(2),
            to: to.clone(),
            taken: Mutex::new(None),
            late: Arc::clone(&late),
        };
        let store = Around::new(sink_store(&to).expect("a store"), hook);
        let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
        let source = source_setup(&from, &options());
        let notes = Notes::default();
        let ends = local::run(source, sink, &notes, |_| {}).expect("started");
        let events = notes.0.into_inner().expect("no panic while noting");
        assert!(
            !events.iter().any(|event| matches!(event, Event::Failed(_))),
            "{operation:?}: it is no failure of a file: {events:?}"
        );
        let Outcome::Failed(error) = &ends.sink.0 else {
            panic!("{operation:?}: {:?}", ends.sink.0);
        };
        assert_eq!(error.kind, ErrorKind::LeaseLost, "{operation:?}: {error}");
        let late = late.load(Ordering::Acquire);
        assert!(late <= THREADS, "{operation:?}: {late} changes afterwards");
    }
}

/// A store wrapper whose first sync of the log fails after another transfer has taken the lease and
/// has replaced the last bytes of the log.
struct LogSyncFails {
    to: PathBuf,
    /// Content of the log after the takeover.
    seen: Arc<Mutex<Option<Vec<u8>>>>,
}

impl LogSyncFails {
    fn log(&self) -> PathBuf {
        let entries = fs::read_dir(self.to.join(".dray-log")).expect("a folder");
        let mut paths = entries.map(|entry| entry.expect("an entry").path());
        let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
        paths.find(is_log).expect("a log")
    }
}

impl Hook for LogSyncFails {
    fn before(&self, call: &Call<'_>) -> Result<(), Error> {
        let is_log = call.path.as_bytes().ends_with(b".log");
        if call.operation != Operation::ControlSync || !is_log {
            return Ok(());
        }
        let mut seen = self.seen.lock().expect("whole");
        if seen.is_none() {
            take_over(&self.to);
            let mut bytes = fs::read(self.log()).expect("read");
            let end = bytes.len() - 8;
            bytes[end..].copy_from_slice(b"anothers");
            fs::write(self.log(), &bytes).expect("written");
            *seen = Some(bytes);
        }
        Err(Error::new(ErrorKind::Io, End::Sink, "sync the log"))
    }
}

#[test]
fn a_failed_sync_of_the_log_removes_no_record_of_the_next_holder() {
    let scratch = tempfile::tempdir().expect("a folder");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).expect("a folder");
    fs::write(from.join("large"), vec![1; 500_000]).expect("a file");
    let seen = Arc::new(Mutex::new(None));
    let hook = LogSyncFails {
        to: to.clone(),
        seen: Arc::clone(&seen),
    };
    let store = Around::new(sink_store(&to).expect("a store"), hook);
    let sink = sink_setup_of(Arc::new(store), &options(), &[]).expect("a destination");
    let source = source_setup(&from, &options());
    let ends = local::run(source, sink, &Notes::default(), |_| {}).expect("started");
    assert!(
        matches!(ends.sink.0, Outcome::Failed(_)),
        "{:?}",
        ends.sink.0
    );
    let hook = LogSyncFails { to, seen };
    let seen = hook.seen.lock().expect("whole").take();
    assert!(seen.is_some(), "the log was synced");
    assert!(fs::read(hook.log()).ok() == seen, "the log is unchanged");
}
