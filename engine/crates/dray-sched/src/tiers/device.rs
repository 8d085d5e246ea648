//! Bandwidths of a fast device that is written by applications and read by demotions (BBOS, section
//! 5.1.2, equation 5.1).

use std::fmt;

/// A write and a read bandwidth, measured at the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Rate of demotions in bytes per second.
    pub read: f64,
    /// Rate of writes in bytes per second.
    pub write: f64,
}

/// Bandwidths of a device in bytes per second. From `read_min` to `read_max`, the write bandwidth
/// falls linearly with the read bandwidth: BWw = m BWr + b, m < 0 (equation 5.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceModel {
    /// Write bandwidth without a demotion (Bwmax).
    pub write_max: f64,
    /// Write bandwidth beside a demotion at `read_max` (Bwmin).
    pub write_min: f64,
    /// Maximum bandwidth of a demotion (Brmax). The slow tier may limit it, too.
    pub read_max: f64,
    /// Bandwidth of a demotion beside writes at `write_max` (Brmin). It may be zero.
    pub read_min: f64,
}

/// An error in the bandwidths of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelError {
    /// A bandwidth is not a finite positive number.
    NotPositive {
        /// Name of the bandwidth.
        name: &'static str,
        /// Its value in bytes per second.
        value: f64,
    },
    /// A minimum exceeds its maximum.
    MinAboveMax {
        /// Name of the minimum.
        name: &'static str,
        /// Minimum in bytes per second.
        min: f64,
        /// Maximum in bytes per second.
        max: f64,
    },
    /// The samples have fewer than two different read bandwidths.
    TooFewSamples {
        /// Number of samples.
        samples: usize,
    },
    /// The write bandwidth does not fall when the read bandwidth rises (m ≥ 0). Such a device needs
    /// no ramp.
    NotFalling {
        /// Slope m of the fitted line.
        slope: f64,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPositive { name, value } => write!(
                f,
                "{name} is {value}: give a positive number of bytes per second"
            ),
            Self::MinAboveMax { name, min, max } => {
                write!(
                    f,
                    "{name} is {min} bytes per second, above its maximum {max}"
                )
            }
            Self::TooFewSamples { samples } => write!(
                f,
                "the {samples} samples have fewer than two different read rates"
            ),
            Self::NotFalling { slope } => write!(
                f,
                "in the measurement, reads do not slow down the writes (slope {slope}), so \
                    demotions need no limit"
            ),
        }
    }
}

impl std::error::Error for ModelError {}

impl DeviceModel {
    /// Creates a model from its four bandwidths in bytes per second.
    ///
    /// # Errors
    /// If a bandwidth is not finite and positive (`read_min` may be zero), or if a minimum exceeds
    /// its maximum.
    pub fn new(
        write_max: f64,
        write_min: f64,
        read_max: f64,
        read_min: f64,
    ) -> Result<Self, ModelError> {
        let all = [
            ("write_max", write_max),
            ("write_min", write_min),
            ("read_max", read_max),
        ];
        for (name, value) in all {
            if !(value.is_finite() && value > 0.0) {
                return Err(ModelError::NotPositive { name, value });
            }
        }
        if !(read_min.is_finite() && read_min >= 0.0) {
            let (name, value) = ("read_min", read_min);
            return Err(ModelError::NotPositive { name, value });
        }
        let pairs = [
            ("write_min", write_min, write_max),
            ("read_min", read_min, read_max),
        ];
        for (name, min, max) in pairs {
            if min > max {
                return Err(ModelError::MinAboveMax { name, min, max });
            }
        }
        Ok(Self {
            write_max,
            write_min,
            read_max,
            read_min,
        })
    }

    /// Fits the line of equation 5.1 of the BBOS paper to samples by least squares. The lowest and
    /// the highest read bandwidth of the samples are the ends of the line.
    ///
    /// # Errors
    /// If the samples have fewer than two different read bandwidths, if the line does not fall, or
    /// if a bandwidth of the line is not positive.
    pub fn fit(samples: &[Sample]) -> Result<Self, ModelError> {
        let count = samples.len() as f64;
        let mean_read = samples.iter().map(|sample| sample.read).sum::<f64>() / count;
        let mean_write = samples.iter().map(|sample| sample.write).sum::<f64>() / count;
        let (mut spread, mut product) = (0.0, 0.0);
        for sample in samples {
            spread += (sample.read - mean_read).powi(2);
            product += (sample.read - mean_read) * (sample.write - mean_write);
        }
        let read_min = (samples.iter().map(|sample| sample.read)).fold(f64::INFINITY, f64::min);
        let read_max = (samples.iter().map(|sample| sample.read)).fold(0.0, f64::max);
        // Read bandwidths that differ only by rounding errors count as equal.
        let has_spread = spread > count * (f64::EPSILON * read_max).powi(2);
        if samples.len() < 2 || !has_spread {
            let samples = samples.len();
            return Err(ModelError::TooFewSamples { samples });
        }
        let slope = product / spread;
        if slope.is_nan() || slope >= 0.0 {
            return Err(ModelError::NotFalling { slope });
        }
        let at = |read: f64| mean_write + slope * (read - mean_read);
        Self::new(at(read_min), at(read_max), read_max, read_min)
    }

    /// Returns the write bandwidth beside a demotion at this rate. For a rate beyond an end of the
    /// line, returns the write bandwidth at that end.
    #[must_use]
    pub fn write_beside(&self, read: f64) -> f64 {
        let reads = self.read_max - self.read_min;
        if reads <= 0.0 {
            let is_idle = read < self.read_min || self.read_max <= 0.0;
            return if is_idle {
                self.write_max
            } else {
                self.write_min
            };
        }
        let part = ((read - self.read_min) / reads).clamp(0.0, 1.0);
        self.write_max - part * (self.write_max - self.write_min)
    }

    /// Returns the bandwidth that remains for a demotion beside writes at this rate: `read_max`
    /// beside writes of at most `write_min`, `read_min` beside writes of at least `write_max`.
    #[must_use]
    pub fn read_beside(&self, write: f64) -> f64 {
        if write <= self.write_min {
            return self.read_max;
        }
        let writes = self.write_max - self.write_min;
        if write >= self.write_max || writes <= 0.0 {
            return self.read_min;
        }
        let part = (write - self.write_min) / writes;
        self.read_max - part * (self.read_max - self.read_min)
    }

    /// Returns the maximum number of bytes that applications may write in one period if there is no
    /// pause between the writes: S / (1 - Brmax / Bwmin), where `capacity` is S in bytes. The
    /// maximum is infinite if the demotion is at least as fast as the concurrent writes.
    #[must_use]
    pub fn admissible(&self, capacity: f64) -> f64 {
        if self.read_max >= self.write_min {
            return f64::INFINITY;
        }
        capacity / (1.0 - self.read_max / self.write_min)
    }

    /// Returns the number of bytes by which demotions that start at the beginning of a period fall
    /// behind the plan. They fall behind because a version is demoted only after it is complete.
    /// `largest` is the size of the largest version in bytes. A tier whose demotions start at the
    /// beginning of the period must plan with its capacity minus this number.
    #[must_use]
    pub fn unfinished(&self, largest: f64) -> f64 {
        largest * (self.read_max / self.write_min).min(1.0)
    }

    /// Returns the model limited to demotions that do not exceed the writes beside them. It differs
    /// from `self` only if Brmax exceeds Bwmin.
    pub(crate) fn without_excess(&self) -> Self {
        let crossing = self.crossing();
        if self.read_max <= crossing {
            return *self;
        }
        Self {
            write_min: crossing,
            read_max: crossing,
            read_min: self.read_min.min(crossing),
            ..*self
        }
    }

    /// Returns the largest rate at which writes are at least as fast as demotions.
    fn crossing(&self) -> f64 {
        if self.read_max <= self.write_min {
            return self.read_max;
        }
        if self.read_min >= self.write_max {
            return self.write_max;
        }
        // write_max - slope (x - read_min) = x
        let slope = (self.write_max - self.write_min) / (self.read_max - self.read_min);
        (self.write_max + slope * self.read_min) / (1.0 + slope)
    }
}

#[cfg(test)]
mod tests;
