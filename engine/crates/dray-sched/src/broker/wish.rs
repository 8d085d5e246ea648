//! Requests to the broker, and the identifiers in them.

use crate::shares::WEIGHT_DEFAULT;
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};

/// A transfer, by its number in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferKey(pub u64);

/// A resource with a capacity: a link, a NIC, a path to a peer, a root at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// The request of a transfer; for an admitted one, the remainder of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The transfer.
    pub key: TransferKey,
    /// Precedence for spare capacity, and in case of shortage.
    pub class: Class,
    /// Owner of the transfer: spare capacity is divided by owner, then by transfer.
    pub owner: String,
    /// Weight against other owners for spare capacity.
    pub owner_weight: u32,
    /// Weight against other transfers of the owner.
    pub weight: u32,
    /// Bytes left to move; `None` if unknown.
    pub bytes: Option<u64>,
    /// Time by which the transfer must finish.
    pub deadline: Option<Time>,
    /// Earliest start.
    pub not_before: Option<Time>,
    /// Minimum rate while the transfer runs; zero for none.
    pub floor: BytesPerSecond,
    /// Maximum rate.
    pub ceiling: Option<BytesPerSecond>,
    /// Resources that each byte passes.
    pub resources: Vec<ResourceId>,
}

impl Wish {
    /// Creates the request of a background transfer over `resources`; set the other fields one by
    /// one.
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

    /// Returns true if the request contains something to promise: a rate, or the finish of a known
    /// size.
    #[must_use]
    pub const fn asks_promise(&self) -> bool {
        self.floor.0 > 0 || (self.deadline.is_some() && self.bytes.is_some())
    }

    /// Returns the earliest start, seen from `now`.
    #[must_use]
    pub fn start(&self, now: Time) -> Time {
        self.not_before.map_or(now, |time| time.max(now))
    }
}

/// Returns the bytes that `rate` moves in `nanos`, rounded down.
pub(crate) fn bytes_in(rate: u64, nanos: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(nanos) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns the rate that moves `bytes` in `nanos`, rounded up.
pub(crate) fn rate_for(bytes: u64, nanos: u64) -> u64 {
    let rate = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(nanos.max(1)));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
