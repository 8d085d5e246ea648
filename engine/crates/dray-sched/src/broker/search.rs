//! The search for a plan, first by filling, then by linear programming.

use super::fill::{self, Fill};
use super::interior;
use super::need::{Grid, Need};
use super::plan::Plan;

/// Maximum number of demands for which linear programming is used. The limit applies to each part
/// of a need ([`Need::parts`]). Larger parts are planned by filling only. A part of this size takes
/// a quarter of a second, and the time grows with the third power of the number of demands.
pub const PROGRAM_DEMANDS_MAX: usize = 256;

/// Returns a plan for one part of a need. Returns `None` if no plan exists. If the part has more
/// than [`PROGRAM_DEMANDS_MAX`] demands, a plan may exist although the result is `None`.
///
/// Tries three methods in order:
///
/// 1. Even filling, which gives each transfer one constant rate as far as the capacities allow.
/// 2. Filling by earliest deadline. On one resource without ceilings, it finds a plan if there is
///    one.
/// 3. Linear programming, unless a single resource already proves that no plan exists.
///
/// The first two methods cost O(demands * intervals * resources).
#[must_use]
pub fn find(need: &Need) -> Option<Plan> {
    find_even(need).or_else(|| find_early(need))
}

/// Returns a plan by even filling. Returns `None` if the demands do not fit.
pub(crate) fn find_even(need: &Need) -> Option<Plan> {
    if need.overheld().is_some() {
        return None;
    }
    fill::plan(need, &Grid::new(need), Fill::Even)
}

/// Returns a plan in which early deadlines are served first. Returns `None` if no plan is found.
pub(crate) fn find_early(need: &Need) -> Option<Plan> {
    if need.overheld().is_some() {
        return None;
    }
    let grid = Grid::new(need);
    if let Some(plan) = fill::plan(need, &grid, Fill::Earliest) {
        return Some(plan);
    }
    if need.demands.len() > PROGRAM_DEMANDS_MAX || fill::is_impossible(need, &grid) {
        return None;
    }
    interior::plan(need, &grid)
}

/// Returns true if filling by earliest deadline finds a plan. This is a fast test. A result of
/// false does not prove that there is no plan.
pub(crate) fn is_found_quickly(need: &Need) -> bool {
    need.overheld().is_none() && fill::plan(need, &Grid::new(need), Fill::Earliest).is_some()
}
