//! Mean time between failures of an application: declared, derived from its nodes, or estimated
//! from its restarts (BBOS, sections 2.4 and 5.1.2).
//!
//! Non-goals: detecting a failure, storing the history of an application.
//!
//! Invariant owned here: every MTBF is positive, whatever was declared or observed.

/// Smallest MTBF and smallest observation time in seconds. It keeps rates finite.
const SECONDS_MIN: f64 = 1e-3;

/// Seconds of a day.
const DAY: f64 = 86_400.0;

/// A Gamma distribution of failure rates per second, with the shape `restarts` and the inverse scale
/// `seconds`. The distribution counts as much as an observation of `restarts` restarts in `seconds`
/// seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Shape a: number of restarts. Positive.
    pub restarts: f64,
    /// Inverse scale b in seconds. Positive.
    pub seconds: f64,
}

impl Default for Prior {
    /// Returns a prior of one restart in one day.
    fn default() -> Self {
        Self {
            restarts: 1.0,
            seconds: DAY,
        }
    }
}

/// Mean time between failures of an application.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mtbf {
    /// Declared by the application, in seconds.
    Declared(f64),
    /// Derived from the number of nodes. A job fails when one of its nodes fails, so the MTBF of a
    /// job is inversely proportional to its number of nodes (BBOS, section 2.4).
    Nodes {
        /// Number of nodes of the job. Zero counts as one.
        nodes: u64,
        /// MTBF of one node in seconds, a constant of the site.
        node_mtbf: f64,
    },
    /// Estimated from restarts.
    Estimated(FailureEstimator),
}

impl Mtbf {
    /// Returns the MTBF in seconds at the time `at`.
    #[must_use]
    pub fn seconds(&self, at: f64) -> f64 {
        match self {
            Self::Declared(seconds) => positive(*seconds),
            Self::Nodes { nodes, node_mtbf } => positive(node_mtbf / (*nodes).max(1) as f64),
            Self::Estimated(estimator) => estimator.mtbf(at),
        }
    }

    /// Counts a restart at the time `at`. Declared and derived values do not change.
    pub const fn restarted(&mut self, at: f64) {
        if let Self::Estimated(estimator) = self {
            estimator.restarted(at);
        }
    }
}

/// An estimator of a failure rate. Restarts are a Poisson process, and its unknown rate has a Gamma
/// distribution. The Gamma distribution is the conjugate prior of the Poisson process, so n restarts
/// in t seconds turn (a, b) into (a + n, b + t).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailureEstimator {
    prior: Prior,
    restarts: u64,
    /// Observation time in seconds until `last`.
    observed: f64,
    last: f64,
}

impl FailureEstimator {
    /// Creates an estimator that observes an application from the time `at`.
    #[must_use]
    pub const fn new(prior: Prior, at: f64) -> Self {
        Self::resumed(prior, 0, 0.0, at)
    }

    /// Creates an estimator that continues at the time `at` after `restarts` restarts in `seconds`
    /// seconds of observation.
    #[must_use]
    pub const fn resumed(prior: Prior, restarts: u64, seconds: f64, at: f64) -> Self {
        Self {
            prior,
            restarts,
            observed: seconds,
            last: at,
        }
    }

    /// Counts a restart at the time `at`.
    pub const fn restarted(&mut self, at: f64) {
        self.observed = self.observed(at);
        if at > self.last {
            self.last = at;
        }
        self.restarts = self.restarts.saturating_add(1);
    }

    /// Returns the number of restarts.
    #[must_use]
    pub const fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Returns the observation time in seconds. A clock that steps back does not shorten it.
    #[must_use]
    pub const fn observed(&self, at: f64) -> f64 {
        if at > self.last {
            self.observed + (at - self.last)
        } else {
            self.observed
        }
    }

    /// Returns the posterior mean of the failure rate per second: (a + n) / (b + t).
    #[must_use]
    pub fn rate(&self, at: f64) -> f64 {
        let (shape, seconds) = self.posterior(at);
        shape / seconds
    }

    /// Returns the MTBF in seconds: the reciprocal of [`Self::rate`].
    #[must_use]
    pub fn mtbf(&self, at: f64) -> f64 {
        positive(1.0 / self.rate(at))
    }

    /// Returns a lower and an upper limit of the failure rate, in failures per second. The rate is
    /// between them with 90 % probability.
    ///
    /// The quantiles use the approximation of Wilson and Hilferty (1931). Their error depends on
    /// the shape of the Gamma distribution: below 25 % for the shape 1, below 3 % for 2, below 1 %
    /// from 3.
    #[must_use]
    pub fn interval(&self, at: f64) -> (f64, f64) {
        /// 95 % quantile of the standard normal distribution.
        const Z: f64 = 1.644_853_626_951_472_6;
        let (shape, seconds) = self.posterior(at);
        let limit = |z: f64| {
            let root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * shape.sqrt());
            shape * root.max(0.0).powi(3) / seconds
        };
        (limit(-Z), limit(Z))
    }

    /// Returns the shape and the inverse scale of the posterior.
    fn posterior(&self, at: f64) -> (f64, f64) {
        let shape = positive(self.prior.restarts) + self.restarts as f64;
        (shape, positive(self.prior.seconds + self.observed(at)))
    }
}

/// Returns a positive number of seconds for any value. NaN becomes infinity, as for an application
/// that never fails.
fn positive(seconds: f64) -> f64 {
    if seconds.is_nan() {
        f64::INFINITY
    } else {
        seconds.max(SECONDS_MIN)
    }
}

#[cfg(test)]
mod tests;
