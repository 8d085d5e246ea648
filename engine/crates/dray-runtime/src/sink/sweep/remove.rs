//! Removes the data that a walk found, while this host holds the lease of the data.
//!
//! The order is: partial files, log, lease. After an interruption the log still names the remaining
//! files, so the next walk or the repeated purge finds them again. A later transfer trusts the
//! ranges in a log only if the partial file exists. The only file that is written is the lease, so
//! a removal also works on a full storage.

use super::super::lease::{boot_id, held, host_name, is_named, lock_kind, read_lease};
use super::super::lease_watch::Lease;
use super::super::log_place::LogPlace;
use super::survey::{self, Survey, survey};
use super::{PartialData, PartialKind, WalkRoot, stray};
use dray_core::{End, Error, ErrorKind, RelPath, Result, TransferId};
use dray_log::{LeaseRecord, layout, lease};
use dray_store::{ControlMode, Store};
use std::sync::Arc;
use std::time::SystemTime;

/// Transfer id that a removal writes into the lease.
const TRANSFER: &str = "sweep";

/// Outcome of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The log and all its partial files were removed.
    All {
        /// Number of removed partial files.
        files: u64,
        /// Size in bytes of the removed partial files and log.
        bytes: u64,
    },
    /// The data stays, or is already removed, because a transfer has used it since the walk.
    Left,
}

/// Removes data that a walk found, if the data has not changed since. If a transfer starts
/// concurrently and takes the lease first, all data stays. If this function takes the lease first,
/// the transfer waits for the lease and begins without the data.
///
/// # Errors
/// - [`ErrorKind::LeaseHeld`] if a transfer holds the lease.
/// - `Busy` unless [`PartialData::is_orphan`] is true at `now`.
/// - Errors of the store. A part of the data may be removed then, and a later walk finds the
///   remaining files.
pub fn remove(place: &WalkRoot, found: &PartialData, now: SystemTime) -> Result<Removed> {
    if !found.is_orphan(now) {
        return Err(
            Error::new(ErrorKind::Busy, End::Sink, "remove partial data")
                .file(&found.path)
                .cause("the data is in use, or was changed less than an hour ago")
                .remedy("wait until no transfer uses the partial data"),
        );
    }
    let Some(part) = place.parts.get(found.part) else {
        return Ok(Removed::Left);
    };
    match found.what {
        PartialKind::Partial => remove_partial(place, &part.store, found),
        PartialKind::Log | PartialKind::Remnant => remove_log(place, &part.store, found),
    }
}

fn remove_partial(
    place: &WalkRoot,
    store: &Arc<dyn Store>,
    found: &PartialData,
) -> Result<Removed> {
    let (Some(name), Some(id)) = (found.path.name(), found.id) else {
        return Ok(Removed::Left);
    };
    let now = stray(store.as_ref(), &found.path)?;
    if now.is_none_or(|(now, holding)| !now.is(&id) || holding.changed != found.changed) {
        return Ok(Removed::Left);
    }
    let folder = found.path.parent().unwrap_or_else(RelPath::root);
    if place.logs().speak_of(&(folder, name.clone()))? {
        return Ok(Removed::Left);
    }
    store.discard(&found.path, &name, Some(id))?;
    Ok(Removed::All {
        files: 1,
        bytes: found.bytes,
    })
}

fn remove_log(place: &WalkRoot, store: &Arc<dyn Store>, found: &PartialData) -> Result<Removed> {
    let (Some(log), Some(logs)) = (found.path.name(), found.path.parent()) else {
        return Ok(Removed::Left);
    };
    let lease_name = layout::lease_of_log(&log).ok_or_else(survey::no_log)?;
    let remnant = Some(found).filter(|found| found.what == PartialKind::Remnant);
    let words = found.path.to_string();
    let taken = take(store.as_ref(), &logs.join(&lease_name)?, &words, remnant)?;
    let Some(lease) = taken else {
        return Ok(Removed::Left);
    };
    let at = LogPlace {
        store: Arc::clone(store),
        folder: logs.clone(),
        log: log.clone(),
        prefix: RelPath::root(),
    };
    // Check again under the lease: a transfer may have written to the log, or removed it, since the
    // walk.
    let looked_at = survey::Place {
        store,
        beside: &place.stores_beside(found.part),
        logs: &logs,
    };
    let survey = survey(&looked_at, &log, survey::Lease::Ours)?;
    let is_as_found = |now: &PartialData| {
        // The time of a remnant is the time of its lease. This process has just written the lease,
        // so its time proves nothing.
        now.what == found.what && (now.what == PartialKind::Remnant || now.changed <= found.changed)
    };
    let is_ended =
        |now: &PartialData| now.what == PartialKind::Remnant && found.what == PartialKind::Log;
    if survey.as_ref().is_none_or(|now| is_ended(&now.found)) {
        // Another process has removed the log and its lease. `take` has created a new lease. Remove
        // it.
        remove_remnant(&at, &lease)?;
        return Ok(Removed::Left);
    }
    let Some(survey) = survey.filter(|survey| is_as_found(&survey.found)) else {
        return Ok(Removed::Left);
    };
    clear(&at, &lease, &survey)?;
    Ok(Removed::All {
        files: survey.found.files,
        bytes: survey.found.bytes,
    })
}

/// Removes the remnant of a removed log: the lease, which this process holds, and the folder if it
/// is empty. If a log exists, a transfer made it before this process took the lease, and nothing is
/// removed. No log can appear later, because a transfer makes a log only while it holds the lease.
pub(super) fn remove_remnant(at: &LogPlace, lease: &Lease) -> Result<()> {
    if at.store.list_control(&at.folder)?.contains(&at.log) {
        return Ok(());
    }
    lease.check()?;
    at.remove()
}

/// Removes a log for which `is_silent` returns true, or its remnant, if the lease is free.
pub(in crate::sink) fn remove_silent(
    at: &LogPlace,
    is_silent: impl Fn(&LogPlace) -> Result<bool>,
) -> Result<()> {
    let lease = layout::lease_of_log(&at.log).ok_or_else(survey::no_log)?;
    let path = at.folder.join(&lease)?;
    let taken = take(at.store.as_ref(), &path, &path.to_string(), None)?;
    let Some(lease) = taken else { return Ok(()) };
    // Check again under the lease: a holder may have written to the log since the first check.
    if is_silent(at)? {
        lease.check()?;
        at.remove()?;
    }
    Ok(())
}

/// Removes the files that the log names, the log, and the lease.
pub(super) fn clear(at: &LogPlace, lease: &Lease, survey: &Survey) -> Result<()> {
    for partial in &survey.partials {
        lease.check()?;
        let survey::Partial {
            store,
            path,
            name,
            id,
        } = partial;
        store.discard(path, name, Some(*id))?;
    }
    lease.check()?;
    at.store.remove_control(&survey.found.path)?;
    lease.check()?;
    at.remove()
}

/// Takes a lease without waiting; fails if another process holds it. Returns `None` if the lease no
/// longer exists, or if the `remnant` has changed.
pub(super) fn take(
    store: &dyn Store,
    path: &RelPath,
    words: &str,
    remnant: Option<&PartialData>,
) -> Result<Option<Lease>> {
    let was_there = store.holding(path)?.is_some();
    let file = store.open_control(path, ControlMode::Create)?;
    if !file.try_lock()? {
        return Err(held(file.as_ref(), words));
    }
    if let Some(found) = remnant.filter(|_| was_there) {
        let now = store.holding(path)?;
        if now.is_none_or(|now| now.changed > found.changed) {
            return Ok(None);
        }
    }
    let record = LeaseRecord {
        epoch: lease::next_epoch(read_lease(file.as_ref())?.as_ref(), None)?,
        holder: format!(
            "dray {} sweep, process {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        ),
        transfer: TransferId::new(TRANSFER)?,
        boot_id: boot_id()?,
        host: host_name(),
        request: 0,
        lock: lock_kind(store),
    };
    file.write_at(record.slot_offset(), &record.encode()?)?;
    match is_named(store, path, &record)? {
        true => Ok(Some(Lease::new(file, record, &store.capabilities()))),
        // The last holder has removed the lease.
        false => Ok(None),
    }
}
