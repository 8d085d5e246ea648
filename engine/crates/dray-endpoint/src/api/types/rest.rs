//! Admission, and the endpoint itself.

use super::checks::{self, Check};
use super::request::Request;
use super::scheduling::Scheduling;
use crate::moment::Moment;
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests that may be submitted.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdmissionRequest {
    /// The requests.
    #[schema(min_items = 1, max_items = 1000)]
    pub transfers: Vec<Request>,
}

impl Check for AdmissionRequest {
    fn check(&self) -> Result<()> {
        checks::page("transfers", self.transfers.len() as u64)?;
        self.transfers.iter().try_for_each(Check::check)
    }
}

/// Whether they would all be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Yes.
    Accept,
    /// No; the reasons stand with the transfers.
    Refuse,
}

/// What one of them gets, or would get.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Admitted {
    /// Whether its deadline, or its rate, is promised.
    pub promised: bool,
    /// Bytes per second by plan, where it begins.
    pub rate: Option<u64>,
    /// When it is done by plan.
    pub finish: Option<Moment>,
    /// When it is done at the latest.
    pub latest: Option<Moment>,
    /// Of one that is refused: the earliest deadline that could be promised.
    pub earliest_finish: Option<Moment>,
    /// Of one that is refused: bytes per second that it needs.
    pub rate_needed: Option<u64>,
    /// Of one that is refused: bytes per second that could be promised in its time.
    pub rate_available: Option<u64>,
    /// Of one that is refused: what is in its way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<ObstacleAnswer>,
    /// Why, in words.
    pub reasons: Vec<String>,
}

/// What is in a request's way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ObstacleAnswer {
    /// `resource`, `rate_max`, `deadline`, `full`, `twice`.
    pub kind: String,
    /// Of a resource: `link`, `root:NAME`, `peer:NAME`, `owner:NAME`.
    pub resource: Option<String>,
    /// How many others need it in the same time.
    pub promises: u32,
    /// Those of them that are the caller's.
    pub transfers: Vec<String>,
}

/// What would be.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AdmissionAnswer {
    /// Whether.
    pub decision: Decision,
    /// In the order of the requests.
    pub transfers: Vec<Admitted>,
}

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
