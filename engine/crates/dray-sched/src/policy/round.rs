//! Turns by weight.

use std::collections::BTreeMap;

/// A step of weight one. Divisible by many weights, and large against all of them.
const STEP: u64 = 5_040 * 1_000_000;

/// Whose turn it is: start-time fair queuing (Goyal, Vin and Cheng, 1996). Each start costs a step of
/// the length 1/weight, and who stands the farthest back is next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Where the last one stood who was served. Nobody stands behind it: who was away, or held up
    /// by a limit, has saved no turns.
    front: u64,
    /// Where those stand who are ahead of that, by one step at the most.
    ahead: BTreeMap<String, u64>,
}

impl Round {
    /// Where somebody stands; the least is next.
    pub(super) fn place(&self, name: &str) -> u64 {
        self.ahead.get(name).copied().unwrap_or(self.front)
    }

    /// Somebody has had a turn.
    pub(super) fn serve(&mut self, name: &str, weight: u32) {
        self.front = self.place(name);
        let place = (self.front).saturating_add(STEP / u64::from(weight.max(1)));
        self.ahead.insert(name.to_owned(), place);
        let front = self.front;
        self.ahead.retain(|_, place| *place > front);
    }
}
