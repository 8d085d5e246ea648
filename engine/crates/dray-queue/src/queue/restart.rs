//! New attempts of failed transfers when the endpoint starts.

use super::Queue;
use super::change::apply;
use super::quota::Quota;
use super::row::{Row, SELECT, rows};
use super::states::Command;
use crate::clock;
use dray_core::Result;
use std::time::Duration;

/// Maximum number of transfers that one start retries, the latest first. The others stay failed.
const RETRIED_MAX: u32 = 1_000;

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
    /// of the later one. If the queue
    /// is full, the other transfers stay failed. Called once, after [`Queue::requeue_interrupted`].
    /// Returns the number of transfers.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn retry_failed(&self, bounds: FailedAtStart) -> Result<usize> {
        let limits = self.settings.limits();
        self.write(move |connection, effects| {
            let now = clock::now();
            let statement = format!(
                "{SELECT} WHERE t.state = 'failed' AND t.ended_at >= ?1 AND t.seq IN (
                     SELECT MAX(seq) FROM transfers GROUP BY destination_url
                 ) ORDER BY t.ended_at DESC LIMIT ?2"
            );
            let since = now.before(bounds.age_max).as_ms();
            let found = rows(connection, &statement, (since, RETRIED_MAX))?;
            let mut quota = Quota::count(connection, limits, "try the transfer again")?;
            let mut retried = 0;
            for mut row in found {
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
