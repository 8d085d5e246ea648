//! The broker of `dray-sched` as a conductor. The broker decides admissions and rates.

use super::{Conductor, Event, Load, Orders, Scene, Transfer, TransferIndex};
use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use dray_sched::broker::{Broker, Config, Rates, Refusal, ResourceId, TransferKey, Wish};

/// Rule for the admission of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The broker tests each request when it arrives. A refused request is not submitted again.
    Tested,
    /// The broker promises all requests without a test, as if another broker had admitted them.
    Given,
}

/// Source of the broker's capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// From the configuration, with the initial values.
    Configured,
    /// From measurements, including all changes.
    Measured,
}

/// The broker as a conductor.
#[derive(Debug)]
pub struct Brokered {
    broker: Broker,
    admission: Admission,
    sizes: Sizes,
    /// Refused transfers, with the time and the reason.
    pub refusals: Vec<(TransferIndex, Time, Refusal)>,
    /// Transfers whose miss the broker reported, with the time of the first report.
    pub foretold: Vec<(TransferIndex, Time)>,
    /// Number of times that the rate of a transfer changed.
    pub changes: usize,
    /// Rates after each call of the broker.
    pub rates: Vec<(Time, Rates)>,
    keeps_rates: bool,
}

impl Brokered {
    /// Creates a broker with the resources of a load.
    #[must_use]
    pub fn new(load: &Load, config: Config, admission: Admission, sizes: Sizes) -> Self {
        let mut broker = Broker::new(config);
        for (at, resource) in load.resources.iter().enumerate() {
            let rate = whole(resource.capacity);
            match sizes {
                Sizes::Configured => broker.set_resource(id(at), Some(rate)),
                Sizes::Measured => {
                    broker.measure(id(at), rate, Time::ZERO);
                }
            }
        }
        Self {
            broker,
            admission,
            sizes,
            refusals: Vec::new(),
            foretold: Vec::new(),
            changes: 0,
            rates: Vec::new(),
            keeps_rates: false,
        }
    }

    /// Keeps the rates of all calls, for a report.
    #[must_use]
    pub fn keeping_rates(mut self) -> Self {
        self.keeps_rates = true;
        self
    }

    /// Returns the broker.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    fn arrive(&mut self, index: TransferIndex, transfer: &Transfer, now: Time) -> bool {
        let wish = wish(index, transfer);
        if self.admission == Admission::Given {
            self.broker.restore([wish]);
            return true;
        }
        match self.broker.admit(&[wish], now) {
            dray_sched::broker::Answer::Accepted(_) => true,
            dray_sched::broker::Answer::Refused(refusal) => {
                self.refusals.push((index, now, refusal));
                false
            }
        }
    }
}

impl Conductor for Brokered {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        let now = scene.now;
        let mut orders = Orders::default();
        for seen in scene.present {
            // Round up, because a remaining fraction of a byte still has to move.
            let left = seen.left().max(0.0).ceil() as u64;
            self.broker.progress(key(seen.index), left.max(1));
        }
        for event in scene.events {
            match *event {
                Event::Finish(index) => self.broker.end(key(index)),
                Event::Capacity(resource) if self.sizes == Sizes::Measured => {
                    let rate = whole(scene.capacities[resource.0]);
                    self.broker.measure(id(resource.0), rate, now);
                }
                Event::Capacity(resource) => {
                    let rate = whole(scene.capacities[resource.0]);
                    self.broker.set_resource(id(resource.0), Some(rate));
                }
                Event::Arrival(_) | Event::Served(_) | Event::Wake => {}
            }
        }
        for event in scene.events {
            if let Event::Arrival(index) = *event {
                let seen = scene.present.iter().find(|seen| seen.index == index);
                if seen.is_some_and(|seen| !self.arrive(index, seen.transfer, now)) {
                    orders.refuse.push(index);
                }
            }
        }
        let rates = self.broker.rates(now);
        self.changes += rates.changes.len();
        for miss in &rates.misses {
            let index = index(miss.key);
            if self.foretold.iter().all(|(known, _)| *known != index) {
                self.foretold.push((index, now));
            }
        }
        for rate in &rates.rates {
            let given = rate.given.map_or(f64::MAX, |rate| rate.0 as f64);
            if given > 0.0 {
                orders.rates.push((index(rate.key), given));
            }
        }
        orders.look_again = rates.wake_at;
        if self.keeps_rates {
            self.rates.push((now, rates));
        }
        orders
    }
}

/// Converts a transfer of the model to a request to the broker.
#[must_use]
pub fn wish(index: TransferIndex, transfer: &Transfer) -> Wish {
    let resources: Vec<ResourceId> = transfer.resources.iter().map(|at| id(at.0)).collect();
    let mut wish = Wish::new(key(index), transfer.bytes, &resources);
    wish.class = transfer.class;
    wish.owner = transfer.owner.clone();
    wish.deadline = transfer.deadline;
    wish.not_before = transfer.not_before;
    wish.floor = whole(transfer.floor);
    wish.ceiling = transfer.ceiling.map(whole);
    wish
}

fn whole(rate: f64) -> BytesPerSecond {
    BytesPerSecond(rate.floor() as u64)
}

fn id(at: usize) -> ResourceId {
    ResourceId(u32::try_from(at).expect("few resources"))
}

fn key(index: TransferIndex) -> TransferKey {
    TransferKey(index.0 as u64)
}

fn index(key: TransferKey) -> TransferIndex {
    TransferIndex(usize::try_from(key.0).expect("made from an index"))
}
