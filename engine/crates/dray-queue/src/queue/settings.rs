//! The settings of the queue.

use super::quota::Limits;
use crate::promises;
use dray_api::RetryWish;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a queue.
#[derive(Debug, Clone)]
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
