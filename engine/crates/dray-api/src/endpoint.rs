//! The endpoint itself: its name, its limits, and the rights of the caller.

use crate::scheduling::Scheduling;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The endpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EndpointAnswer {
    /// Its name.
    pub name: String,
    /// Of the software.
    pub version: String,
    /// Fingerprint of its key.
    pub key: String,
    /// Where it listens for sessions.
    pub address: String,
    /// What the caller may do where.
    pub roots: Vec<RootAnswer>,
    /// Who the caller is.
    pub you: You,
    /// Bounds a caller may meet.
    pub limits: LimitsAnswer,
    /// Which transfers run, and which are held meanwhile.
    pub scheduling: Scheduling,
}

/// What the caller may do in a root.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RootAnswer {
    /// Its name.
    pub name: String,
    /// Read all of it.
    pub read: bool,
    /// Write anywhere.
    pub write: bool,
    /// Stage anything.
    pub stage: bool,
}

/// Who the caller is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct You {
    /// The principal.
    pub principal: String,
    /// Whose transfers are whose.
    pub owner: String,
    /// Whether all transfers can be seen and changed.
    pub administrator: bool,
}

/// Bounds a caller may meet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LimitsAnswer {
    /// Transfers that run at once.
    pub transfers_active: u32,
    /// Transfers that are not ended.
    pub transfers_queued: u64,
    /// Transfers of one owner that are not ended.
    pub per_owner_queued: u64,
    /// Transfers of one owner that run at once.
    pub per_owner_active: u32,
    /// Bytes of a request's body.
    pub body_bytes: u64,
    /// Items of a page, and of a batch.
    pub page: u32,
    /// Listeners to events of one owner.
    pub events_listeners_per_owner: u32,
}

/// How the endpoint feels.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` or `stopping`.
    pub status: String,
}
