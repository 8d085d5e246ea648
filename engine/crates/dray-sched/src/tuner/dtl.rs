//! The tuner of DTL (Liu and others, *A data transfer framework for large-scale science
//! experiments*, section 4.2), for comparison.
//!
//! This module follows the text of the paper. It does not follow Figure 3 of the paper, which has
//! two errors: two branches are exchanged, and one branch does not update the throughput for the
//! next comparison. A thread of DTL is a session with one stream, so all numbers of a setting are
//! equal. The first step is an increase, because DTL starts with a throughput of zero.

use super::{Bounds, Sample, Setting};

/// Initial number of threads, for a pair of endpoints without history.
pub const START: u32 = 8;

/// Number of threads by which a step changes the setting.
const STEP: u32 = 4;

/// Number of samples that are averaged for one throughput.
const SAMPLES: u32 = 5;

/// DTL adds threads if the throughput is more than this many times the previous throughput.
const EXPANDS: f64 = 1.3;
/// If the throughput is less than this many times the previous throughput, DTL removes threads
/// after an increase, and otherwise adds threads.
const SHRINKS: f64 = 0.7;

/// The tuner of DTL. The module documentation describes it.
#[derive(Debug, Clone)]
pub struct Dtl {
    bounds: Bounds,
    threads: u32,
    /// Number of threads and throughput (bytes per second) of the previous step.
    last: (u32, f64),
    samples: u32,
    bytes: u64,
    seconds: f64,
}

impl Dtl {
    /// Creates a tuner that starts with `threads`: [`START`], or the last number for this pair.
    #[must_use]
    pub fn new(bounds: Bounds, threads: u32) -> Self {
        let mut dtl = Self {
            bounds,
            threads,
            last: (0, 0.0),
            samples: 0,
            bytes: 0,
            seconds: 0.0,
        };
        dtl.bound();
        dtl
    }

    /// Returns the number of threads to store for the pair.
    #[must_use]
    pub const fn threads(&self) -> u32 {
        self.threads
    }

    /// Returns the setting in force.
    #[must_use]
    pub const fn setting(&self) -> Setting {
        Setting {
            streams: self.threads,
            readers: self.threads,
            writers: self.threads,
            object_bytes: self.bounds.most.object_bytes,
        }
    }

    /// Handles a sample. Returns the setting to use from now on.
    pub fn told(&mut self, sample: &Sample) -> Setting {
        self.samples += 1;
        self.bytes = self.bytes.saturating_add(sample.bytes);
        self.seconds += sample.took.as_secs_f64();
        if self.samples == SAMPLES {
            let rate = self.bytes as f64 / self.seconds.max(1e-9);
            (self.samples, self.bytes, self.seconds) = (0, 0, 0.0);
            self.step(rate);
        }
        self.setting()
    }

    fn step(&mut self, rate: f64) {
        let (last_threads, last_rate) = self.last;
        self.last = (self.threads, rate);
        if rate > last_rate * EXPANDS {
            self.threads += STEP;
        } else if rate < last_rate * SHRINKS {
            match self.threads > last_threads {
                true => self.threads = self.threads.saturating_sub(STEP),
                false => self.threads += STEP,
            }
        }
        self.bound();
    }

    fn bound(&mut self) {
        let least = self.bounds.least.streams.max(1);
        let most = self.bounds.most.streams.max(least);
        self.threads = self.threads.clamp(least, most);
    }
}
