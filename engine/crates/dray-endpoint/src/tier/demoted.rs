//! Records the ends of demotions.
//!
//! The tier's thread records them in each round. The endpoint also records them before it answers a
//! caller and before an eviction. So a version is `demoted` as soon as the transfer that demotes it
//! is done.

use super::{Tier, Tiers};
use dray_api::{State, TierVersionState as At, Timestamp};
use dray_core::lock::LockExt;
use dray_core::{ErrorKind, Result};
use dray_queue::{Actor, TierVersion, clock};

/// The endpoint itself, as a caller of the queue.
pub(super) fn endpoint() -> Actor {
    Actor {
        owner: String::new(),
        is_administrator: true,
    }
}

/// The end of a copy.
pub(super) enum Ended {
    Done(Option<Timestamp>),
    Failed(String),
    NotYet,
}

/// Returns true if `other` is a newer complete version of the same application.
pub(super) fn is_newer(other: &TierVersion, row: &TierVersion) -> bool {
    other.application == row.application && other.version > row.version
}

impl Tiers {
    /// Records the ends of demotions of all tiers.
    ///
    /// # Errors
    /// Errors of the database.
    pub(crate) fn record_all_demotions(&self) -> Result<()> {
        for tier in &self.tiers {
            let rows = self.queue.tiers().versions(tier.config.name.as_str())?;
            self.record_demotions(tier, &rows)?;
        }
        Ok(())
    }

    /// Changes the state of each version whose demotion is done to [`At::Demoted`]. Returns true if
    /// a row changed. Several threads may call this. The thread that changes the row counts the
    /// demotion.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) fn record_demotions(&self, tier: &Tier, rows: &[TierVersion]) -> Result<bool> {
        let mut has_changed = false;
        for row in rows.iter().filter(|row| row.state == At::Demoting) {
            let Some(id) = row.transfer.as_deref() else {
                continue;
            };
            let Ended::Done(at) = self.ended(id)? else {
                continue;
            };
            let demoted = TierVersion {
                state: At::Demoted,
                demoted_at: Some(at.unwrap_or_else(clock::now)),
                error: None,
                ..row.clone()
            };
            has_changed = true;
            if self
                .queue
                .tiers()
                .change(vec![(Some(row.state), demoted)])?
                == 0
            {
                continue;
            }
            tier.counters.demoted(row.bytes);
            if rows.iter().any(|other| is_newer(other, row)) {
                tier.useless.lock_unpoisoned().insert(row.fast_path.clone());
            }
        }
        Ok(has_changed)
    }

    /// Returns how the transfer `id` has ended.
    ///
    /// # Errors
    /// Errors of the database.
    pub(super) fn ended(&self, id: &str) -> Result<Ended> {
        let transfer = match self.queue.show(&endpoint(), id) {
            Ok(transfer) => transfer,
            Err(error) if error.kind == ErrorKind::NotFound => {
                // The transfer was deleted from the queue. The row of the staged copy says whether
                // the transfer was done.
                let staged = self.queue.staging().show(&endpoint(), id);
                let at = staged.ok().and_then(|(row, _)| row.staged_at);
                return Ok(match at {
                    Some(at) => Ended::Done(Some(at)),
                    None => Ended::Failed("the transfer was deleted".to_owned()),
                });
            }
            Err(error) => return Err(error),
        };
        Ok(match transfer.state {
            State::Done => Ended::Done(transfer.ended_at),
            State::Failed | State::Incomplete | State::Cancelled => {
                let error = transfer.error.map(|error| error.cause);
                let failure = transfer.failures.first().map(|one| one.error.cause.clone());
                let why = error.filter(|cause| !cause.is_empty()).or(failure);
                Ended::Failed(why.unwrap_or_else(|| {
                    format!("the transfer has the state `{}`", transfer.state.word())
                }))
            }
            _ => Ended::NotYet,
        })
    }
}
