//! Divides among the transfers the capacity that the plan does not use. No capacity stays unused if
//! a transfer could use it.

use crate::shares::{Share, Tree};
use dray_core::rate::{BytesPerSecond, Class};
use std::collections::BTreeMap;

/// Maximum number of rounds before the remaining capacity is given to one transfer after the other.
/// In each round, the rate of a transfer is its share of its scarcest resource. On its other
/// resources, a part of its share may then be unused. The next round divides the unused capacity.
/// Few rounds are needed: with transfers on two resources, the capacity that is not yet divided at
/// least halves in each round.
const ROUNDS_MAX: usize = 16;

/// A transfer that could use more rate.
#[derive(Debug, Clone)]
pub(crate) struct Sharer<'a> {
    pub(crate) class: Class,
    pub(crate) owner: &'a str,
    pub(crate) owner_weight: u32,
    pub(crate) weight: u32,
    /// Planned rate in bytes per second.
    pub(crate) planned: u64,
    /// Maximum rate that the transfer can use, in bytes per second.
    pub(crate) most: u64,
    /// Indices of the resources that the transfer uses.
    pub(crate) resources: &'a [usize],
}

impl Sharer<'_> {
    fn room(&self, left: &[Option<u64>]) -> Option<u64> {
        let known = self.resources.iter().filter_map(|resource| left[*resource]);
        known.min()
    }
}

fn weight(weight: u32) -> Share {
    Share {
        weight,
        ..Share::default()
    }
}

/// Gives each transfer its planned rate, in the given order, as far as the capacity allows. Then
/// divides the remaining capacity. Realtime transfers get as much as they can use. The classes
/// deadline and background share the remainder by `weights`. The rate of a class is divided among
/// its owners, and the rate of an owner among the owner's transfers. Returns bytes per second for
/// each transfer. A transfer without a resource of known capacity is limited only by its own
/// maximum.
///
/// With equal weights on several resources, the result is a max-min share up to rounding: no
/// transfer could get more without another transfer getting less. O(rounds * resources * n log n).
pub(crate) fn divide(
    sharers: &[Sharer<'_>],
    capacities: &[Option<u64>],
    weights: (u32, u32),
) -> Vec<u64> {
    let mut left = capacities.to_vec();
    let mut given = vec![0; sharers.len()];
    for (index, sharer) in sharers.iter().enumerate() {
        let part = (sharer.planned.min(sharer.most)).min(sharer.room(&left).unwrap_or(u64::MAX));
        give(sharer, part, &mut given[index], &mut left);
    }
    let (first, rest): (Vec<usize>, Vec<usize>) =
        (0..sharers.len()).partition(|index| sharers[*index].class == Class::Realtime);
    for group in [first, rest] {
        for _ in 0..ROUNDS_MAX {
            if !round(sharers, &group, weights, &mut given, &mut left) {
                break;
            }
        }
        for index in group {
            let sharer = &sharers[index];
            let open = sharer.most - given[index];
            let part = open.min(sharer.room(&left).unwrap_or(u64::MAX));
            give(sharer, part, &mut given[index], &mut left);
        }
    }
    given
}

fn give(sharer: &Sharer<'_>, part: u64, given: &mut u64, left: &mut [Option<u64>]) {
    *given += part;
    for resource in sharer.resources {
        if let Some(left) = &mut left[*resource] {
            *left -= part;
        }
    }
}

/// Divides capacity among the transfers in `group` in one round. Returns false if no transfer got
/// any.
fn round(
    sharers: &[Sharer<'_>],
    group: &[usize],
    (deadline, background): (u32, u32),
    given: &mut [u64],
    left: &mut [Option<u64>],
) -> bool {
    let open: Vec<usize> = (group.iter().copied())
        .filter(|index| {
            sharers[*index].most > given[*index]
                && sharers[*index].room(left).is_some_and(|room| room > 0)
        })
        .collect();
    let mut parts: BTreeMap<usize, u64> = BTreeMap::new();
    for (resource, capacity) in left.iter().enumerate() {
        let Some(capacity) = capacity else { continue };
        let mut tree = Tree::new(Some(BytesPerSecond(*capacity)));
        let mut classes = BTreeMap::new();
        let mut owners = BTreeMap::new();
        let mut leaves = Vec::new();
        for index in &open {
            let sharer = &sharers[*index];
            if !sharer.resources.contains(&resource) {
                continue;
            }
            let root = tree.root();
            let class = *classes.entry(sharer.class).or_insert_with(|| {
                let part = match sharer.class {
                    Class::Realtime | Class::Deadline => deadline,
                    Class::Background => background,
                };
                tree.add(root, weight(part))
            });
            let owner = *owners
                .entry((sharer.class, sharer.owner))
                .or_insert_with(|| tree.add(class, weight(sharer.owner_weight)));
            let demand = BytesPerSecond(sharer.most - given[*index]);
            leaves.push((
                *index,
                tree.add_leaf(owner, weight(sharer.weight), Some(demand)),
            ));
        }
        let grants = tree.allocate();
        for (index, leaf) in leaves {
            let rate = grants.rate(leaf).map_or(u64::MAX, |rate| rate.0);
            let part = parts.entry(index).or_insert(u64::MAX);
            *part = rate.min(*part);
        }
    }
    let mut did_give = false;
    for (index, part) in parts {
        // Earlier transfers of this loop may have used up a resource, so limit the part again.
        let part = part.min(sharers[index].room(left).unwrap_or(0));
        give(&sharers[index], part, &mut given[index], left);
        did_give |= part > 0;
    }
    did_give
}
