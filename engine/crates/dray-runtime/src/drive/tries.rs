//! Decides whether the driver begins another session after a lost one, and when.

use dray_core::retry::{
    RECONNECT_INTERVAL, RECONNECT_TIME, RetryPolicy, Verdict, may_reconnect_soon, spread,
};
use dray_core::{ErrorKind, Status};
use dray_session::Progress;
use std::time::{Duration, Instant};

/// First delay between two sessions. The delay doubles after each session, up to [`BACKOFF_MAX`].
/// The actual delay is a random 50 to 100 % of this value.
const BACKOFF: Duration = Duration::from_secs(1);
/// Longest delay between sessions; see [`BACKOFF`].
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Counts the sessions since the durable data last grew, and decides the next wait. A transfer that
/// takes a week may survive any number of faults, so each growth starts the count again.
pub(super) struct Tries {
    policy: RetryPolicy,
    count: u32,
    /// Largest numbers of durable bytes and of complete files.
    most: (u64, u64),
    has_grown: bool,
    began_at: Option<Instant>,
    /// Time at which the last session with new durable data was lost, if that session lasted at
    /// least [`RECONNECT_TIME`].
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
            began_at: None,
            lost_at: None,
        }
    }

    /// Notes that a session begins.
    pub(super) const fn began(&mut self, now: Instant) {
        self.count = self.count.saturating_add(1);
        self.has_grown = false;
        self.began_at = Some(now);
    }

    /// Notes the progress of a session that has ended.
    pub(super) fn ended(&mut self, progress: &Progress) {
        let (bytes, files) = (progress.bytes_durable, progress.files_done);
        if bytes > self.most.0 || files > self.most.1 {
            (self.count, self.has_grown) = (1, true);
            self.most = (bytes.max(self.most.0), files.max(self.most.1));
        }
    }

    /// Returns the wait before the next session after an error of this kind, or `None` to give up.
    /// `draw` is a random number; see [`RetryPolicy::verdict`].
    pub(super) fn next(&mut self, kind: ErrorKind, now: Instant, draw: u32) -> Option<Wait> {
        let since = |at| now.saturating_duration_since(at);
        if self.has_grown {
            let was_long = self.began_at.is_some_and(|at| since(at) >= RECONNECT_TIME);
            self.lost_at = was_long.then_some(now);
        }
        let is_soon = self.lost_at.is_some_and(|at| since(at) < RECONNECT_TIME);
        if is_soon && may_reconnect_soon(kind) && self.policy.attempts_max > 1 {
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

    const LOST: ErrorKind = ErrorKind::Unreachable;

    fn durable() -> Progress {
        Progress {
            bytes_durable: 1,
            ..Progress::default()
        }
    }

    /// Returns the tries after a session with durable data that lasted `time`, and its end.
    fn after(retries: u32, time: Duration) -> (Tries, Instant) {
        let (mut tries, begin) = (Tries::new(retries), Instant::now());
        tries.began(begin);
        tries.ended(&durable());
        (tries, begin + time)
    }

    #[test]
    fn reconnections_soon_after_a_loss_do_not_count() {
        let (mut tries, lost) = after(2, RECONNECT_TIME);
        let later = |milliseconds| lost + Duration::from_millis(milliseconds);
        let quick = |is_reported| {
            Some(Wait {
                time: RECONNECT_INTERVAL,
                is_reported,
            })
        };
        assert_eq!(tries.next(LOST, lost, u32::MAX), quick(true));
        for step in 1..5 {
            let now = later(step * 200);
            tries.began(now);
            assert_eq!(tries.next(LOST, now, u32::MAX), quick(false));
        }
        for seconds in [1, 2] {
            let now = later(seconds * 1_000);
            tries.began(now);
            let wait = tries.next(LOST, now, u32::MAX).expect("tried");
            assert_eq!(wait.time, Duration::from_secs(seconds));
            assert!(wait.is_reported);
        }
        tries.began(later(5_000));
        assert_eq!(tries.next(LOST, later(5_000), 0), None, "two retries");
    }

    #[test]
    fn the_normal_wait_follows_a_short_session_and_another_error() {
        let normal = Some(BACKOFF);
        let wait = |(mut tries, now): (Tries, Instant), kind| {
            tries.next(kind, now, u32::MAX).map(|wait| wait.time)
        };
        assert_eq!(wait(after(1, RECONNECT_TIME / 2), LOST), normal);
        for kind in [ErrorKind::Io, ErrorKind::Busy, ErrorKind::ChecksumMismatch] {
            assert_eq!(wait(after(1, RECONNECT_TIME), kind), normal, "{kind:?}");
        }
        let held = wait(after(1, RECONNECT_TIME), ErrorKind::LeaseHeld);
        assert_eq!(held, Some(RECONNECT_INTERVAL));
    }

    #[test]
    fn session_without_new_durable_data_counts() {
        let (mut tries, now) = (Tries::new(1), Instant::now());
        tries.began(now);
        let wait = tries.next(LOST, now, u32::MAX).map(|wait| wait.time);
        assert_eq!(wait, Some(BACKOFF));
        tries.began(now);
        assert_eq!(tries.next(LOST, now, 0), None);
    }

    #[test]
    fn durable_data_that_is_found_again_is_no_progress() {
        let (mut tries, now) = after(1, RECONNECT_TIME);
        assert!(tries.next(LOST, now, 0).is_some());
        let late = now + RECONNECT_TIME;
        tries.began(now);
        tries.ended(&durable());
        let wait = tries.next(LOST, late, u32::MAX).map(|wait| wait.time);
        assert_eq!(wait, Some(BACKOFF));
        tries.began(late);
        tries.ended(&durable());
        assert_eq!(tries.next(LOST, late, 0), None);
    }

    #[test]
    fn without_retries_no_session_is_repeated() {
        let (mut tries, now) = after(0, RECONNECT_TIME);
        assert_eq!(tries.next(LOST, now, 0), None);
    }
}
