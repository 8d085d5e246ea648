//! Transfers whose partial data shall be removed, and how that ended.

use dray_api::Request;
use dray_core::TransferId;

/// A cancelled transfer whose partial data shall be removed.
#[derive(Debug, Clone)]
pub struct PurgeJob {
    /// Its id.
    pub id: TransferId,
    /// Whose it is.
    pub owner: String,
    /// As patched, with its tickets.
    pub request: Request,
    /// Whether it ever ran; else there is nothing of it.
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
    /// Its partial data is removed.
    pub fn removed(notice: impl Into<String>) -> Self {
        Self {
            notice: notice.into(),
            is_purged: true,
        }
    }

    /// Its partial data stays, or may stay.
    pub fn kept(notice: impl Into<String>) -> Self {
        Self {
            notice: notice.into(),
            is_purged: false,
        }
    }
}
