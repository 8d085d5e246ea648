//! Storage targets of the endpoint's sessions, and their load.

use crate::checks::Check;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Query for storage targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TargetsQuery {
    /// Id of a transfer. The answer then has the targets of its sessions alone, and is empty if the
    /// transfer belongs to another owner.
    #[serde(default)]
    pub transfer: Option<String>,
}

impl Check for TargetsQuery {
    fn transfer(&self) -> Option<&str> {
        self.transfer.as_deref()
    }
}

/// End of a session at which a storage target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TargetEnd {
    /// The endpoint reads from the target.
    Source,
    /// The endpoint writes to the target.
    Sink,
}

/// Speed of a storage target compared with the other targets of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// As fast as the other targets, as far as is known.
    Fair,
    /// Several times slower than the other targets. The session limits the objects under way.
    Congested,
    /// An object has been under way for many times the usual duration.
    Stuck,
}

/// A storage target that running sessions of the endpoint read or write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetAnswer {
    /// End of the sessions at which the target is.
    pub end: TargetEnd,
    /// Name of the target: from the configuration, or a name such as `device 8:1`.
    pub name: String,
    /// Number of sessions that use the target.
    pub sessions: u32,
    /// Number of objects under way. At a source, an object is under way while it is read. At a
    /// sink, it is under way from its arrival until it is written.
    pub under_way: u32,
    /// Average time in seconds that an object is under way. `null` before the first object.
    pub service_seconds: Option<f64>,
    /// The worst state of the target in any session.
    pub state: TargetState,
}

/// The storage targets that running sessions of the endpoint use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TargetList {
    /// The targets, by end and name. At most 4096.
    pub targets: Vec<TargetAnswer>,
}
