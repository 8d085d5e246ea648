//! The search for plans: by filling first, then by linear programming.

use super::fill::{self, Fill};
use super::interior;
use super::need::{Grid, Need};
use super::plan::Plan;

/// Maximum number of demands in a part that is planned by linear programming; larger parts are
/// planned by filling alone. A part of this size takes a quarter of a second, and work grows with
/// the third power.
pub const PROGRAM_DEMANDS_MAX: usize = 256;

/// Returns a plan for one part of a need; `None` if there is none, or if none was found for a part
/// of more than [`PROGRAM_DEMANDS_MAX`] demands.
///
/// Tries even filling first, which suits each transfer best if nothing limits it; then the earliest
/// deadline first, which is exact on one resource without ceilings; then linear programming, unless
/// a single resource shows that a plan is impossible. O(n * intervals * resources) without the
/// last.
#[must_use]
pub fn find(need: &Need) -> Option<Plan> {
    find_even(need).or_else(|| find_early(need))
}

/// Returns the even plan, if it fits.
pub(crate) fn find_even(need: &Need) -> Option<Plan> {
    if need.overheld().is_some() {
        return None;
    }
    fill::plan(need, &Grid::new(need), Fill::Even)
}

/// Returns a plan with the earliest deadline first, if one fits.
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

/// Returns true if filling by earliest deadline finds a plan: quick, and sound.
pub(crate) fn is_found_quickly(need: &Need) -> bool {
    need.overheld().is_none() && fill::plan(need, &Grid::new(need), Fill::Earliest).is_some()
}
