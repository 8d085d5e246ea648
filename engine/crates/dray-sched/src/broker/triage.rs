//! Triage: determines which promises can be kept, and the cause of each missed promise.

use super::need::{Need, Padding};
use super::plan::Plan;
use super::search;
use super::wish::{ResourceId, TransferKey, Wish};
use dray_core::Time;
use dray_core::rate::Class;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Triage adds the transfers one after the other. If they do not fit after an addition, it tries to
/// give up one of at most this many transfers. If none of these makes enough room for the others,
/// triage gives up the transfer that it added last.
const VICTIMS_MAX: usize = 8;

/// Maximum number of given-up transfers that are tried again with all planning methods, by class,
/// then the smallest first.
const SECOND_CHANCES_MAX: usize = 4;

/// A promise that will be missed, as far as the capacities are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Cause of the miss.
    pub cause: Cause,
    /// Earliest finish if all other promises are kept. For a promised rate: the earliest time at
    /// which the rate is available.
    pub earliest: Option<Time>,
}

/// Cause of a missed promise.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A resource has less capacity than before. The listed promises on the resource are kept.
    Resource(ResourceId, Vec<TransferKey>),
    /// The transfer is slower than the rate that it is permitted. The cause is its disks, its files
    /// or its peer.
    Slow,
    /// The deadline of the transfer has passed.
    Over,
}

/// All promises, divided into kept promises and lost promises.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// Parts of the need with the kept promises, each with a plan that proves them.
    pub(crate) parts: Vec<(Need, Plan)>,
    /// The lost promises, each with the index of the resource that limits it.
    pub(crate) lost: Vec<(TransferKey, usize)>,
}

/// The request of each transfer and the indices of its resources. Triage needs them in addition to
/// the transfer's need.
pub(crate) type Wishes<'a> = BTreeMap<TransferKey, (&'a Wish, Vec<usize>)>;

/// Needs without demands, one for each assumption about the capacity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outlooks<'a> {
    pub(crate) low: &'a Need,
    pub(crate) mean: &'a Need,
    pub(crate) high: &'a Need,
}

/// Keeps as many promises as possible. No promise is given up if all promises fit into the high
/// outlook, which is the capacity in the best tenth of the time.
///
/// If not all promises fit, the rule of Moore and Hodgson (1968) chooses the promises to give up.
/// The rule adds the promises in the order of their deadlines. Whenever a promise does not fit
/// together with the promises added before, the rule gives up the promise with the most bytes,
/// which may be the new promise or an earlier one. If all promises use one resource and have the
/// same start, the rule misses as few promises as possible. In other cases, the rule is a
/// heuristic. A realtime promise is never given up for another class.
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
        // If all promises fit into the capacities of the high outlook, no promise is given up. If
        // the real capacity is lower, the transfers with the earliest deadlines get it first.
        bare.capacities.clone_from(&outlooks.high.capacities);
        if let Some(plan) = search::find_early(&bare) {
            kept.parts.push((bare, plan));
            continue;
        }
        reduce(&bare, outlooks.low, wishes, &mut kept);
    }
    kept
}

/// Returns an even plan if capacities are constant. If capacities vary, later capacity is
/// uncertain, so transfers should run as early as possible.
fn even_if_steady(part: &Need, low: &Need) -> Option<Plan> {
    (low.capacities == part.capacities)
        .then(|| search::find_even(part))
        .flatten()
}

/// Returns the need of a part's transfers without the excess of [`Padding::With`].
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
        // Give up the newest transfer of the lowest class.
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

/// Returns the resource that limits a transfer most. This is the resource with the highest demand
/// until the transfer's deadline, relative to the capacity of the resource.
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
