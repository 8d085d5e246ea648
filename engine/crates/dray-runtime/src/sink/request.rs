//! A request to write to a destination.

use dray_core::options::Durability;
use dray_core::{LogChoice, LogForm, RelPath, TransferId};
use dray_store::Store;
use std::sync::Arc;

/// A request to write to a destination.
pub struct DestinationRequest {
    /// Store whose root is the destination folder.
    pub store: Arc<dyn Store>,
    /// Store of the exported root, and path of the destination folder in it. The folders above the
    /// destination are also searched for logs, because a transfer of a larger folder may have
    /// written below the destination.
    pub above: Option<(Arc<dyn Store>, RelPath)>,
    /// Paths below the destination folder that the transfer will write; empty for the whole folder.
    pub claims: Vec<RelPath>,
    /// Id of the transfer.
    pub transfer: TransferId,
    /// Account that owns the written files, from the mapping of principals to owners.
    pub owner: Vec<u8>,
    /// Required durability of written data.
    pub durability: Durability,
    /// Requested log; `None` for a stored log of the default form. A log of an earlier run keeps its
    /// form.
    pub log: Option<LogChoice>,
    /// The destination as the caller named it, for messages.
    pub words: String,
}

impl DestinationRequest {
    /// Returns the requested form of a stored log.
    pub(super) fn form(&self) -> Option<LogForm> {
        match self.log? {
            LogChoice::Stored(form) => Some(form),
            LogChoice::Memory => None,
        }
    }
}
