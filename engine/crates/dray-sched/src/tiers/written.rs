//! Data written in the current period (DWSF), and an estimate of the data written per period
//! (DWPP).
//!
//! BBOS, section 5.1.2, assumes that DWPP is known. Here, an application declares its bytes per
//! period, or this module estimates them from past periods of the application. A sum of the
//! quantiles of all applications would be far above the same quantile of their sum. So the estimate
//! is a quantile of the sum, with the mean and the variance of each application. It assumes that
//! the sizes of two applications are independent.

use std::collections::{BTreeMap, VecDeque};

/// Number of past periods that an estimate uses.
pub const PERIODS: usize = 8;

/// Quantile of DWPP that an estimate returns. A high estimate starts demotions early, which costs
/// bandwidth. A low estimate can fill the tier.
pub const QUANTILE: f64 = 0.9;

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
    /// Creates an estimator of this quantile, without applications. `quantile` is limited to the
    /// range from 0.5 to 0.999.
    #[must_use]
    pub fn new(quantile: f64) -> Self {
        Self {
            quantile: quantile.clamp(0.5, 0.999),
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

    /// Returns DWPP: the declared bytes, plus an estimate for all applications without a
    /// declaration together. This estimate is a quantile of the bytes that they write in one
    /// period. The result is at least the sum of the expected bytes of all applications. In this
    /// sum, an application that has written more than expected counts with its written bytes.
    #[must_use]
    pub fn dwpp(&self) -> f64 {
        let (mut sum, mut variance, mut least) = (0.0, 0.0, 0.0);
        for one in self.applications.values() {
            let (mean, own) = one.expected();
            sum += mean;
            variance += own;
            least += mean.max(one.written);
        }
        // Logistic approximation of the quantile of the normal distribution.
        let deviations = (self.quantile / (1.0 - self.quantile)).ln() / 1.702;
        (sum + deviations * variance.sqrt()).max(least)
    }

    /// Returns the bytes that one application is expected to write in a period: declared, or the
    /// mean of its past periods. Returns `None` for an application without a declaration and
    /// without past periods.
    #[must_use]
    pub fn expected(&self, application: &str) -> Option<f64> {
        let one = self.applications.get(application)?;
        let is_known = one.declared.is_some() || !one.past.is_empty();
        is_known.then(|| one.expected().0)
    }

    fn of(&mut self, application: &str) -> &mut Application {
        self.applications.entry(application.to_owned()).or_default()
    }
}

impl Application {
    /// Returns the mean and the variance of the bytes per period. A declaration has no variance.
    fn expected(&self) -> (f64, f64) {
        if let Some(declared) = self.declared {
            return (declared, 0.0);
        }
        let count = self.past.len() as f64;
        if count < 1.0 {
            return (0.0, 0.0);
        }
        let mean = self.past.iter().sum::<f64>() / count;
        let squares: f64 = (self.past.iter()).map(|bytes| (bytes - mean).powi(2)).sum();
        (mean, squares / (count - 1.0).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::{PERIODS, PeriodEstimator};
    use crate::rng::Rng;

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
    fn the_estimate_is_a_quantile_of_the_sum_of_the_last_periods() {
        let mut written = PeriodEstimator::default();
        for bytes in [9_000.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0] {
            for application in ["a", "b", "c", "d"] {
                written.add(application, bytes);
            }
            written.roll();
        }
        // The last eight periods are 10, 20, .. 80: mean 45, variance 600.
        assert_eq!(PERIODS, 8);
        assert_eq!(written.expected("a"), Some(45.0));
        let deviations = (written.dwpp() - 180.0) / 2400f64.sqrt();
        assert!((deviations - 1.2816).abs() < 0.02, "{deviations}");
        // The declaration of "a" has no variance.
        written.declare("a", Some(50.0));
        let deviations = (written.dwpp() - 185.0) / 1800f64.sqrt();
        assert!((deviations - 1.2816).abs() < 0.02, "{deviations}");
    }

    #[test]
    fn one_of_ten_periods_exceeds_the_estimate() {
        let mut draw = Rng::new(1);
        let mut written = PeriodEstimator::default();
        let (mut above, mut all, mut over) = (0u32, 0u32, 0.0);
        for period in 0..400 {
            let estimate = written.dwpp();
            for application in 0..40 {
                let bytes = 50 + draw.below(101);
                written.add(&format!("a{application}"), bytes as f64);
            }
            if period >= PERIODS {
                all += 1;
                above += u32::from(written.dwsf() > estimate);
                over += estimate / written.dwsf() - 1.0;
            }
            written.roll();
        }
        let (above, over) = (f64::from(above) / f64::from(all), over / f64::from(all));
        assert!((0.05..0.2).contains(&above), "{above}");
        assert!(over < 0.1, "{over}");
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
