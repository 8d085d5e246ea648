//! Turns among parties, by weight.

use std::collections::BTreeMap;

/// Length of a step with weight one. It is divisible by many weights, and much larger than all
/// weights, so rounding hardly changes a step.
const STEP: u64 = 5_040 * 1_000_000;

/// Turns by start-time fair queuing (Goyal, Vin and Cheng, 1996). Each turn moves a party forward
/// by 1/weight of a step. The party that is farthest behind is next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Position of the party that was served last. No party is behind it. So a party that was
    /// absent, or could not start because of a limit, does not save up turns.
    front: u64,
    /// Positions of the parties ahead of `front`, at most one step ahead.
    ahead: BTreeMap<String, u64>,
}

impl Round {
    /// Returns the position of a party. The party with the lowest position is next.
    pub(super) fn place(&self, name: &str) -> u64 {
        self.ahead.get(name).copied().unwrap_or(self.front)
    }

    /// Records that a party was served.
    pub(super) fn serve(&mut self, name: &str, weight: u32) {
        self.front = self.place(name);
        let place = (self.front).saturating_add(STEP / u64::from(weight.max(1)));
        self.ahead.insert(name.to_owned(), place);
        let front = self.front;
        self.ahead.retain(|_, place| *place > front);
    }
}
