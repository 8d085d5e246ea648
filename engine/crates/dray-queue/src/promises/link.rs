//! Measures the capacity of the endpoint's link, if the configuration does not set it.

use dray_core::Time;
use std::time::Duration;

/// Length of a measurement window. It is longer than the time in which an object moves, and shorter
/// than the time in which a network changes.
const WINDOW: Duration = Duration::from_secs(1);

/// Weight, in 256ths, of a new window whose rate is below the estimate. After eight windows with a
/// constant lower rate, the estimate has followed two thirds of the drop. The value is estimated,
/// not measured.
const NEW_PART: u64 = 32;

/// Strength of the evidence for the link's capacity in a window, from the weakest to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Shown {
    /// No evidence: no session wanted more than it got.
    #[default]
    Nothing,
    /// Weak evidence: a session without a rate limit may have wanted more. But it may also have
    /// been listing a tree, or waiting for a disk.
    Perhaps,
    /// Strong evidence: the rate limits of all sessions together reached the estimated capacity,
    /// and a session with a rate limit wanted more.
    Enough,
}

/// Estimate of the link's capacity: the bytes moved per second while a session wanted more.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    rate: Option<u64>,
    window: Option<(Time, u64)>,
    shown: Shown,
}

impl Link {
    pub(super) const fn rate(&self) -> Option<u64> {
        self.rate
    }

    pub(super) const fn set(&mut self, rate: u64) {
        self.rate = Some(rate);
    }

    /// Records `moved`, the bytes that all sessions have moved so far, and `shown`, the evidence
    /// for the link's capacity since the last call. Returns a new estimate after a window with
    /// enough evidence.
    ///
    /// A higher rate than the estimate replaces the estimate immediately, because it was observed.
    /// A lower rate reduces the estimate slowly, and only if the evidence of every sample in the
    /// window was strong. Otherwise the sessions may have moved little for other reasons.
    pub(super) fn measure(&mut self, now: Time, moved: u64, shown: Shown) -> Option<u64> {
        // If the clock was set back, start a new window.
        let window = self.window.filter(|(since, _)| *since <= now);
        let Some((since, before)) = window else {
            self.window = Some((now, moved));
            self.shown = shown;
            return None;
        };
        self.shown = self.shown.min(shown);
        let length = now.since(since);
        if length < WINDOW {
            return None;
        }
        self.window = Some((now, moved));
        let was_shown = std::mem::replace(&mut self.shown, shown);
        // If `moved` is lower than before, the window gives no estimate.
        let bytes = moved.checked_sub(before)?;
        let seen = u128::from(bytes) * 1_000_000_000 / length.as_nanos().max(1);
        let seen = u64::try_from(seen).unwrap_or(u64::MAX);
        let rate = match self.rate {
            None if was_shown > Shown::Nothing && seen > 0 => seen,
            None => return None,
            Some(rate) if seen >= rate => seen,
            Some(rate) if was_shown == Shown::Enough => {
                let lower = u128::from(rate - seen) * u128::from(NEW_PART) / 256;
                rate - u64::try_from(lower).unwrap_or(0)
            }
            Some(_) => return None,
        };
        self.rate = Some(rate.max(1));
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Shown};
    use dray_core::Time;

    const MEGA: u64 = 1_000_000;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000 * MEGA)
    }

    #[test]
    fn what_is_seen_is_believed_and_what_nobody_wanted_says_nothing() {
        let mut link = Link::default();
        let enough = Shown::Enough;
        assert_eq!(link.measure(at(0), 0, enough), None);
        assert_eq!(link.measure(at(1), 80 * MEGA, enough), Some(80 * MEGA));
        // No session wants more.
        assert_eq!(link.measure(at(2), 81 * MEGA, Shown::Nothing), None);
        assert_eq!(
            link.measure(at(3), 82 * MEGA, enough),
            None,
            "not all the time"
        );
        assert_eq!(link.measure(at(4), 182 * MEGA, enough), Some(100 * MEGA));
        let mut moved = 182 * MEGA;
        for second in 5..60 {
            moved += 50 * MEGA;
            link.measure(at(second), moved, enough);
        }
        let learned = link.rate().expect("known");
        assert!((50 * MEGA..52 * MEGA).contains(&learned), "{learned}");
        // A count that is lower than before gives no estimate.
        assert_eq!(link.measure(at(61), 5, enough), None);
    }

    #[test]
    fn who_has_no_gate_teaches_more_and_never_less() {
        let mut link = Link::default();
        let perhaps = Shown::Perhaps;
        link.measure(at(0), 0, perhaps);
        assert_eq!(link.measure(at(1), 80 * MEGA, perhaps), Some(80 * MEGA));
        assert_eq!(link.measure(at(2), 180 * MEGA, perhaps), Some(100 * MEGA));
        for second in 3..60 {
            assert_eq!(link.measure(at(second), 180 * MEGA, perhaps), None);
        }
        assert_eq!(link.rate(), Some(100 * MEGA));
    }
}
