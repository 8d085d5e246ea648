//! Transfers whose partial data is to be removed, and the outcome.

use super::input::SessionInput;

/// A cancelled transfer whose partial data is to be removed.
#[derive(Debug, Clone)]
pub struct PurgeJob {
    /// The input of the session that purges.
    pub input: SessionInput,
    /// True if the transfer ever ran; otherwise it has no partial data.
    pub has_begun: bool,
}

/// The outcome of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeReport {
    /// The outcome for the caller, as a sentence.
    pub notice: String,
    /// True if its partial data is removed.
    pub is_purged: bool,
}

impl PurgeReport {
    /// Reports that the partial data is removed.
    pub fn removed(notice: impl Into<String>) -> Self {
        Self {
            notice: notice.into(),
            is_purged: true,
        }
    }

    /// Reports that the partial data stays, or may stay.
    pub fn kept(notice: impl Into<String>) -> Self {
        Self {
            notice: notice.into(),
            is_purged: false,
        }
    }
}
