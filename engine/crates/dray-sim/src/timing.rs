//! Service times of targets and link, for timed experiments: each is a queue that serves one object
//! after the other, at a speed that may change during an object. Without this module's times a
//! world draws random delays.

use dray_core::time::nanos;
use dray_core::{FileIndex, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// End of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The target is read.
    Source,
    /// The target is written.
    Sink,
}

/// The slow target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// No target.
    Nowhere,
    /// This target, all the time.
    Fixed(u32),
    /// Each of this number of targets in turn, for this period.
    Moving(u32, Duration),
}

/// A written object.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Time of the write.
    pub at: Time,
    /// File of the object.
    pub file: FileIndex,
    /// Size in bytes.
    pub bytes: u64,
}

/// Service times and measurements.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Time of a target for an object, independent of its bytes.
    pub object: Duration,
    /// Time of the link for an object.
    pub link: Duration,
    /// End of the slow targets; those of the other end are ten times as fast as needed.
    pub end: At,
    /// The slow target.
    pub slow: Slow,
    /// Slowdown factor of the slow target.
    pub times: u32,
    /// Time at which each target is free.
    free: BTreeMap<(At, u32), Time>,
    /// Time at which the link is free.
    link_free: Time,
    /// Written objects.
    pub written: Vec<Written>,
    /// Number of objects in progress on a target at each arrival: time, end, target, number.
    pub crowd: Vec<(Time, At, u32, usize)>,
    /// End times of the objects in progress on each target.
    under_way: BTreeMap<(At, u32), Vec<Time>>,
}

impl Timing {
    /// Returns timing with free targets and a free link.
    #[must_use]
    pub const fn new(object: Duration, link: Duration, end: At, slow: Slow) -> Self {
        Self {
            object,
            link,
            end,
            slow,
            times: 10,
            free: BTreeMap::new(),
            link_free: Time::ZERO,
            written: Vec::new(),
            crowd: Vec::new(),
            under_way: BTreeMap::new(),
        }
    }

    /// Returns the time until a target completes an object that arrives now.
    pub fn target(&mut self, at: At, target: u32, now: Time) -> Duration {
        let free = self.free.get(&(at, target)).copied().unwrap_or(now);
        let begins = free.max(now);
        let done = if at == self.end {
            self.done(target, begins)
        } else {
            begins + self.object / 10
        };
        self.free.insert((at, target), done);
        let under_way = self.under_way.entry((at, target)).or_default();
        under_way.retain(|done| *done > now);
        under_way.push(done);
        self.crowd.push((now, at, target, under_way.len()));
        done.since(now)
    }

    /// Returns the time until an object that arrives at the link now has left it.
    pub fn link(&mut self, now: Time) -> Duration {
        self.link_free = self.link_free.max(now) + self.link;
        self.link_free.since(now)
    }

    /// Returns the time at which a target completes an object begun at `begins`.
    fn done(&self, target: u32, begins: Time) -> Time {
        let (mut at, mut left) = (begins, self.object);
        loop {
            let times = if self.is_slow(target, at) {
                self.times
            } else {
                1
            };
            let alone = left * times;
            let Some(change) = self.next_change(at).filter(|change| *change < at + alone) else {
                return at + alone;
            };
            left = left.saturating_sub(change.since(at) / times);
            at = change;
        }
    }

    fn is_slow(&self, target: u32, now: Time) -> bool {
        match self.slow {
            Slow::Nowhere => false,
            Slow::Fixed(slow) => slow == target,
            Slow::Moving(count, period) => {
                let turn = now.as_nanos() / nanos(period).max(1);
                turn % u64::from(count.max(1)) == u64::from(target)
            }
        }
    }

    fn next_change(&self, now: Time) -> Option<Time> {
        let Slow::Moving(_, period) = self.slow else {
            return None;
        };
        let turn = now.as_nanos() / nanos(period).max(1);
        Some(Time::from_nanos((turn + 1) * nanos(period).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::{At, Slow, Timing};
    use dray_core::Time;
    use std::time::Duration;

    const fn millis(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn objects_stand_in_line_and_a_slow_target_takes_longer() {
        let mut timing = Timing::new(millis(10), millis(1), At::Source, Slow::Fixed(1));
        let now = Time::ZERO;
        assert_eq!(timing.target(At::Source, 0, now), millis(10));
        assert_eq!(timing.target(At::Source, 0, now), millis(20));
        assert_eq!(timing.target(At::Source, 1, now), millis(100));
        assert_eq!(timing.target(At::Sink, 1, now), millis(1));
        assert_eq!(timing.link(now) + timing.link(now), millis(3));
    }

    #[test]
    fn what_is_under_way_is_faster_when_the_congestion_moves_on() {
        let slow = Slow::Moving(2, millis(50));
        let mut timing = Timing::new(millis(10), millis(1), At::Sink, slow);
        // 50 ms at a tenth of the speed, the other half at full speed.
        assert_eq!(timing.target(At::Sink, 0, Time::ZERO), millis(55));
        let later = Time::ZERO + millis(95);
        assert_eq!(timing.target(At::Sink, 0, later), millis(5 + 50));
    }
}
