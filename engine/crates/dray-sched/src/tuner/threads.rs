//! How many threads read or write each storage target of one end, found by what that end sees by itself.
//!
//! An end knows at every moment whether an object waits for nothing but a thread. While that is so, its
//! storage is what bounds it, and more threads, or fewer, may carry more; while it is not, nothing is
//! concluded. The other end need not be asked, nor told: whoever drives the transfer, each end tunes what
//! is its own.
//!
//! Non-goals: starting threads; telling a slow target from its siblings ([`crate::congestion`]).
//!
//! Invariants: as of [`super::Tuner`]; a number that was said to be fixed never changes.

use super::{Bottleneck, Bounds, Errors, Knob, Sample, Setting, Tuner};
use dray_core::{Error, ErrorKind, Status, Time};
use std::time::Duration;

/// Time between two samples: what the simulator's paths were tried with.
const SAMPLE: Duration = Duration::from_millis(250);

/// Threads bound an end where an object waited for one during one part in so many of a sample: what
/// names a transfer's bottleneck, too.
const SHORT_PART: u32 = 3;

/// How many threads each storage target has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadCount {
    /// So many.
    Fixed(u32),
    /// Found while it runs.
    Tuned {
        /// At first.
        first: u32,
        /// At the most.
        most: u32,
    },
}

impl ThreadCount {
    /// As many as it begins with; one at the least.
    #[must_use]
    pub fn first(self) -> u32 {
        match self {
            Self::Fixed(count) => count.max(1),
            Self::Tuned { first, most } => first.min(most).max(1),
        }
    }

    /// As many as there may ever be.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Self::Fixed(count) => count.max(1),
            Self::Tuned { most, .. } => most.max(1),
        }
    }
}

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// They read a source's targets.
    Reading,
    /// They write a sink's.
    Writing,
}

impl Work {
    const fn knob(self) -> Knob {
        match self {
            Self::Reading => Knob::Readers,
            Self::Writing => Knob::Writers,
        }
    }

    const fn bottleneck(self) -> Bottleneck {
        match self {
            Self::Reading => Bottleneck::Read,
            Self::Writing => Bottleneck::Write,
        }
    }

    const fn errors(self, count: u32) -> Errors {
        let none = Errors {
            streams: 0,
            reads: 0,
            writes: 0,
        };
        match self {
            Self::Reading => Errors {
                reads: count,
                ..none
            },
            Self::Writing => Errors {
                writes: count,
                ..none
            },
        }
    }
}

/// See the module's head.
#[derive(Debug, Clone)]
pub struct ThreadTuner {
    work: Work,
    count: u32,
    tuner: Option<Tuner>,
    /// Up to when time was counted.
    at: Time,
    is_short: bool,
    /// What this sample has so far, and in how much of it a thread was short.
    took: Duration,
    short: Duration,
    errors: u32,
    /// Bytes in all when it began.
    bytes: u64,
}

impl ThreadTuner {
    /// Begins.
    #[must_use]
    pub fn new(work: Work, count: ThreadCount) -> Self {
        let first = count.first();
        let tuner = match count {
            ThreadCount::Tuned { most, .. } if most > 1 => {
                let alone = |threads| {
                    let others = Setting {
                        streams: 1,
                        readers: 1,
                        writers: 1,
                        object_bytes: 1,
                    };
                    others.with(work.knob(), u64::from(threads))
                };
                let bounds = Bounds {
                    least: alone(1),
                    most: alone(most),
                };
                Some(Tuner::new(&bounds, alone(first)))
            }
            _ => None,
        };
        Self {
            work,
            count: first,
            tuner,
            at: Time::ZERO,
            is_short: false,
            took: Duration::ZERO,
            short: Duration::ZERO,
            errors: 0,
            bytes: 0,
        }
    }

    /// As many as each target has now.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// A read or write has failed. Only what storage says that is asked for too much at once counts.
    pub fn failed(&mut self, error: &Error) {
        let is_too_much = error.status == Status::Temporary
            && matches!(
                error.kind,
                ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Unreachable
            );
        self.errors += u32::from(is_too_much);
    }

    /// From now on an object waits for nothing but a thread, or none does.
    pub const fn stand(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Time has passed, and so many bytes have been read, or written, since the transfer's begin.
    /// Returns whether the number is another one now.
    pub fn pass(&mut self, bytes: u64, now: Time) -> bool {
        let Some(tuner) = &mut self.tuner else {
            return false;
        };
        let passed = now.since(self.at);
        self.at = self.at.max(now);
        self.took += passed;
        if self.is_short {
            self.short += passed;
        }
        if self.took < SAMPLE {
            return false;
        }
        let is_bound = self.short * SHORT_PART >= self.took;
        let sample = Sample {
            bytes: bytes.saturating_sub(self.bytes),
            took: self.took,
            errors: self.work.errors(self.errors),
            bottleneck: Some(match is_bound {
                true => self.work.bottleneck(),
                false => Bottleneck::Other,
            }),
        };
        (self.took, self.short) = (Duration::ZERO, Duration::ZERO);
        (self.errors, self.bytes) = (0, bytes);
        let said = tuner.told(&sample).at(self.work.knob());
        let count = u32::try_from(said).unwrap_or(u32::MAX);
        std::mem::replace(&mut self.count, count) != count
    }
}

#[cfg(test)]
mod tests {
    use super::{ThreadCount, ThreadTuner, Work};
    use dray_core::{End, Error, ErrorKind, Time};
    use std::time::Duration;

    const STEP: Duration = Duration::from_millis(50);
    const TUNED: ThreadCount = ThreadCount::Tuned { first: 4, most: 64 };

    /// Runs so many seconds of storage that carries so much a second with so many threads; how many there
    /// were at each step.
    fn run(
        tuner: &mut ThreadTuner,
        seconds: u32,
        is_short: impl Fn(u32) -> bool,
        carries: impl Fn(u32) -> f64,
    ) -> Vec<u32> {
        let (mut now, mut bytes) = (tuner.at, tuner.bytes as f64);
        let steps = seconds * 20;
        let counts = (0..steps).map(|_| {
            tuner.stand(is_short(tuner.count()));
            now = now + STEP;
            bytes += carries(tuner.count()) * STEP.as_secs_f64();
            tuner.pass(bytes as u64, now);
            tuner.count()
        });
        counts.collect()
    }

    #[test]
    fn threads_that_each_wait_become_as_many_as_help() {
        for work in [Work::Reading, Work::Writing] {
            let mut tuner = ThreadTuner::new(work, TUNED);
            // Thirty at once, and more help no more.
            let carries = |threads: u32| f64::from(threads.min(30)) * 1e6;
            let counts = run(&mut tuner, 40, |_| true, carries);
            let last = &counts[counts.len() / 2..];
            let carried: f64 = last.iter().map(|count| carries(*count)).sum();
            let part = carried / (last.len() as f64 * 30e6);
            assert!(part > 0.9, "{work:?}: {part} of the best; {counts:?}");
        }
    }

    #[test]
    fn storage_that_gets_worse_is_not_driven_into_the_ground() {
        for work in [Work::Reading, Work::Writing] {
            let mut tuner = ThreadTuner::new(work, TUNED);
            // A disk that seeks: one reader has it all, twice as many have three quarters.
            let carries = |threads: u32| 1e8 / f64::from(threads).powf(0.4);
            let counts = run(&mut tuner, 60, |_| true, carries);
            assert!(counts.iter().all(|count| *count <= 16), "{counts:?}");
            let last = &counts[counts.len() / 2..];
            let carried: f64 = last.iter().map(|count| carries(*count)).sum();
            assert!(carried / last.len() as f64 > 0.85e8, "{counts:?}");
        }
    }

    #[test]
    fn while_something_else_bounds_nothing_is_concluded() {
        let mut tuner = ThreadTuner::new(Work::Reading, TUNED);
        let counts = run(&mut tuner, 30, |_| false, |_| 1e6);
        assert!(counts.iter().all(|count| *count == 4), "{counts:?}");
        // Once there are enough of them: with eight nobody waits any more.
        let counts = run(
            &mut tuner,
            30,
            |count| count < 8,
            |count| f64::from(count.min(8)) * 1e6,
        );
        let least = counts.last().copied();
        assert!(
            least.is_some_and(|count| (8..=16).contains(&count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_fixed_number_stays_and_none_is_one() {
        let mut tuner = ThreadTuner::new(Work::Writing, ThreadCount::Fixed(0));
        let counts = run(&mut tuner, 10, |_| true, |count| f64::from(count) * 1e6);
        assert!(counts.iter().all(|count| *count == 1));
        let alone = ThreadCount::Tuned { first: 4, most: 1 };
        let mut tuner = ThreadTuner::new(Work::Writing, alone);
        let counts = run(&mut tuner, 10, |_| true, |count| f64::from(count) * 1e6);
        assert!(counts.iter().all(|count| *count == 1));
    }

    #[test]
    fn storage_that_refuses_is_asked_by_fewer() {
        let mut tuner = ThreadTuner::new(Work::Reading, TUNED);
        let busy = Error::new(ErrorKind::Busy, End::Source, "read the file");
        let gone = Error::new(ErrorKind::NotFound, End::Source, "read the file");
        let (mut now, mut bytes) = (Time::ZERO, 0);
        let mut counts = Vec::new();
        for _ in 0..1_200 {
            tuner.stand(true);
            now = now + STEP;
            bytes += u64::from(tuner.count()) * 50_000;
            // A file that is not there says nothing.
            tuner.failed(&gone);
            if tuner.count() > 12 {
                (0..3).for_each(|_| tuner.failed(&busy));
            }
            tuner.pass(bytes, now);
            counts.push(tuner.count());
        }
        let last = &counts[counts.len() / 2..];
        assert!(
            last.iter().all(|count| (8..=12).contains(count)),
            "{counts:?}"
        );
    }
}
