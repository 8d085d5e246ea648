//! Triage: determines which promises can be kept, and the cause of each miss.

use super::need::{Need, Padding};
use super::plan::Plan;
use super::search;
use super::wish::{ResourceId, TransferKey, Wish};
use dray_core::Time;
use dray_core::rate::Class;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of transfers tried for each one that does not fit; the first that frees enough is
/// given up.
const VICTIMS_MAX: usize = 8;

/// Maximum number of transfers given up by rule that are tried once more with all methods, the
/// smallest first.
const SECOND_CHANCES_MAX: usize = 4;

/// A promise that will not be kept, as certain as the capacities are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// The transfer.
    pub key: TransferKey,
    /// Cause of the miss.
    pub cause: Cause,
    /// Earliest finish with all other promises kept; for a rate, the earliest time at which it is
    /// available.
    pub earliest: Option<Time>,
}

/// Cause of a missed promise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A resource gives less than before; the listed promises on it are kept.
    Resource(ResourceId, Vec<TransferKey>),
    /// The transfer moves slower than its rate permits: its disks, its files or its peer limit it.
    Slow,
    /// Its deadline has passed.
    Over,
}

/// Promises divided into kept ones, with the proof, and the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// The kept promises, part by part, with a plan for each.
    pub(crate) parts: Vec<(Need, Plan)>,
    /// The lost promises, each with the index of the limiting resource.
    pub(crate) lost: Vec<(TransferKey, usize)>,
}

/// Requests and resource indices of the transfers, which triage needs in addition to their need.
pub(crate) type Wishes<'a> = BTreeMap<TransferKey, (&'a Wish, Vec<usize>)>;

/// Needs without demands, one for each capacity outlook.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outlooks<'a> {
    pub(crate) low: &'a Need,
    pub(crate) mean: &'a Need,
    pub(crate) high: &'a Need,
}

/// Keeps as many promises as it can. Gives up only promises that do not fit even with the capacity
/// of good times.
///
/// If not all fit, Moore and Hodgson's rule (1968) chooses: in the order of deadlines, whenever one
/// does not fit with those before it, the one with the most bytes among them is given up. On one
/// resource with a common start that leaves the fewest late; elsewhere it is a heuristic. A
/// realtime promise is not given up in favour of another class.
pub(crate) fn keep(outlooks: &Outlooks<'_>, wishes: &Wishes<'_>) -> Kept {
    let mut kept = Kept::default();
    let mut all = outlooks.mean.clone();
    for (wish, resources) in wishes.values() {
        all.add(wish, resources, Padding::With);
    }
    for part in all.parts() {
        if let Some(plan) = even_if_steady(&part, outlooks.low) {
            kept.parts.push((part, plan));
            continue;
        }
        if let Some(plan) = search::find_early(&part) {
            kept.parts.push((part, plan));
            continue;
        }
        let mut bare = bare(outlooks.mean, &part, wishes);
        if let Some(plan) = search::find_early(&bare) {
            kept.parts.push((bare, plan));
            continue;
        }
        // At the high outlook all still fit: no promise is given up, and the earliest deadline gets
        // all it needs.
        bare.capacities.clone_from(&outlooks.high.capacities);
        if let Some(plan) = search::find_early(&bare) {
            kept.parts.push((bare, plan));
            continue;
        }
        reduce(&bare, outlooks.low, wishes, &mut kept);
    }
    kept
}

/// Returns an even plan if capacities are steady. If they vary, spare time is uncertain, so
/// transfers run as early as possible.
fn even_if_steady(part: &Need, low: &Need) -> Option<Plan> {
    (low.capacities == part.capacities)
        .then(|| search::find_even(part))
        .flatten()
}

/// Returns a part's transfers without padding.
fn bare(empty: &Need, part: &Need, wishes: &Wishes<'_>) -> Need {
    let mut bare = empty.clone();
    for (wish, resources) in keys(part).iter().filter_map(|key| wishes.get(key)) {
        bare.add(wish, resources, Padding::Without);
    }
    bare
}

fn keys(need: &Need) -> Vec<TransferKey> {
    let demands = need.demands.iter().map(|demand| demand.key);
    let mut keys: Vec<_> = demands
        .chain(need.holds.iter().map(|hold| hold.key))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn reduce(part: &Need, low: &Need, wishes: &Wishes<'_>, kept: &mut Kept) {
    let class =
        |key: &TransferKey| (wishes.get(key)).map_or(Class::Background, |(wish, _)| wish.class);
    let mut lost = Vec::new();
    let mut part = part.clone();
    while let Some((resource, time)) = part.overheld() {
        let on = part.holds.iter().filter(|hold| {
            hold.resources.contains(&resource)
                && hold.from <= time
                && hold.until.is_none_or(|until| time < until)
        });
        // The latest transfer of the lowest class.
        let Some(victim) = on.map(|hold| hold.key).max_by_key(|key| (class(key), *key)) else {
            break;
        };
        lost.push((victim, resource));
        part = part.without(&[victim]);
    }
    let mut fits = Need {
        demands: Vec::new(),
        ..part.clone()
    };
    for index in super::fill::order(&part) {
        let demand = part.demands[index].clone();
        let resources = demand.resources.clone();
        fits.demands.push(demand.clone());
        if search::is_found_quickly(&fits) {
            continue;
        }
        let shares = |other: &&super::need::Demand| {
            (other.resources.iter()).any(|resource| resources.contains(resource))
        };
        let mut victims: Vec<_> = (fits.demands.iter().filter(shares))
            .map(|other| {
                (
                    Reverse(class(&other.key)),
                    Reverse(other.bytes),
                    Reverse(other.key),
                )
            })
            .collect();
        victims.sort_unstable();
        let frees = |key: TransferKey| search::is_found_quickly(&fits.without(&[key]));
        let victim = (victims.iter().take(VICTIMS_MAX))
            .map(|(_, _, Reverse(key))| *key)
            .find(|key| *key == demand.key || frees(*key))
            .unwrap_or(demand.key);
        let resource = in_the_way(&fits, &victim);
        fits = fits.without(&[victim]);
        lost.push((victim, resource));
    }
    let of_part = |key: &TransferKey| part.demands.iter().find(|demand| demand.key == *key);
    let mut again: Vec<_> = (lost.iter().filter_map(|(key, _)| of_part(key))).collect();
    again.sort_by_key(|demand| (class(&demand.key), demand.bytes, demand.key));
    for demand in again.into_iter().take(SECOND_CHANCES_MAX) {
        let mut more = fits.clone();
        more.demands.push(demand.clone());
        if search::find(&more).is_some() {
            fits = more;
            lost.retain(|(key, _)| *key != demand.key);
        }
    }
    let plan = even_if_steady(&fits, low).or_else(|| search::find_early(&fits));
    if let Some(plan) = plan {
        kept.parts.push((fits, plan));
    }
    kept.lost.extend(lost);
}

/// Returns the resource of a transfer with the highest demand relative to its capacity until the
/// deadline.
fn in_the_way(need: &Need, key: &TransferKey) -> usize {
    let Some(own) = need.demands.iter().find(|demand| demand.key == *key) else {
        return 0;
    };
    let pressure = |resource: &usize| {
        let capacity = need.capacities[*resource]?;
        let bytes: u128 = (need.demands.iter())
            .filter(|demand| demand.until <= own.until && demand.resources.contains(resource))
            .map(|demand| u128::from(demand.bytes))
            .sum();
        let held = need.held(*resource, need.now);
        let left = u128::from(capacity).saturating_sub(held).max(1);
        Some((bytes << 32) / left)
    };
    let resources = own.resources.iter().copied();
    resources
        .max_by_key(|resource| (pressure(resource), Reverse(*resource)))
        .unwrap_or(0)
}
