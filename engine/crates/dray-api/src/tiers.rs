//! Tiers: fast roots before a slow root, and the versions on them.

use crate::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// State of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TierVersionState {
    /// The version is complete, and only the fast root has it.
    Written,
    /// A transfer copies the version to the slow root.
    Demoting,
    /// Both roots have the version. The slow copy is durable and its checksum agrees.
    Demoted,
    /// The slow root has the version, and the endpoint is deleting the fast copy. The fast copy may
    /// already be incomplete, so no restart uses it.
    Deleting,
    /// Only the slow root has the version.
    Slow,
}

impl TierVersionState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Written,
        Self::Demoting,
        Self::Demoted,
        Self::Deleting,
        Self::Slow,
    ];

    /// Returns the name of the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Demoting => "demoting",
            Self::Demoted => "demoted",
            Self::Deleting => "deleting",
            Self::Slow => "slow",
        }
    }

    /// Returns the state of this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// Time at which a tier demotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TierPattern {
    /// The tier starts a demotion only while no application writes.
    WhenIdle,
    /// While applications write, the tier demotes once the written bytes reach a threshold.
    FromThreshold,
    /// The tier demotes from the first byte of a period.
    FromStart,
}

/// Progress of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TierReplicaState {
    /// The replica is not copied yet, or its copy has failed and will be tried again.
    Waiting,
    /// A transfer makes the replica.
    Copying,
    /// The replica is durable and has the contents of the last demotion.
    Complete,
}

impl TierReplicaState {
    /// Returns the name of the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Copying => "copying",
            Self::Complete => "complete",
        }
    }
}

/// A copy of a version on a further root of the replication group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierReplicaAnswer {
    /// Name of the root.
    pub root: String,
    /// Progress.
    pub state: TierReplicaState,
    /// API path of the replica; null before the first transfer.
    pub path: Option<String>,
    /// Time at which the replica was durable.
    pub replicated_at: Option<Timestamp>,
    /// Id of the transfer that makes the replica, or that made it.
    pub transfer: Option<String>,
    /// Error of the last transfer, if it failed.
    pub error: Option<String>,
}

/// A version on a tier: one checkpoint that an application has written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierVersionAnswer {
    /// Name of the application.
    pub application: String,
    /// Number of the version.
    pub version: u64,
    /// State of the version.
    pub state: TierVersionState,
    /// API path of the fast copy.
    pub fast_path: String,
    /// API path of the slow copy.
    pub slow_path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time at which the version was complete.
    pub written_at: Timestamp,
    /// Time of the last write or restart.
    pub used_at: Timestamp,
    /// Time at which the slow copy was durable.
    pub demoted_at: Option<Timestamp>,
    /// End of the pin of the fast copy.
    pub pinned_until: Option<Timestamp>,
    /// Mean seconds between failures of the application: declared, derived from its nodes, or
    /// estimated from its restarts.
    pub mtbf_seconds: u64,
    /// Id of the transfer that copies the version, or that copied it last.
    pub transfer: Option<String>,
    /// Reason for which the fast copy is kept; null if there is no such reason, or no fast copy.
    pub kept: Option<String>,
    /// Error of the last demotion, if it failed.
    pub error: Option<String>,
    /// Copies on the other roots of the replication group, in the order of the configuration.
    pub replicas: Vec<TierReplicaAnswer>,
}

/// One fast root of a tier. Each fast root is one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TierDevice {
    /// Name of the root.
    pub root: String,
    /// Bytes of the versions and staged copies on the root.
    pub used: u64,
    /// Free bytes of the file system of the root.
    pub free: u64,
    /// Reason for which the root cannot be reached; null if it can.
    pub error: Option<String>,
}

/// State of a tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierAnswer {
    /// Name of the tier.
    pub name: String,
    /// Names of the fast roots.
    pub fast: Vec<String>,
    /// Name of the slow root.
    pub slow: String,
    /// Capacity of the fast roots in bytes.
    pub capacity: u64,
    /// Used bytes of the fast roots above which fast copies are deleted.
    pub watermark: u64,
    /// Number of rounds in which the endpoint has examined the tier since the endpoint started.
    /// Before the first round, the bytes, the thresholds and the rates of the tier are unknown, and
    /// are 0.
    #[serde(default)]
    pub rounds: u64,
    /// Bytes of all versions on the fast roots, complete or not.
    pub used: u64,
    /// Bytes that running transfers will still write to the fast roots.
    pub incoming: u64,
    /// Bytes of requests that wait for space.
    #[serde(default)]
    pub waiting: u64,
    /// Seconds of a period.
    pub period_seconds: u64,
    /// Bytes that all applications have written in the current period.
    pub dwsf: u64,
    /// Bytes that all applications are expected to write in a period.
    pub dwpp: u64,
    /// Maximum bytes per period for which the tier never fills up; null if there is no bound.
    pub dwpp_max: Option<u64>,
    /// Time at which the tier demotes; null if the expected bytes exceed `dwpp_max`.
    pub pattern: Option<TierPattern>,
    /// Once this many bytes are written in the period, demotions run while applications write too.
    pub start: u64,
    /// Once this many bytes are written in the period, demotions run at their maximum rate.
    pub full: u64,
    /// True if an application writes at present.
    pub is_writing: bool,
    /// Rate of demotions at present, in bytes per second.
    pub demotion_rate: u64,
    /// Rate of writes at which the tier does not fill up, in bytes per second.
    pub write_rate: u64,
    /// True if the writes of applications are limited to `write_rate` at present.
    pub is_write_limited: bool,
    /// Reason for which a configured limit of writes does not work.
    pub limit_error: Option<String>,
    /// Reason for which a configured TRIM of the fast devices does not work.
    pub trim_error: Option<String>,
    /// The fast roots, in the order of the configuration; empty before the first round.
    #[serde(default)]
    pub devices: Vec<TierDevice>,
    /// Bytes that should be free and are not, because no more fast copies may be deleted.
    pub missing: u64,
    /// Number of restarts that the tier has served.
    pub restarts: u64,
    /// Number of restarts that found their fast copy, so that nothing was copied.
    pub hits: u64,
    /// Error of the last round, if it failed.
    pub error: Option<String>,
}

/// A tier with its versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierDetail {
    /// State of the tier.
    #[serde(flatten)]
    pub tier: TierAnswer,
    /// The versions that the caller may see, at most 1000, sorted by application, the newest
    /// version first.
    pub versions: Vec<TierVersionAnswer>,
}

/// The tiers of an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TierList {
    /// The tiers, in the order of the configuration.
    pub tiers: Vec<TierAnswer>,
}
