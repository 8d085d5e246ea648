//! Simulates many transfers over shared resources as a fluid on a virtual clock. The model serves
//! experiments with policies, rates and admission. Some of these experiments repeat those of
//! published papers, in which the transfers took hours. The model simulates such transfers within
//! moments.
//!
//! A [`Load`] describes arrivals and resources. The model calls a [`Conductor`] at each event. The
//! conductor returns the rate of each transfer and the time of its next call. Between two events
//! all rates are constant, so the time of each event is exact to the nanosecond. The costs of
//! stopping and starting a transfer are parameters ([`Switching`]).
//!
//! Non-goals: objects, streams, faults, round trips. [`crate::world`] simulates these.
//!
//! Invariants owned here: a resource never exceeds its capacity; a transfer never exceeds its
//! ceiling or begins before its time. Orders that violate an invariant end the run with a
//! [`Fault`]. The [`Report`] contains the capacity that was idle although a transfer could have
//! used it.

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

/// A resource through which all bytes of some transfers pass: a link, a network card, or a root at
/// one end.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Name of the resource in reports.
    pub name: String,
    /// Initial capacity in bytes per second.
    pub capacity: f64,
    /// Later capacities in bytes per second, each with its start time, in order of time.
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
    /// Name of the transfer in reports.
    pub name: String,
    /// Time of submission.
    pub arrives: Time,
    /// Size in bytes.
    pub bytes: u64,
    /// Resources through which each byte passes.
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
    /// Priority from 0 to 9. Higher priorities come first.
    pub priority: u8,
    /// Time by which the transfer must have finished.
    pub deadline: Option<Time>,
    /// Earliest time at which the transfer may start.
    pub not_before: Option<Time>,
    /// Maximum rate in bytes per second.
    pub ceiling: Option<f64>,
    /// Guaranteed rate in bytes per second. The model passes this rate to the conductor and does
    /// not enforce it.
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

/// Costs of stopping a transfer and starting another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switching {
    /// Object size in bytes. A stopped transfer continues at its rate until the object in flight is
    /// complete, that is, until the transfer's total is a multiple of this size. With a size of
    /// zero, a transfer stops immediately.
    pub object_bytes: u64,
    /// Time from the first order for a transfer until its first byte. The ordered capacity is idle
    /// in this time.
    pub begin: Duration,
    /// As `begin`, for a transfer that was stopped before.
    pub resume: Duration,
}

/// The conductor's knowledge about capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Knowledge {
    /// The conductor is called at each change of a capacity, and its orders must not exceed the
    /// capacity.
    #[default]
    Told,
    /// The conductor sees only the initial capacities. If its orders exceed a capacity, the rates
    /// of all transfers on that resource are reduced in proportion.
    Assumed,
}

/// Input of an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Shared resources.
    pub resources: Vec<Resource>,
    /// Transfers, in any order.
    pub transfers: Vec<Transfer>,
    /// Costs of stopping and starting transfers.
    pub switching: Switching,
    /// The conductor's knowledge about capacities.
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

/// An event. Several events may occur at the same instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A transfer was submitted.
    Arrival(TransferIndex),
    /// A transfer has moved all its bytes.
    Finish(TransferIndex),
    /// A transfer has moved the number of bytes requested in [`Orders::look_after`].
    Served(TransferIndex),
    /// A capacity has changed.
    Capacity(ResourceIndex),
    /// The time requested in [`Orders::look_again`] has come.
    Wake,
}

/// The situation that a conductor sees when it is called.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// Present time.
    pub now: Time,
    /// Events that caused this call.
    pub events: &'a [Event],
    /// Transfers that have arrived, have not ended and were not refused, in the order of their
    /// indices.
    pub present: &'a [TransferView<'a>],
    /// Capacity of each resource in bytes per second, as the conductor knows it ([`Knowledge`]).
    pub capacities: &'a [f64],
}

/// A transfer as the conductor sees it.
#[derive(Debug, Clone, Copy)]
pub struct TransferView<'a> {
    /// Index of the transfer.
    pub index: TransferIndex,
    /// The transfer.
    pub transfer: &'a Transfer,
    /// Number of bytes moved.
    pub served: f64,
    /// Last ordered rate in bytes per second.
    pub rate: f64,
    /// True if the transfer has had a rate before.
    pub has_begun: bool,
}

impl TransferView<'_> {
    /// Returns the number of bytes that are not moved yet.
    #[must_use]
    pub fn left(&self) -> f64 {
        self.transfer.bytes as f64 - self.served
    }
}

/// Orders that apply until the next call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Orders {
    /// Rates in bytes per second. A transfer that is not in the list is stopped.
    pub rates: Vec<(TransferIndex, f64)>,
    /// Transfers that are refused finally.
    pub refuse: Vec<TransferIndex>,
    /// Time of the next call, unless an event occurs before.
    pub look_again: Option<Time>,
    /// Transfers that cause the next call, each with the total number of bytes that it must have
    /// moved by then. At most one entry for each transfer.
    pub look_after: Vec<(TransferIndex, u64)>,
}

/// The decisions under test: a policy, the broker or a plain rule.
pub trait Conductor {
    /// Returns the orders from now on. They replace the previous orders.
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders;
}

/// An error of a run: invalid orders, or a run that does not end.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Time of the fault.
    pub at: Time,
    /// Kind of the error.
    pub what: Wrong,
}

/// Kinds of errors of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Wrong {
    /// The orders exceed the capacity of a resource.
    Overdrawn {
        /// The resource.
        resource: ResourceIndex,
        /// Ordered rate in bytes per second.
        ordered: f64,
        /// Capacity in bytes per second.
        capacity: f64,
    },
    /// A rate is above the transfer's ceiling, below zero, or not a number.
    BadRate(TransferIndex, f64),
    /// An order names a transfer that has not arrived, has ended, was refused, or may not begin
    /// yet.
    NotThere(TransferIndex),
    /// Two orders name the same transfer.
    Twice(TransferIndex),
    /// The conductor asks for another call at the same time, so the run would never end.
    AsksAtOnce,
    /// No transfer moves and no event will occur, but these transfers are not finished.
    Stuck(Vec<TransferIndex>),
    /// The run has more events than a correct run of this size can have.
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
