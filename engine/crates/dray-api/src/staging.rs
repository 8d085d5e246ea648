//! Staging: copies between the slow and the fast root, and how long they stay.

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, Check, SECONDS_MAX, WORD_BYTES_MAX};
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
    /// The caller's name of it, and of its transfer.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
    /// In the slow root to stage in, in the fast root (with `bypass` in another) to stage out.
    #[schema(max_length = 16384)]
    pub path: String,
    /// In the other root; the same path there when left out (not to stage in with `bypass`).
    #[serde(default)]
    #[schema(max_length = 16384)]
    pub to: Option<String>,
    /// A folder with everything in it.
    #[serde(default)]
    pub recursive: bool,
    /// Seconds that the fast copy must stay once it is there.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub pin_seconds: Option<u64>,
    /// Seconds after which it may go.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub lifetime_seconds: Option<u64>,
    /// Who will use it.
    #[serde(default)]
    #[schema(max_length = 256)]
    pub application: Option<String>,
    /// Which version of its data (a checkpoint's number).
    #[serde(default)]
    pub version: Option<u64>,
    /// Seconds between versions.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub period_seconds: Option<u64>,
    /// Mean seconds between faults of the application's hosts.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub mtbf_seconds: Option<u64>,
    /// How many hosts it runs on.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub nodes: Option<u32>,
    /// Copies that the transfer makes: 1. How many the slow root keeps is its storage's to promise.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 16, default = 1)]
    pub replicas: u32,
    /// Past the fast root, where that is full: from the slow root straight to another one, or the other
    /// way. There is no fast copy then, and nothing to pin.
    #[serde(default)]
    pub bypass: bool,
    /// See the request for a transfer.
    #[serde(default = "three")]
    #[schema(minimum = 0, maximum = 9, default = 3)]
    pub priority: u8,
    /// See the request for a transfer.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// See the request for a transfer.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// See the request for a transfer. Files that are staged by then stay.
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
                return Err(checks::refused("id", "a word of the API's paths"));
            }
        }
        for path in [Some(&self.path), self.to.as_ref()].into_iter().flatten() {
            if path.len() > TEXT_BYTES_MAX {
                return Err(checks::refused("path", "it is too long"));
            }
        }
        let application = self.application.as_deref().unwrap_or_default();
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
            return Err(checks::refused("nodes", "give mtbf_seconds or nodes"));
        }
        checks::within_if("nodes", self.nodes, &(1..=u32::MAX))?;
        // What is kept in a database of 63 bits.
        checks::within_if("version", self.version, &(0..=i64::MAX as u64))?;
        checks::within("replicas", self.replicas, &(1..=16))?;
        if self.bypass && (self.pin_seconds.is_some() || self.lifetime_seconds.is_some()) {
            let cause = "without a fast copy there is no pin and no lifetime";
            return Err(checks::refused("bypass", cause));
        }
        checks::within("priority", self.priority, &(0..=9))?;
        checks::labels(&self.labels)
    }
}

/// Where staging stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StagedState {
    /// Its transfer has not begun.
    Queued,
    /// It runs.
    Moving,
    /// The copy is there.
    Staged,
    /// It failed.
    Failed,
    /// The fast copy is gone.
    Evicted,
}

impl StagedState {
    /// Its word.
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

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum StagedDirection {
    /// From the slow root to the fast one.
    In,
    /// From the fast root to the slow one.
    Out,
}

/// Something staged, or on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Staged {
    /// What was asked for; `id` and `to` are filled in.
    #[serde(flatten)]
    pub request: StagingRequest,
    /// Which way.
    pub direction: StagedDirection,
    /// Its transfer's id.
    pub transfer: String,
    /// Where it stands.
    pub state: StagedState,
    /// The fast copy stays until then.
    pub pinned_until: Option<Timestamp>,
    /// It may go after that.
    pub expires_at: Option<Timestamp>,
    /// Bytes of it.
    pub bytes: u64,
    /// Why it failed.
    pub error: Option<ErrorParts>,
}

/// Which to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct StagingQuery {
    /// Of one application.
    pub application: Option<String>,
    /// In one state.
    #[param(inline)]
    pub state: Option<StagedState>,
    /// Items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

impl Check for StagingQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of staging.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StagedList {
    /// Newest first.
    pub staging: Vec<Staged>,
    /// Goes on from here.
    pub next: Option<String>,
}

/// How long the fast copy stays.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// Seconds from now; 0 takes the pin away.
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
