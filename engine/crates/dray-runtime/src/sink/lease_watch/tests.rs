use super::{FRESH, Lease};
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_log::{BootId, LeaseRecord, LockKind};
use dray_store::{ControlFile, ControlMode, PosixOptions, PosixStore, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

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

/// A control file that does not answer in time.
struct Silent(Arc<AtomicUsize>);

impl ControlFile for Silent {
    fn len(&self) -> Result<u64> {
        Ok(0)
    }

    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> Result<usize> {
        self.0.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(300));
        Err(Error::new(ErrorKind::TimedOut, End::Sink, "read"))
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
    let lease = Lease::new(Box::new(Silent(Arc::clone(&reads))), record(1));
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
    let lease = Lease::new(open(), record(1));
    lease.check_often().expect("ours");
    write(&record(2));
    let error = lease.check().expect_err("another's, as a look says");
    assert_eq!(error.kind, ErrorKind::LeaseLost);
    // The next check fails as well.
    assert!(lease.check_often().is_err());

    let lease = Lease::new(open(), record(2));
    lease.check_often().expect("ours");
    write(&record(3));
    thread::sleep(FRESH);
    assert!(lease.check_often().is_err(), "too long ago");
}
