//! New attempts of failed transfers when the endpoint starts.

use super::Queue;
use super::change::apply;
use super::quota::Quota;
use super::row::Row;
use super::sqlite::sql;
use super::states::Command;
use crate::clock;
use dray_core::Result;
use std::time::Duration;

/// Maximum number of transfers that one start retries, the latest first. The others stay failed.
const RETRIED_MAX: usize = 1_000;

/// The failed transfers that get a new attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAtStart {
    /// Maximum time since the end of the transfer.
    pub age_max: Duration,
    /// Maximum number of attempts that the transfer has had, also those that callers started.
    pub attempts_max: u32,
}

impl Queue {
    /// Starts a new attempt of each failed transfer within the bounds, except transfers whose error
    /// is permanent, whose tickets were deleted, or which have claimed space on a tier. A transfer
    /// with a later transfer to the same destination stays failed too: it could overwrite the data
    /// of the later one. If the queue is full, the other transfers stay failed. Called once, after
    /// [`Queue::requeue_interrupted`]. Returns the number of transfers.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn retry_failed(&self, bounds: FailedAtStart) -> Result<usize> {
        let limits = self.settings.limits();
        self.write(move |connection, effects| {
            let now = clock::now();
            let failed = sql("look up the failed transfers");
            // The limit applies to the transfers that are retried. In the statement it would also
            // count transfers that are not worth a try, and those could hide all others.
            let mut statement = connection
                .prepare_cached(
                    "SELECT id FROM transfers WHERE state = 'failed' AND ended_at >= ?1
                     AND attempt < ?2 AND seq IN (
                         SELECT MAX(seq) FROM transfers GROUP BY destination_url
                     ) ORDER BY ended_at DESC",
                )
                .map_err(&failed)?;
            let since = now.before(bounds.age_max).as_ms();
            let ids = statement.query_map((since, bounds.attempts_max), |row| row.get(0));
            let ids = ids.and_then(Iterator::collect::<rusqlite::Result<Vec<String>>>);
            let mut quota = Quota::count(connection, limits, "try the transfer again")?;
            let mut retried = 0;
            for id in ids.map_err(&failed)? {
                if retried == RETRIED_MAX {
                    break;
                }
                let Some(mut row) = Row::find(connection, &id)? else {
                    continue;
                };
                if !is_worth_a_try(&row, bounds) {
                    continue;
                }
                if quota.take(connection, &row.owner).is_err() {
                    continue;
                }
                retried += usize::from(apply(connection, effects, &mut row, Command::Retry, now)?);
            }
            Ok(retried)
        })
    }
}

fn is_worth_a_try(row: &Row, bounds: FailedAtStart) -> bool {
    let is_permanent = |status: &str| status == "permanent";
    let needs_ticket = (row.route.as_ref()).is_some_and(|route| {
        let is_elsewhere = route.sides().any(|side| !side.is_local());
        is_elsewhere && row.secrets.iter().all(|secret| secret.ticket.is_none())
    });
    let error = row.error.as_ref();
    error.is_some_and(|error| !is_permanent(&error.status))
        && row.attempt < bounds.attempts_max
        && row.claim.is_none()
        && !row.is_purged
        && !needs_ticket
}
