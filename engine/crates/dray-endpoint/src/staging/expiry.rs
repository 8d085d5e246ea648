//! Evicts staged copies at the end of their lifetime.
//!
//! Invariant owned here, as in the janitor: the line about a removal is in the audit log before the
//! removal happens.

use super::evict;
use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::storage::Given;
use crate::tier::Tiers;
use dray_api::Timestamp;
use dray_config::roots::Roots;
use dray_core::{Error, Result};
use dray_queue::clock;
use dray_queue::{Queue, StagedRow};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Interval between two rounds that evict copies.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Time after which an eviction that failed is tried again.
const AGAIN: Duration = Duration::from_secs(3_600);

/// Maximum number of copies that one round evicts. Copies that expired first are evicted first, and
/// the next round continues with the remaining copies.
const COPIES_MAX: u32 = 1_000;

/// Evicts expired copies in rounds.
pub struct Expiry {
    /// The queue, which has the rows of staged copies.
    pub queue: Arc<Queue>,
    /// The roots that hold the copies.
    pub roots: Roots,
    /// The system accounts that remove the copies.
    pub accounts: Arc<Accounts>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// The managed tiers, whose versions are staged copies too.
    pub tiers: Arc<Tiers>,
    /// True if evictions are only reported and no file is removed.
    pub is_dry_run: bool,
}

/// The time of the next try for each copy that could not be evicted, or that a dry run has
/// reported. The key is the id of the copy.
pub type Later = BTreeMap<String, Timestamp>;

impl Expiry {
    /// Runs a round every minute until `sleep` returns false. `sleep` waits for the given time, and
    /// returns false when the endpoint stops.
    pub fn run(&self, given: &Given, sleep: &dyn Fn(Duration) -> bool) {
        let mut later = Later::new();
        while sleep(LOOK_INTERVAL) {
            if let Err(error) = self.look(clock::now(), given, &mut later) {
                tracing::error!("cannot look up staged copies whose lifetime has expired: {error}");
            }
        }
    }

    /// Evicts the copies that have expired at `now`, except the postponed copies in `later`.
    ///
    /// # Errors
    /// Errors of the database and of the audit log. The round ends with the first error.
    pub fn look(&self, now: Timestamp, given: &Given, later: &mut Later) -> Result<()> {
        later.retain(|_, again| *again > now);
        // The query also returns the postponed copies, so their number is added to the limit.
        let limit = COPIES_MAX.saturating_add(u32::try_from(later.len()).unwrap_or(u32::MAX));
        let rows = self.queue.staging().expired(now, limit)?;
        // The eviction of a copy is refused while its version is `demoting`. The demotion may have
        // ended after the last round of the tier, so record its end now.
        if !rows.is_empty() {
            self.tiers.record_all_demotions()?;
        }
        for row in rows {
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
