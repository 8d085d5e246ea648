//! Data written in the current period (DWSF), and an estimate of the data written per period
//! (DWPP).
//!
//! Section 5.1.2 assumes that DWPP is known. Here, an application declares its bytes per period, or
//! they are estimated from its past periods.

use std::collections::{BTreeMap, VecDeque};

/// Number of past periods that an estimate uses.
pub const PERIODS: usize = 8;

/// Quantile of the past periods that an estimate returns. A quantile above the median errs towards
/// an early demotion, which costs bandwidth. An error in the other direction costs a full tier.
pub const QUANTILE: f64 = 0.75;

/// Written bytes by application, and the estimate of DWPP.
#[derive(Debug, Clone)]
pub struct PeriodEstimator {
    quantile: f64,
    applications: BTreeMap<String, Application>,
}

#[derive(Debug, Clone, Default)]
struct Application {
    declared: Option<f64>,
    /// Bytes of past periods, oldest first.
    past: VecDeque<f64>,
    /// Bytes of the current period.
    written: f64,
}

impl Default for PeriodEstimator {
    fn default() -> Self {
        Self::new(QUANTILE)
    }
}

impl PeriodEstimator {
    /// Creates an estimator without applications. `quantile` is limited to the range from 0 to 1.
    #[must_use]
    pub fn new(quantile: f64) -> Self {
        Self {
            quantile: quantile.clamp(0.0, 1.0),
            applications: BTreeMap::new(),
        }
    }

    /// Sets the bytes that an application declares for each period. `None` removes the declaration.
    pub fn declare(&mut self, application: &str, bytes: Option<f64>) {
        self.of(application).declared = bytes;
    }

    /// Counts bytes that an application has written to the fast tier.
    pub fn add(&mut self, application: &str, bytes: f64) {
        self.of(application).written += bytes;
    }

    /// Ends the current period. DWSF becomes zero. An application without a declaration and without
    /// bytes in the last [`PERIODS`] periods is removed.
    pub fn roll(&mut self) {
        self.applications.retain(|_, application| {
            application.past.push_back(application.written);
            if application.past.len() > PERIODS {
                application.past.pop_front();
            }
            application.written = 0.0;
            application.declared.is_some() || application.past.iter().any(|bytes| *bytes > 0.0)
        });
    }

    /// Returns DWSF: the bytes that all applications have written in the current period.
    #[must_use]
    pub fn dwsf(&self) -> f64 {
        self.applications.values().map(|one| one.written).sum()
    }

    /// Returns DWPP: the sum over all applications of the declared bytes, or of the quantile of past
    /// periods. An application that has written more counts with its written bytes.
    #[must_use]
    pub fn dwpp(&self) -> f64 {
        let of = |one: &Application| one.expected(self.quantile).max(one.written);
        self.applications.values().map(of).sum()
    }

    /// Returns the bytes that one application is expected to write in a period: declared or
    /// estimated. Returns `None` for an application without a declaration and without past periods.
    #[must_use]
    pub fn expected(&self, application: &str) -> Option<f64> {
        let one = self.applications.get(application)?;
        let is_known = one.declared.is_some() || !one.past.is_empty();
        is_known.then(|| one.expected(self.quantile))
    }

    fn of(&mut self, application: &str) -> &mut Application {
        self.applications.entry(application.to_owned()).or_default()
    }
}

impl Application {
    fn expected(&self, quantile: f64) -> f64 {
        if let Some(declared) = self.declared {
            return declared;
        }
        let mut sorted: Vec<f64> = self.past.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else {
            return 0.0;
        };
        // Linear interpolation between the two nearest ranks.
        let rank = quantile * last as f64;
        let below = rank.floor();
        let index = (below as usize).min(last);
        let above = sorted[(index + 1).min(last)];
        sorted[index] + (rank - below) * (above - sorted[index])
    }
}

#[cfg(test)]
mod tests {
    use super::{PERIODS, PeriodEstimator};

    #[test]
    fn a_declaration_counts_before_the_first_period() {
        let mut written = PeriodEstimator::default();
        assert_eq!((written.dwpp(), written.dwsf()), (0.0, 0.0));
        written.declare("a", Some(80.0));
        written.add("b", 30.0);
        assert_eq!((written.dwpp(), written.dwsf()), (110.0, 30.0));
        assert_eq!(written.expected("a"), Some(80.0));
        assert_eq!(written.expected("b"), None);
        // More than declared was written.
        written.add("a", 90.0);
        assert_eq!(written.dwpp(), 120.0);
        written.roll();
        assert_eq!((written.dwpp(), written.dwsf()), (110.0, 0.0));
    }

    #[test]
    fn the_estimate_is_a_quantile_of_the_last_periods() {
        let mut written = PeriodEstimator::new(0.75);
        for bytes in [9_000.0, 10.0, 20.0, 30.0, 40.0, 50.0] {
            written.add("a", bytes);
            written.roll();
        }
        for bytes in [60.0, 70.0, 80.0] {
            written.add("a", bytes);
            written.roll();
        }
        // The eight periods are 10, 20, .. 80: the rank of 0.75 is 5.25.
        assert_eq!(PERIODS, 8);
        assert_eq!(written.dwpp(), 62.5);
        assert_eq!(PeriodEstimator::new(9.0).dwpp(), 0.0);
    }

    #[test]
    fn an_application_that_no_longer_writes_is_forgotten() {
        let mut written = PeriodEstimator::default();
        written.add("a", 80.0);
        written.add("b", 80.0);
        written.roll();
        for _ in 0..PERIODS {
            written.add("b", 80.0);
            written.roll();
        }
        assert_eq!(written.expected("a"), None);
        assert_eq!(written.dwpp(), 80.0);
    }
}
