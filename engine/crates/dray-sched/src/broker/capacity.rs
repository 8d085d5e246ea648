//! Capacity of a resource, configured or derived from measurements.

use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use dray_core::time::nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of stored measurements per resource.
const SAMPLES_MAX: usize = 64;

/// Time for which a measurement is used. The rate of shared networks varies within minutes, and the
/// load of other users stays for hours; this time lies between the two. The value is an estimate.
const MEMORY: Duration = Duration::from_secs(600);

/// A change of capacity by more than 1 / `CHANGE_PART` is worth a new plan.
const CHANGE_PART: u64 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    since: Time,
    rate: u64,
}

/// Assumption about the future capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// Capacity in the worst tenth of the time.
    Low,
    /// Average capacity.
    Mean,
    /// Capacity in the best tenth of the time.
    High,
}

/// Known capacity of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    ceiling: Option<u64>,
    samples: VecDeque<Sample>,
    /// Measurement for which a new plan was last requested.
    told: Option<u64>,
}

impl Capacity {
    /// Sets the configured maximum. The capacity never exceeds it.
    pub(crate) fn set_ceiling(&mut self, ceiling: Option<BytesPerSecond>) {
        self.ceiling = ceiling.map(|rate| rate.0);
    }

    /// Records the capacity from `now` on. Returns true if it has changed by more than a twentieth
    /// since the last call that returned true.
    pub(crate) fn measure(&mut self, rate: BytesPerSecond, now: Time) -> bool {
        // If the clock was set back, samples may be later than `now`.
        while (self.samples.back()).is_some_and(|last| last.since >= now) {
            self.samples.pop_back();
        }
        self.samples.push_back(Sample {
            since: now,
            rate: rate.0,
        });
        // A sample is valid until the start of the next sample.
        while self.samples.len() > SAMPLES_MAX
            || (self.samples.get(1)).is_some_and(|next| now.since(next.since) >= MEMORY)
        {
            self.samples.pop_front();
        }
        let is_news = (self.told).is_none_or(|told| rate.0.abs_diff(told) > told / CHANGE_PART);
        if is_news {
            self.told = Some(rate.0);
        }
        is_news
    }

    /// Returns the present capacity in bytes per second. Returns `None` if it is unknown.
    #[must_use]
    pub fn present(&self) -> Option<u64> {
        let measured = self.samples.back().map(|sample| sample.rate);
        self.bounded(measured)
    }

    /// Returns the capacity expected from `now` on, in bytes per second.
    #[must_use]
    pub fn expected(&self, outlook: Outlook, now: Time) -> Option<u64> {
        self.bounded(self.learned(outlook, now))
    }

    fn bounded(&self, measured: Option<u64>) -> Option<u64> {
        match (self.ceiling, measured) {
            (Some(ceiling), Some(measured)) => Some(ceiling.min(measured)),
            (ceiling, measured) => ceiling.or(measured),
        }
    }

    fn learned(&self, outlook: Outlook, now: Time) -> Option<u64> {
        let last = self.samples.back()?;
        let ends = (self.samples.iter().skip(1)).map(|sample| sample.since);
        let mut held: Vec<(u64, u64)> = (self.samples.iter().zip(ends.chain([now])))
            .map(|(sample, end)| (sample.rate, nanos(end.since(sample.since))))
            .filter(|(_, nanos)| *nanos > 0)
            .collect();
        let all: u64 = held.iter().map(|(_, nanos)| *nanos).sum();
        if all == 0 {
            return Some(last.rate);
        }
        if outlook == Outlook::Mean {
            let moved: u128 = (held.iter())
                .map(|(rate, nanos)| u128::from(*rate) * u128::from(*nanos))
                .sum();
            return u64::try_from(moved / u128::from(all)).ok();
        }
        held.sort_unstable();
        if outlook == Outlook::High {
            held.reverse();
        }
        let mut seen = 0;
        let tenth = held.iter().find(|(_, nanos)| {
            seen += nanos;
            seen >= all / 10
        });
        tenth.map(|(rate, _)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::{Capacity, Outlook};
    use dray_core::Time;
    use dray_core::rate::BytesPerSecond;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * SECOND)
    }

    #[test]
    fn the_configured_capacity_is_never_exceeded() {
        let mut link = Capacity::default();
        assert_eq!(link.present(), None);
        link.set_ceiling(Some(BytesPerSecond(100)));
        assert_eq!(link.expected(Outlook::High, at(0)), Some(100));
        link.measure(BytesPerSecond(140), at(0));
        assert_eq!(link.present(), Some(100));
        link.measure(BytesPerSecond(60), at(1));
        assert_eq!(link.present(), Some(60));
    }

    #[test]
    fn the_expected_capacity_weights_each_rate_by_its_duration() {
        let mut link = Capacity::default();
        link.measure(BytesPerSecond(100), at(0));
        link.measure(BytesPerSecond(40), at(30));
        link.measure(BytesPerSecond(100), at(40));
        link.measure(BytesPerSecond(160), at(90));
        let expected = |outlook| link.expected(outlook, at(100)).expect("measured");
        assert_eq!(expected(Outlook::Mean), 100);
        assert_eq!(expected(Outlook::Low), 40);
        assert_eq!(expected(Outlook::High), 160);
        assert_eq!(link.present(), Some(160));
    }

    #[test]
    fn old_measurements_are_forgotten() {
        let mut link = Capacity::default();
        link.measure(BytesPerSecond(1_000), at(0));
        link.measure(BytesPerSecond(10), at(1));
        for n in 0..10_000 {
            link.measure(BytesPerSecond(10), at(2_000 + n));
        }
        assert_eq!(link.expected(Outlook::High, at(12_000)), Some(10));
        assert!(link.samples.len() <= super::SAMPLES_MAX);
    }

    #[test]
    fn a_change_of_a_twentieth_is_reported() {
        let mut link = Capacity::default();
        assert!(link.measure(BytesPerSecond(100), at(0)));
        assert!(!link.measure(BytesPerSecond(104), at(1)));
        assert!(link.measure(BytesPerSecond(106), at(2)));
        // Several small changes together are worth a new plan.
        assert!(!link.measure(BytesPerSecond(109), at(3)));
        assert!(link.measure(BytesPerSecond(112), at(4)));
    }
}
