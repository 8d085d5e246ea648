//! Evicts copies at the end of their lifetime, by the rules of an eviction.
//!
//! Invariant owned here, as by the janitor: each removal is in the audit log before it happens.

use super::evict;
use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::storage::Given;
use dray_api::Timestamp;
use dray_config::roots::Roots;
use dray_core::{Error, Result};
use dray_queue::clock;
use dray_queue::{Queue, StagedRow};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two rounds.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Time after which an eviction that failed is tried again.
const AGAIN: Duration = Duration::from_secs(3_600);

/// Maximum number of copies in one round, those that expired first; the next round has the others.
const COPIES_MAX: u32 = 1_000;

/// Evicts expired copies; see the module's head.
pub struct Expiry {
    /// The queue, with the rows of copies.
    pub queue: Arc<Queue>,
    /// The roots that hold the copies.
    pub roots: Roots,
    /// The accounts that copies are accessed as.
    pub accounts: Arc<Accounts>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// True if evictions are only reported.
    pub is_dry_run: bool,
}

/// Copies that were not evicted, or were reported in a dry run: the time of the next try, by id.
pub type Later = BTreeMap<String, Timestamp>;

impl Expiry {
    /// Runs a round every minute, until `sleep` returns false. `sleep` waits for the given time and
    /// returns false when the endpoint stops.
    pub fn run(&self, given: &Given, sleep: &dyn Fn(Duration) -> bool) {
        let mut later = Later::new();
        while sleep(LOOK_INTERVAL) {
            if let Err(error) = self.look(clock::now(), given, &mut later) {
                tracing::error!("cannot look for copies with an expired lifetime: {error}");
            }
        }
    }

    /// Evicts the copies that have expired at `now`, except those postponed in `later`.
    ///
    /// # Errors
    /// Errors of the database, and of the audit log; the round then ends.
    pub fn look(&self, now: Timestamp, given: &Given, later: &mut Later) -> Result<()> {
        later.retain(|_, again| *again > now);
        // The limit includes the postponed copies, which are among the expired ones.
        let limit = COPIES_MAX.saturating_add(u32::try_from(later.len()).unwrap_or(u32::MAX));
        for row in self.queue.staging().expired(now, limit)? {
            if later.contains_key(&row.id) {
                continue;
            }
            if self.is_dry_run {
                self.tell(&row, "would_remove", 0, None)?;
                later.insert(row.id, now.after(AGAIN * 24));
                continue;
            }
            self.tell(&row, "removes", 0, None)?;
            match evict(&self.queue, &self.roots, &self.accounts, &row, given) {
                Ok(count) => self.tell(&row, "removed", count, None)?,
                Err(error) => {
                    later.insert(row.id.clone(), now.after(AGAIN));
                    self.tell(&row, "left", 0, Some(&error))?;
                }
            }
        }
        Ok(())
    }

    fn tell(&self, row: &StagedRow, did: &str, entries: u64, error: Option<&Error>) -> Result<()> {
        self.audit.swept(json!({
            "did": did,
            "what": "staged",
            "path": row.fast_path,
            "owner": row.owner,
            "transfer": row.id,
            "entries": entries,
            "reason": "lifetime",
            "error": error.map(ToString::to_string),
        }))
    }
}
