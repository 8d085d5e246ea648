//! Decides when the next round of the dispatcher begins, if no event begins a round earlier.

use dray_core::Time;
use std::time::Duration;

/// Maximum time between two rounds.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time before a round for the next tries of waiting transfers. So the tries of thousands of
/// transfers that the loss of one endpoint has interrupted need few rounds.
const TRY_INTERVAL: Duration = Duration::from_millis(50);

/// Times at which a round begins. Each round sets these times again.
#[derive(Debug, Default)]
pub(super) struct Wake {
    /// Time at which the policy asked for its next decision.
    pub(super) look_at: Option<Time>,
    /// Earliest time at which a waiting transfer is tried again.
    pub(super) next_try_at: Option<Time>,
}

impl Wake {
    /// Returns the time until the next round, and forgets the times.
    pub(super) fn take_wait(&mut self, now: Time) -> Duration {
        let Self {
            look_at,
            next_try_at,
        } = std::mem::take(self);
        let look = look_at.map(|at| at.since(now));
        let next_try = next_try_at.map(|at| at.since(now).max(TRY_INTERVAL));
        (look.into_iter().chain(next_try)).fold(LOOK_INTERVAL, Duration::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_begins_the_next_round() {
        let now = Time::ZERO + Duration::from_secs(100);
        let wait = |look: Option<u64>, next_try: Option<u64>| {
            let at = |milliseconds| Time::ZERO + Duration::from_millis(milliseconds);
            let mut wake = Wake {
                look_at: look.map(at),
                next_try_at: next_try.map(at),
            };
            let wait = wake.take_wait(now).as_millis();
            assert_eq!(
                wake.take_wait(now),
                LOOK_INTERVAL,
                "the times are forgotten"
            );
            wait
        };
        assert_eq!(wait(None, None), 1_000);
        assert_eq!(wait(Some(100_300), None), 300);
        assert_eq!(wait(Some(100_300), Some(100_200)), 200);
        assert_eq!(wait(Some(100_100), Some(100_200)), 100);
        assert_eq!(wait(Some(110_000), Some(110_000)), 1_000);
        // The policy decides immediately. The next try of a transfer waits for other tries.
        assert_eq!(wait(Some(99_000), None), 0);
        assert_eq!(wait(None, Some(99_000)), 50);
    }
}
