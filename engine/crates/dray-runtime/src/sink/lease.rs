//! Takes the lease of a log: writes the record of the lease, takes its lock, and checks that the
//! last holder of the lease has ended.
//!
//! The module `lease_watch` checks a lease that is already held.

use crate::sink::lease_watch::{FRESH, Lease, read_slots, takeover_wait};
use crate::sink::log_place::LogPlace;
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_log::lease::{self, LEASE_BYTES};
use dray_log::{BootId, LeaseRecord, LockKind, layout};
use dray_store::errno::too_many_open;
use dray_store::{ControlFile, ControlMode, Store};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Pause between two attempts to take a lease.
pub(super) const HOLDER_PAUSE: Duration = Duration::from_millis(50);

/// Maximum time to wait for the holder of a lease to end. If the source of a holder has just died,
/// the holder syncs its data before it ends. A user who repeats the command immediately must find
/// the lease released.
pub(super) const HOLDER_PATIENCE: Duration = Duration::from_secs(2);

/// The kernel's name of the host's own process id namespace.
const HOST_NUMBERING: &str = "pid:[4026531836]";

/// Returns the record that this process writes into a lease in `store`.
pub(super) fn record_of(
    store: &dyn Store,
    transfer: &TransferId,
    boot_id: &BootId,
    epoch: u64,
    request: u64,
) -> LeaseRecord {
    LeaseRecord {
        epoch,
        holder: holder(std::process::id()),
        transfer: transfer.clone(),
        boot_id: boot_id.clone(),
        host: host_name(),
        request,
        lock: lock_kind(store),
    }
}

/// Returns the kind of lock that guards a lease in `store`.
pub(super) fn lock_kind(store: &dyn Store) -> LockKind {
    match store.capabilities().late_calls.is_zero() {
        true => LockKind::System,
        false => LockKind::Server,
    }
}

/// Raises the epoch of a lease above the epoch in its log. A lease that was lost and created again
/// begins with a low epoch.
pub(super) fn raise_epoch(lease: &mut Lease, logged: Option<u64>) -> Result<()> {
    let record = &mut lease.record;
    if logged.is_some_and(|logged| logged >= record.epoch) {
        record.epoch = lease::next_epoch(Some(record), logged)?;
        lease
            .file
            .write_at(record.slot_offset(), &record.encode()?)?;
    }
    lease.file.sync()
}

/// Returns the holder's name for messages: this program and its process id.
fn holder(process: u32) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("dray {version} process {process}{}", numbering())
}

/// Returns the name of the process id namespace, or an empty string for the host's own namespace.
fn numbering() -> String {
    let found = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    match found.to_string_lossy().as_ref() {
        HOST_NUMBERING => String::new(),
        other => format!(" in {other}"),
    }
}

/// Returns true if the former holder was a process of this host that has ended. None of its calls
/// can be pending then.
fn is_gone(before: &LeaseRecord, now: &LeaseRecord) -> bool {
    if before.boot_id != now.boot_id || before.host != now.host {
        return false;
    }
    let process = before.holder.strip_suffix(numbering().as_str());
    let process = process.and_then(|words| words.rsplit(' ').next()?.parse().ok());
    let process = process.and_then(rustix::process::Pid::from_raw);
    process.is_some_and(|process| {
        rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH)
    })
}

/// Returns the error that names the holder of a lease.
pub(super) fn held(file: &dyn ControlFile, words: &str) -> Error {
    match read_lease(file) {
        Ok(Some(record)) => record.held_error(words),
        _ => Error::new(ErrorKind::LeaseHeld, End::Sink, "write to the destination")
            .cause(format!("another transfer is starting to write to {words}"))
            .remedy("wait until the other transfer ends, or cancel the other transfer"),
    }
}

/// Takes the lease of a log and writes `record` with a new epoch into it. Then waits until pending
/// calls of the previous holder can no longer take effect.
pub(super) fn lock_lease(
    place: &LogPlace,
    record: &dyn Fn(u64) -> LeaseRecord,
    words: &str,
    patience: Duration,
) -> Result<(Box<dyn ControlFile>, LeaseRecord)> {
    let patience = Instant::now() + patience;
    let name = layout::lease_of_log(&place.log).ok_or_else(|| {
        Error::new(
            ErrorKind::Internal,
            End::Sink,
            "find the name of the lease file",
        )
        .cause(
            "the file name is not \
            the name of a log",
        )
    })?;
    let path = place.folder.join(&name)?;
    let store = place.store.as_ref();
    loop {
        let file = store.open_control(&path, ControlMode::Create)?;
        // A lock alone is not sufficient. There are two kinds of locks, and a lock of one kind does
        // not exclude a holder with a lock of the other kind.
        if !is_at_work(store, &path, file.as_ref())? && file.try_lock()? {
            let before = read_lease(file.as_ref())?;
            let record = record(lease::next_epoch(before.as_ref(), None)?);
            file.write_at(record.slot_offset(), &record.encode()?)?;
            if is_named(store, &path, &record)? {
                if let Some(before) = &before {
                    // The previous holder did not release the lease. If that holder runs on another
                    // host, three things are possible: it may still rely on its last check of the
                    // lease, its next check may read the old lease, and one of its calls may be
                    // pending. Wait until none of these is possible any more.
                    let capabilities = store.capabilities();
                    std::thread::sleep(match is_gone(before, &record) {
                        true => FRESH,
                        false => takeover_wait(&capabilities),
                    });
                }
                return Ok((file, record));
            }
        }
        if Instant::now() >= patience {
            return Err(held(file.as_ref(), words));
        }
        std::thread::sleep(HOLDER_PAUSE);
    }
}

/// Time for which a holder counts as alive if this host cannot see its lock. The time begins with
/// the holder's last write to the lease or the log. Transfers write their logs every few seconds. A
/// holder that writes nothing for this long is fenced, and its durable ranges are adopted.
const UNSEEN_ALIVE: Duration = Duration::from_secs(120);

/// Returns true if the holder may still be active, although `store` does not show its kind of lock.
pub(super) fn is_at_work(
    store: &dyn Store,
    path: &RelPath,
    file: &dyn ControlFile,
) -> Result<bool> {
    let Some(record) = read_lease(file)? else {
        return Ok(false);
    };
    if !lock_kind(store).is_blind_to(record.lock) {
        return Ok(false);
    }
    let here = record_of(store, &record.transfer, &boot_id()?, record.epoch, 0);
    if is_gone(&record, &here) {
        return Ok(false);
    }
    let log = path
        .parent()
        .zip(path.name().as_ref().and_then(layout::log_of));
    let log = log.map(|(folder, log)| folder.join(&log)).transpose()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    for path in log.iter().chain([path]) {
        let changed = store.stat(path)?.map(|state| state.modified.seconds);
        let age = changed.map(|changed| now.saturating_sub(changed).unsigned_abs());
        if age.is_some_and(|age| age < UNSEEN_ALIVE.as_secs()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the locked file still has its name. A transfer that ended may have removed the
/// file between open and lock. A lock on a removed file excludes no other process.
pub(super) fn is_named(store: &dyn Store, path: &RelPath, record: &LeaseRecord) -> Result<bool> {
    match store.open_control(path, ControlMode::ReadOnly) {
        Ok(file) => Ok(read_lease(file.as_ref())?.as_ref() == Some(record)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn read_lease(file: &dyn ControlFile) -> Result<Option<LeaseRecord>> {
    let mut bytes = [0; LEASE_BYTES];
    let length = read_slots(file, &mut bytes)?;
    lease::newest(&bytes[..length])
}

pub(super) fn boot_id() -> Result<BootId> {
    let operation = "read this host's boot id";
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|error| {
        too_many_open(End::Sink, operation, &error).unwrap_or_else(|| {
            Error::new(ErrorKind::Io, End::Sink, operation)
                .cause(error.to_string())
                .remedy("mount /proc")
        })
    })?;
    BootId::new(text.trim().as_bytes())
}

/// Returns the name of this host, at most 64 characters.
#[must_use]
pub fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::{holder, host_name, is_gone};
    use dray_core::TransferId;
    use dray_log::{BootId, LeaseRecord, LockKind};

    fn record(process: u32, host: &str) -> LeaseRecord {
        LeaseRecord {
            epoch: 1,
            holder: holder(process),
            transfer: TransferId::new("test").expect("an id"),
            boot_id: BootId::new(&[7; 16]).expect("sixteen bytes"),
            host: host.to_owned(),
            request: 0,
            lock: LockKind::System,
        }
    }

    #[test]
    fn only_an_ended_process_of_this_host_counts_as_gone() {
        let here = host_name();
        let own = record(std::process::id(), &here);
        assert!(!is_gone(&own, &own), "it is running");
        let mut child = std::process::Command::new("true").spawn().expect("runs");
        let ended = record(child.id(), &here);
        child.wait().expect("ends");
        assert!(is_gone(&ended, &own));
        assert!(!is_gone(&record(child.id(), "elsewhere"), &own));
        let mut earlier = ended.clone();
        earlier.boot_id = BootId::new(&[8; 16]).expect("sixteen bytes");
        assert!(!is_gone(&earlier, &own), "of another boot nothing is known");
        let mut other = ended;
        other.holder.push_str(" in pid:[1]");
        assert!(!is_gone(&other, &own), "numbered by somebody else");
    }
}
