//! Admission: whether requests would get their promises.

use crate::checks::{self, Check};
use crate::request::Request;
use crate::timestamp::Timestamp;
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
    pub finish: Option<Timestamp>,
    /// When it is done at the latest.
    pub latest: Option<Timestamp>,
    /// Of one that is refused: the earliest deadline that could be promised.
    pub earliest_finish: Option<Timestamp>,
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
