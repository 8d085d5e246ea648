//! Requests to the broker, and the identifiers that they contain.

use crate::shares::WEIGHT_DEFAULT;
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};

/// Key of a transfer: its number in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferKey(pub u64);

/// A resource with a capacity: a link, a network card, a path to a peer, or a root at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// The request of a transfer. For an admitted transfer, this is the request for the bytes left to
/// move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Key of the transfer.
    pub key: TransferKey,
    /// Class of the transfer. It determines which transfers get spare capacity first, and which
    /// promises are kept if capacity is short.
    pub class: Class,
    /// Owner of the transfer. Spare capacity is divided among owners, then among an owner's
    /// transfers.
    pub owner: String,
    /// Weight of the owner when owners share spare capacity.
    pub owner_weight: u32,
    /// Weight of the transfer among the transfers of its owner.
    pub weight: u32,
    /// Number of bytes left to move. `None` if it is unknown.
    pub bytes: Option<u64>,
    /// Time by which the transfer must have finished.
    pub deadline: Option<Time>,
    /// Earliest time at which the transfer may start.
    pub not_before: Option<Time>,
    /// Minimum rate while the transfer runs. Zero if there is none.
    pub floor: BytesPerSecond,
    /// Maximum rate. `None` if there is none.
    pub ceiling: Option<BytesPerSecond>,
    /// Resources through which each byte passes.
    pub resources: Vec<ResourceId>,
}

impl Wish {
    /// Creates the request of a background transfer on `resources`. Set the other fields
    /// afterwards.
    #[must_use]
    pub fn new(key: TransferKey, bytes: u64, resources: &[ResourceId]) -> Self {
        Self {
            key,
            class: Class::Background,
            owner: String::new(),
            owner_weight: WEIGHT_DEFAULT,
            weight: WEIGHT_DEFAULT,
            bytes: Some(bytes),
            deadline: None,
            not_before: None,
            floor: BytesPerSecond(0),
            ceiling: None,
            resources: resources.to_vec(),
        }
    }

    /// Returns the request with class deadline, due at `deadline`.
    #[must_use]
    pub fn due(mut self, deadline: Time) -> Self {
        self.class = Class::Deadline;
        self.deadline = Some(deadline);
        self
    }

    /// Returns true if the request asks for a promise: a minimum rate, or a finish time for a known
    /// number of bytes.
    #[must_use]
    pub const fn asks_promise(&self) -> bool {
        self.floor.0 > 0 || (self.deadline.is_some() && self.bytes.is_some())
    }

    /// Returns the earliest start of the transfer that is not before `now`.
    #[must_use]
    pub fn start(&self, now: Time) -> Time {
        self.not_before.map_or(now, |time| time.max(now))
    }
}

/// Returns the number of bytes that move at `rate` bytes per second in `nanos` nanoseconds, rounded
/// down.
pub(crate) fn bytes_in(rate: u64, nanos: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(nanos) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns the rate in bytes per second that moves `bytes` in `nanos` nanoseconds, rounded up.
pub(crate) fn rate_for(bytes: u64, nanos: u64) -> u64 {
    let rate = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(nanos.max(1)));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
