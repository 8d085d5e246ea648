//! Removes the partial data of one transfer at its destination, and nothing else.
//!
//! A transfer's partial data consists of the partial files that its own log names. A transfer that
//! adopts a file moves it to its own log, and the other log no longer names it. So a purge removes
//! the log that this transfer made for exactly this destination, if it belongs to this owner, with
//! all files that it names. Other logs that cover the destination are only reported.

use super::super::find_logs::find_covering;
use super::super::log_file::StoredLog;
use super::super::log_place::{LogPlace, own_place, reachable};
use super::super::request::DestinationRequest;
use super::remove::{clear, remove_remnant, take};
use super::survey::{self, survey};
use super::{Found, What};
use dray_core::{ErrorKind, RelPath, Result, TransferId};
use dray_log::layout;
use dray_log::neighbours::Follower;
use dray_store::ControlMode;
use std::collections::BTreeSet;

/// Outcome of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purged {
    /// The partial data was removed, with its log.
    All {
        /// Number of partial files.
        files: u64,
        /// Bytes of the partial files and the log.
        bytes: u64,
    },
    /// There was no partial data.
    Nothing,
    /// The data stays: this transfer of the same owner has resumed it.
    GoneOn(TransferId),
    /// The data belongs to another owner.
    NotOurs,
    /// The data stays: the log of a larger request names it.
    Larger,
}

impl DestinationRequest {
    /// Removes the partial data of this transfer. Makes no files.
    ///
    /// # Errors
    /// `LeaseHeld` while a transfer writes there; `LogVersion` and `LogDamaged` for an unreadable
    /// log; errors of the store: then some of the data may be removed.
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
        let look = |lease| survey(&at.store, &at.folder, &at.log, lease);
        let Some(found) = look(survey::Lease::Ask)?.filter(|found| found.found.what == What::Log)
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
            // Its last holder has removed it, and the log before.
            return Ok(Purged::Nothing);
        };
        // Another transfer may have held it between the check and the lease.
        let Some(survey) = look(survey::Lease::Ours)?.filter(|now| now.found.what == What::Log)
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

    /// Removes the lease, or the empty folder, left by a purge that was interrupted after it
    /// removed the log. No transfer owns it, and no sweep would remove it within the hour.
    fn clear_remnant(&self, at: &LogPlace) -> Result<()> {
        let lease_name = layout::lease_of_log(&at.log).ok_or_else(survey::no_log)?;
        if !at.store.list_control(&at.folder)?.contains(&lease_name) {
            // This removes only an empty folder.
            let _ = at.store.remove(&at.folder);
            return Ok(());
        }
        let lease_path = at.folder.join(&lease_name)?;
        let lease = match take(at.store.as_ref(), &lease_path, &self.words, None) {
            Ok(Some(lease)) => lease,
            Ok(None) => return Ok(()),
            // Another transfer begins there.
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
            Some(file) => Follower::begin(&mut StoredLog::new(file))?,
            None => None,
        };
        let wanted: BTreeSet<&RelPath> = self.claims.iter().collect();
        Ok(at.prefix.is_root()
            && header
                .is_some_and(|log| log.header().claims.iter().collect::<BTreeSet<_>>() == wanted))
    }

    /// Returns the reason why a log stays, if it does.
    fn stays(&self, found: &Found, is_ours: bool) -> Option<Purged> {
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
