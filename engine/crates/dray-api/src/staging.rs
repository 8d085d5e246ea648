//! Staging: copies between the slow and the fast root, with their pins and lifetimes.

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, BYTES_MAX, Check, SECONDS_MAX, WORD_BYTES_MAX};
use crate::enums::AdmissionWord;
use crate::failure::ErrorParts;
use crate::page_default;
use crate::timestamp::Timestamp;
use dray_core::{Result, TransferId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// A request for staging.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StagingRequest {
    /// Id of the staging entry and of its transfer. The endpoint generates an id if it is left out.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// Path to copy. To stage in, it is a path in the slow root. To stage out, it is a path in the
    /// fast root, or with `bypass` in another root. To stage in a version of `application` on a
    /// tier, the path may be left out. The endpoint then stages in the version `version`, or by
    /// default the newest complete version.
    #[serde(default)]
    #[schema(max_length = 16384)]
    pub path: String,
    /// Path of the copy in the other root; default: the same path. Required to stage in with
    /// `bypass`.
    #[serde(default)]
    #[schema(max_length = 16384)]
    pub to: Option<String>,
    /// True to copy a folder with everything in it.
    #[serde(default)]
    pub recursive: bool,
    /// Minimum seconds for which the endpoint keeps the complete fast copy.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub pin_seconds: Option<u64>,
    /// Seconds after which the endpoint may delete the fast copy.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub lifetime_seconds: Option<u64>,
    /// Name of the application that will use the copy.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub application: Option<String>,
    /// Version of the application's data, such as the number of a checkpoint.
    #[serde(default)]
    pub version: Option<u64>,
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
    /// Minimum number of durable copies. To stage in, it must be 1. To stage out a version of a
    /// tier, it can be up to the number of the tier's slow root and replication roots.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub replicas: u32,
    /// True to bypass a full fast root: the transfer copies directly between the slow root and
    /// another root. It makes no fast copy and no pin.
    #[serde(default)]
    pub bypass: bool,
    /// Priority of the transfer; see the request for a transfer.
    #[serde(default = "three")]
    #[schema(minimum = 0, maximum = 9, default = 3)]
    pub priority: u8,
    /// Deadline of the transfer; see the request for a transfer.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// Treatment of the request if the endpoint cannot promise `deadline`; see the request for a
    /// transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionWord>,
    /// Expected bytes of the copy; see the request for a transfer. If this number is given, the
    /// endpoint promises `deadline` immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_expected: Option<u64>,
    /// Labels of the transfer; see the request for a transfer.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Seconds without a query after which the transfer is cancelled; see the request for a
    /// transfer. Files that are already staged are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub bound_seconds: Option<u64>,
}

const fn one() -> u32 {
    1
}

const fn three() -> u8 {
    3
}

impl Check for StagingRequest {
    fn transfer(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn about(&self) -> Vec<String> {
        std::iter::once(self.path.clone())
            .chain(self.to.clone())
            .collect()
    }

    fn check(&self) -> Result<()> {
        if let Some(id) = &self.id {
            TransferId::new(id.as_str()).map_err(|error| checks::refused("id", error.cause))?;
            if crate::reserved_id(id) {
                return Err(checks::refused(
                    "id",
                    "the id is a reserved word, because the API uses this word in its paths",
                ));
            }
        }
        for path in [Some(&self.path), self.to.as_ref()].into_iter().flatten() {
            if path.len() > TEXT_BYTES_MAX {
                let cause = format!(
                    "the path has {} bytes; {TEXT_BYTES_MAX} bytes are allowed",
                    path.len()
                );
                return Err(checks::refused("path", cause));
            }
        }
        let application = self.application.as_deref().unwrap_or_default();
        if self.path.is_empty() && (application.is_empty() || self.to.is_some() || self.bypass) {
            let cause = "a staging request without `path` needs `application`, and must have \
                neither `to` nor `bypass`";
            return Err(checks::refused("path", cause));
        }
        checks::text("application", application, WORD_BYTES_MAX)?;
        for (field, seconds) in [
            ("pin_seconds", self.pin_seconds),
            ("lifetime_seconds", self.lifetime_seconds),
            ("period_seconds", self.period_seconds),
            ("mtbf_seconds", self.mtbf_seconds),
            ("bound_seconds", self.bound_seconds),
        ] {
            checks::seconds(field, seconds)?;
        }
        if self.mtbf_seconds.is_some() && self.nodes.is_some() {
            return Err(checks::refused(
                "nodes",
                "the request has both mtbf_seconds and nodes, but only one of the two fields is \
                    allowed",
            ));
        }
        checks::within_if("nodes", self.nodes, &(1..=u32::MAX))?;
        // The database stores versions as signed 64-bit numbers.
        checks::within_if("version", self.version, &(0..=i64::MAX as u64))?;
        checks::within("replicas", self.replicas, &(1..=16))?;
        if self.bypass && (self.pin_seconds.is_some() || self.lifetime_seconds.is_some()) {
            let cause = "a staging request with `bypass` makes no fast copy, so pin_seconds and \
                lifetime_seconds are not allowed";
            return Err(checks::refused("bypass", cause));
        }
        checks::within("priority", self.priority, &(0..=9))?;
        checks::within_if("bytes_expected", self.bytes_expected, &(0..=BYTES_MAX))?;
        checks::labels(&self.labels)
    }
}

/// State of a staging entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StagedState {
    /// The transfer has not started.
    Queued,
    /// The transfer is running.
    Moving,
    /// The copy is complete.
    Staged,
    /// The transfer failed.
    Failed,
    /// The fast copy was deleted.
    Evicted,
}

impl StagedState {
    /// Returns the name of the state.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Moving => "moving",
            Self::Staged => "staged",
            Self::Failed => "failed",
            Self::Evicted => "evicted",
        }
    }
}

/// Direction of staging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StagedDirection {
    /// From the slow root to the fast root.
    In,
    /// From the fast root to the slow root.
    Out,
}

/// A staging entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Staged {
    /// The request, with `id` and `to` set.
    #[serde(flatten)]
    pub request: StagingRequest,
    /// Direction of staging.
    pub direction: StagedDirection,
    /// Id of the transfer. A hit has no transfer, and this is the id of the entry.
    pub transfer: String,
    /// True if the fast copy existed when it was requested, so that nothing is copied.
    #[serde(default)]
    pub hit: bool,
    /// State of the entry.
    pub state: StagedState,
    /// End of the pin of the fast copy.
    pub pinned_until: Option<Timestamp>,
    /// Time after which the endpoint may delete the fast copy.
    pub expires_at: Option<Timestamp>,
    /// Size in bytes.
    pub bytes: u64,
    /// Error of a failed entry.
    pub error: Option<ErrorParts>,
}

/// Filters of the list of staging entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct StagingQuery {
    /// Only entries of this application.
    pub application: Option<String>,
    /// Only entries in this state.
    #[param(inline)]
    pub state: Option<StagedState>,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
    pub cursor: Option<String>,
}

impl Check for StagingQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of staging entries.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StagedList {
    /// The entries, newest first.
    pub staging: Vec<Staged>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// Change of the pin of a fast copy.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// Seconds of the pin, counted from now; 0 removes the pin.
    #[schema(minimum = 0, maximum = 316224000)]
    pub lifetime_seconds: u64,
}

impl Check for PinRequest {
    fn check(&self) -> Result<()> {
        checks::within(
            "lifetime_seconds",
            self.lifetime_seconds,
            &(0..=SECONDS_MAX),
        )
    }
}
