//! Events in the form of the API.

use crate::checks::{self, Check};
use crate::failure::ErrorParts;
use crate::standing::State;
use crate::timestamp::Timestamp;
use crate::transfer::{Bytes, Files, MissAnswer, Rates, ReasonWord};
use crate::{POLL_SECONDS_MAX, poll_default};
use dray_core::Result;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The state of a transfer changed.
    State,
    /// Counters of a transfer changed; at most one event per second and transfer.
    Progress,
    /// A file failed.
    FileFailed,
    /// A notice about a transfer that is not a failure.
    Notice,
    /// The rate planned for a transfer changed.
    Planned,
    /// Events were dropped before the client read them. List the transfers, then continue from this
    /// event.
    Gap,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Number of the event; increases with each event.
    pub id: u64,
    /// Time of the event.
    pub at: Timestamp,
    /// Type of the event.
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Id of the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<String>,
    /// State of the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Version of the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// In `state` events, if changed: true while the transfer keeps its session and moves no data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// File counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// Byte counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Rates in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rates>,
    /// Number of data connections in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Path of the file that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Error of the file or of the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorParts>,
    /// Text of the notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Change of the planned rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<PlannedRate>,
    /// In `notice` events: the promise that will be missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miss: Option<MissAnswer>,
}

/// Change of the rate planned for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedRate {
    /// Previous rate in bytes per second.
    pub old: u64,
    /// New rate in bytes per second.
    pub new: u64,
    /// Reason for the new rate.
    pub reason: ReasonWord,
}

impl Event {
    /// Creates an event without details. The publication assigns its number.
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

/// Filters of the events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only events of this transfer.
    pub transfer: Option<String>,
    /// Only events after this number; default: events from now on.
    pub after: Option<u64>,
    /// Maximum seconds of a long poll.
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
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Number of the last event, for `after` of the next call.
    pub last: u64,
}
