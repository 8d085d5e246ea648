//! The ceiling of a tuned number, for example of connections: learns from errors the value above
//! which the other end fails.

use std::time::Duration;

/// Time for which the number stays reduced after a single error at a number that was never used
/// before. The error may be chance. A second error near that number makes the reduction permanent.
const DOUBT: Duration = Duration::from_secs(3);

/// Time within which a second error reduces the maximum permanently, even if the tuned number was
/// used without errors before. A single error there may be chance.
const STRIKE: Duration = Duration::from_secs(20);

/// The ceiling of one number. The module documentation describes it.
#[derive(Debug, Clone)]
pub(super) struct Ceiling {
    least: u64,
    /// The highest number that may be used. Above it errors have occurred.
    most: u64,
    /// Temporary maximum after a single error, and the remaining time for which it applies.
    doubted: Option<(u64, Duration)>,
    /// Number at which that single error occurred.
    erred_at: Option<u64>,
    /// Highest number that was used without errors.
    clean: u64,
    strike: Option<Duration>,
}

impl Ceiling {
    /// Creates a ceiling for a tuned setting that lies between `least` and `most`. `clean` is a
    /// value of the setting that is known to cause no errors.
    pub(super) const fn new((least, most): (u64, u64), clean: u64) -> Self {
        Self {
            least,
            most,
            doubted: None,
            erred_at: None,
            clean,
            strike: None,
        }
    }

    /// Returns the highest number that has not failed repeatedly.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }

    /// Returns the maximum that applies now: [`Self::most`], or the temporary maximum if it is
    /// lower.
    pub(super) fn now(&self) -> u64 {
        let doubted = self.doubted.map_or(u64::MAX, |(below, _)| below);
        self.most.min(doubted)
    }

    /// Returns the highest number that was used and did not fail.
    pub(super) fn tried(&self) -> u64 {
        self.now().min(self.clean)
    }

    pub(super) fn elapse(&mut self, took: Duration) {
        let less = |left: Duration| left.checked_sub(took).filter(|left| !left.is_zero());
        self.strike = self.strike.and_then(less);
        self.doubted = (self.doubted).and_then(|(below, left)| Some((below, less(left)?)));
    }

    /// Records a whole window without an error.
    pub(super) fn ran_clean(&mut self, value: u64) {
        self.clean = self.clean.max(value);
        // The earlier error at this number was chance, so forget it.
        self.erred_at = self.erred_at.filter(|at| *at > value);
    }

    /// Records errors at the number `value`. Returns true if the number was reduced because of
    /// these errors.
    pub(super) fn erred(&mut self, value: u64, errors: u32) -> bool {
        let below = (value - (value / 8).max(1).min(value - 1)).max(self.least);
        if value > self.clean {
            let below = below.max(self.clean);
            if errors > 1 || self.erred_at.replace(value).is_some() {
                self.most = self.most.min(below);
            } else {
                self.doubted = Some((below, DOUBT));
            }
        } else if self.strike.take().is_some() || errors > 1 {
            self.most = self.most.min(below);
            self.clean = self.clean.min(below);
        } else {
            self.strike = Some(STRIKE);
            return false;
        }
        true
    }
}
