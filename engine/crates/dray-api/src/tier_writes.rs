//! Write jobs: an application asks a tier for its turn to write a version.

use crate::checks::{self, BYTES_MAX, Check, WORD_BYTES_MAX};
use crate::page_default;
use crate::timestamp::Timestamp;
use dray_core::{Result, TransferId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Longest lease of a write job in seconds: a day.
const LEASE_SECONDS_MAX: u64 = 24 * 3_600;

const fn lease_default() -> u64 {
    300
}

/// A request to write one version of an application to a tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest {
    /// Id of the write job. The endpoint generates an id if it is left out. A repeated request with
    /// the same id returns the existing job.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// Name of the application.
    #[schema(max_length = 256, min_length = 1)]
    pub application: String,
    /// Number of the version.
    #[schema(maximum = 9223372036854775807_u64)]
    pub version: u64,
    /// Size of the version in bytes.
    #[schema(minimum = 1, maximum = 9223372036854775807_u64)]
    pub bytes: u64,
    /// Number of files of the version. The completion is refused if the version has another number.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub files: Option<u32>,
    /// Seconds between two versions.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub period_seconds: Option<u64>,
    /// Mean seconds between failures of the application's hosts.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub mtbf_seconds: Option<u64>,
    /// Number of hosts of the application.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub nodes: Option<u32>,
    /// Seconds after the last call about the job after which the job expires.
    #[serde(default = "lease_default")]
    #[schema(minimum = 1, maximum = 86400, default = 300)]
    pub lease_seconds: u64,
}

impl Check for WriteRequest {
    fn about(&self) -> Vec<String> {
        vec![self.application.clone(), self.version.to_string()]
    }

    fn check(&self) -> Result<()> {
        if let Some(id) = &self.id {
            TransferId::new(id.as_str()).map_err(|error| checks::refused("id", error.cause))?;
        }
        let name = &self.application;
        checks::text("application", name, WORD_BYTES_MAX)?;
        if name.is_empty() || name.contains('/') || matches!(name.as_str(), "." | "..") {
            let cause = "the name of an application must not be empty, `.` or `..`, and must not \
                contain a slash";
            return Err(checks::refused("application", cause));
        }
        checks::within("version", self.version, &(0..=BYTES_MAX))?;
        checks::within("bytes", self.bytes, &(1..=BYTES_MAX))?;
        checks::within_if("files", self.files, &(1..=u32::MAX))?;
        checks::within_if("nodes", self.nodes, &(1..=u32::MAX))?;
        checks::seconds("period_seconds", self.period_seconds)?;
        checks::seconds("mtbf_seconds", self.mtbf_seconds)?;
        if self.mtbf_seconds.is_some() && self.nodes.is_some() {
            let cause = "the request has both mtbf_seconds and nodes, but only one of the two \
                fields is allowed";
            return Err(checks::refused("nodes", cause));
        }
        checks::within(
            "lease_seconds",
            self.lease_seconds,
            &(1..=LEASE_SECONDS_MAX),
        )
    }
}

/// State of a write job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteState {
    /// The application must wait.
    Waiting,
    /// The application may write.
    Granted,
    /// The job was completed or given up.
    Ended,
    /// No call about the job came within its lease.
    Expired,
}

impl WriteState {
    /// Returns the name of the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Granted => "granted",
            Self::Ended => "ended",
            Self::Expired => "expired",
        }
    }

    /// Returns the state of this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Waiting, Self::Granted, Self::Ended, Self::Expired];
        all.into_iter().find(|state| state.word() == word)
    }

    /// Returns true if the job has neither ended nor expired.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Waiting | Self::Granted)
    }
}

/// Root that an application writes a version to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WritePlacement {
    /// A fast root.
    Fast,
    /// The slow root: the version is colder than those on the fast roots.
    Slow,
}

impl WritePlacement {
    /// Returns the name of the placement.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        }
    }
}

/// A write job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteJob {
    /// Id of the job.
    pub id: String,
    /// Name of the tier.
    pub tier: String,
    /// Name of the application.
    pub application: String,
    /// Number of the version.
    pub version: u64,
    /// Size of the version in bytes, as requested.
    pub bytes: u64,
    /// State of the job.
    pub state: WriteState,
    /// Root that the application writes to.
    pub placement: WritePlacement,
    /// API path of the version: a file or a folder that the application creates.
    pub path: String,
    /// Reason for the state and the placement.
    pub reason: Option<String>,
    /// Highest rate in bytes per second at which the tier does not fill up; null if the job writes
    /// to the slow root. The endpoint does not enforce this rate.
    pub rate_max: Option<u64>,
    /// Expected start of a waiting job; null if it is unknown.
    pub starts_at: Option<Timestamp>,
    /// Time of the request.
    pub submitted_at: Timestamp,
    /// Time from which the application may write.
    pub granted_at: Option<Timestamp>,
    /// End of the lease of a job that has not ended.
    pub expires_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
}

/// Filters of the list of write jobs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WriteQuery {
    /// Only jobs of this application.
    pub application: Option<String>,
    /// Only jobs in this state.
    #[param(inline)]
    pub state: Option<WriteState>,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
    pub cursor: Option<String>,
}

impl Check for WriteQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of write jobs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WriteList {
    /// The jobs, newest first.
    pub writes: Vec<WriteJob>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}
