//! Estimates the finish times of transfers.

use super::triage::Kept;
use super::wish::{TransferKey, Wish};
use super::{Broker, Outlook};
use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use dray_core::time::nanos;

/// Maximum number of rate changes that an estimate follows. The estimate assumes that the rates
/// stay constant afterwards.
const STEPS_MAX: usize = 64;

/// Estimated finish of a transfer if no transfer is added or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eta {
    /// Time at which the transfer finishes if every capacity stays as high as in the best tenth of
    /// the time ([`Outlook::High`]).
    pub early: Time,
    /// Time at which the transfer finishes if every capacity stays as low as in the worst tenth of
    /// the time ([`Outlook::Low`]). `None` if the transfer makes no progress at that capacity.
    pub late: Option<Time>,
}

impl Broker {
    /// Returns the finish times of the transfer `key`, by simulating the rates until it has
    /// finished. Returns `None` if its size is unknown, or if it makes no progress. Follows at most
    /// `STEPS_MAX` rate changes. The cost of each step is that of [`Broker::rates`].
    #[must_use]
    pub fn eta(&self, key: TransferKey, now: Time) -> Option<Eta> {
        let early = self.follow(key, Outlook::High, now)?;
        let late = self.follow(key, Outlook::Low, now);
        Some(Eta { early, late })
    }

    fn follow(&self, key: TransferKey, outlook: Outlook, now: Time) -> Option<Time> {
        let mut ahead = self.clone();
        let mut now = now;
        let bytes = self.transfers.get(&key)?.wish.bytes?;
        if bytes == 0 {
            return Some(now);
        }
        for step in 0..STEPS_MAX {
            let kept = ahead.kept_at(outlook, now);
            let rates = ahead.divided(&kept, outlook, now);
            let is_last = step + 1 == STEPS_MAX;
            let mut next: Option<Time> = None;
            let mut meet = |time: Time| next = Some(next.map_or(time, |first| first.min(time)));
            for rate in &rates {
                let given = rate.given.unwrap_or(BytesPerSecond(u64::MAX));
                let left = ahead.transfers.get(&rate.key)?.wish.bytes;
                let done = left.and_then(|left| given.time_for(left));
                if rate.key == key && is_last {
                    return done.map(|lasts| now + lasts);
                }
                if let Some(lasts) = done.filter(|_| left != Some(0)) {
                    meet(now + lasts);
                }
            }
            for taken in ahead.transfers.values() {
                taken
                    .wish
                    .not_before
                    .filter(|time| *time > now)
                    .map(&mut meet);
            }
            for (_, plan) in &kept.parts {
                plan.cuts.get(1).copied().map(&mut meet);
            }
            let next = next?;
            let passed = u64::try_from(next.since(now).as_nanos()).unwrap_or(u64::MAX);
            for rate in &rates {
                let given = rate.given.map_or(u64::MAX, |rate| rate.0);
                // Round up. Otherwise a transfer that ends at `next` could have a byte left.
                let moved = (u128::from(given) * u128::from(passed)).div_ceil(1_000_000_000);
                let moved = u64::try_from(moved).unwrap_or(u64::MAX);
                let taken = ahead.transfers.get_mut(&rate.key)?;
                taken.wish.bytes = taken.wish.bytes.map(|left| left.saturating_sub(moved));
            }
            now = next;
            if ahead.transfers.get(&key)?.wish.bytes == Some(0) {
                return Some(now);
            }
            ahead
                .transfers
                .retain(|_, taken| taken.wish.bytes != Some(0));
        }
        None
    }
}

/// Capacity of each resource that the plans leave free, for each interval of the plans.
#[derive(Debug, Clone)]
pub(super) struct Left {
    /// Start of each interval. The last interval has no end.
    cuts: Vec<Time>,
    /// Free bytes per second, by resource and interval. `None` for a resource of unknown capacity.
    free: Vec<Option<Vec<u64>>>,
}

impl Left {
    /// Computes the capacity that the plans of all transfers except `but` leave free. O(promises *
    /// intervals).
    pub(super) fn new(broker: &Broker, kept: &Kept, but: Option<TransferKey>, now: Time) -> Self {
        let capacities = broker.empty_need(now).capacities;
        let mut cuts = vec![now];
        for (need, plan) in &kept.parts {
            cuts.extend(plan.cuts.iter().copied());
            let held = need.holds.iter();
            cuts.extend(
                held.flat_map(|hold| [Some(hold.from), hold.until])
                    .flatten(),
            );
        }
        cuts.retain(|cut| *cut >= now);
        cuts.sort_unstable();
        cuts.dedup();
        let at = |time: Time| cuts.partition_point(|cut| *cut < time);
        // For each interval border: the rates that begin there, and the rates that end there.
        let none = vec![(0u128, 0u128); cuts.len() + 1];
        let mut uses = vec![none; capacities.len()];
        let mut add = |resources: &[usize], from: usize, until: usize, rate: u64| {
            for resource in resources {
                uses[*resource][from].0 += u128::from(rate);
                uses[*resource][until].1 += u128::from(rate);
            }
        };
        for (need, plan) in &kept.parts {
            for hold in need.holds.iter().filter(|hold| Some(hold.key) != but) {
                let until = hold.until.map_or(cuts.len(), at);
                add(&hold.resources, at(hold.from), until, hold.rate);
            }
            let places: Vec<usize> = plan.cuts.iter().map(|cut| at(*cut)).collect();
            for (demand, amounts) in need.demands.iter().zip(&plan.amounts) {
                if Some(demand.key) == but {
                    continue;
                }
                for (interval, bytes) in amounts.iter().enumerate().filter(|(_, bytes)| **bytes > 0)
                {
                    let pair = &plan.cuts[interval..=interval + 1];
                    let rate = super::wish::rate_for(*bytes, nanos(pair[1].since(pair[0])));
                    let (from, until) = (places[interval], places[interval + 1]);
                    add(&demand.resources, from, until, rate);
                }
            }
        }
        let free = capacities.iter().zip(uses).map(|(capacity, uses)| {
            let capacity = u128::from((*capacity)?);
            let mut used = 0;
            let free = uses.iter().take(cuts.len()).map(|(begins, ends)| {
                used = used + begins - ends;
                u64::try_from(capacity.saturating_sub(used)).unwrap_or(u64::MAX)
            });
            Some(free.collect())
        });
        Self {
            free: free.collect(),
            cuts,
        }
    }

    /// Returns the earliest finish of `wish` in the free capacity. `resources` are the indices of
    /// its resources. O(intervals).
    pub(super) fn done(&self, wish: &Wish, resources: &[usize]) -> Option<Time> {
        let mut left = wish.bytes?;
        let ceiling = wish.ceiling.map_or(u64::MAX, |rate| rate.0);
        let known: Vec<&Vec<u64>> = (resources.iter())
            .filter_map(|resource| self.free[*resource].as_ref())
            .collect();
        let start = wish.start(*self.cuts.first()?);
        for (at, cut) in self.cuts.iter().enumerate() {
            let begin = start.max(*cut);
            let end = self.cuts.get(at + 1).copied();
            if end.is_some_and(|end| end <= begin) {
                continue;
            }
            let rate = known.iter().map(|free| free[at]).min();
            let rate = rate.unwrap_or(u64::MAX).min(ceiling);
            let lasts = BytesPerSecond(rate).time_for(left);
            match (lasts, end.map(|end| end.since(begin))) {
                (Some(lasts), Some(length)) if lasts > length => {
                    left -= super::wish::bytes_in(rate, nanos(length)).min(left);
                }
                (Some(lasts), _) => return Some(begin + lasts),
                (None, _) => {}
            }
        }
        None
    }
}
