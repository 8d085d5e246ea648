//! A request to write to a destination.

use dray_core::options::Durability;
use dray_core::{RelPath, TransferId};
use dray_store::Store;
use std::sync::Arc;

/// A request to write to a destination.
pub struct DestinationRequest {
    /// Store of the destination folder.
    pub store: Arc<dyn Store>,
    /// Store of the exported root, and path of the destination folder in it: logs of whole trees
    /// are searched in the folders above.
    pub above: Option<(Arc<dyn Store>, RelPath)>,
    /// Paths below the destination folder that will be written; empty for all of it.
    pub claims: Vec<RelPath>,
    /// The transfer.
    pub transfer: TransferId,
    /// Owner of the written files, from the owner mapping.
    pub owner: Vec<u8>,
    /// Durability of written data.
    pub durability: Durability,
    /// The destination as the caller named it, for messages.
    pub words: String,
}
