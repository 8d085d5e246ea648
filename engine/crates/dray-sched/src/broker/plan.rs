//! Plans, which prove that promises can be kept together, and a check of plans.

use super::need::Need;
use super::wish::{TransferKey, rate_for};
use dray_core::Time;
use std::fmt;

/// Returns the permitted shortfall of a demand in a plan: one byte in 4,096 plus 1,024 bytes. The
/// first part allows for the precision of the linear program, one part in 10,000. The second part
/// allows for rounding in each interval. A promise is still kept with this shortfall, because
/// admission plans for more bytes than a promise has left, and this excess is larger than the
/// shortfall ([`padded`](super::need::padded)).
pub(crate) const fn short_max(bytes: u64) -> u64 {
    bytes / 4_096 + 1_024
}

/// A plan: the number of bytes that each demand moves in each interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Borders of the intervals. There is one more border than intervals.
    pub cuts: Vec<Time>,
    /// Transfer of each row of `amounts`, in the order of the need's demands.
    pub keys: Vec<TransferKey>,
    /// Number of bytes, by demand and interval.
    pub amounts: Vec<Vec<u64>>,
}

impl Plan {
    /// Returns the rate of a demand in the first interval, in bytes per second, rounded up.
    pub(crate) fn rate(&self, demand: usize) -> u64 {
        match self.amounts[demand].first() {
            Some(bytes) => rate_for(*bytes, self.cuts[1].as_nanos() - self.cuts[0].as_nanos()),
            None => 0,
        }
    }

    /// Returns the rate of a demand in the first interval in which the plan moves bytes of the
    /// demand, in bytes per second, rounded up.
    pub(crate) fn first_rate(&self, demand: usize) -> u64 {
        let first = self.amounts[demand].iter().position(|bytes| *bytes > 0);
        first.map_or(0, |at| {
            let nanos = self.cuts[at + 1].as_nanos() - self.cuts[at].as_nanos();
            rate_for(self.amounts[demand][at], nanos)
        })
    }

    /// Returns the time at which a demand has moved all its bytes according to the plan.
    pub(crate) fn finish(&self, demand: usize) -> Time {
        let last = self.amounts[demand].iter().rposition(|bytes| *bytes > 0);
        last.map_or(self.cuts[0], |interval| self.cuts[interval + 1])
    }
}

/// Error in a plan, found by [`check`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// The plan does not match the need: the demands of the plan differ from those of the need, or
    /// the intervals of the plan are not in order.
    Shape,
    /// A demand is assigned too few bytes. The number is the shortfall in bytes.
    Short(TransferKey, u64),
    /// A demand moves bytes outside of its window.
    Window(TransferKey),
    /// A demand exceeds its ceiling in an interval.
    Ceiling(TransferKey, usize),
    /// Demands and reserved rates together exceed the capacity of a resource in an interval.
    Overdrawn(usize, usize),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => write!(f, "the plan does not match the transfers"),
            Self::Short(key, bytes) => write!(f, "transfer {} lacks {bytes} bytes", key.0),
            Self::Window(key) => write!(
                f,
                "the plan moves transfer {} outside its time window",
                key.0
            ),
            Self::Ceiling(key, at) => write!(
                f,
                "the plan moves transfer {} above its rate limit \
                in interval {at}",
                key.0
            ),
            Self::Overdrawn(resource, at) => write!(
                f,
                "the plan exceeds the capacity of resource {resource} in interval {at}"
            ),
        }
    }
}

/// Checks a plan against a need. The check follows the definition of a valid plan, and shares no
/// code with the functions that make plans. O(demands * intervals * resources).
///
/// # Errors
/// The first error found in the plan.
pub fn check(need: &Need, plan: &Plan) -> Result<(), Flaw> {
    const SECOND: u128 = 1_000_000_000;
    let is_same = plan.keys.len() == need.demands.len()
        && plan.amounts.len() == plan.keys.len()
        && (plan.keys.iter().zip(&need.demands)).all(|(key, demand)| *key == demand.key)
        && plan.cuts.windows(2).all(|pair| pair[0] < pair[1])
        && plan.cuts.first().is_none_or(|first| *first >= need.now)
        && (plan.amounts.iter()).all(|row| row.len() == plan.cuts.len().saturating_sub(1));
    if !is_same {
        return Err(Flaw::Shape);
    }
    for (row, demand) in plan.amounts.iter().zip(&need.demands) {
        let sum: u128 = row.iter().map(|bytes| u128::from(*bytes)).sum();
        let owed = u128::from(demand.bytes.saturating_sub(short_max(demand.bytes)));
        if sum < owed {
            let missing = u64::try_from(owed - sum).unwrap_or(u64::MAX);
            return Err(Flaw::Short(demand.key, missing));
        }
    }
    for (at, pair) in plan.cuts.windows(2).enumerate() {
        let nanos = u128::from(pair[1].as_nanos() - pair[0].as_nanos());
        let mut used = vec![0u128; need.capacities.len()];
        for (row, demand) in plan.amounts.iter().zip(&need.demands) {
            let bytes = u128::from(row[at]) * SECOND;
            if bytes > 0 && (pair[0] < demand.from || pair[1] > demand.until) {
                return Err(Flaw::Window(demand.key));
            }
            if (demand.ceiling).is_some_and(|ceiling| bytes > u128::from(ceiling) * nanos) {
                return Err(Flaw::Ceiling(demand.key, at));
            }
            for resource in &demand.resources {
                used[*resource] += bytes;
            }
        }
        for hold in &need.holds {
            let from = hold.from.max(pair[0]).as_nanos();
            let until = hold.until.map_or(pair[1], |until| until.min(pair[1]));
            let held = u128::from(until.as_nanos().saturating_sub(from));
            for resource in &hold.resources {
                used[*resource] += u128::from(hold.rate) * held;
            }
        }
        for (resource, capacity) in need.capacities.iter().enumerate() {
            if capacity.is_some_and(|capacity| used[resource] > u128::from(capacity) * nanos) {
                return Err(Flaw::Overdrawn(resource, at));
            }
        }
    }
    Ok(())
}
