//! Transfers whose partial data must be removed, and the outcomes of purges.

use super::input::SessionInput;

/// A cancelled transfer whose partial data must be removed.
#[derive(Debug, Clone)]
pub struct PurgeJob {
    /// The input of the session that removes the data.
    pub input: SessionInput,
    /// True if the transfer ever ran. A transfer that never ran has no partial data.
    pub has_begun: bool,
}

/// The outcome of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeReport {
    /// The outcome as a sentence for the caller.
    pub notice: String,
    /// True if the partial data was removed.
    pub is_purged: bool,
}

impl PurgeReport {
    /// Returns the outcome of a purge that removed the partial data.
    pub fn removed(notice: impl Into<String>) -> Self {
        Self {
            notice: notice.into(),
            is_purged: true,
        }
    }

    /// Returns the outcome of a purge after which partial data remains, or may remain.
    pub fn kept(notice: impl Into<String>) -> Self {
        Self {
            notice: notice.into(),
            is_purged: false,
        }
    }
}
