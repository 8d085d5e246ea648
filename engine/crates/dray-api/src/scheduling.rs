//! Rules by which an endpoint starts and holds transfers. Administrators read and change them.

use crate::checks::{self, Check};
use crate::enums;
use dray_core::Result;
pub use dray_sched::policy::{Name as PolicyName, RoundRobinBy};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rules by which the endpoint starts and holds transfers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scheduling {
    /// Policy that chooses the transfers to run.
    #[schema(value_type = enums::PolicyName)]
    pub policy: PolicyName,
    /// Maximum number of transfers that move data concurrently; null for the default of the policy.
    /// The policy `fair` ignores it.
    pub max_running: Option<u32>,
    /// Bytes that a group may move in one turn of the policy `round_robin`.
    pub quota: u64,
    /// Kind of group that takes turns in `round_robin`.
    #[schema(value_type = enums::RoundRobinBy)]
    pub round_robin_by: RoundRobinBy,
    /// Policy `priority`: seconds of waiting after which the priority of a transfer rises by one.
    pub aging_seconds: u64,
    /// Policy `fair`: interval in seconds. One start per interval goes to the transfer that has
    /// waited longest.
    pub patience_seconds: u64,
    /// Maximum number of held transfers that keep their sessions, if session slots are free.
    pub held_max: u32,
}

/// Changes to the scheduling rules. They apply until the endpoint restarts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulingPatch {
    /// New policy; see [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<enums::PolicyName>)]
    pub policy: Option<PolicyName>,
    /// New `max_running`; see [`Scheduling`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub max_running: Option<Option<u32>>,
    /// New `quota`; see [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub quota: Option<u64>,
    /// New `round_robin_by`; see [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<enums::RoundRobinBy>)]
    pub round_robin_by: Option<RoundRobinBy>,
    /// New `aging_seconds`; see [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub aging_seconds: Option<u64>,
    /// New `patience_seconds`; see [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_seconds: Option<u64>,
    /// New `held_max`; see [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_max: Option<u32>,
}

impl SchedulingPatch {
    /// Returns `rules` with these changes applied.
    #[must_use]
    pub fn apply(&self, rules: &Scheduling) -> Scheduling {
        Scheduling {
            policy: self.policy.unwrap_or(rules.policy),
            max_running: self.max_running.unwrap_or(rules.max_running),
            quota: self.quota.unwrap_or(rules.quota),
            round_robin_by: self.round_robin_by.unwrap_or(rules.round_robin_by),
            aging_seconds: self.aging_seconds.unwrap_or(rules.aging_seconds),
            patience_seconds: self.patience_seconds.unwrap_or(rules.patience_seconds),
            held_max: self.held_max.unwrap_or(rules.held_max),
        }
    }
}

impl Check for SchedulingPatch {
    fn check(&self) -> Result<()> {
        checks::within_if("max_running", self.max_running.flatten(), &(1..=u32::MAX))?;
        checks::within_if("quota", self.quota, &(1..=u64::MAX))?;
        checks::within_if("aging_seconds", self.aging_seconds, &(1..=u64::MAX))
    }
}
