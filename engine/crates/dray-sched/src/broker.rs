//! The broker: decides the rate of each transfer and which deadlines are promised.
//!
//! Everything that transfers use up is a resource with a capacity in bytes per second; a transfer
//! names the resources that each of its bytes passes. Promised transfers have a plan, the
//! certificate that all promises can be kept together ([`plan`]). Admission checks that a plan
//! exists ([`Broker::would`]), rates carry out the plan and share the rest ([`Broker::rates`]), and
//! triage keeps as many promises as possible when capacities fall ([`Rates::misses`]).
//!
//! Decisions depend only on the requests, the set of promised ones, the measured capacities and the
//! time, so a broker restored from the same promises decides the same. Offers are remembered for a
//! short time, so that rates leave them possible; offers never block another transfer.
//!
//! Invariants owned here: the rates on a resource never exceed its capacity; a promise was feasible
//! together with all earlier promises when it was made; a new plan keeps every promise that still
//! fits.

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
    /// Maximum number of transfers the broker handles at a time.
    pub transfers_max: usize,
    /// Weights of the spare capacity: of class deadline, and of class background.
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
            // As BigData Express shows: a background task next to two of class deadline received
            // about a ninth of the capacity that those did not need.
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
    /// Maximum rate that the transfer can use, if known.
    use_max: Option<u64>,
}

/// The broker; see the module documentation.
#[derive(Debug, Clone)]
pub struct Broker {
    config: Config,
    resources: BTreeMap<ResourceId, Capacity>,
    transfers: BTreeMap<TransferKey, Taken>,
    given: BTreeMap<TransferKey, Option<BytesPerSecond>>,
    /// Offers in order of time, the latest last; each with its expiry.
    offers: Vec<(Time, Vec<Wish>)>,
}

/// Maximum number of offers that rates take into account; older offers may still fit.
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

    /// Restores promises from before a restart, without admission. Set the resources first.
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

    /// Sets the measured capacity of a resource from `now` on. Returns true if rates should be
    /// computed again: the capacity differs by a twentieth from the one they were computed with.
    pub fn measure(&mut self, id: ResourceId, rate: BytesPerSecond, now: Time) -> bool {
        self.resources.entry(id).or_default().measure(rate, now)
    }

    /// Returns the known capacity of a resource.
    #[must_use]
    pub fn capacity(&self, id: ResourceId) -> Option<&Capacity> {
        self.resources.get(&id)
    }

    /// Sets the bytes a transfer has left. The number can rise, when files have grown.
    pub fn progress(&mut self, key: TransferKey, bytes_left: u64) {
        if let Some(taken) = self.transfers.get_mut(&key) {
            taken.wish.bytes = Some(bytes_left);
        }
    }

    /// Sets the observed maximum rate that a transfer can use; `None` for no limit.
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

    /// Returns a transfer's remaining request, and whether it is promised.
    #[must_use]
    pub fn wish(&self, key: TransferKey) -> Option<(&Wish, bool)> {
        let taken = self.transfers.get(&key)?;
        Some((&taken.wish, taken.is_promised))
    }

    /// Returns the latest start time with which a transfer meets its deadline, at the present
    /// capacity of its resources and below its ceiling. Returns the earliest start if the transfer
    /// has no deadline or no known size, or if neither a capacity nor a ceiling is known, because
    /// nothing then shows that it may wait.
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

    /// Returns true if the broker can promise `wish`: it asks for a promise, and the capacity of at
    /// least one of its resources is known.
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
        id.expect("an index comes from the resources")
    }

    /// Returns the indices of a wish's resources, without duplicates.
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

    /// Returns the promises whose deadline has not passed.
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
