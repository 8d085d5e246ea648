//! A held lease. Frequent checks confirm that this process still holds the lease. Many checks use
//! the result of a recent read of the lease file, and do not read the file again.
//!
//! The module `lease` takes a lease, and `dray_log::lease` defines the format of a lease.

use dray_core::lock::LockExt;
use dray_core::{Error, Result};
use dray_log::LeaseRecord;
use dray_log::lease::{self, LEASE_BYTES};
use dray_store::{Capabilities, ControlFile};
use std::sync::Mutex;
use std::time::Duration;

/// Maximum age of a lease check. A call for a small file or an object relies on the last check if
/// that check is not older. This value applies to a store whose locks the system of this host
/// guards. If the former holder did not release the lease, a new holder waits at least this long
/// after it has taken the lease, before it writes anything else.
pub(super) const FRESH: Duration = Duration::from_millis(10);

/// The maximum age of a lease check in a store on a server, where each check costs a round trip to
/// a storage target that may be slow. A new holder waits this time in addition to
/// [`Capabilities::late_calls`]. The value is an estimate: longer than a round trip to a slow
/// target, and short for a user who resumes a transfer.
const FRESH_REMOTE: Duration = Duration::from_millis(500);

/// Returns the maximum age of a lease check in a store.
pub(super) fn fresh_of(capabilities: &Capabilities) -> Duration {
    match capabilities.late_calls.is_zero() {
        true => FRESH,
        false => FRESH_REMOTE,
    }
}

/// Returns the time that a new holder waits before it writes, if the former holder was on another
/// host and did not release the lease.
pub(super) fn takeover_wait(capabilities: &Capabilities) -> Duration {
    capabilities.late_calls + capabilities.stale_reads + fresh_of(capabilities)
}

/// A held lease on a log. Dropping this value releases the lease.
pub(super) struct Lease {
    pub(super) file: Box<dyn ControlFile>,
    pub(super) record: LeaseRecord,
    /// Maximum age of a check in [`Lease::check_often`].
    fresh: Duration,
    /// Held while a thread reads the lease.
    reader: Mutex<()>,
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
    pub(super) fn new(
        file: Box<dyn ControlFile>,
        record: LeaseRecord,
        capabilities: &Capabilities,
    ) -> Self {
        Self {
            file,
            record,
            fresh: fresh_of(capabilities),
            reader: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Checks that this process still holds the lease.
    pub(super) fn check(&self) -> Result<()> {
        self.check_since(since_boot(), Duration::ZERO)
    }

    /// Checks that this process held the lease recently. When the last check is older than half of
    /// its maximum age, one thread repeats the check. Meanwhile the other threads rely on the last
    /// check.
    pub(super) fn check_often(&self) -> Result<()> {
        let asked = since_boot();
        let before = self.seen.lock_unpoisoned().before;
        let age = before.map(|before| asked.saturating_sub(before));
        match age {
            Some(age) if age < self.fresh / 2 => Ok(()),
            Some(age) if age < self.fresh => match self.reader.try_lock() {
                Ok(_reader) => self.read(),
                Err(_) => Ok(()),
            },
            _ => self.check_since(asked, self.fresh),
        }
    }

    /// Waits until no other thread reads the lease, and reads the lease if no usable result exists.
    /// A result is usable if its read began after `asked`, or less than `fresh` ago. So threads that
    /// wait for slow storage share reads. The error of a read that ended after `asked` is usable
    /// too: otherwise storage that does not answer would cost one timeout for each thread.
    fn check_since(&self, asked: Duration, fresh: Duration) -> Result<()> {
        let _reader = self.reader.lock_unpoisoned();
        let seen = self.seen.lock_unpoisoned();
        if let Some((ended, error)) = &seen.failed
            && *ended >= asked
        {
            return Err(error.clone());
        }
        let is_usable = |before| before >= asked || since_boot().saturating_sub(before) < fresh;
        if seen.before.is_some_and(is_usable) {
            return Ok(());
        }
        drop(seen);
        self.read()
    }

    /// Reads the lease and records the result. The caller holds `reader`.
    fn read(&self) -> Result<()> {
        let before = since_boot();
        let mut bytes = [0; LEASE_BYTES];
        let read = read_slots(self.file.as_ref(), &mut bytes);
        let mut seen = self.seen.lock_unpoisoned();
        let looked = read.and_then(|length| self.compare(&mut seen, &bytes[..length]));
        seen.before = looked.is_ok().then_some(before);
        seen.failed = looked
            .as_ref()
            .err()
            .map(|error| (since_boot(), error.clone()));
        looked
    }

    fn compare(&self, seen: &mut LastCheck, held: &[u8]) -> Result<()> {
        if held.is_empty() || seen.bytes != held {
            let found = lease::newest(held)?;
            if lease::is_fenced(&self.record, found.as_ref()) {
                return Err(lease::fenced_error(found.as_ref()));
            }
            seen.bytes.clear();
            seen.bytes.extend_from_slice(held);
        }
        Ok(())
    }
}

/// Returns the time since boot. Includes the time in which this host was suspended, because another
/// host may take the lease during a suspension.
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
