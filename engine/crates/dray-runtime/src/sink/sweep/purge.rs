//! Removes the partial data of one transfer at its destination, and no other data.
//!
//! The partial data of a transfer consists of the partial files that its own log names. A transfer
//! that adopts a file moves the record to its own log, so the other log no longer names the file. A
//! purge removes only a log that was made for exactly this destination and that belongs to the
//! owner of the transfer, together with all files that the log names. Other logs that cover the
//! destination are only reported.

use super::super::find_logs::find_covering;
use super::super::log_file::StoredLog;
use super::super::log_place::{LogPlace, own_place, reachable};
use super::super::request::DestinationRequest;
use super::remove::{clear, remove_remnant, take};
use super::survey::{self, survey};
use super::{PartialData, PartialKind};
use dray_core::{ErrorKind, RelPath, Result, TransferId};
use dray_log::layout;
use dray_log::neighbours::Follower;
use dray_store::ControlMode;
use std::collections::BTreeSet;

/// Outcome of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purged {
    /// The partial data and its log were removed.
    All {
        /// Number of removed partial files.
        files: u64,
        /// Size in bytes of the removed partial files and log.
        bytes: u64,
    },
    /// There was no partial data.
    Nothing,
    /// The data stays, because this other transfer of the same owner has resumed it.
    GoneOn(TransferId),
    /// The data stays, because it belongs to another owner.
    NotOurs,
    /// The data stays, because the log of a larger request names it.
    Larger,
}

impl DestinationRequest {
    /// Removes the partial data of this transfer. Creates no files.
    ///
    /// # Errors
    /// - `LeaseHeld` while a transfer writes to the destination.
    /// - `LogVersion` and `LogDamaged` for an unreadable log.
    /// - Errors of the store. A part of the data may be removed then.
    pub fn purge(&self) -> Result<Purged> {
        let own = own_place(self)?;
        let at = match own.store.list_control(&own.folder)?.contains(&own.log) {
            true => own,
            false => match find_covering(self)? {
                Some(at) => at,
                None => {
                    self.clear_remnant(&own)?;
                    return Ok(Purged::Nothing);
                }
            },
        };
        let place = survey::Place {
            store: &at.store,
            beside: &[],
            logs: &at.folder,
        };
        let look = |lease| survey(&place, &at.log, lease);
        let Some(found) =
            look(survey::Lease::Ask)?.filter(|found| found.found.what == PartialKind::Log)
        else {
            return Ok(Purged::Nothing);
        };
        let is_ours = self.is_for_this(&at)?;
        if let Some(stays) = self.stays(&found.found, is_ours) {
            return Ok(stays);
        }
        let lease_name = layout::lease_of_log(&at.log).ok_or_else(survey::no_log)?;
        let lease_path = at.folder.join(&lease_name)?;
        let taken = take(at.store.as_ref(), &lease_path, &self.words, None)?;
        let Some(lease) = taken else {
            // The last holder has removed the lease, and the log before it.
            return Ok(Purged::Nothing);
        };
        // Check again under the lease: another transfer may have written to the log since the first
        // check.
        let Some(survey) =
            look(survey::Lease::Ours)?.filter(|now| now.found.what == PartialKind::Log)
        else {
            remove_remnant(&at, &lease)?;
            return Ok(Purged::Nothing);
        };
        if let Some(stays) = self.stays(&survey.found, is_ours) {
            return Ok(stays);
        }
        clear(&at, &lease, &survey)?;
        Ok(Purged::All {
            files: survey.found.files,
            bytes: survey.found.bytes,
        })
    }

    /// Removes what an interrupted purge has left: a lease without its log, or an empty folder. No
    /// transfer owns such a remnant, and a sweep removes it only after an hour.
    fn clear_remnant(&self, at: &LogPlace) -> Result<()> {
        let lease_name = layout::lease_of_log(&at.log).ok_or_else(survey::no_log)?;
        if !at.store.list_control(&at.folder)?.contains(&lease_name) {
            // Ignore errors: this call removes only an empty folder.
            let _ = at.store.remove(&at.folder);
            return Ok(());
        }
        let lease_path = at.folder.join(&lease_name)?;
        let lease = match take(at.store.as_ref(), &lease_path, &self.words, None) {
            Ok(Some(lease)) => lease,
            Ok(None) => return Ok(()),
            // Another transfer is beginning at this destination.
            Err(error) if error.kind == ErrorKind::LeaseHeld => return Ok(()),
            Err(error) => return Err(error),
        };
        remove_remnant(at, &lease)
    }

    /// Returns true if a log was made for exactly this destination, by any transfer.
    fn is_for_this(&self, at: &LogPlace) -> Result<bool> {
        let log = at.folder.join(&at.log)?;
        let opened = reachable(at.store.open_control(&log, ControlMode::ReadOnly))?;
        let header = match opened {
            Some(file) => Follower::begin(&mut StoredLog::new(file, &at.store, &log))?,
            None => None,
        };
        let wanted: BTreeSet<&RelPath> = self.claims.iter().collect();
        Ok(at.prefix.is_root()
            && header
                .is_some_and(|log| log.header().claims.iter().collect::<BTreeSet<_>>() == wanted))
    }

    /// Returns the reason why a log must stay, or `None` if it may be removed.
    fn stays(&self, found: &PartialData, is_ours: bool) -> Option<Purged> {
        if found.owner.as_ref() != Some(&self.owner) {
            return Some(Purged::NotOurs);
        }
        if !is_ours {
            return Some(Purged::Larger);
        }
        let holder = found.transfer.as_ref();
        let another = holder.filter(|holder| **holder != self.transfer)?;
        Some(Purged::GoneOn(another.clone()))
    }
}
