//! Finds the number of threads per storage target at one end, from the observations of this end
//! only.
//!
//! An end always knows whether an object waits for a thread and for nothing else. While such an
//! object waits, the storage of this end is the bottleneck, and a different number of threads may
//! increase the throughput. At other times the throughput says nothing about the threads. The other
//! end is not involved: each end tunes its own threads, whichever end is the driver.
//!
//! Non-goals: starting threads; comparing a slow target with others ([`crate::congestion`]).
//!
//! Invariants: those of [`super::Tuner`]; a fixed number never changes.

use super::{Bottleneck, Bounds, Errors, Knob, Sample, Setting, Tuner};
use dray_core::{Error, ErrorKind, Status, Time};
use std::time::Duration;

/// Time between two samples. The simulator uses the same value for its network paths.
const SAMPLE: Duration = Duration::from_millis(250);

/// Threads are the bottleneck of an end if an object waited for a thread during at least 1 /
/// `SHORT_PART` of a sample. The choice of a transfer's bottleneck uses the same threshold.
const SHORT_PART: u32 = 3;

/// Number of threads per storage target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadCount {
    /// A number that does not change.
    Fixed(u32),
    /// A number that the tuner finds while the transfer runs.
    Tuned {
        /// Initial number of threads.
        first: u32,
        /// Maximum number of threads.
        most: u32,
    },
}

impl ThreadCount {
    /// Returns the initial number of threads, at least 1.
    #[must_use]
    pub fn first(self) -> u32 {
        match self {
            Self::Fixed(count) => count.max(1),
            Self::Tuned { first, most } => first.min(most).max(1),
        }
    }

    /// Returns the maximum number of threads.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Self::Fixed(count) => count.max(1),
            Self::Tuned { most, .. } => most.max(1),
        }
    }
}

/// Kind of work that the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reading from the targets of a source.
    Reading,
    /// Writing to the targets of a sink.
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

/// The tuner for the threads of one end. The module documentation describes it.
#[derive(Debug, Clone)]
pub struct ThreadTuner {
    work: Work,
    count: u32,
    tuner: Option<Tuner>,
    /// End of the time that the current sample includes.
    at: Time,
    is_short: bool,
    /// Length of the current sample.
    took: Duration,
    /// Part of the current sample in which an object waited only for a thread.
    short: Duration,
    errors: u32,
    /// Total number of bytes moved at the start of the sample.
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

    /// Returns the current number of threads per target.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Records a failed read or write. Only errors with which storage reports overload count.
    pub fn failed(&mut self, error: &Error) {
        let is_too_much = error.status == Status::Temporary
            && matches!(
                error.kind,
                ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::Unreachable
            );
        self.errors += u32::from(is_too_much);
    }

    /// Sets whether, from now on, an object waits only for a thread.
    pub const fn stand(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Records that time has passed. `bytes` is the total number of bytes read or written since the
    /// start of the transfer. Returns true if the number of threads has changed.
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
mod tests;
