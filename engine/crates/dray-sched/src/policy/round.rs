//! Turns by weight.

use std::collections::BTreeMap;

/// A step of weight one. Divisible by many weights, and large against all of them.
const STEP: u64 = 5_040 * 1_000_000;

/// Turns by start-time fair queuing (Goyal, Vin and Cheng, 1996). Each start moves a party by a
/// step of length 1/weight, and the party farthest back is next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Position of the last served party. No party is behind it: a party that was absent, or held
    /// back by a limit, has saved no turns.
    front: u64,
    /// Positions of the parties ahead of `front`, by at most one step.
    ahead: BTreeMap<String, u64>,
}

impl Round {
    /// Returns the position of a party; the lowest is next.
    pub(super) fn place(&self, name: &str) -> u64 {
        self.ahead.get(name).copied().unwrap_or(self.front)
    }

    /// Records a turn of a party.
    pub(super) fn serve(&mut self, name: &str, weight: u32) {
        self.front = self.place(name);
        let place = (self.front).saturating_add(STEP / u64::from(weight.max(1)));
        self.ahead.insert(name.to_owned(), place);
        let front = self.front;
        self.ahead.retain(|_, place| *place > front);
    }
}
