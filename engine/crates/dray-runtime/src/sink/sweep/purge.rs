//! Removes what one transfer has left at its destination, and nothing else.
//!
//! A log belongs to the transfer that held it last: whoever goes on with another's partial data makes
//! it its own, and the other has no more to say about it. So a purge takes the log that was made for
//! this very destination, if this transfer held it last and this owner's it is, with all that it
//! speaks of; it leaves what another transfer went on with, what is another owner's, and the log of a
//! larger request, which speaks for other files as well.

use super::super::destination::DestinationRequest;
use super::super::look::{LogPlace, find};
use super::remove::{clear, remove_remnant, take};
use super::survey::{self, survey};
use super::{Found, What};
use dray_core::{ErrorKind, Result, TransferId};
use dray_log::place;

/// What became of a transfer's partial data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purged {
    /// It is gone, with its log.
    All {
        /// Partial files.
        files: u64,
        /// Bytes that they, and the log, took.
        bytes: u64,
    },
    /// There is none.
    Nothing,
    /// It stays: this transfer of the same owner went on with it.
    GoneOn(TransferId),
    /// What is there is another owner's.
    NotOurs,
    /// It stays: the log of a larger request speaks of it.
    Larger,
}

impl DestinationRequest {
    /// Removes what this transfer has left. Makes nothing.
    ///
    /// # Errors
    /// `LeaseHeld` while somebody writes there; `LogVersion` and `LogDamaged` for a log that cannot be
    /// read; of the store: then some of it may be gone.
    pub fn purge(&self) -> Result<Purged> {
        let at = find(self)?;
        if !at.store.list_control(&at.folder)?.contains(&at.log) {
            self.clear_remnant(&at)?;
            return Ok(Purged::Nothing);
        }
        let look = |lease| survey(&at.store, &at.folder, &at.log, lease);
        let Some(found) = look(survey::Lease::Ask)?.filter(|found| found.found.what == What::Log)
        else {
            return Ok(Purged::Nothing);
        };
        let is_own = self.is_own(&at)?;
        if let Some(stays) = self.stays(&found.found, is_own) {
            return Ok(stays);
        }
        let lease_name = place::lease_of_log(&at.log).ok_or_else(survey::no_log)?;
        let lease_path = at.folder.join(&lease_name)?;
        let taken = take(at.store.as_ref(), &lease_path, &self.words, None)?;
        let Some(lease) = taken else {
            // Whoever held it has removed it, and the log before.
            return Ok(Purged::Nothing);
        };
        // Somebody may have held it between the look and the lease.
        let Some(survey) = look(survey::Lease::Ours)?.filter(|now| now.found.what == What::Log)
        else {
            remove_remnant(&at, &lease)?;
            return Ok(Purged::Nothing);
        };
        if let Some(stays) = self.stays(&survey.found, is_own) {
            return Ok(stays);
        }
        clear(&at, &lease, &survey)?;
        Ok(Purged::All {
            files: survey.found.files,
            bytes: survey.found.bytes,
        })
    }

    /// A purge that was broken off behind the log has left the lease, or the folder alone: nobody's data,
    /// and nobody else comes for it within the hour.
    fn clear_remnant(&self, at: &LogPlace) -> Result<()> {
        if !self.is_own(at)? {
            return Ok(());
        }
        let lease_name = place::lease_of_log(&at.log).ok_or_else(survey::no_log)?;
        if !at.store.list_control(&at.folder)?.contains(&lease_name) {
            // Only an empty folder goes so.
            let _ = at.store.remove(&at.folder);
            return Ok(());
        }
        let lease_path = at.folder.join(&lease_name)?;
        let lease = match take(at.store.as_ref(), &lease_path, &self.words, None) {
            Ok(Some(lease)) => lease,
            Ok(None) => return Ok(()),
            // Somebody begins there.
            Err(error) if error.kind == ErrorKind::LeaseHeld => return Ok(()),
            Err(error) => return Err(error),
        };
        remove_remnant(at, &lease)
    }

    /// Whether a log there is made for this very destination.
    fn is_own(&self, at: &LogPlace) -> Result<bool> {
        Ok(at.prefix.is_root() && at.log == place::log_name(&self.claims)?)
    }

    /// Why a log stays, if it does.
    fn stays(&self, found: &Found, is_own: bool) -> Option<Purged> {
        if found.owner.as_ref() != Some(&self.owner) {
            return Some(Purged::NotOurs);
        }
        if !is_own {
            return Some(Purged::Larger);
        }
        let holder = found.transfer.as_ref();
        let another = holder.filter(|holder| **holder != self.transfer)?;
        Some(Purged::GoneOn(another.clone()))
    }
}
