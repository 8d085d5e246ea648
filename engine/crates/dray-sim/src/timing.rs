//! Service times of targets and of the link, for timed experiments. Each target is a queue that
//! serves one object after the other, and the link is such a queue too. The speed of a queue may
//! change while the queue serves an object. Worlds without these times use random delays.

use dray_core::time::nanos;
use dray_core::{FileIndex, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// The end to which a target belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// The end that reads the target.
    Source,
    /// The end that writes to the target.
    Sink,
}

/// The slow target, and the time in which it is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// No target is slow.
    Nowhere,
    /// This target is always slow.
    Fixed(u32),
    /// One target after the other is slow: the number of targets, and the time for which each is
    /// slow.
    Moving(u32, Duration),
}

/// A written object.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Time at which the object was written.
    pub at: Time,
    /// File to which the object belongs.
    pub file: FileIndex,
    /// Size in bytes.
    pub bytes: u64,
}

/// Service times, and the measurements of a run.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Time in which a target serves one object, whatever its size.
    pub object: Duration,
    /// Time in which the link carries one object.
    pub link: Duration,
    /// End at which a target is slow. Targets at the other end are ten times as fast.
    pub end: At,
    /// The slow target.
    pub slow: Slow,
    /// Factor by which the service time of the slow target is longer.
    pub times: u32,
    /// Time at which each target has served all its objects.
    free: BTreeMap<(At, u32), Time>,
    /// Time at which the link has carried all its objects.
    link_free: Time,
    /// Objects that were written, in order.
    pub written: Vec<Written>,
    /// For each arrival of an object at a target: the time, the end that has the target (source or
    /// sink), the target, and the number of objects in progress on the target.
    pub crowd: Vec<(Time, At, u32, usize)>,
    /// End times of the objects in progress, by target.
    under_way: BTreeMap<(At, u32), Vec<Time>>,
}

impl Timing {
    /// Creates service times with idle targets and an idle link.
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

    /// Returns the time until a target has served an object that arrives now.
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

    /// Returns the time until the link has carried an object that arrives now.
    pub fn link(&mut self, now: Time) -> Duration {
        self.link_free = self.link_free.max(now) + self.link;
        self.link_free.since(now)
    }

    /// Returns the time at which a target has served an object that it begins at `begins`.
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
        // Half of the object takes 50 ms at a tenth of the speed. The other half takes 5 ms at full
        // speed.
        assert_eq!(timing.target(At::Sink, 0, Time::ZERO), millis(55));
        let later = Time::ZERO + millis(95);
        assert_eq!(timing.target(At::Sink, 0, later), millis(5 + 50));
    }
}
