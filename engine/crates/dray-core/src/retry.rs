//! Decides if and when to retry. No other module of the engine makes this decision.

use crate::error::{ErrorKind, Status};
use std::time::Duration;

/// Time after the loss of a session in which an end reconnects in short intervals. The lost session
/// must have lasted at least this time, and must have made data durable. A server that is restarted
/// usually answers within this time. The value is estimated, not measured.
pub const RECONNECT_TIME: Duration = Duration::from_secs(1);

/// Longest interval of the tries within [`RECONNECT_TIME`].
pub const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);

/// Returns true if a new session may succeed soon after an error of this kind.
#[must_use]
pub const fn may_reconnect_soon(kind: ErrorKind) -> bool {
    // `LeaseHeld`: the sink may not have noticed yet that the lost session has ended.
    matches!(
        kind,
        ErrorKind::Unreachable | ErrorKind::TimedOut | ErrorKind::LeaseHeld
    )
}

/// Maximum number of tries, and the waiting times between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of tries, including the first.
    pub attempts_max: u32,
    /// Waiting time before the second try. The time doubles after each further try.
    pub backoff: Duration,
    /// Maximum waiting time.
    pub backoff_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(10),
        }
    }
}

/// Action after a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Retry after this time.
    RetryAfter(Duration),
    /// Do not retry.
    GiveUp,
}

impl RetryPolicy {
    /// Decides on a retry after try number `attempt`, counted from 1, has failed with `status`.
    /// `draw` is a random number in `0 ..= u32::MAX`. It sets the wait to between 50 and 100 % of
    /// the backoff, so that transfers that failed together do not retry simultaneously.
    #[must_use]
    pub fn verdict(&self, status: Status, attempt: u32, draw: u32) -> Verdict {
        if status != Status::Temporary || attempt >= self.attempts_max {
            return Verdict::GiveUp;
        }
        let doublings = attempt.saturating_sub(1).min(20);
        let wait = self
            .backoff
            .saturating_mul(1 << doublings)
            .min(self.backoff_max);
        Verdict::RetryAfter(spread(wait, draw))
    }
}

/// Returns a wait between 50 and 100 % of `wait`. `draw` is a random number in `0 ..= u32::MAX`. See
/// [`RetryPolicy::verdict`].
#[must_use]
pub fn spread(wait: Duration, draw: u32) -> Duration {
    wait.mul_f64(0.5 + 0.5 * (f64::from(draw) / f64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::{RetryPolicy, Verdict};
    use crate::error::Status;
    use std::time::Duration;

    #[test]
    fn retry_stops_at_the_budget_and_never_repeats_the_permanent() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.verdict(Status::Permanent, 1, 0), Verdict::GiveUp);
        assert_eq!(policy.verdict(Status::Exhausted, 1, 0), Verdict::GiveUp);
        assert_eq!(
            policy.verdict(Status::Temporary, 1, u32::MAX),
            Verdict::RetryAfter(Duration::from_millis(50))
        );
        assert_eq!(
            policy.verdict(Status::Temporary, 3, 0),
            Verdict::RetryAfter(Duration::from_millis(100))
        );
        assert_eq!(
            policy.verdict(Status::Temporary, policy.attempts_max, 0),
            Verdict::GiveUp
        );
        let patient = RetryPolicy {
            attempts_max: 90,
            ..policy
        };
        assert_eq!(
            patient.verdict(Status::Temporary, 80, u32::MAX),
            Verdict::RetryAfter(policy.backoff_max)
        );
    }
}
