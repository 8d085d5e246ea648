//! Makes plans by filling: takes the demands in the order of their deadlines, and places each in
//! the remaining capacity.

use super::need::{Demand, Grid, Need};
use super::plan::Plan;
use super::wish::bytes_in;

/// Distribution of a demand's bytes within its time window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// At one rate through the whole window, as far as the capacity allows. No transfer runs faster
    /// than necessary, so spare capacity is available early.
    Even,
    /// As early as possible. On a single resource without ceilings this is preemptive EDF, which
    /// finds a plan if there is one.
    Earliest,
}

/// Places all demands of a need. Returns `None` if this way of filling does not fit them all.
pub(crate) fn plan(need: &Need, grid: &Grid, fill: Fill) -> Option<Plan> {
    let mut grid = grid.clone();
    let mut amounts = vec![vec![0; grid.intervals()]; need.demands.len()];
    for index in order(need) {
        let demand = &need.demands[index];
        let left = place(&mut grid, demand, demand.bytes, fill, &mut amounts[index]);
        if left > 0 {
            return None;
        }
    }
    Some(Plan {
        cuts: grid.cuts,
        keys: need.demands.iter().map(|demand| demand.key).collect(),
        amounts,
    })
}

/// Returns the indices of the demands, sorted by deadline, then by start, then by key.
pub(crate) fn order(need: &Need) -> Vec<usize> {
    let mut order: Vec<usize> = (0..need.demands.len()).collect();
    order.sort_by_key(|index| {
        let demand = &need.demands[*index];
        (demand.until, demand.from, demand.key)
    });
    order
}

/// Places up to `bytes` bytes of a demand in the intervals of `grid`, and adds the bytes of each
/// interval to `amounts`. Returns the number of bytes that did not fit.
pub(crate) fn place(
    grid: &mut Grid,
    demand: &Demand,
    bytes: u64,
    fill: Fill,
    amounts: &mut [u64],
) -> u64 {
    let rate = match fill {
        Fill::Even => level(grid, demand, bytes),
        Fill::Earliest => u64::MAX,
    };
    let mut left = bytes;
    for interval in grid.window(demand) {
        let own = demand.ceiling.unwrap_or(u64::MAX);
        let nanos = grid.nanos(interval);
        // The ceiling also applies to bytes that were placed earlier.
        let own = bytes_in(own, nanos).saturating_sub(amounts[interval]);
        let even = if rate == u64::MAX {
            u64::MAX
        } else {
            // Round up, so that a short interval does not lose a byte.
            bytes_in(rate, nanos).saturating_add(1)
        };
        let part = grid.free(demand, interval).min(own).min(even).min(left);
        grid.take(demand, interval, part);
        amounts[interval] += part;
        left -= part;
        if left == 0 {
            break;
        }
    }
    left
}

/// Returns the lowest rate at which all bytes fit. If they do not fit at any rate, returns
/// `u64::MAX`.
fn level(grid: &Grid, demand: &Demand, bytes: u64) -> u64 {
    let free: Vec<(u64, u64)> = (grid.window(demand))
        .map(|interval| (grid.nanos(interval), grid.free(demand, interval)))
        .collect();
    let placed = |rate: u64| -> u128 {
        let part = |&(nanos, free): &(u64, u64)| u128::from(bytes_in(rate, nanos).min(free));
        free.iter().map(part).sum()
    };
    if placed(u64::MAX) < u128::from(bytes) {
        return u64::MAX;
    }
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if placed(middle) < u128::from(bytes) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns true if there is certainly no plan. There are two such cases: a demand does not fit even
/// alone, or one resource is overloaded even if ceilings and other resources are ignored. No other
/// planning method finds a plan in these cases.
pub(crate) fn is_impossible(need: &Need, grid: &Grid) -> bool {
    let alone = |demand: &Demand| {
        let free = grid
            .window(demand)
            .map(|interval| u128::from(grid.free(demand, interval)));
        free.sum::<u128>() < u128::from(required(demand))
    };
    need.demands.iter().any(alone)
        || (0..need.capacities.len()).any(|resource| does_overload(need, grid, resource))
}

/// Returns true if the demands overload a resource, even if their ceilings and all other resources
/// are ignored.
pub(crate) fn does_overload(need: &Need, grid: &Grid, resource: usize) -> bool {
    if grid.room[resource].is_none() {
        return false;
    }
    let demands = (need.demands.iter()).filter(|demand| demand.resources.contains(&resource));
    let relaxed = Need {
        now: need.now,
        capacities: need.capacities.clone(),
        demands: demands
            .map(|demand| Demand {
                bytes: required(demand),
                ceiling: None,
                resources: vec![resource],
                ..demand.clone()
            })
            .collect(),
        holds: Vec::new(),
    };
    plan(&relaxed, grid, Fill::Earliest).is_none()
}

/// Returns the minimum number of bytes of a demand that the linear program must place: its size
/// minus the permitted shortfall.
fn required(demand: &Demand) -> u64 {
    demand
        .bytes
        .saturating_sub(super::plan::short_max(demand.bytes))
}
