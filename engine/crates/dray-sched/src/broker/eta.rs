//! When will it be done?

use super::triage::Kept;
use super::wish::TransferKey;
use super::{Broker, Outlook, Taken};
use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use std::time::Duration;

/// Changes of rates that are followed for an estimate. What comes after happens at the last rates.
const STEPS_MAX: usize = 64;

/// When a transfer will be done if nothing comes and nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eta {
    /// With the capacity of the best tenth of the time.
    pub early: Time,
    /// With the capacity of the worst tenth; `None` when it then gets nowhere.
    pub late: Option<Time>,
}

impl Broker {
    /// Follows the rates to the transfer's end. `None` while its size is not known, or when it gets
    /// nowhere. O(n) times the work of [`Broker::rates`].
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
                // Rounded up, so that who meets their end is there.
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

/// When a transfer could be done in what the plans of others leave it.
pub(super) fn after(broker: &Broker, kept: &Kept, taken: &Taken, now: Time) -> Option<Time> {
    let wish = &taken.wish;
    let bytes = wish.bytes?;
    let indices = broker.indices(wish);
    let need = broker.empty_need(now);
    let known = || {
        indices
            .iter()
            .filter(|index| need.capacities[**index].is_some())
    };
    let mut cuts = vec![wish.start(now)];
    for (need, plan) in &kept.parts {
        cuts.extend(plan.cuts.iter().copied());
        cuts.extend(need.holds.iter().filter_map(|hold| hold.until));
    }
    cuts.retain(|cut| *cut >= wish.start(now));
    cuts.sort_unstable();
    cuts.dedup();
    let ceiling = wish.ceiling.map_or(u64::MAX, |rate| rate.0);
    let mut left = bytes;
    for (at, begin) in cuts.iter().enumerate() {
        let rate = known().map(|index| free(&need.capacities, kept, wish.key, *index, *begin));
        let rate = rate.min().unwrap_or(u64::MAX).min(ceiling);
        let lasts = BytesPerSecond(rate).time_for(left);
        let length = cuts.get(at + 1).map(|end| end.since(*begin));
        match (lasts, length) {
            (Some(lasts), Some(length)) if lasts > length => {
                left -= super::wish::bytes_in(rate, nanos(length)).min(left);
            }
            (Some(lasts), _) => return Some(*begin + lasts),
            (None, _) => {}
        }
    }
    None
}

/// What others leave of a resource from a time on, until the next of the plans' instants.
fn free(
    capacities: &[Option<u64>],
    kept: &Kept,
    but: TransferKey,
    resource: usize,
    time: Time,
) -> u64 {
    let mut used = 0u128;
    for (need, plan) in &kept.parts {
        let others = need.holds.iter().filter(|hold| {
            hold.key != but
                && hold.resources.contains(&resource)
                && hold.from <= time
                && hold.until.is_none_or(|until| time < until)
        });
        used += others.map(|hold| u128::from(hold.rate)).sum::<u128>();
        let at = plan.cuts.partition_point(|cut| *cut <= time);
        if at == 0 || at == plan.cuts.len() {
            continue;
        }
        let length = nanos(plan.cuts[at].since(plan.cuts[at - 1]));
        for (demand, amounts) in need.demands.iter().zip(&plan.amounts) {
            if demand.key != but && demand.resources.contains(&resource) {
                used += u128::from(super::wish::rate_for(amounts[at - 1], length));
            }
        }
    }
    let capacity = capacities[resource].map_or(u128::from(u64::MAX), u128::from);
    u64::try_from(capacity.saturating_sub(used)).unwrap_or(u64::MAX)
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
