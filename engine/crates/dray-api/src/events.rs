//! What happens, as callers hear of it.

use crate::checks::{self, Check};
use crate::failure::ErrorParts;
use crate::standing::State;
use crate::timestamp::Timestamp;
use crate::transfer::{Bytes, Files, MissAnswer, Rates, ReasonWord};
use crate::{POLL_SECONDS_MAX, poll_default};
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A transfer changed its state.
    State,
    /// Counters, at most once a second for each transfer.
    Progress,
    /// A file failed.
    FileFailed,
    /// Something that is no failure yet deserves a word.
    Notice,
    /// The rate planned for a transfer changed.
    Planned,
    /// Older events are forgotten: list, then go on from here.
    Gap,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number; grows.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Which transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
    /// Its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Whether it keeps its session and moves nothing, when that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Counters of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Counters of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rates>,
    /// Data connections that are given objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// The file that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Why it failed, or the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorParts>,
    /// The notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// How the planned rate changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<PlannedRate>,
    /// Of a notice: the promise that will be missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss: Option<MissAnswer>,
}

/// How the rate planned for a transfer changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedRate {
    /// Bytes per second before.
    pub old: u64,
    /// Bytes per second now.
    pub new: u64,
    /// Why.
    pub reason: ReasonWord,
}

impl Event {
    /// An event that says nothing else yet. Its number is given when it is published.
    #[must_use]
    pub const fn new(kind: EventKind, at: Timestamp) -> Self {
        Self {
            id: 0,
            at,
            kind,
            transfer: None,
            state: None,
            version: None,
            held: None,
            files: None,
            bytes: None,
            rate: None,
            streams: None,
            path: None,
            error: None,
            notice: None,
            planned: None,
            miss: None,
        }
    }
}

/// What to hear of.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// One transfer alone.
    pub transfer: Option<String>,
    /// Events after this one; without it what happens from now on.
    pub after: Option<u64>,
    /// Seconds of a long poll.
    #[serde(default = "poll_default")]
    #[param(maximum = 60, default = 30)]
    pub timeout: u64,
}

impl Check for EventsQuery {
    fn check(&self) -> Result<()> {
        checks::within("timeout", self.timeout, &(0..=POLL_SECONDS_MAX))
    }
}

/// The answer of a long poll.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// What happened.
    pub events: Vec<Event>,
    /// Go on after this one.
    pub last: u64,
}
