//! The settings of the queue.

use super::quota::Limits;
use crate::promises;
use dray_api::RetryWish;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Returns true for an address `HOST:PORT` of this endpoint.
pub type IsOwn = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The settings of a queue.
#[derive(Clone)]
pub struct Settings {
    /// Folder of all state that must survive a restart.
    pub state: PathBuf,
    /// Maximum number of transfers that have not ended, in all.
    pub transfers: u64,
    /// Maximum number of transfers of one owner that have not ended.
    pub transfers_of_owner: u64,
    /// Maximum number of stored tickets of one owner.
    pub tickets_of_owner: u64,
    /// Retries of a request that does not set them.
    pub retry: RetryWish,
    /// Time for which ended transfers are kept.
    pub keep: Duration,
    /// Maximum number of ended transfers; the oldest are deleted first.
    pub keep_count: u64,
    /// The settings of promises.
    pub promises: promises::Settings,
    /// Recognizes the addresses of this endpoint, in the URLs of rows of older versions.
    pub is_own: IsOwn,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings({}, {:?})", self.state.display(), self.promises)
    }
}

impl Settings {
    /// Returns the maximum numbers of transfers.
    pub(super) const fn limits(&self) -> Limits {
        Limits {
            all: self.transfers,
            of_owner: self.transfers_of_owner,
        }
    }
}
