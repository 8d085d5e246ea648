//! What was staged goes when its lifetime is over, by the rules of an eviction. Never silently.
//!
//! Invariant owned here: as the janitor's: nothing goes that the audit log has not been told of before.

use super::evict;
use crate::accounts::Accounts;
use crate::audit::Audit;
use crate::clock;
use crate::queue::{Queue, StagedRow};
use crate::roots::Roots;
use crate::storage::Given;
use dray_api::Timestamp;
use dray_core::{Error, Result};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// What must stay is tried again after so long.
const AGAIN: Duration = Duration::from_secs(3_600);

/// Copies that are thought of in one look, the longest over first: the others are there in a minute.
const COPIES_MAX: u32 = 1_000;

/// See the module's head.
pub struct Expiry {
    /// Where rows are kept.
    pub queue: Arc<Queue>,
    /// Where copies are.
    pub roots: Roots,
    /// As whom copies are touched.
    pub accounts: Arc<Accounts>,
    /// Who is told.
    pub audit: Arc<Audit>,
    /// Whether it is only said.
    pub is_dry_run: bool,
}

/// What stayed, or was said in a dry run, by id: when it is thought of again.
pub type Later = BTreeMap<String, Timestamp>;

impl Expiry {
    /// Looks once a minute, until `sleep` says that it is time to stop: it waits, and returns false
    /// then.
    pub fn run(&self, given: &Given, sleep: &dyn Fn(Duration) -> bool) {
        let mut later = Later::new();
        while sleep(LOOK_INTERVAL) {
            if let Err(error) = self.look(clock::now(), given, &mut later) {
                tracing::error!("cannot look for copies whose lifetime is over: {error}");
            }
        }
    }

    /// Evicts what is over as of `now`, but for what was put off until `later`.
    ///
    /// # Errors
    /// Of the database; of the audit log, in which case nothing more goes.
    pub fn look(&self, now: Timestamp, given: &Given, later: &mut Later) -> Result<()> {
        later.retain(|_, again| *again > now);
        // Those put off come in between.
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
