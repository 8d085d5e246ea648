//! Which transfers run, as administrators see and change it.

use crate::checks::{self, Check};
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who decides which transfers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Class, priority, then owners and their activities by weight; holds nobody.
    Fair,
    /// In the order of submission.
    Fcfs,
    /// The highest priority runs, at once.
    Priority,
    /// Turns of so many bytes.
    RoundRobin,
    /// Pairs of endpoints side by side.
    Pairs,
}

/// Who takes turns in `round_robin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnsOf {
    /// Each owner.
    Owners,
    /// Each pair of endpoints.
    Pairs,
}

/// Which transfers run, and which are held meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scheduling {
    /// Who decides.
    pub policy: PolicyName,
    /// Transfers side by side; null for what suits the policy.
    pub at_once: Option<u32>,
    /// Bytes of one turn of `round_robin`.
    pub quota: u64,
    /// Who takes turns in `round_robin`.
    pub turns_of: TurnsOf,
    /// With `priority` what waits rises one step in each.
    pub aging_seconds: u64,
    /// With `fair` one start in each goes to what has waited longest.
    pub patience_seconds: u64,
    /// Held transfers that keep their sessions, as far as there are places.
    pub held_max: u32,
}

/// What to change of it, until the endpoint is started again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchedulingPatch {
    /// See [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    /// See [`Scheduling`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub at_once: Option<Option<u32>>,
    /// See [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub quota: Option<u64>,
    /// See [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_of: Option<TurnsOf>,
    /// See [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub aging_seconds: Option<u64>,
    /// See [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_seconds: Option<u64>,
    /// See [`Scheduling`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_max: Option<u32>,
}

impl SchedulingPatch {
    /// The rules with this changed.
    #[must_use]
    pub fn apply(&self, rules: &Scheduling) -> Scheduling {
        Scheduling {
            policy: self.policy.unwrap_or(rules.policy),
            at_once: self.at_once.unwrap_or(rules.at_once),
            quota: self.quota.unwrap_or(rules.quota),
            turns_of: self.turns_of.unwrap_or(rules.turns_of),
            aging_seconds: self.aging_seconds.unwrap_or(rules.aging_seconds),
            patience_seconds: self.patience_seconds.unwrap_or(rules.patience_seconds),
            held_max: self.held_max.unwrap_or(rules.held_max),
        }
    }
}

impl Check for SchedulingPatch {
    fn check(&self) -> Result<()> {
        checks::within_if("at_once", self.at_once.flatten(), &(1..=u32::MAX))?;
        checks::within_if("quota", self.quota, &(1..=u64::MAX))?;
        checks::within_if("aging_seconds", self.aging_seconds, &(1..=u64::MAX))
    }
}
