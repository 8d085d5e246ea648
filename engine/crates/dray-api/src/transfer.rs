//! A transfer as callers see it, and what can be asked of it.

use crate::checks::{self, Check};
use crate::failure::{ErrorParts, PathError};
use crate::profile::{ProfileAnswer, StageWord};
use crate::request::Request;
use crate::standing::{State, StateWord};
use crate::timestamp::Timestamp;
use crate::{enums, page_default, poll_default};
use dray_core::Result;
use dray_core::rate::Class;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// Counters of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// Met so far.
    pub listed: u64,
    /// Safe under their names.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Left as they were.
    pub skipped: u64,
    /// Stood there and were the same.
    pub adopted: u64,
    /// Whether `listed` is all there is.
    pub listing_done: bool,
}

/// Counters of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bytes {
    /// Of the files listed.
    pub listed: u64,
    /// Safe.
    pub durable: u64,
    /// Of these: durable before this attempt, or sent in it by a session whose count was lost.
    pub resumed: u64,
    /// Of these: bytes of adopted files.
    #[serde(default)]
    pub adopted: u64,
    /// Sent in this attempt; bytes that were sent again count again.
    pub sent: u64,
    /// Read back and compared in this attempt, where this endpoint is the destination.
    #[serde(default)]
    pub read_back: u64,
}

/// Counters of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Objects {
    /// Sent in this attempt.
    pub sent: u64,
    /// Safe before it.
    pub resumed: u64,
}

/// Bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Just now.
    pub now: Option<u64>,
    /// Over this attempt.
    pub mean: Option<u64>,
    /// What it may use.
    pub granted: Option<u64>,
    /// What is planned for it, so that its promise is kept.
    #[serde(default)]
    pub planned: Option<u64>,
    /// Why so much is planned.
    #[serde(default)]
    pub reason: Option<ReasonWord>,
}

/// Why a transfer has the rate that is planned for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonWord {
    /// It may not begin yet.
    NotBefore,
    /// It has what its promise needs.
    Planned,
    /// It has more, of what nobody needs.
    Spare,
    /// It has less: some resource gives less at the moment.
    Short,
    /// It has as much as it may or can use.
    Ceiling,
    /// Nothing is planned for it now, and nothing is left.
    Suspended,
}

/// A promise that will be missed, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissAnswer {
    /// Why.
    pub cause: String,
    /// What was promised.
    pub deadline: Option<Timestamp>,
    /// When it can be done instead, all other promises kept.
    pub earliest_finish: Option<Timestamp>,
}

/// Between which times a promised transfer will be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EtaAnswer {
    /// If it gets all that is spare.
    pub early: Timestamp,
    /// If it gets what is planned for it; null when that is not enough.
    pub late: Option<Timestamp>,
}

/// A transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Its id.
    pub id: String,
    /// Submissions and retries by hand so far.
    pub attempt: u32,
    /// Sessions within this attempt.
    pub tries: u32,
    /// Where it stands.
    pub state: State,
    /// Grows with each change.
    pub version: u64,
    /// Of a submission: whether it found a live transfer.
    pub attached: bool,
    /// Whose it is.
    pub owner: String,
    /// As submitted and patched, tickets left out.
    pub request: Request,
    /// When this attempt was submitted.
    pub submitted_at: Timestamp,
    /// When it first ran.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When it is tried again.
    pub next_try_at: Option<Timestamp>,
    /// Counters of files.
    pub files: Files,
    /// Counters of bytes.
    pub bytes: Bytes,
    /// Counters of objects.
    pub objects: Objects,
    /// Where the time of this attempt went.
    #[serde(default)]
    pub profile: ProfileAnswer,
    /// What held it up most, if anything has a third of the time.
    #[serde(default)]
    pub bottleneck: Option<StageWord>,
    /// Bytes per second.
    pub rate: Rates,
    /// Of an active one: data connections that are given objects just now, where this endpoint knows: where
    /// it reads, or finds their number.
    #[serde(default)]
    pub streams: Option<u32>,
    /// Of an active one: whether it is held, with its session, and moves nothing for now.
    #[serde(default)]
    pub held: bool,
    /// When it will be done at this rate; null while nobody can know.
    pub eta: Option<Timestamp>,
    /// Of an active transfer: seconds since bytes last moved, if 10 or more; else null.
    #[serde(default)]
    pub silent_seconds: Option<u64>,
    /// Whether its deadline, or its rate, is promised.
    #[serde(default)]
    pub promised: bool,
    /// Of a promised one, asked for by its id: between which times it will be done.
    #[serde(default)]
    pub eta_between: Option<EtaAnswer>,
    /// That its promise will be missed, and why.
    #[serde(default)]
    pub miss: Option<MissAnswer>,
    /// What went wrong with the transfer as a whole.
    pub error: Option<ErrorParts>,
    /// The first 10 files that failed.
    pub failures: Vec<PathError>,
    /// Which of the sources is in use.
    pub source: u32,
    /// The last 10 things worth a word.
    pub notices: Vec<String>,
}

/// Many requests at once.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The requests.
    #[schema(value_type = Vec<Request>, min_items = 1, max_items = 1000)]
    pub transfers: Vec<BatchItem>,
    /// All or none.
    #[serde(default)]
    pub atomic: bool,
}

/// One request of a batch. If it cannot be read, it alone is refused.
#[derive(Debug, Clone)]
pub struct BatchItem(pub Result<Box<Request>>);

impl<'de> Deserialize<'de> for BatchItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let read = Request::deserialize(value).map(Box::new);
        Ok(Self(read.map_err(checks::unreadable)))
    }
}

impl Check for BatchRequest {
    fn about(&self) -> Vec<String> {
        let about = |request: &Request| {
            let id = request.transfer().map(ToOwned::to_owned);
            id.into_iter().chain(request.about())
        };
        let readable = self
            .transfers
            .iter()
            .filter_map(|item| item.0.as_ref().ok());
        readable.flat_map(|request| about(request)).collect()
    }

    fn check(&self) -> Result<()> {
        // Each request is checked on its own: one that is out of bounds fails alone.
        checks::page("transfers", self.transfers.len() as u64)
    }
}

/// What became of one request of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchResult {
    /// It was taken.
    Transfer(Box<Transfer>),
    /// It was not.
    Error(ErrorParts),
}

/// What became of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// In the order of the requests.
    pub results: Vec<BatchResult>,
}

/// A page of transfers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TransferList {
    /// The transfers, newest first.
    pub transfers: Vec<Transfer>,
    /// Goes on from here.
    pub next: Option<String>,
}

/// Which transfers to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TransferQuery {
    /// States, or `live`, `terminal`; repeatable.
    #[param(inline)]
    pub state: Vec<StateWord>,
    /// Whose; for administrators.
    pub owner: Option<String>,
    /// Its activity.
    pub activity: Option<String>,
    /// Its class.
    #[param(value_type = Option<enums::Class>, inline)]
    pub class: Option<Class>,
    /// `KEY:VALUE`; repeatable, all must be there.
    pub label: Vec<String>,
    /// How the first source's URL begins.
    pub source: Option<String>,
    /// How the destination's URL begins.
    pub destination: Option<String>,
    /// Submitted after.
    #[param(value_type = Option<String>)]
    pub submitted_after: Option<Timestamp>,
    /// Submitted before.
    #[param(value_type = Option<String>)]
    pub submitted_before: Option<Timestamp>,
    /// Items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

impl Check for TransferQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())?;
        checks::count("label", self.label.len(), &(0..=32))?;
        checks::count("state", self.state.len(), &(0..=16))?;
        match self.label.iter().find(|label| !label.contains(':')) {
            Some(label) => Err(checks::refused(
                "label",
                format!("{label:?} is not KEY:VALUE"),
            )),
            None => Ok(()),
        }
    }
}

/// Ids to ask for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// The ids.
    #[schema(min_items = 1, max_items = 1000)]
    pub ids: Vec<String>,
}

impl Check for QueryRequest {
    fn check(&self) -> Result<()> {
        checks::page("ids", self.ids.len() as u64)
    }
}

/// A transfer, or null.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct TransferOrNull(pub Option<Transfer>);

/// Transfers by id.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QueryAnswer {
    /// Each id asked for; null for one that is not there.
    pub transfers: BTreeMap<String, TransferOrNull>,
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// Safe under its name.
    Done,
    /// Not.
    Failed,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileOutcome {
    /// Relative to the transfer's root.
    pub path: String,
    /// How it ended.
    pub state: FileState,
    /// Bytes.
    pub size: Option<u64>,
    /// Eight hexadecimal digits.
    pub adler32: Option<String>,
    /// Eight hexadecimal digits.
    pub crc32c: Option<String>,
    /// Why it failed.
    pub error: Option<ErrorParts>,
}

/// Which outcomes to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FilesQuery {
    /// Only these.
    #[param(inline)]
    pub state: Option<FileState>,
    /// Items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

impl Check for FilesQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of outcomes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// The outcomes, in the order they happened.
    pub files: Vec<FileOutcome>,
    /// Goes on from here.
    pub next: Option<String>,
}

/// How long to wait, and for what.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Answers as soon as the version is greater; without it, when the state is terminal.
    pub after: Option<u64>,
    /// Seconds.
    #[serde(default = "poll_default")]
    #[param(maximum = 60, default = 30)]
    pub timeout: u64,
}

impl Check for WaitQuery {
    fn check(&self) -> Result<()> {
        checks::within("timeout", self.timeout, &(0..=crate::POLL_SECONDS_MAX))
    }
}

/// How to cancel.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRequest {
    /// Remove what is there of unfinished files.
    pub purge: bool,
    /// Only if its `version` is still this: nobody has changed it, or gone on with it, since it was
    /// looked at. One that is cancelled by then is cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

impl Check for CancelRequest {}

/// What to change; `null` takes a bound away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Patch {
    /// See [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9)]
    pub priority: Option<u8>,
    /// See [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<enums::Class>)]
    pub class: Option<Option<Class>>,
    /// See [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Timestamp>)]
    pub deadline: Option<Option<Timestamp>>,
    /// See [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
    /// See [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_min: Option<Option<u64>>,
    /// See [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_max: Option<Option<u64>>,
    /// See [`Request`]; all of them anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl Patch {
    /// The request with this changed.
    #[must_use]
    pub fn apply(&self, mut request: Request) -> Request {
        request.priority = self.priority.unwrap_or(request.priority);
        request.weight = self.weight.unwrap_or(request.weight);
        request.class = self.class.unwrap_or(request.class);
        request.deadline = self.deadline.unwrap_or(request.deadline);
        request.rate_min = self.rate_min.unwrap_or(request.rate_min);
        request.rate_max = self.rate_max.unwrap_or(request.rate_max);
        if let Some(labels) = &self.labels {
            request.labels.clone_from(labels);
        }
        request
    }
}

impl Check for Patch {
    fn check(&self) -> Result<()> {
        checks::within_if("priority", self.priority, &(0..=9))?;
        checks::within_if("weight", self.weight, &(1..=1_000))?;
        checks::rates(self.rate_min.flatten(), self.rate_max.flatten())?;
        self.labels.as_ref().map_or(Ok(()), checks::labels)
    }
}
