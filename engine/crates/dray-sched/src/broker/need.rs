//! The need of all promises as plain numbers: demands, reserved rates, and the capacities.

use super::wish::{TransferKey, Wish, bytes_in};
use dray_core::Time;
use std::collections::BTreeMap;

/// Returns the number of bytes to plan for a promise with `bytes` bytes left: `bytes`, plus 1/256
/// of `bytes`, plus 4 KiB. The excess covers rounding and the transfer of whole objects. So
/// promises still fit after they have run as planned.
pub(crate) const fn padded(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 256).saturating_add(4_096)
}

/// Bytes that must move within a time window, at any rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Number of bytes to move.
    pub bytes: u64,
    /// Start of the window.
    pub from: Time,
    /// End of the window.
    pub until: Time,
    /// Maximum rate in bytes per second.
    pub ceiling: Option<u64>,
    /// Indices of the resources through which the bytes pass.
    pub resources: Vec<usize>,
}

/// A rate that is reserved for a transfer over a period of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Reserved rate in bytes per second.
    pub rate: u64,
    /// Start of the reservation.
    pub from: Time,
    /// End of the reservation. `None` if no end is planned.
    pub until: Option<Time>,
    /// Indices of the resources on which the rate is reserved.
    pub resources: Vec<usize>,
}

impl Hold {
    fn is_on(&self, time: Time) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }
}

/// All promises, and the capacities available for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Need {
    /// Start time of the plan: the present.
    pub now: Time,
    /// Capacity of each resource in bytes per second. `None` for an unknown capacity, which limits
    /// nothing.
    pub capacities: Vec<Option<u64>>,
    /// Bytes of promises that may move at any rate.
    pub demands: Vec<Demand>,
    /// Rates that are reserved for promises.
    pub holds: Vec<Hold>,
}

/// Choice between the exact number of bytes and the number with the excess that admission requires
/// ([`padded`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    With,
    Without,
}

impl Need {
    /// Adds the need of a request. `resources` are the indices of its resources. A request that
    /// asks for no promise adds nothing. Returns false if the request's window is empty.
    pub(crate) fn add(&mut self, wish: &Wish, resources: &[usize], padding: Padding) -> bool {
        let start = wish.start(self.now);
        let mut flexible = match (wish.deadline, wish.bytes) {
            (Some(_), Some(bytes)) if padding == Padding::With && bytes > 0 => padded(bytes),
            (Some(_), Some(bytes)) => bytes,
            _ => 0,
        };
        if wish.floor.0 > 0 && wish.bytes != Some(0) {
            let lasts = wish.bytes.and_then(|bytes| wish.floor.time_for(bytes));
            let by_itself = lasts.map(|lasts| start + lasts);
            let until = match (by_itself, wish.deadline) {
                (Some(end), Some(deadline)) if deadline < end => {
                    let nanos = deadline.as_nanos().saturating_sub(start.as_nanos());
                    flexible = flexible.saturating_sub(bytes_in(wish.floor.0, nanos));
                    Some(deadline)
                }
                // The reserved floor alone moves all bytes in time.
                (end, _) => {
                    flexible = 0;
                    end
                }
            };
            if until.is_none_or(|until| until > start) {
                self.holds.push(Hold {
                    key: wish.key,
                    rate: wish.floor.0,
                    from: start,
                    until,
                    resources: resources.to_vec(),
                });
            }
        }
        if flexible == 0 {
            return true;
        }
        let until = wish.deadline.unwrap_or(start);
        if until <= start {
            return false;
        }
        let ceiling = wish.ceiling.map(|rate| rate.0.saturating_sub(wish.floor.0));
        self.demands.push(Demand {
            key: wish.key,
            bytes: flexible,
            from: start,
            until,
            ceiling,
            resources: resources.to_vec(),
        });
        true
    }

    /// Splits the need into parts that have no resource in common and can be planned separately.
    /// O(n log n).
    #[must_use]
    pub fn parts(&self) -> Vec<Self> {
        let mut heads: Vec<usize> = (0..self.capacities.len()).collect();
        let known = |resource: &&usize| self.capacities[**resource].is_some();
        let uses = (self.demands.iter().map(|demand| &demand.resources))
            .chain(self.holds.iter().map(|hold| &hold.resources));
        for resources in uses {
            let mut known = resources.iter().filter(known);
            if let Some(first) = known.next() {
                for other in known {
                    let (one, two) = (head(&mut heads, *first), head(&mut heads, *other));
                    heads[one.max(two)] = one.min(two);
                }
            }
        }
        let mut parts: BTreeMap<(Option<usize>, Option<TransferKey>), Self> = BTreeMap::new();
        let empty = || Self {
            now: self.now,
            capacities: self.capacities.clone(),
            ..Self::default()
        };
        let mut place = |resources: &[usize], key: TransferKey| {
            match resources.iter().find(known) {
                Some(first) => (Some(head(&mut heads, *first)), None),
                // No known resource limits the transfer, so it is a part of its own.
                None => (None, Some(key)),
            }
        };
        for demand in &self.demands {
            let place = place(&demand.resources, demand.key);
            let part = parts.entry(place).or_insert_with(empty);
            part.demands.push(demand.clone());
        }
        for hold in &self.holds {
            let place = place(&hold.resources, hold.key);
            parts
                .entry(place)
                .or_insert_with(empty)
                .holds
                .push(hold.clone());
        }
        parts.into_values().collect()
    }

    /// Returns a copy of the need without the transfers `keys`.
    pub(crate) fn without(&self, keys: &[TransferKey]) -> Self {
        let mut need = self.clone();
        need.demands.retain(|demand| !keys.contains(&demand.key));
        need.holds.retain(|hold| !keys.contains(&hold.key));
        need
    }

    /// Returns a resource and the earliest time at which the reserved rates exceed its capacity.
    /// Returns `None` if they never do.
    pub(crate) fn overheld(&self) -> Option<(usize, Time)> {
        let mut times: Vec<Time> = self.holds.iter().map(|hold| hold.from).collect();
        times.sort_unstable();
        times.dedup();
        for time in times {
            for (resource, capacity) in self.capacities.iter().enumerate() {
                let held = self.held(resource, time);
                if capacity.is_some_and(|capacity| held > u128::from(capacity)) {
                    return Some((resource, time));
                }
            }
        }
        None
    }

    /// Returns the total rate reserved on a resource at a time, in bytes per second.
    pub(crate) fn held(&self, resource: usize, time: Time) -> u128 {
        let holds = self.holds.iter();
        let on = holds.filter(|hold| hold.is_on(time) && hold.resources.contains(&resource));
        on.map(|hold| u128::from(hold.rate)).sum()
    }
}

fn head(heads: &mut [usize], of: usize) -> usize {
    let mut at = of;
    while heads[at] != at {
        heads[at] = heads[heads[at]];
        at = heads[at];
    }
    at
}

/// Time intervals of a need, and the free capacity of each resource in each interval.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    /// Borders of the intervals. There is one more border than intervals.
    pub(crate) cuts: Vec<Time>,
    /// Free bytes of each resource in each interval. `None` for a resource of unknown capacity.
    pub(crate) room: Vec<Option<Vec<u64>>>,
}

impl Grid {
    /// Builds the grid. O((demands + holds) * intervals). If the reserved rates exceed the capacity
    /// of a resource, the resource has no free bytes.
    pub(crate) fn new(need: &Need) -> Self {
        let end = need.demands.iter().map(|demand| demand.until).max();
        let end = end.unwrap_or(need.now);
        let mut cuts = vec![need.now, end];
        for demand in &need.demands {
            cuts.extend([demand.from, demand.until]);
        }
        for hold in &need.holds {
            cuts.push(hold.from);
            cuts.extend(hold.until);
        }
        cuts.retain(|cut| *cut >= need.now && *cut <= end);
        cuts.sort_unstable();
        cuts.dedup();
        let mut is_used = vec![false; need.capacities.len()];
        for demand in &need.demands {
            for resource in &demand.resources {
                is_used[*resource] = true;
            }
        }
        let room = (need.capacities.iter().enumerate()).map(|(resource, capacity)| {
            let capacity = (*capacity).filter(|_| is_used[resource])?;
            let left = |pair: &[Time]| {
                let held = u64::try_from(need.held(resource, pair[0])).unwrap_or(u64::MAX);
                bytes_in(capacity.saturating_sub(held), length(pair))
            };
            Some(cuts.windows(2).map(left).collect())
        });
        Self {
            room: room.collect(),
            cuts,
        }
    }

    pub(crate) fn intervals(&self) -> usize {
        self.cuts.len() - 1
    }

    /// Returns the length of an interval in nanoseconds.
    pub(crate) fn nanos(&self, interval: usize) -> u64 {
        length(&self.cuts[interval..=interval + 1])
    }

    /// Returns the range of intervals within a demand's window.
    pub(crate) fn window(&self, demand: &Demand) -> std::ops::Range<usize> {
        let at = |time: Time| self.cuts.partition_point(|cut| *cut < time);
        at(demand.from)..at(demand.until)
    }

    /// Returns the maximum number of bytes that a demand could place in an interval.
    pub(crate) fn free(&self, demand: &Demand, interval: usize) -> u64 {
        let own = (demand.ceiling).map_or(u64::MAX, |rate| bytes_in(rate, self.nanos(interval)));
        (demand.resources.iter())
            .filter_map(|resource| self.room[*resource].as_ref())
            .fold(own, |free, room| free.min(room[interval]))
    }

    pub(crate) fn take(&mut self, demand: &Demand, interval: usize, bytes: u64) {
        for resource in &demand.resources {
            if let Some(room) = &mut self.room[*resource] {
                room[interval] -= bytes;
            }
        }
    }
}

fn length(pair: &[Time]) -> u64 {
    pair[1].as_nanos() - pair[0].as_nanos()
}
