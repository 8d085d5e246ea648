//! Many transfers over shared resources as fluid on a virtual clock: for experiments with policies,
//! rates and admission that last hours at the papers' sizes and a moment here.
//!
//! A [`Load`] describes arrivals and resources. A [`Conductor`] is called at each event; it returns
//! the rate of each transfer and the time of its next call. Between two events all rates are
//! constant, so the time of each event is exact, to the nanosecond. The cost of stopping and
//! starting is a parameter ([`Switching`]).
//!
//! Non-goals: objects, streams, faults, round trips; [`crate::world`] has those.
//!
//! Invariants owned here: no resource ever gives more than its capacity, and no transfer exceeds
//! its ceiling or begins before its time. Any other order ends the run with a [`Fault`]. The
//! [`Report`] contains the capacity that was idle while a transfer could have used it.

mod brokered;
pub mod fill;
mod model;
mod plain;
mod report;
mod ruled;
pub mod table;

pub use brokered::{Admission, Brokered, Sizes, wish};
pub use model::run;
pub use plain::Plain;
pub use report::{Record, Report, Turn, Use};
pub use ruled::Ruled;

use dray_core::Time;
use dray_core::rate::Class;
use std::time::Duration;

/// Index of a transfer in [`Load::transfers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferIndex(pub usize);

/// Index of a resource in [`Load::resources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceIndex(pub usize);

/// A resource that every byte of some transfers passes: a link, a card, a root at one end.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Name for reports.
    pub name: String,
    /// Bytes per second at the start.
    pub capacity: f64,
    /// Later capacities, each with its start, in order of time.
    pub changes: Vec<(Time, f64)>,
}

impl Resource {
    /// Returns a resource with a constant capacity.
    #[must_use]
    pub fn steady(name: &str, capacity: f64) -> Self {
        Self {
            name: name.to_owned(),
            capacity,
            changes: Vec::new(),
        }
    }
}

/// A transfer of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Name for reports.
    pub name: String,
    /// Time of submission.
    pub arrives: Time,
    /// Size in bytes.
    pub bytes: u64,
    /// Resources that each of its bytes passes.
    pub resources: Vec<ResourceIndex>,
    /// Owner of the transfer.
    pub owner: String,
    /// Activity of the transfer.
    pub activity: String,
    /// Source endpoint.
    pub source: String,
    /// Sink endpoint.
    pub sink: String,
    /// Service class.
    pub class: Class,
    /// 0 to 9, higher first.
    pub priority: u8,
    /// Deadline.
    pub deadline: Option<Time>,
    /// Earliest start.
    pub not_before: Option<Time>,
    /// Maximum rate in bytes per second.
    pub ceiling: Option<f64>,
    /// Guaranteed rate in bytes per second. The model passes it to the conductor and does not
    /// enforce it.
    pub floor: f64,
}

impl Transfer {
    /// Returns a background transfer without an owner.
    #[must_use]
    pub fn new(name: &str, arrives: Time, bytes: u64, resources: &[ResourceIndex]) -> Self {
        Self {
            name: name.to_owned(),
            arrives,
            bytes,
            resources: resources.to_vec(),
            owner: String::new(),
            activity: String::new(),
            source: String::new(),
            sink: String::new(),
            class: Class::Background,
            priority: 3,
            deadline: None,
            not_before: None,
            ceiling: None,
            floor: 0.0,
        }
    }
}

/// Costs of stopping one transfer and starting another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switching {
    /// A stopped transfer continues at its rate until its total is a multiple of this: objects in
    /// flight are completed. Zero stops immediately.
    pub object_bytes: u64,
    /// Time from the first order until the first byte; the ordered capacity is idle meanwhile.
    pub begin: Duration,
    /// The same for a transfer that was stopped before.
    pub resume: Duration,
}

/// Knowledge of the conductor about capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Knowledge {
    /// The conductor is called at each change of a capacity, and must not exceed it.
    #[default]
    Told,
    /// The conductor sees the initial capacities. If it orders too much, all transfers of a short
    /// resource are reduced in proportion.
    Assumed,
}

/// Input of an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Shared resources.
    pub resources: Vec<Resource>,
    /// Transfers, in any order.
    pub transfers: Vec<Transfer>,
    /// Costs of switching.
    pub switching: Switching,
    /// Knowledge of the conductor.
    pub knowledge: Knowledge,
}

impl Load {
    /// Adds a resource.
    pub fn share(&mut self, resource: Resource) -> ResourceIndex {
        self.resources.push(resource);
        ResourceIndex(self.resources.len() - 1)
    }

    /// Adds a transfer.
    pub fn submit(&mut self, transfer: Transfer) -> TransferIndex {
        self.transfers.push(transfer);
        TransferIndex(self.transfers.len() - 1)
    }
}

/// An event at this instant. Several may coincide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A transfer was submitted.
    Arrival(TransferIndex),
    /// A transfer has moved all its bytes.
    Finish(TransferIndex),
    /// A transfer has moved the bytes that [`Orders::look_after`] named.
    Served(TransferIndex),
    /// A capacity has changed.
    Capacity(ResourceIndex),
    /// The time that [`Orders::look_again`] named.
    Wake,
}

/// Input of a conductor's call.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Present time.
    pub now: Time,
    /// Events that caused the call.
    pub events: &'a [Event],
    /// Transfers that have arrived and neither ended nor been refused, in order of their index.
    pub present: &'a [TransferView<'a>],
    /// Capacity of each resource, as far as it is known ([`Knowledge`]).
    pub capacities: &'a [f64],
}

/// A transfer as the conductor sees it.
#[derive(Debug, Clone, Copy)]
pub struct TransferView<'a> {
    /// Index of the transfer.
    pub index: TransferIndex,
    /// The transfer.
    pub transfer: &'a Transfer,
    /// Bytes moved.
    pub served: f64,
    /// Last ordered rate in bytes per second.
    pub rate: f64,
    /// True if it has ever been given a rate.
    pub has_begun: bool,
}

impl TransferView<'_> {
    /// Returns the remaining bytes.
    #[must_use]
    pub fn left(&self) -> f64 {
        self.transfer.bytes as f64 - self.served
    }
}

/// Orders until the next event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Orders {
    /// Rates in bytes per second; a transfer that is not named is stopped.
    pub rates: Vec<(TransferIndex, f64)>,
    /// Transfers refused for good.
    pub refuse: Vec<TransferIndex>,
    /// Latest time of the next call.
    pub look_again: Option<Time>,
    /// Call again when one of these transfers has moved this many bytes in total; at most one entry
    /// for each.
    pub look_after: Vec<(TransferIndex, u64)>,
}

/// The decisions under test.
pub trait Conductor {
    /// Returns the orders from now on. They replace the last orders.
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders;
}

/// Invalid orders, or a run that does not end.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Time of the fault.
    pub at: Time,
    /// Kind of the fault.
    pub what: Wrong,
}

/// Kinds of a [`Fault`].
#[derive(Debug, Clone, PartialEq)]
pub enum Wrong {
    /// The orders exceed the capacity of a resource.
    Overdrawn {
        /// The resource.
        resource: ResourceIndex,
        /// Ordered bytes per second.
        ordered: f64,
        /// Available bytes per second.
        capacity: f64,
    },
    /// A rate above the ceiling, below zero, or not a number.
    BadRate(TransferIndex, f64),
    /// An order for a transfer that has not arrived, has ended, was refused, or may not begin yet.
    NotThere(TransferIndex),
    /// Two orders for one transfer.
    Twice(TransferIndex),
    /// A request for another call at the same time: the run would never end.
    AsksAtOnce,
    /// Nothing moves, no event is to come, and these transfers are not done.
    Stuck(Vec<TransferIndex>),
    /// More events than a correct run of this size has.
    Endless,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.at.as_nanos() as f64 / 1e9;
        write!(f, "at {seconds:.3} s: {:?}", self.what)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
