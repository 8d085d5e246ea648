//! Admission: the endpoint's decision about requests, and the promises that it makes or would make.

use crate::checks::{self, Check};
use crate::request::Request;
use crate::timestamp::Timestamp;
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Requests to check for admission, without submitting them.
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

/// Result of the admission check of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The endpoint would accept all requests.
    Accept,
    /// The endpoint would refuse at least one request, whose entry states the reasons.
    Refuse,
}

/// Promise that the endpoint makes, or would make, for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Admitted {
    /// True if the deadline or the rate is promised.
    pub promised: bool,
    /// Planned rate at the start, in bytes per second.
    pub rate: Option<u64>,
    /// Planned time of completion.
    pub finish: Option<Timestamp>,
    /// Latest time of completion.
    pub latest: Option<Timestamp>,
    /// Refused requests only: earliest deadline that the endpoint could promise.
    pub earliest_finish: Option<Timestamp>,
    /// Refused requests only: rate that the request needs, in bytes per second.
    pub rate_needed: Option<u64>,
    /// Refused requests only: highest rate that the endpoint could promise between the requested
    /// start and the deadline, in bytes per second.
    pub rate_available: Option<u64>,
    /// Refused requests only: obstacle that prevents the promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<ObstacleAnswer>,
    /// Reasons in plain text.
    pub reasons: Vec<String>,
}

/// Obstacle that prevents the promise of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ObstacleAnswer {
    /// Kind of the obstacle: `resource`, `rate_max`, `deadline`, `full` (too many transfers have
    /// promises) or `twice` (the request for the admission check lists the transfer twice).
    pub kind: String,
    /// With kind `resource`: `link`, `root:NAME`, `peer:NAME` or `owner:NAME`.
    pub resource: Option<String>,
    /// Number of other promises that need the resource at the same time.
    pub promises: u32,
    /// Ids of those promised transfers that belong to the caller.
    pub transfers: Vec<String>,
}

/// Result of an admission check.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AdmissionAnswer {
    /// Decision about all requests together.
    pub decision: Decision,
    /// Results in the order of the requests.
    pub transfers: Vec<Admitted>,
}
