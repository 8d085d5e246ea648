//! What is wished for, and who and what it is about.

use crate::shares::WEIGHT_DEFAULT;
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};

/// A transfer, by its number in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferKey(pub u64);

/// Something that is used up: a link, a NIC, a path to a peer, a root at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// What somebody wants of a transfer; of an admitted one, what is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Which transfer.
    pub key: TransferKey,
    /// Who comes first when something is spare, and who stays when something is short.
    pub class: Class,
    /// Whose it is: what is spare goes by owner, then by transfer.
    pub owner: String,
    /// The owner's part of what is spare, against other owners'.
    pub owner_weight: u32,
    /// The transfer's part, against the owner's others.
    pub weight: u32,
    /// What is left to move; `None` while that is not known.
    pub bytes: Option<u64>,
    /// When it must be done.
    pub deadline: Option<Time>,
    /// When it may begin at the earliest.
    pub not_before: Option<Time>,
    /// The rate it is to have as long as it runs; zero for none.
    pub floor: BytesPerSecond,
    /// What it never gets more than.
    pub ceiling: Option<BytesPerSecond>,
    /// What each of its bytes passes.
    pub resources: Vec<ResourceId>,
}

impl Wish {
    /// A background transfer over `resources`; the rest is set field by field.
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

    /// The same, of class deadline and due at `deadline`.
    #[must_use]
    pub fn due(mut self, deadline: Time) -> Self {
        self.class = Class::Deadline;
        self.deadline = Some(deadline);
        self
    }

    /// Whether there is anything that could be promised: a rate, or a finish of a known size.
    #[must_use]
    pub const fn asks_promise(&self) -> bool {
        self.floor.0 > 0 || (self.deadline.is_some() && self.bytes.is_some())
    }

    /// When it can begin, seen from `now`.
    #[must_use]
    pub fn start(&self, now: Time) -> Time {
        self.not_before.map_or(now, |time| time.max(now))
    }
}

/// Bytes that `rate` moves in `nanos`, rounded down.
pub(crate) fn bytes_in(rate: u64, nanos: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(nanos) / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The rate that moves `bytes` in `nanos`, rounded up.
pub(crate) fn rate_for(bytes: u64, nanos: u64) -> u64 {
    let rate = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(nanos.max(1)));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
