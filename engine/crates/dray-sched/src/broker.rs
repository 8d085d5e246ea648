//! At which rate does each transfer run, and which deadlines are promised?
//!
//! Everything that is used up is a resource with a capacity in bytes per second; a transfer names
//! those that each of its bytes passes. What is promised has a plan, the certificate that all
//! promises can be kept together ([`plan`]); admission asks for one ([`Broker::would`]), rates carry it
//! out and share what it leaves ([`Broker::rates`]), and triage keeps as much as it can when capacities
//! fall ([`Rates::misses`]).
//!
//! Nothing that decides is remembered but wishes, whether they are promised, and what was measured: each
//! question is answered from these and the time alone, so a broker made from the same promises answers
//! the same. Offers are remembered for a moment, so that rates leave them possible; they stand in
//! nobody's way.
//!
//! Invariants owned here: no resource is given out beyond its capacity; what is promised was feasible
//! together with all that was promised before; a new plan takes back no promise that still fits.

mod admit;
mod capacity;
mod eta;
mod fill;
mod interior;
mod matrix;
mod need;
pub mod plan;
mod rates;
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

/// What can be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Transfers that are looked after at a time.
    pub transfers_max: usize,
    /// Parts of what is spare: to class deadline, and to class background.
    pub weights: (u32, u32),
    /// How long an offer is good for.
    pub offer_holds: Duration,
    /// How long rates hold at the most while anything is promised.
    pub rates_hold: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            transfers_max: 100_000,
            // As BigData Express shows it: a background task beside two of class deadline kept about a
            // ninth of what these did not need.
            weights: (8, 1),
            offer_holds: Duration::from_secs(10),
            rates_hold: Duration::from_secs(5),
        }
    }
}

/// A transfer that was taken on.
#[derive(Debug, Clone)]
struct Taken {
    wish: Wish,
    is_promised: bool,
    /// What it can use, where that is known.
    use_max: Option<u64>,
}

/// See the module's head.
#[derive(Debug, Clone)]
pub struct Broker {
    config: Config,
    resources: BTreeMap<ResourceId, Capacity>,
    transfers: BTreeMap<TransferKey, Taken>,
    given: BTreeMap<TransferKey, Option<BytesPerSecond>>,
    /// What was offered, the latest last, each until when.
    offers: Vec<(Time, Vec<Wish>)>,
}

/// Offers that rates take into account at a time; older ones still may fit.
const OFFERS_MAX: usize = 4;

impl Broker {
    /// Knows nothing yet.
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

    /// Takes up what was promised before a restart; nothing is asked again. Resources must be set
    /// before.
    pub fn restore(&mut self, promises: impl IntoIterator<Item = Wish>) {
        for wish in promises {
            let is_promised = self.can_promise(&wish);
            self.insert(wish, is_promised);
        }
    }

    /// Adds a resource, or sets what is configured of it.
    pub fn set_resource(&mut self, id: ResourceId, ceiling: Option<BytesPerSecond>) {
        self.resources.entry(id).or_default().set_ceiling(ceiling);
    }

    /// What a resource gives from `now` on. True when rates should be asked for anew: it differs by a
    /// twentieth from what they were made for.
    pub fn measure(&mut self, id: ResourceId, rate: BytesPerSecond, now: Time) -> bool {
        self.resources.entry(id).or_default().measure(rate, now)
    }

    /// What is known of a resource.
    #[must_use]
    pub fn capacity(&self, id: ResourceId) -> Option<&Capacity> {
        self.resources.get(&id)
    }

    /// A transfer has so much left. That more is left than before happens, when files have grown.
    pub fn progress(&mut self, key: TransferKey, bytes_left: u64) {
        if let Some(taken) = self.transfers.get_mut(&key) {
            taken.wish.bytes = Some(bytes_left);
        }
    }

    /// What a transfer can use at the most, as it shows; `None` for as much as it gets.
    pub fn set_use(&mut self, key: TransferKey, most: Option<BytesPerSecond>) {
        if let Some(taken) = self.transfers.get_mut(&key) {
            taken.use_max = most.map(|rate| rate.0);
        }
    }

    /// A transfer is done, or is not wanted any more.
    pub fn end(&mut self, key: TransferKey) {
        self.transfers.remove(&key);
        self.given.remove(&key);
    }

    /// What a transfer has left, and whether that is promised.
    #[must_use]
    pub fn wish(&self, key: TransferKey) -> Option<(&Wish, bool)> {
        let taken = self.transfers.get(&key)?;
        Some((&taken.wish, taken.is_promised))
    }

    /// When a transfer has to begin at the latest to be done in time, as fast as what it passes allows
    /// now; at once when it has no deadline, and when nothing of what it passes is known: nobody can say
    /// that it may wait.
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

    /// Whether anything of a wish can be promised: what passes only resources of which nothing is known
    /// cannot.
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

    /// Indices of a wish's resources, each once.
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

    /// Promises whose time is not over.
    fn promises(&self, now: Time) -> impl Iterator<Item = (&Wish, Vec<usize>)> {
        let taken = self.transfers.values().filter(move |taken| {
            let is_over = taken.wish.deadline.is_some_and(|deadline| deadline <= now);
            taken.is_promised && !is_over && taken.wish.bytes != Some(0)
        });
        taken.map(|taken| (&taken.wish, self.indices(&taken.wish)))
    }
}

#[cfg(test)]
#[path = "broker/tests/mod.rs"]
mod tests;
