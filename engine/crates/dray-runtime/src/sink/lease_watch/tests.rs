use super::{FRESH, FRESH_REMOTE, Lease, takeover_wait};
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_log::{BootId, LeaseRecord, LockKind};
use dray_store::{Capabilities, ControlFile, ControlMode, PosixOptions, PosixStore, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn record(epoch: u64) -> LeaseRecord {
    LeaseRecord {
        epoch,
        holder: "a test".to_owned(),
        transfer: TransferId::new("test").expect("an id"),
        boot_id: BootId::new(&[7; 16]).expect("sixteen bytes"),
        host: "here".to_owned(),
        request: 0,
        lock: LockKind::System,
    }
}

/// A control file that answers after [`SLOW`]: with `bytes`, or with a timeout if there are no
/// bytes.
struct Slow {
    bytes: Option<Vec<u8>>,
    reads: Arc<AtomicUsize>,
}

/// Duration of a read of [`Slow`], longer than [`FRESH`].
const SLOW: Duration = Duration::from_millis(100);

impl ControlFile for Slow {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if offset == 0 {
            self.reads.fetch_add(1, Ordering::SeqCst);
            thread::sleep(SLOW);
        }
        let Some(bytes) = &self.bytes else {
            return Err(Error::new(ErrorKind::TimedOut, End::Sink, "read"));
        };
        let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..);
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn append(&self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn truncate(&self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    fn replace(&self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn try_lock(&self) -> Result<bool> {
        Ok(true)
    }

    fn unlock(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn threads_that_wait_for_a_check_use_its_error() {
    let reads = Arc::new(AtomicUsize::new(0));
    let file = Slow {
        bytes: None,
        reads: Arc::clone(&reads),
    };
    let lease = Lease::new(Box::new(file), record(1), &Capabilities::MINIMAL);
    thread::scope(|scope| {
        let checks: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| lease.check_often()))
            .collect();
        for check in checks {
            let error = check.join().expect("no panic").expect_err("no answer");
            assert_eq!(error.kind, ErrorKind::TimedOut);
        }
    });
    // A thread that starts late may need a read of its own.
    assert!(reads.load(Ordering::SeqCst) <= 2);
    // A later check asks again.
    let before = reads.load(Ordering::SeqCst);
    assert!(lease.check_often().is_err());
    assert_eq!(reads.load(Ordering::SeqCst), before + 1);
}

#[test]
fn a_lease_check_is_reused_only_while_it_is_fresh() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = PosixStore::open(folder.path(), End::Sink, PosixOptions::default());
    let store = store.expect("opens");
    let path = RelPath::parse(b"lease").expect("a good path");
    let open = || {
        store
            .open_control(&path, ControlMode::Create)
            .expect("a control file")
    };
    let write = |record: &LeaseRecord| {
        let bytes = record.encode().expect("fits");
        open()
            .write_at(record.slot_offset(), &bytes)
            .expect("written");
    };
    write(&record(1));
    let lease = Lease::new(open(), record(1), &store.capabilities());
    lease.check_often().expect("ours");
    write(&record(2));
    let error = lease.check().expect_err("another's, as a look says");
    assert_eq!(error.kind, ErrorKind::LeaseLost);
    // The next check fails as well.
    assert!(lease.check_often().is_err());

    let lease = Lease::new(open(), record(2), &store.capabilities());
    lease.check_often().expect("ours");
    write(&record(3));
    thread::sleep(FRESH);
    assert!(lease.check_often().is_err(), "too long ago");
}

fn slow(capabilities: &Capabilities) -> (Lease, Arc<AtomicUsize>) {
    let (held, reads) = (record(1), Arc::new(AtomicUsize::new(0)));
    let mut bytes = vec![0; usize::try_from(held.slot_offset()).expect("small")];
    bytes.extend_from_slice(&held.encode().expect("fits"));
    let reads_of_file = Arc::clone(&reads);
    let file = Box::new(Slow {
        bytes: Some(bytes),
        reads: reads_of_file,
    });
    (Lease::new(file, held, capabilities), reads)
}

#[test]
fn threads_that_wait_for_a_slow_check_share_the_next_read() {
    let (lease, reads) = slow(&Capabilities::MINIMAL);
    thread::scope(|scope| {
        let checks: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| lease.check_often()))
            .collect();
        for check in checks {
            check.join().expect("no panic").expect("ours");
        }
    });
    // A thread cannot use a read that began before its call, so a second read follows. A thread
    // that starts late may need a third one.
    let reads = reads.load(Ordering::SeqCst);
    assert!((1..=3).contains(&reads), "{reads} reads");
}

#[test]
fn a_check_of_a_server_is_repeated_while_other_threads_use_the_last_one() {
    let (lease, reads) = slow(&Capabilities {
        late_calls: Duration::from_secs(1),
        ..Capabilities::MINIMAL
    });
    lease.check_often().expect("ours");
    lease.check_often().expect("ours");
    assert_eq!(reads.load(Ordering::SeqCst), 1, "the first check is fresh");
    thread::sleep(FRESH_REMOTE / 2 - SLOW / 2);
    thread::scope(|scope| {
        let begun = Instant::now();
        let refresh = scope.spawn(|| lease.check_often());
        thread::sleep(SLOW / 4);
        lease.check_often().expect("ours");
        assert!(
            begun.elapsed() < SLOW,
            "this thread does not wait for the read"
        );
        refresh.join().expect("no panic").expect("ours");
    });
    assert_eq!(reads.load(Ordering::SeqCst), 2);
}

#[test]
fn a_new_holder_waits_until_the_former_holder_cannot_read_the_old_lease() {
    let local = Capabilities::MINIMAL;
    assert_eq!(takeover_wait(&local), FRESH);
    let mount = Capabilities {
        stale_reads: Duration::from_secs(2),
        ..Capabilities::MINIMAL
    };
    assert_eq!(takeover_wait(&mount), Duration::from_secs(2) + FRESH);
}
