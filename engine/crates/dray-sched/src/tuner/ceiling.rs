//! Above which number the far side fails, learnt from its errors.

use std::time::Duration;

/// One error on new ground may be chance: so long it is left alone, and a second one about there
/// settles it.
const DOUBT: Duration = Duration::from_secs(3);

/// Two errors within so long are no chance where it had run clean, either.
const STRIKE: Duration = Duration::from_secs(20);

/// See the module's head.
#[derive(Debug, Clone)]
pub(super) struct Ceiling {
    least: u64,
    /// Above it errors came.
    most: u64,
    /// Above it one error came, for so much longer.
    doubted: Option<(u64, Duration)>,
    /// The number at which it came.
    erred_at: Option<u64>,
    /// Up to here it ran clean.
    clean: u64,
    strike: Option<Duration>,
}

impl Ceiling {
    /// Of a number that is at least and at most so large; `clean` is known to do no harm.
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

    /// What never failed for sure.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }

    /// The same, less what is in doubt.
    pub(super) fn now(&self) -> u64 {
        let doubted = self.doubted.map_or(u64::MAX, |(below, _)| below);
        self.most.min(doubted)
    }

    /// Up to here nobody has to guess: it was in force, and did not fail.
    pub(super) fn tried(&self) -> u64 {
        self.now().min(self.clean)
    }

    pub(super) fn elapse(&mut self, took: Duration) {
        let less = |left: Duration| left.checked_sub(took).filter(|left| !left.is_zero());
        self.strike = self.strike.and_then(less);
        self.doubted = (self.doubted).and_then(|(below, left)| Some((below, less(left)?)));
    }

    /// A whole window without an error.
    pub(super) fn ran_clean(&mut self, value: u64) {
        self.clean = self.clean.max(value);
        // It was chance.
        self.erred_at = self.erred_at.filter(|at| *at > value);
    }

    /// Errors came; whether it is because of the number.
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
