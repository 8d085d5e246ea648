//! The caller whose rights a call of the queue has.

/// The caller whose rights decide which transfers a call may read or change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Owner of the transfers that the caller submits.
    pub owner: String,
    /// True if the caller may see and change the transfers of all owners.
    pub is_administrator: bool,
}

impl Actor {
    /// Returns true if the caller may see and change transfers of `owner`.
    #[must_use]
    pub fn sees(&self, owner: &str) -> bool {
        self.is_administrator || self.owner == owner
    }
}
