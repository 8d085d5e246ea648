//! The endpoint itself: its name, its limits, and the rights of the caller.

use crate::parts::RetryWish;
use crate::scheduling::Scheduling;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An endpoint's description of itself and of the caller's rights.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EndpointAnswer {
    /// Name of the endpoint.
    pub name: String,
    /// Version of the software.
    pub version: String,
    /// Fingerprint of the endpoint's key.
    pub key: String,
    /// Address at which the endpoint listens for sessions.
    pub address: String,
    /// Exported roots, with the rights of the caller in each.
    pub roots: Vec<RootAnswer>,
    /// Identity of the caller.
    pub you: You,
    /// Limits of the endpoint that can affect a caller.
    pub limits: LimitsAnswer,
    /// Retries of a transfer whose request has no `retry`.
    #[serde(default)]
    pub retry: RetryWish,
    /// Rules by which the endpoint starts and holds transfers.
    pub scheduling: Scheduling,
}

/// Rights of the caller in a root.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RootAnswer {
    /// Name of the root.
    pub name: String,
    /// True if the caller may read the whole root.
    pub read: bool,
    /// True if the caller may write anywhere in the root.
    pub write: bool,
    /// True if the caller may stage any path of the root.
    pub stage: bool,
}

/// Identity of the caller.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct You {
    /// Principal of the caller.
    pub principal: String,
    /// Owner of the caller's transfers.
    pub owner: String,
    /// True if the caller may see and change all transfers.
    pub administrator: bool,
}

/// Limits of the endpoint that may affect a caller.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LimitsAnswer {
    /// Maximum number of concurrent transfers.
    pub transfers_active: u32,
    /// Maximum number of transfers that have not ended.
    pub transfers_queued: u64,
    /// Maximum number of transfers of one owner that have not ended.
    pub per_owner_queued: u64,
    /// Maximum number of concurrent transfers of one owner.
    pub per_owner_active: u32,
    /// Maximum bytes of the body of a request.
    pub body_bytes: u64,
    /// Maximum number of items of a page, and of a batch.
    pub page: u32,
    /// Maximum number of event listeners of one owner.
    pub events_listeners_per_owner: u32,
}

/// State of the endpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` or `stopping`.
    pub status: String,
}
