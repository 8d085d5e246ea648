//! Many transfers over shared resources as fluid on a virtual clock: for experiments with policies,
//! rates and admission that last hours at the papers' sizes and a moment here.
//!
//! A [`Load`] says what comes when and what there is to share. A [`Conductor`] is asked at each event
//! and answers at which rate each transfer moves from now on and when it wants to be asked again.
//! Between two events all rates are constant, so the time of each event is exact, to the nanosecond;
//! what stopping and starting costs is a parameter ([`Switching`]).
//!
//! Non-goals: objects, streams, faults, round trips; [`crate::world`] has those.
//!
//! Invariants owned here: no resource ever gives more than its capacity and no transfer takes more
//! than its ceiling, or begins before it may. Whoever orders otherwise ends the run with a
//! [`Fault`], and what was idle while somebody could have used it is in the [`Report`].

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

/// A transfer's place in [`Load::transfers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferIndex(pub usize);

/// A resource's place in [`Load::resources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceIndex(pub usize);

/// Something that every byte of some transfers passes: a link, a card, a root at one end.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// For reports.
    pub name: String,
    /// Bytes per second at the start.
    pub capacity: f64,
    /// What it is from then on, in order of time.
    pub changes: Vec<(Time, f64)>,
}

impl Resource {
    /// A resource whose capacity never changes.
    #[must_use]
    pub fn steady(name: &str, capacity: f64) -> Self {
        Self {
            name: name.to_owned(),
            capacity,
            changes: Vec::new(),
        }
    }
}

/// What is to be moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// For reports.
    pub name: String,
    /// When it is submitted.
    pub arrives: Time,
    /// How much it is.
    pub bytes: u64,
    /// What each of its bytes passes.
    pub resources: Vec<ResourceIndex>,
    /// Whose it is.
    pub owner: String,
    /// What it is for.
    pub activity: String,
    /// The endpoint it is read at.
    pub source: String,
    /// The endpoint it is written at.
    pub sink: String,
    /// What it is owed.
    pub class: Class,
    /// 0 to 9, higher first.
    pub priority: u8,
    /// When it must be done.
    pub deadline: Option<Time>,
    /// When it may begin at the earliest.
    pub not_before: Option<Time>,
    /// What it can use at the most, bytes per second.
    pub ceiling: Option<f64>,
    /// What it is owed at the least, bytes per second. The model reports it to the conductor and
    /// enforces nothing.
    pub floor: f64,
}

impl Transfer {
    /// A background transfer of nobody in particular.
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

/// What it costs to stop one transfer and go on with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switching {
    /// A transfer that is held goes on, at the rate it had, until what it has moved is a multiple of
    /// this: what is on the way is not cut off. Zero stops at once.
    pub object_bytes: u64,
    /// From the first order until the first byte; what was ordered is idle meanwhile.
    pub begin: Duration,
    /// The same for a transfer that was held.
    pub resume: Duration,
}

/// Whether the conductor knows what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Knowledge {
    /// It is asked at each change of a capacity, and must not order more than there is.
    #[default]
    Told,
    /// It sees the capacities of the start. What it orders too much is squeezed: all that pass a
    /// resource that is short get less in proportion.
    Assumed,
}

/// An experiment's input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// What is shared.
    pub resources: Vec<Resource>,
    /// What comes, in any order.
    pub transfers: Vec<Transfer>,
    /// What switching costs.
    pub switching: Switching,
    /// What the conductor is told.
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

/// What has happened at this instant. Several things may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A transfer was submitted.
    Arrival(TransferIndex),
    /// A transfer has moved all it had.
    Finish(TransferIndex),
    /// A transfer has moved the bytes that [`Orders::look_after`] named.
    Served(TransferIndex),
    /// A capacity is another.
    Capacity(ResourceIndex),
    /// The time that [`Orders::look_again`] named.
    Wake,
}

/// What the conductor sees.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The time.
    pub now: Time,
    /// Why it is asked.
    pub events: &'a [Event],
    /// Those that have arrived and neither ended nor been refused, in order of their index.
    pub present: &'a [Seen<'a>],
    /// What each resource gives, as far as it is known ([`Knowledge`]).
    pub capacities: &'a [f64],
}

/// A transfer as the conductor sees it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Which one.
    pub index: TransferIndex,
    /// What it is.
    pub transfer: &'a Transfer,
    /// Bytes it has moved.
    pub served: f64,
    /// What was ordered for it last, bytes per second.
    pub rate: f64,
    /// Whether it has ever been given a rate.
    pub has_begun: bool,
}

impl Seen<'_> {
    /// Bytes it has still to move.
    #[must_use]
    pub fn left(&self) -> f64 {
        self.transfer.bytes as f64 - self.served
    }
}

/// What holds until the next event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Orders {
    /// Bytes per second; who is not named is held.
    pub rates: Vec<(TransferIndex, f64)>,
    /// Turned away, for ever.
    pub refuse: Vec<TransferIndex>,
    /// Ask again then, at the latest.
    pub look_again: Option<Time>,
    /// Ask again when one of these has moved so many bytes in all; each at the most once.
    pub look_after: Vec<(TransferIndex, u64)>,
}

/// Decides; the system under test.
pub trait Conductor {
    /// What is to hold from now on. The last orders hold no longer.
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders;
}

/// Orders that cannot be, or a run that does not end.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// When.
    pub at: Time,
    /// What was wrong with it.
    pub what: Wrong,
}

/// See [`Fault`].
#[derive(Debug, Clone, PartialEq)]
pub enum Wrong {
    /// More was ordered of a resource than it has.
    Overdrawn {
        /// Of which one.
        resource: ResourceIndex,
        /// Bytes per second that were ordered.
        ordered: f64,
        /// Bytes per second that there are.
        capacity: f64,
    },
    /// A rate above the ceiling, below zero, or no number.
    BadRate(TransferIndex, f64),
    /// An order for one that has not arrived, has ended, was refused, or may not begin yet.
    NotThere(TransferIndex),
    /// Two orders for one.
    Twice(TransferIndex),
    /// To be asked again at once: that would never end.
    AsksAtOnce,
    /// Nothing moves and nothing will happen, and these are not done.
    Stuck(Vec<TransferIndex>),
    /// More events than a sound run of this size has.
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
#[path = "tests/mod.rs"]
mod tests;
