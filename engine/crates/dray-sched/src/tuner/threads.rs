//! Finds the number of threads per storage target of one end, from that end's own observations.
//!
//! An end knows at every moment whether an object waits only for a thread. While one does, its
//! storage is the bottleneck, and more threads, or fewer, may carry more; otherwise nothing is
//! concluded. The other end is not involved: each end tunes its own threads, whichever end drives
//! the transfer.
//!
//! Non-goals: starting threads; comparing a slow target with its siblings ([`crate::congestion`]).
//!
//! Invariants: those of [`super::Tuner`]; a fixed number never changes.

use super::{Bottleneck, Bounds, Errors, Knob, Sample, Setting, Tuner};
use dray_core::{Error, ErrorKind, Status, Time};
use std::time::Duration;

/// Time between two samples: the value used for the simulator's paths.
const SAMPLE: Duration = Duration::from_millis(250);

/// Threads are the bottleneck of an end if an object waited for one during one part in this many of
/// a sample. The transfer's bottleneck uses the same threshold.
const SHORT_PART: u32 = 3;

/// Number of threads per storage target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadCount {
    /// A constant number.
    Fixed(u32),
    /// A number found while the transfer runs.
    Tuned {
        /// Initial number.
        first: u32,
        /// Maximum number.
        most: u32,
    },
}

impl ThreadCount {
    /// Returns the initial number; at least one.
    #[must_use]
    pub fn first(self) -> u32 {
        match self {
            Self::Fixed(count) => count.max(1),
            Self::Tuned { first, most } => first.min(most).max(1),
        }
    }

    /// Returns the maximum number.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Self::Fixed(count) => count.max(1),
            Self::Tuned { most, .. } => most.max(1),
        }
    }
}

/// Operation of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reading a source's targets.
    Reading,
    /// Writing a sink's targets.
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

/// The tuner of one end's threads; see the module documentation.
#[derive(Debug, Clone)]
pub struct ThreadTuner {
    work: Work,
    count: u32,
    tuner: Option<Tuner>,
    /// Time up to which the current sample counts.
    at: Time,
    is_short: bool,
    /// Length of the current sample, and the part of it in which a thread was missing.
    took: Duration,
    short: Duration,
    errors: u32,
    /// Total bytes at the start of the sample.
    bytes: u64,
}

impl ThreadTuner {
    /// Creates the tuner.
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

    /// Returns the present number of threads per target.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Records a failed read or write. Only errors by which storage reports overload count.
    pub fn failed(&mut self, error: &Error) {
        let is_too_much = error.status == Status::Temporary
            && matches!(
                error.kind,
                ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Unreachable
            );
        self.errors += u32::from(is_too_much);
    }

    /// Sets whether an object waits only for a thread from now on.
    pub const fn stand(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Records the passing of time; `bytes` is the total read or written since the transfer's
    /// start. Returns true if the number of threads changed.
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

    /// Simulates `seconds` of storage whose bytes per second are `carries` of the number of
    /// threads. Returns the number of threads at each step.
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
            // Thirty run concurrently; more do not help.
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
            // A disk that seeks: one reader has its full rate, twice as many have three quarters of
            // it.
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
        // Eight threads are enough: with eight no object waits any more.
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
            // The error of a missing file says nothing about load.
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
