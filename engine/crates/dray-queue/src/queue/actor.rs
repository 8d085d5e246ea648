//! The caller of the queue.

/// The caller on whose behalf transfers are read or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The owner of the transfers that it submits.
    pub owner: String,
    /// True if it may see and change all transfers.
    pub is_administrator: bool,
}

impl Actor {
    /// Returns true if the caller may see and change transfers of `owner`.
    #[must_use]
    pub fn sees(&self, owner: &str) -> bool {
        self.is_administrator || self.owner == owner
    }
}
