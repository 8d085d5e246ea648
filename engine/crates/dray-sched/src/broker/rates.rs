//! The present rates: planned rates, and shares of the capacity that remains.

use super::eta::Left;
use super::need::Need;
use super::plan::Plan;
use super::search;
use super::spare::{self, Sharer};
use super::triage::{self, Cause, Kept, Miss, Outlooks, Wishes};
use super::wish::{TransferKey, Wish};
use super::{Broker, Outlook, Taken};
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Minimum time from a call of [`Broker::rates`] to [`Rates::wake_at`]. Without this minimum, a
/// finish time that rounding moves earlier would cause calls in quick succession.
const WAKE_MIN: Duration = Duration::from_millis(1);

/// Reason for a transfer's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The transfer may not start yet.
    NotBefore,
    /// The transfer gets its planned rate.
    Planned,
    /// The transfer gets more than its planned rate, from spare capacity.
    Spare,
    /// The transfer gets less than its planned rate, because a resource has less capacity at the
    /// moment.
    Short,
    /// The transfer gets the maximum rate that it is allowed to use or can use.
    Ceiling,
    /// No rate is planned for the transfer now, and no capacity is left for it.
    Suspended,
}

/// Rate of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Rate that the plan contains for now.
    pub planned: BytesPerSecond,
    /// Permitted rate. `None` for no limit.
    pub given: Option<BytesPerSecond>,
    /// Reason for the permitted rate.
    pub reason: Reason,
}

/// Change of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Previous rate. Zero for a new transfer.
    pub old: Option<BytesPerSecond>,
    /// New rate.
    pub new: Option<BytesPerSecond>,
    /// Reason for the new rate.
    pub reason: Reason,
}

/// Rates of all transfers, valid from now on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// Rates of all transfers, sorted by key.
    pub rates: Vec<Rate>,
    /// Rates that have changed since the last call.
    pub changes: Vec<Change>,
    /// Promises that will be missed.
    pub misses: Vec<Miss>,
    /// Time of the next call that the caller must make, even if no transfer is added, ends or
    /// changes.
    pub wake_at: Option<Time>,
}

impl Rates {
    /// Returns the permitted rate of a transfer, or zero if the transfer is unknown. `None` means
    /// no limit.
    #[must_use]
    pub fn given(&self, key: TransferKey) -> Option<BytesPerSecond> {
        let at = self.rates.binary_search_by_key(&key, |rate| rate.key);
        at.map_or(Some(BytesPerSecond(0)), |at| self.rates[at].given)
    }
}

impl Broker {
    /// Computes the rates from `now` on. Call this when a transfer is added, ends or changes, when
    /// a capacity has changed, and at [`Rates::wake_at`].
    pub fn rates(&mut self, now: Time) -> Rates {
        let kept = self.kept(now);
        let rates = self.divided(&kept, Outlook::Mean, now);
        let mut changes = Vec::new();
        for rate in &rates {
            let old = self.given.get(&rate.key).copied();
            let old = old.unwrap_or(Some(BytesPerSecond(0)));
            if old != rate.given {
                changes.push(Change {
                    key: rate.key,
                    old,
                    new: rate.given,
                    reason: rate.reason,
                });
            }
        }
        self.given = rates.iter().map(|rate| (rate.key, rate.given)).collect();
        Rates {
            wake_at: self.wake_at(&kept, now),
            misses: self.misses(&kept, now),
            rates,
            changes,
        }
    }

    pub(super) fn kept(&self, now: Time) -> Kept {
        self.kept_at(Outlook::Mean, now)
    }

    pub(super) fn kept_at(&self, outlook: Outlook, now: Time) -> Kept {
        let wishes: Wishes<'_> = (self.promises(now))
            .map(|(wish, resources)| (wish.key, (wish, resources)))
            .collect();
        // If the caller asks for the low or the high outlook, use its capacities for all outlooks.
        let at = |other: Outlook| match outlook {
            Outlook::Mean => self.need_at(other, now),
            _ => self.need_at(outlook, now),
        };
        let (low, mean, high) = (at(Outlook::Low), at(Outlook::Mean), at(Outlook::High));
        let outlooks = Outlooks {
            low: &low,
            mean: &mean,
            high: &high,
        };
        // Keep capacity for each offer that still fits, the latest offer first.
        let stands = |offered: &[Wish]| !offered.iter().any(|wish| wishes.contains_key(&wish.key));
        let offers = self.offers.iter().rev();
        let offers = offers.filter(|(until, offered)| *until > now && stands(offered));
        let mut with_offers = wishes.clone();
        let mut kept = None;
        for (_, offered) in offers {
            let mut more = with_offers.clone();
            let offered = offered.iter().filter(|wish| self.can_promise(wish));
            more.extend(offered.map(|wish| (wish.key, (wish, self.indices(wish)))));
            let found = triage::keep(&outlooks, &more);
            if found.lost.is_empty() {
                (with_offers, kept) = (more, Some(found));
            }
        }
        kept.unwrap_or_else(|| triage::keep(&outlooks, &wishes))
    }

    /// Divides the capacity among the transfers: the present capacity for the mean outlook, the
    /// expected capacity for the other outlooks.
    pub(super) fn divided(&self, kept: &Kept, outlook: Outlook, now: Time) -> Vec<Rate> {
        let mut planned: BTreeMap<TransferKey, u64> = BTreeMap::new();
        let present: Vec<Option<u64>> = (self.resources.values())
            .map(|capacity| match outlook {
                Outlook::Mean => capacity.present(),
                _ => capacity.expected(outlook, now),
            })
            .collect();
        let low = self.need_at(Outlook::Low, now).capacities;
        let mean = self.need_at(Outlook::Mean, now).capacities;
        for (need, plan) in &kept.parts {
            let is_steady = low == mean || outlook != Outlook::Mean;
            let rates = (!is_steady).then(|| {
                // Give each transfer at most the rate that it can use. The excess would stay idle
                // while other transfers wait.
                let can = |key: &TransferKey| self.transfers.get(key).map_or(u64::MAX, most);
                early(need, &present, self.config.rates_hold, &can)
                    .unwrap_or_else(|| at_once(need, plan, &present, &can))
            });
            match rates {
                Some(rates) => planned.extend(rates),
                None => planned.extend(planned_by(plan)),
            }
            for hold in need.holds.iter().filter(|hold| hold.from <= now) {
                *planned.entry(hold.key).or_default() += hold.rate;
            }
        }
        let lost: BTreeSet<TransferKey> = kept.lost.iter().map(|(key, _)| *key).collect();
        let is_lost = |key: &TransferKey| lost.contains(key);
        let mut open: Vec<(&Taken, Vec<usize>)> = (self.transfers.values())
            .filter(|taken| taken.wish.start(now) <= now && taken.wish.bytes != Some(0))
            .map(|taken| (taken, self.indices(&taken.wish)))
            .collect();
        // If the capacity is below the plan, the first transfers in this order get their planned
        // rates.
        open.sort_by_key(|(taken, _)| {
            let wish = &taken.wish;
            let due = (wish.deadline.is_none(), wish.deadline);
            (wish.class, is_lost(&wish.key), due, wish.key)
        });
        let sharers: Vec<Sharer<'_>> = (open.iter())
            .map(|(taken, resources)| Sharer {
                class: taken.wish.class,
                owner: &taken.wish.owner,
                owner_weight: taken.wish.owner_weight,
                weight: taken.wish.weight,
                planned: planned.get(&taken.wish.key).copied().unwrap_or(0),
                most: most(taken),
                resources,
            })
            .collect();
        let given = spare::divide(&sharers, &present, self.config.weights);
        let mut rates: Vec<Rate> = (sharers.iter().zip(given).zip(&open))
            .map(|((sharer, given), (taken, _))| rate(&taken.wish, sharer, given))
            .collect();
        let waits = self
            .transfers
            .values()
            .filter(|taken| taken.wish.start(now) > now || taken.wish.bytes == Some(0));
        rates.extend(waits.map(|taken| Rate {
            key: taken.wish.key,
            planned: BytesPerSecond(0),
            given: Some(BytesPerSecond(0)),
            reason: Reason::NotBefore,
        }));
        rates.sort_unstable_by_key(|rate| rate.key);
        rates
    }

    fn wake_at(&self, kept: &Kept, now: Time) -> Option<Time> {
        let ends = kept.parts.iter().filter_map(|(_, plan)| plan.cuts.get(1));
        let holds = kept.parts.iter().flat_map(|(need, _)| {
            let times = |hold: &super::Hold| [Some(hold.from), hold.until];
            need.holds.iter().flat_map(times).flatten()
        });
        let begins = (self.transfers.values()).filter_map(|taken| taken.wish.not_before);
        let deadlines = (self.transfers.values()).filter_map(|taken| taken.wish.deadline);
        let soon = (!kept.parts.is_empty()).then_some(now + self.config.rates_hold);
        let times = ends.copied().chain(holds).chain(begins).chain(deadlines);
        let first = times.chain(soon).filter(|time| *time > now).min()?;
        Some(first.max(now + WAKE_MIN))
    }

    pub(super) fn misses(&self, kept: &Kept, now: Time) -> Vec<Miss> {
        let lost: BTreeMap<TransferKey, usize> = kept.lost.iter().copied().collect();
        // The free capacity is computed only if a promise needs it, and at most once.
        let left = OnceCell::new();
        let mut others: BTreeMap<usize, Vec<TransferKey>> = BTreeMap::new();
        let mut misses = Vec::new();
        for taken in self.transfers.values().filter(|taken| taken.is_promised) {
            let wish = &taken.wish;
            if wish.bytes == Some(0) {
                continue;
            }
            let cause = if wish.deadline.is_some_and(|deadline| deadline <= now) {
                Cause::Over
            } else if let Some(resource) = lost.get(&wish.key) {
                let others = others.entry(*resource).or_insert_with(|| {
                    let kept = self.promises(now).filter(|(other, resources)| {
                        !lost.contains_key(&other.key) && resources.contains(resource)
                    });
                    kept.map(|(other, _)| other.key).collect()
                });
                Cause::Resource(self.id(*resource), others.clone())
            } else if is_slow(taken, now) {
                Cause::Slow
            } else {
                continue;
            };
            let of_plan = |left: &Left| left.done(wish, &self.indices(wish));
            let earliest = match (by_itself(taken, now), &cause) {
                (Some(time), _) => time,
                // The plan reserves capacity for the slow transfer itself. So compute the free
                // capacity without the plan of this transfer.
                (None, Cause::Slow) => of_plan(&Left::new(self, kept, Some(wish.key), now)),
                (None, _) => of_plan(left.get_or_init(|| Left::new(self, kept, None, now))),
            };
            misses.push(Miss {
                key: wish.key,
                cause,
                earliest,
            });
        }
        misses
    }
}

/// Returns the finish time of a transfer that is limited by its observed rate; `Some(None)` if this
/// time is unknown. Returns `None` for other transfers.
fn by_itself(taken: &Taken, now: Time) -> Option<Option<Time>> {
    let rate = taken.use_max.filter(|rate| *rate < most_of(&taken.wish))?;
    let lasts = taken
        .wish
        .bytes
        .and_then(|bytes| BytesPerSecond(rate).time_for(bytes));
    Some(lasts.map(|lasts| now + lasts))
}

/// Gives capacity to the transfers in the order of their deadlines. Each transfer gets as much as
/// it can use, because bytes that move early are safe if the capacity falls later. Returns `None`
/// if these rates, kept for at most the duration `holds`, would leave too little capacity for the
/// promises in `need`. This can happen with several resources or with ceilings.
fn early(
    need: &Need,
    present: &[Option<u64>],
    holds: Duration,
    can: &dyn Fn(&TransferKey) -> u64,
) -> Option<BTreeMap<TransferKey, u64>> {
    let mut left = unheld(need, present);
    let mut rates = BTreeMap::new();
    let mut lasts = holds;
    for index in super::fill::order(need) {
        let demand = &need.demands[index];
        if demand.from > need.now {
            continue;
        }
        let free = demand.resources.iter().filter_map(|at| left[*at]).min();
        let rate = demand
            .ceiling
            .unwrap_or(u64::MAX)
            .min(can(&demand.key))
            .min(free?);
        take(&mut left, &demand.resources, rate);
        if let Some(done) = BytesPerSecond(rate).time_for(demand.bytes) {
            lasts = lasts.min(done);
        }
        rates.insert(demand.key, rate);
    }
    let nanos = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX).max(1);
    let mut after = need.clone();
    after.now = need.now + Duration::from_nanos(nanos);
    for demand in &mut after.demands {
        let rate = rates.get(&demand.key).copied().unwrap_or(0);
        let moved = super::wish::bytes_in(rate, nanos).saturating_add(1);
        demand.bytes = demand.bytes.saturating_sub(moved);
        demand.from = demand.from.max(after.now);
    }
    after.demands.retain(|demand| demand.bytes > 0);
    for hold in &mut after.holds {
        hold.from = hold.from.max(after.now);
    }
    (after.holds).retain(|hold| hold.until.is_none_or(|until| until > hold.from));
    let has_time = after
        .demands
        .iter()
        .all(|demand| demand.until > demand.from);
    (has_time && search::find_early(&after).is_some()).then_some(rates)
}

/// Returns the rates of a plan in its first interval, which is now.
fn planned_by(plan: &Plan) -> impl Iterator<Item = (TransferKey, u64)> {
    let rates = plan.keys.iter().enumerate();
    rates.map(|(at, key)| (*key, plan.rate(at)))
}

/// Returns the planned rates, and gives the remaining capacity to the earliest deadlines.
fn at_once(
    need: &Need,
    plan: &Plan,
    present: &[Option<u64>],
    can: &dyn Fn(&TransferKey) -> u64,
) -> BTreeMap<TransferKey, u64> {
    let planned: BTreeMap<TransferKey, u64> = planned_by(plan).collect();
    let mut left = unheld(need, present);
    let mut rates = BTreeMap::new();
    for takes_all in [false, true] {
        for index in super::fill::order(need) {
            let demand = &need.demands[index];
            if demand.from > need.now {
                continue;
            }
            let rate: &mut u64 = rates.entry(demand.key).or_default();
            let most = match takes_all {
                true => demand.ceiling.unwrap_or(u64::MAX).min(can(&demand.key)),
                false => planned.get(&demand.key).copied().unwrap_or(0),
            };
            let free = demand.resources.iter().filter_map(|at| left[*at]).min();
            let more = most.saturating_sub(*rate).min(free.unwrap_or(0));
            *rate += more;
            take(&mut left, &demand.resources, more);
        }
    }
    rates
}

/// Returns the present capacity of each resource minus its reserved rates.
fn unheld(need: &Need, present: &[Option<u64>]) -> Vec<Option<u64>> {
    let left = present.iter().enumerate().map(|(at, capacity)| {
        let held = u64::try_from(need.held(at, need.now)).unwrap_or(u64::MAX);
        capacity.map(|capacity| capacity.saturating_sub(held))
    });
    left.collect()
}

fn take(left: &mut [Option<u64>], resources: &[usize], rate: u64) {
    for at in resources {
        if let Some(left) = &mut left[*at] {
            *left -= rate;
        }
    }
}

fn most_of(wish: &Wish) -> u64 {
    wish.ceiling.map_or(u64::MAX, |rate| rate.0)
}

/// Returns the maximum rate that a transfer is allowed to use and can use, in bytes per second.
fn most(taken: &Taken) -> u64 {
    most_of(&taken.wish).min(taken.use_max.unwrap_or(u64::MAX))
}

/// Returns true if a transfer cannot use a rate that is high enough for its deadline.
fn is_slow(taken: &Taken, now: Time) -> bool {
    let (Some(bytes), Some(deadline)) = (taken.wish.bytes, taken.wish.deadline) else {
        return false;
    };
    let left = deadline.as_nanos() - taken.wish.start(now).as_nanos().min(deadline.as_nanos());
    (taken.use_max).is_some_and(|rate| super::wish::bytes_in(rate, left) < bytes)
}

fn rate(wish: &Wish, sharer: &Sharer<'_>, given: u64) -> Rate {
    // Planned rates are rounded up, so tolerate a small difference.
    let planned = sharer.planned - sharer.planned / 1_024;
    let reason = if given < planned.min(sharer.most) {
        Reason::Short
    } else if given == 0 {
        Reason::Suspended
    } else if given >= sharer.most {
        Reason::Ceiling
    } else if given > sharer.planned || wish.class == Class::Background {
        Reason::Spare
    } else {
        Reason::Planned
    };
    Rate {
        key: wish.key,
        planned: BytesPerSecond(sharer.planned),
        given: (given != u64::MAX).then_some(BytesPerSecond(given)),
        reason,
    }
}
