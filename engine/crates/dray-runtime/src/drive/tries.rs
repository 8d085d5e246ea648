//! Decides whether the driver begins another session after a lost one, and when.

use dray_core::Status;
use dray_core::retry::{RECONNECT_INTERVAL, RECONNECT_TIME, RetryPolicy, Verdict, spread};
use dray_session::Progress;
use std::time::{Duration, Instant};

/// First delay between two sessions. The delay doubles after each session, up to [`BACKOFF_MAX`].
/// The actual delay is a random 50 to 100 % of this value.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest delay between sessions; see [`BACKOFF`].
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Sessions since the durable data last grew. A transfer that takes a week may survive any number
/// of faults, so each growth starts the count again.
pub(super) struct Tries {
    policy: RetryPolicy,
    count: u32,
    /// Largest numbers of durable bytes and of complete files.
    most: (u64, u64),
    has_grown: bool,
    /// Time at which the last session with new durable data was lost.
    lost_at: Option<Instant>,
}

/// The wait before the next session.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) time: Duration,
    /// True if the loss should be reported. Of several reconnections in short intervals, only the
    /// first one is reported.
    pub(super) is_reported: bool,
}

impl Tries {
    pub(super) const fn new(retries: u32) -> Self {
        Self {
            policy: RetryPolicy {
                attempts_max: retries.saturating_add(1),
                backoff: BACKOFF,
                backoff_max: BACKOFF_MAX,
            },
            count: 0,
            most: (0, 0),
            has_grown: false,
            lost_at: None,
        }
    }

    /// Notes that a session begins.
    pub(super) const fn began(&mut self) {
        self.count = self.count.saturating_add(1);
        self.has_grown = false;
    }

    /// Notes the progress of a session that has ended.
    pub(super) fn ended(&mut self, progress: &Progress) {
        let (bytes, files) = (progress.bytes_durable, progress.files_done);
        if bytes > self.most.0 || files > self.most.1 {
            (self.count, self.has_grown) = (1, true);
            self.most = (bytes.max(self.most.0), files.max(self.most.1));
        }
    }

    /// Returns the wait before the next session, or `None` to give up. `draw` is a random number;
    /// see [`RetryPolicy::verdict`].
    pub(super) fn next(&mut self, now: Instant, draw: u32) -> Option<Wait> {
        if self.has_grown {
            self.lost_at = Some(now);
        }
        let is_soon = |at| now.saturating_duration_since(at) < RECONNECT_TIME;
        if self.policy.attempts_max > 1 && self.lost_at.is_some_and(is_soon) {
            self.count = 0;
            return Some(Wait {
                time: spread(RECONNECT_INTERVAL, draw),
                is_reported: self.has_grown,
            });
        }
        match self.policy.verdict(Status::Temporary, self.count, draw) {
            Verdict::RetryAfter(time) => Some(Wait {
                time,
                is_reported: true,
            }),
            Verdict::GiveUp => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable() -> Progress {
        Progress {
            bytes_durable: 1,
            ..Progress::default()
        }
    }

    #[test]
    fn reconnections_soon_after_a_loss_do_not_count() {
        let (mut tries, lost) = (Tries::new(2), Instant::now());
        tries.began();
        tries.ended(&durable());
        let after = |milliseconds| lost + Duration::from_millis(milliseconds);
        let quick = |is_reported| {
            Some(Wait {
                time: RECONNECT_INTERVAL,
                is_reported,
            })
        };
        assert_eq!(tries.next(lost, u32::MAX), quick(true));
        for step in 1..5 {
            tries.began();
            assert_eq!(tries.next(after(step * 200), u32::MAX), quick(false));
        }
        for seconds in [1, 2] {
            tries.began();
            let wait = tries.next(after(seconds * 1_000), u32::MAX).expect("tried");
            assert_eq!(wait.time, Duration::from_secs(seconds));
            assert!(wait.is_reported);
        }
        tries.began();
        assert_eq!(tries.next(after(5_000), 0), None, "two retries");
    }

    #[test]
    fn session_without_new_durable_data_counts() {
        let (mut tries, now) = (Tries::new(1), Instant::now());
        tries.began();
        assert_eq!(
            tries.next(now, u32::MAX).map(|wait| wait.time),
            Some(BACKOFF)
        );
        tries.began();
        assert_eq!(tries.next(now, 0), None);
    }

    #[test]
    fn durable_data_that_is_found_again_is_no_progress() {
        let (mut tries, now) = (Tries::new(1), Instant::now());
        tries.began();
        tries.ended(&durable());
        assert!(tries.next(now, 0).is_some());
        let late = now + RECONNECT_TIME;
        tries.began();
        tries.ended(&durable());
        assert_eq!(
            tries.next(late, u32::MAX).map(|wait| wait.time),
            Some(BACKOFF)
        );
        tries.began();
        tries.ended(&durable());
        assert_eq!(tries.next(late, 0), None);
    }

    #[test]
    fn without_retries_no_session_is_repeated() {
        let mut tries = Tries::new(0);
        tries.began();
        tries.ended(&durable());
        assert_eq!(tries.next(Instant::now(), 0), None);
    }
}
