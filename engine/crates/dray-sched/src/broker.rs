//! The broker decides the rate of each transfer, and which deadlines are promised.
//!
//! A resource is anything with a capacity in bytes per second that transfers use. A transfer names
//! the resources through which each of its bytes passes. Promised transfers have a [`plan`], which
//! proves that all promises can be kept together. Admission checks that a plan exists
//! ([`Broker::would`]). Rates carry out the plan and divide the remaining capacity
//! ([`Broker::rates`]). Triage keeps as many promises as possible if capacities fall
//! ([`Rates::misses`]).
//!
//! Decisions depend only on the requests, the set of promised transfers, the measured capacities
//! and the time. So a broker that is restored from the same promises makes the same decisions. If
//! the broker refuses a request, it may offer later deadlines. For a short time after the offer,
//! the rates of the other transfers leave enough capacity for the refused request. Admission
//! ignores offers, so an offer never blocks another request.
//!
//! Invariants owned here:
//!
//! - The rates on a resource never exceed its capacity.
//! - When a promise was made, it was feasible together with all earlier promises.
//! - A new plan keeps every promise that still fits.

mod admit;
mod capacity;
mod eta;
mod fill;
mod interior;
mod matrix;
mod need;
pub mod plan;
mod rates;
pub mod search;
mod spare;
mod triage;
mod wish;

pub use admit::{Answer, Grant, Obstacle, Refusal};
pub use capacity::{Capacity, Outlook};
pub use eta::Eta;
pub use interior::bytes_bound;
pub use need::{Demand, Hold, Need};
pub use rates::{Change, Rate, Rates, Reason};
pub use triage::{Cause, Miss};
pub use wish::{ResourceId, TransferKey, Wish};

use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of transfers that the broker handles concurrently.
    pub transfers_max: usize,
    /// Weights with which the classes deadline and background share the spare capacity.
    pub weights: (u32, u32),
    /// Time for which an offer is valid.
    pub offer_holds: Duration,
    /// Maximum time for which rates are valid while any transfer is promised.
    pub rates_hold: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transfers_max: 100_000,
            // The class background gets a ninth of the spare capacity. This share was measured with
            // BigData Express: two tasks of class deadline left capacity unused, and a background
            // task received about a ninth of that capacity.
            weights: (8, 1),
            offer_holds: Duration::from_secs(10),
            rates_hold: Duration::from_secs(5),
        }
    }
}

/// A transfer that the broker has accepted.
#[derive(Debug, Clone)]
struct Taken {
    wish: Wish,
    is_promised: bool,
    /// Observed maximum rate that the transfer can use, in bytes per second. `None` if it is
    /// unknown.
    use_max: Option<u64>,
}

/// The broker. The module documentation describes it.
#[derive(Debug, Clone)]
pub struct Broker {
    config: Config,
    resources: BTreeMap<ResourceId, Capacity>,
    transfers: BTreeMap<TransferKey, Taken>,
    given: BTreeMap<TransferKey, Option<BytesPerSecond>>,
    /// Offers with their expiry times, oldest offer first.
    offers: Vec<(Time, Vec<Wish>)>,
}

/// Maximum number of offers for which the broker leaves capacity free when it sets rates. The
/// broker forgets older offers. It may still accept a request for a forgotten offer.
const OFFERS_MAX: usize = 4;

impl Broker {
    /// Creates a broker without resources or transfers.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            resources: BTreeMap::new(),
            transfers: BTreeMap::new(),
            given: BTreeMap::new(),
            offers: Vec::new(),
        }
    }

    /// Restores the promises of an earlier process without admission. Set the resources first.
    pub fn restore(&mut self, promises: impl IntoIterator<Item = Wish>) {
        for wish in promises {
            let is_promised = self.can_promise(&wish);
            self.insert(wish, is_promised);
        }
    }

    /// Adds a resource, or changes its configured ceiling.
    pub fn set_resource(&mut self, id: ResourceId, ceiling: Option<BytesPerSecond>) {
        self.resources.entry(id).or_default().set_ceiling(ceiling);
    }

    /// Sets the measured capacity of a resource from `now` on. Returns true if the rates should be
    /// computed again, because the capacity has changed by more than a twentieth since the last
    /// call that returned true.
    pub fn measure(&mut self, id: ResourceId, rate: BytesPerSecond, now: Time) -> bool {
        self.resources.entry(id).or_default().measure(rate, now)
    }

    /// Returns the capacity of a resource. Returns `None` for an unknown resource.
    #[must_use]
    pub fn capacity(&self, id: ResourceId) -> Option<&Capacity> {
        self.resources.get(&id)
    }

    /// Sets the number of bytes that a transfer has left. The number rises if files have grown.
    pub fn progress(&mut self, key: TransferKey, bytes_left: u64) {
        if let Some(taken) = self.transfers.get_mut(&key) {
            taken.wish.bytes = Some(bytes_left);
        }
    }

    /// Sets the observed maximum rate that a transfer can use. `None` means no limit.
    pub fn set_use(&mut self, key: TransferKey, most: Option<BytesPerSecond>) {
        if let Some(taken) = self.transfers.get_mut(&key) {
            taken.use_max = most.map(|rate| rate.0);
        }
    }

    /// Removes a transfer that has finished or was cancelled.
    pub fn end(&mut self, key: TransferKey) {
        self.transfers.remove(&key);
        self.given.remove(&key);
    }

    /// Returns the request for the bytes that a transfer has left, and true if the transfer is
    /// promised.
    #[must_use]
    pub fn wish(&self, key: TransferKey) -> Option<(&Wish, bool)> {
        let taken = self.transfers.get(&key)?;
        Some((&taken.wish, taken.is_promised))
    }

    /// Returns the latest time at which a transfer must start to meet its deadline, given its
    /// ceiling and the present capacity of its resources. Returns the earliest start if the
    /// deadline or the size is unknown, or if neither a capacity nor a ceiling is known. Returns
    /// `None` for an unknown transfer.
    #[must_use]
    pub fn latest_start(&self, key: TransferKey, now: Time) -> Option<Time> {
        let wish = &self.transfers.get(&key)?.wish;
        let at_once = wish.start(now);
        let (Some(deadline), Some(bytes)) = (wish.deadline, wish.bytes) else {
            return Some(at_once);
        };
        let passed = wish.resources.iter();
        let passed = passed.filter_map(|id| self.capacity(*id)?.present());
        let rate = passed.chain(wish.ceiling.map(|rate| rate.0)).min();
        let lasts = rate.and_then(|rate| BytesPerSecond(rate).time_for(bytes));
        Some(lasts.map_or(at_once, |lasts| {
            let left = deadline.since(Time::ZERO).saturating_sub(lasts);
            Time::ZERO + left
        }))
    }

    fn insert(&mut self, wish: Wish, is_promised: bool) {
        let taken = Taken {
            is_promised,
            use_max: None,
            wish,
        };
        self.transfers.insert(taken.wish.key, taken);
    }

    /// Returns true if a promise for `wish` is possible in principle: the request asks for a
    /// promise, and the capacity of at least one of its resources is known.
    fn can_promise(&self, wish: &Wish) -> bool {
        let is_known = |id: &ResourceId| {
            (self.resources.get(id)).is_some_and(|capacity| capacity.present().is_some())
        };
        wish.asks_promise() && wish.resources.iter().any(is_known)
    }

    fn index(&self, id: ResourceId) -> Option<usize> {
        self.resources.keys().position(|other| *other == id)
    }

    fn id(&self, index: usize) -> ResourceId {
        let id = self.resources.keys().nth(index).copied();
        id.expect("the index must be that of a resource")
    }

    /// Returns the indices of the resources of `wish`, sorted and without duplicates.
    fn indices(&self, wish: &Wish) -> Vec<usize> {
        let indices = wish.resources.iter().filter_map(|id| self.index(*id));
        let mut indices: Vec<usize> = indices.collect();
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    fn empty_need(&self, now: Time) -> Need {
        self.need_at(Outlook::Mean, now)
    }

    fn need_at(&self, outlook: Outlook, now: Time) -> Need {
        let capacities = self.resources.values();
        Need {
            now,
            capacities: capacities
                .map(|capacity| capacity.expected(outlook, now))
                .collect(),
            ..Need::default()
        }
    }

    /// Returns the promised transfers that are unfinished and whose deadline has not passed.
    fn promises(&self, now: Time) -> impl Iterator<Item = (&Wish, Vec<usize>)> {
        let taken = self.transfers.values().filter(move |taken| {
            let is_over = taken.wish.deadline.is_some_and(|deadline| deadline <= now);
            taken.is_promised && !is_over && taken.wish.bytes != Some(0)
        });
        taken.map(|taken| (&taken.wish, self.indices(&taken.wish)))
    }
}

#[cfg(test)]
mod tests;
