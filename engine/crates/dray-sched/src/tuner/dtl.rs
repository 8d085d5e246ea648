//! The tuner of DTL (Liu and others, *A data transfer framework for large-scale science experiments*,
//! section 4.2), to compare with.
//!
//! By its prose; the branches of its Figure 3 are exchanged, and after one of them leave stale what the
//! next step is compared with. A thread of theirs is a session with one stream, so all numbers of a
//! setting are the same. That the first step is up follows from their starting with a throughput of 0.

use super::{Bounds, Sample, Setting};

/// Threads for a pair of endpoints that is not known.
pub const START: u32 = 8;

/// Threads of one step.
const STEP: u32 = 4;

/// Samples of which one throughput is the mean.
const SAMPLES: u32 = 5;

/// More threads above so many times the last throughput, and another number below so many.
const EXPANDS: f64 = 1.3;
const SHRINKS: f64 = 0.7;

/// See the module's head.
#[derive(Debug, Clone)]
pub struct Dtl {
    bounds: Bounds,
    threads: u32,
    /// Threads and bytes per second of the last step.
    last: (u32, f64),
    samples: u32,
    bytes: u64,
    seconds: f64,
}

impl Dtl {
    /// Begins with so many threads: [`START`], or what they were at last for this pair.
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

    /// What is remembered of the pair.
    #[must_use]
    pub const fn threads(&self) -> u32 {
        self.threads
    }

    /// In force now.
    #[must_use]
    pub const fn setting(&self) -> Setting {
        Setting {
            streams: self.threads,
            readers: self.threads,
            writers: self.threads,
            object_bytes: self.bounds.most.object_bytes,
        }
    }

    /// Takes what happened and says what to run with from now on.
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
