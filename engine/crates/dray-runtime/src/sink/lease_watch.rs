//! A held lease. Frequent checks confirm that this process still holds it; many of them use the
//! result of a recent read.
//!
//! The module `lease` takes a lease, and `dray_log::lease` has its format.

use dray_core::lock::LockExt;
use dray_core::{Error, Result};
use dray_log::LeaseRecord;
use dray_log::lease::{self, LEASE_BYTES};
use dray_store::ControlFile;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Maximum age of a lease check that a call for a small file or an object may rely on. On network
/// storage each check costs a round trip, and a small file has three such calls. A process that
/// takes a lease that was not released waits at least this long before its first other call.
pub(super) const FRESH: Duration = Duration::from_millis(10);

/// A held lease on a log. Dropping this value releases the lease.
pub(super) struct Lease {
    pub(super) file: Box<dyn ControlFile>,
    pub(super) record: LeaseRecord,
    seen: Mutex<LastCheck>,
}

/// Result of the last check.
#[derive(Default)]
struct LastCheck {
    /// Bytes of the record. Equal bytes need not be decoded again.
    bytes: Vec<u8>,
    /// Time just before the bytes were read. `None` after a failed check.
    before: Option<Duration>,
    /// Time at which the last failed check ended, and its error.
    failed: Option<(Duration, Error)>,
}

impl Lease {
    pub(super) fn new(file: Box<dyn ControlFile>, record: LeaseRecord) -> Self {
        Self {
            file,
            record,
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, LastCheck> {
        self.seen.lock_unpoisoned()
    }

    /// Checks that this process still holds the lease.
    pub(super) fn check(&self) -> Result<()> {
        let asked = since_boot();
        self.look(&mut self.seen(), asked)
    }

    /// Checks that this process held the lease recently. If many threads call this method, one of
    /// them reads the file and the others use its result.
    pub(super) fn check_often(&self) -> Result<()> {
        let asked = since_boot();
        let mut seen = self.seen();
        match seen.before {
            Some(before) if since_boot().saturating_sub(before) < FRESH => Ok(()),
            _ => self.look(&mut seen, asked),
        }
    }

    /// Reads the lease. A check that has waited for a failed check of another thread uses that
    /// error. Otherwise storage that does not answer would cost one timeout for each thread.
    fn look(&self, seen: &mut LastCheck, asked: Duration) -> Result<()> {
        if let Some((ended, error)) = &seen.failed
            && *ended >= asked
        {
            return Err(error.clone());
        }
        let looked = self.read(seen);
        seen.failed = looked
            .as_ref()
            .err()
            .map(|error| (since_boot(), error.clone()));
        looked
    }

    fn read(&self, seen: &mut LastCheck) -> Result<()> {
        let now = since_boot();
        seen.before = None;
        let mut bytes = [0; LEASE_BYTES];
        let length = read_slots(self.file.as_ref(), &mut bytes)?;
        let held = &bytes[..length];
        if length == 0 || seen.bytes != held {
            let found = lease::newest(held)?;
            if lease::is_fenced(&self.record, found.as_ref()) {
                return Err(lease::fenced_error(found.as_ref()));
            }
            seen.bytes.clear();
            seen.bytes.extend_from_slice(held);
        }
        seen.before = Some(now);
        Ok(())
    }
}

/// Returns the time since boot, including the time in which the host was suspended. Another host
/// may take the lease during that time.
pub(super) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or_default(),
        u32::try_from(now.tv_nsec).unwrap_or_default(),
    )
}

/// Reads the slots of a lease file. Returns the number of bytes read.
pub(super) fn read_slots(file: &dyn ControlFile, bytes: &mut [u8; LEASE_BYTES]) -> Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(filled as u64, &mut bytes[filled..])? {
            0 => break,
            got => filled += got,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
