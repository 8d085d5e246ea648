//! Interruptions of promised transfers: the times during which no session moved their data.

use super::{Promises, due, time};
use dray_api::Timestamp;
use dray_api::timestamp::of_time;
use dray_core::Time;
use dray_sched::broker::TransferKey;
use std::time::Duration;

/// The interruptions of a transfer since it got its promise.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Interruptions {
    /// Begin of the present interruption.
    since: Option<Time>,
    /// End of the last interruption that has ended.
    until: Time,
    /// Number and total length of the interruptions that have ended.
    count: u32,
    lost: Duration,
    /// Number of the session that moved data last.
    session: Option<u64>,
}

impl Interruptions {
    fn begin(&mut self, since: Time) {
        // After a rollback, a row may still describe an interruption that has ended.
        if since > self.until {
            self.since.get_or_insert(since);
        }
    }

    /// Records that a session moves data. Returns true if this ends an interruption. The list of
    /// sessions may be older than the break, so the broken session itself ends nothing.
    pub(super) fn moves(&mut self, session: u64, at: Time) -> bool {
        let is_same = self.session.replace(session) == Some(session);
        let Some(since) = self.since.filter(|_| !is_same) else {
            return false;
        };
        self.since = None;
        self.until = at;
        self.count += 1;
        self.lost += at.since(since);
        true
    }

    /// Returns the interruptions as the cause of a missed deadline, if the transfer would meet the
    /// deadline without them. `earliest` is the earliest time at which all bytes have moved.
    pub(super) fn cause(
        &self,
        earliest: Option<Time>,
        deadline: Option<Timestamp>,
        now: Time,
    ) -> Option<String> {
        let present = self.since.map_or(Duration::ZERO, |since| now.since(since));
        let lost = self.lost + present;
        if lost.is_zero() || earliest? > due(deadline?) + lost {
            return None;
        }
        let happened = match (self.since, self.count) {
            // The text must stay the same while the interruption lasts, because each new text is
            // reported as a new cause.
            (Some(since), _) => format!("has been interrupted since {}", of_time(since)),
            (None, 1) => format!("was interrupted for {}", words(self.lost)),
            (None, count) => {
                format!(
                    "was interrupted {count} times, for {} in all",
                    words(self.lost)
                )
            }
        };
        Some(format!(
            "the transfer {happened}; without interruptions, it would end before its deadline"
        ))
    }
}

/// Returns a duration as a text: `12 s`, `3 min 5 s`, `2 h 1 min`.
fn words(length: Duration) -> String {
    let seconds = length.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

impl Promises {
    /// Records that the session of a promised transfer broke off at `since`, and that the endpoint
    /// will try again.
    pub(crate) fn interrupted(&self, key: u64, since: Timestamp) {
        let mut state = self.state();
        if let Some(held) = state.held.get_mut(&TransferKey(key)) {
            held.interruptions.begin(time(since));
            state.is_changed = true;
        }
    }
}
