//! The settings of the queue.

use super::quota::Limits;
use crate::promises;
use dray_api::RetryWish;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Returns true if `HOST:PORT` is an address of this endpoint.
pub type IsOwn = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The settings of a queue.
#[derive(Clone)]
pub struct Settings {
    /// Folder for all state that must survive a restart.
    pub state: PathBuf,
    /// Maximum number of transfers that have not ended, in total.
    pub transfers: u64,
    /// Maximum number of transfers of one owner that have not ended.
    pub transfers_of_owner: u64,
    /// Maximum number of stored tickets of one owner.
    pub tickets_of_owner: u64,
    /// Number of retries and delays for a request that does not set them.
    pub retry: RetryWish,
    /// Time for which an ended transfer is kept.
    pub keep: Duration,
    /// Maximum number of ended transfers. The oldest ones are deleted first.
    pub keep_count: u64,
    /// True if the data of a receipt is stored when an attempt of a transfer ends.
    pub keeps_receipts: bool,
    /// The settings for promises.
    pub promises: promises::Settings,
    /// Recognizes the addresses of this endpoint in URLs. Used for rows of older versions.
    pub is_own: IsOwn,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({}, {:?})", self.state.display(), self.promises)
    }
}

impl Settings {
    pub(super) const fn limits(&self) -> Limits {
        Limits {
            all: self.transfers,
            of_owner: self.transfers_of_owner,
        }
    }
}
