//! Claims of transfers on the space of tiers. A transfer whose destination is in a fast root of a
//! tier cannot start before the tier has admitted its claim.
//!
//! Invariant owned here: a claim that was admitted stays admitted for the whole attempt.

use super::row::{Row, SELECT, rows};
use super::space::SpaceClaim;
use super::sqlite::sql;
use super::tiers::Tiers;
use super::write::told;
use crate::clock;
use dray_api::{SpaceClaimAnswer, State, Timestamp};
use dray_core::lock::LockExt;
use dray_core::{Result, TransferId};
use std::collections::HashMap;
use std::sync::Mutex;

/// A claim of a transfer that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRow {
    /// Id of the transfer.
    pub id: String,
    /// The claim.
    pub claim: SpaceClaim,
    /// Time of the submission.
    pub submitted_at: Timestamp,
    /// Time of the first start.
    pub started_at: Option<Timestamp>,
    /// True if the transfer can start as soon as the claim is admitted.
    pub can_start: bool,
    /// Bytes that are listed so far.
    pub listed: u64,
    /// Bytes that are durable at the destination.
    pub durable: u64,
}

/// A copy that a caller staged in, and that was not evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedIn {
    /// API path of the fast copy.
    pub fast_path: String,
    /// Owner of the copy.
    pub owner: String,
    /// End of the lifetime.
    pub expires_at: Option<Timestamp>,
}

/// Why a transfer waits for space, and the time at which the space is expected to be free.
pub type WaitReason = (String, Option<Timestamp>);

/// For each tier, the reasons of the waiting transfers by id. The reasons change every second, and
/// are not stored.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<String, HashMap<String, WaitReason>>>);

impl Waits {
    /// Returns the claim of a transfer for the API.
    pub(super) fn view(&self, row: &Row) -> Option<SpaceClaimAnswer> {
        let claim = row.claim.as_ref()?;
        if row.standing.state.is_terminal() {
            return None;
        }
        let waits = self.0.lock_unpoisoned();
        let wait = waits.get(&claim.tier).and_then(|all| all.get(&row.id));
        let wait = wait.filter(|_| !claim.is_admitted).cloned();
        let (reason, free_at) = wait.map_or((None, None), |(reason, at)| (Some(reason), at));
        Some(SpaceClaimAnswer {
            tier: claim.tier.clone(),
            bytes: claim.bytes,
            admitted: claim.is_admitted,
            reason,
            free_at,
        })
    }
}

/// Slow roots that receive nothing at present, by the name of their tier.
#[derive(Debug, Default)]
pub(super) struct ClosedRoots(Mutex<HashMap<String, String>>);

impl Tiers<'_> {
    /// Closes the slow root `root` of a tier: no transfer to it starts. With `None`, opens the
    /// tier's root again.
    pub fn close(&self, tier: &str, root: Option<&str>) {
        let mut closed = self.0.closed.0.lock_unpoisoned();
        match root {
            Some(root) => closed.insert(tier.to_owned(), root.to_owned()),
            None => closed.remove(tier),
        };
    }

    /// Returns true if any root is closed.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        !self.0.closed.0.lock_unpoisoned().is_empty()
    }

    /// Returns true if no transfer to this root may start at present.
    #[must_use]
    pub fn is_closed(&self, root: &str) -> bool {
        let closed = self.0.closed.0.lock_unpoisoned();
        closed.values().any(|name| name == root)
    }

    /// Returns the reason for which a request waits for space on a tier, by its id.
    #[must_use]
    pub fn wait_of(&self, tier: &str, id: &str) -> Option<WaitReason> {
        let waits = self.0.waits.0.lock_unpoisoned();
        waits.get(tier).and_then(|all| all.get(id)).cloned()
    }

    /// Returns the claims on a tier, the oldest first. Claims of ended transfers are not included.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn claims(&self, tier: &str) -> Result<Vec<ClaimRow>> {
        let statement = format!(
            "{SELECT} WHERE t.claim IS NOT NULL AND t.ended_at IS NULL
             AND json_extract(t.claim, '$.tier') = ?1 ORDER BY t.seq"
        );
        let found = self
            .0
            .read(|connection| rows(connection, &statement, [tier]))?;
        let now = clock::now();
        let mut claims = Vec::with_capacity(found.len());
        for row in found {
            let Some(claim) = row.claim else { continue };
            let running = self.0.counted(&TransferId::new(row.id.as_str())?);
            let counters = running.unwrap_or(row.counters);
            let is_due = row.request.not_before.is_none_or(|at| at <= now);
            claims.push(ClaimRow {
                id: row.id,
                claim,
                submitted_at: row.submitted_at,
                started_at: row.started_at,
                can_start: row.standing.state == State::Queued && is_due,
                listed: counters.bytes.listed,
                durable: counters.bytes.durable,
            });
        }
        Ok(claims)
    }

    /// Admits the claims of transfers that still wait, so that they can start.
    ///
    /// # Errors
    /// Errors of the database. No claim is admitted then.
    pub fn admit(&self, ids: Vec<String>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.0.write(move |connection, effects| {
            let now = clock::now();
            for id in &ids {
                let Some(mut row) = Row::find(connection, id)? else {
                    continue;
                };
                let is_waiting = row.awaits_space() && row.standing.state == State::Queued;
                let Some(claim) = row.claim.as_mut().filter(|_| is_waiting) else {
                    continue;
                };
                claim.is_admitted = true;
                row.version += 1;
                row.write(connection)?;
                told(effects, &row, now);
            }
            effects.is_woken = true;
            Ok(())
        })
    }

    /// Replaces the reasons of the transfers that wait for space on a tier, by id.
    pub fn explain_waits(&self, tier: &str, reasons: HashMap<String, WaitReason>) {
        let mut waits = self.0.waits.0.lock_unpoisoned();
        waits.insert(tier.to_owned(), reasons);
    }

    /// Returns the complete fast copies below `roots` that were made because callers staged files
    /// in. If several stagings have the same fast path, returns one copy, with the latest end of
    /// their lifetimes. This copy has no end if one of the stagings has none.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn staged_in(&self, roots: &[String]) -> Result<Vec<StagedIn>> {
        let failed = sql("list staged copies");
        self.0.read(|connection| {
            let mut statement = connection
                .prepare_cached(
                    "SELECT fast_path, owner, CASE WHEN COUNT(*) = COUNT(expires_at)
                         THEN MAX(expires_at) END FROM staging
                     WHERE direction = 'in' AND staged_at IS NOT NULL AND evicted_at IS NULL
                     AND substr(fast_path, 1, length(?1) + 2) = '/' || ?1 || '/'
                     GROUP BY fast_path",
                )
                .map_err(&failed)?;
            let mut found = Vec::new();
            for root in roots {
                let copies = statement.query_map([root], |row| {
                    Ok(StagedIn {
                        fast_path: row.get(0)?,
                        owner: row.get(1)?,
                        expires_at: row.get::<_, Option<i64>>(2)?.map(Timestamp::from_ms),
                    })
                });
                for copy in copies.map_err(&failed)? {
                    found.push(copy.map_err(&failed)?);
                }
            }
            Ok(found)
        })
    }
}
