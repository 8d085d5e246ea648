//! A transfer in the form of the API, and the calls on it.

use crate::checks::{self, Check};
use crate::failure::{ErrorParts, PathError};
use crate::profile::{ProfileAnswer, StageWord};
use crate::request::Request;
use crate::space_claim::SpaceClaimAnswer;
use crate::standing::{State, StateWord};
use crate::timestamp::Timestamp;
use crate::{enums, page_default, poll_default};
use dray_core::Result;
use dray_core::rate::Class;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// File counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// Files found so far.
    pub listed: u64,
    /// Files complete under their final names.
    pub done: u64,
    /// Files that failed.
    pub failed: u64,
    /// Files skipped because they exist at the destination.
    pub skipped: u64,
    /// Files that already existed at the destination with the same content.
    pub adopted: u64,
    /// True once the listing is complete; `listed` is final then.
    pub listing_done: bool,
}

/// Byte counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bytes {
    /// Bytes of the listed files.
    pub listed: u64,
    /// Durable bytes.
    pub durable: u64,
    /// Part of `durable`: bytes that were durable before this attempt. Also bytes of this attempt
    /// that are missing in `sent`, because a program was killed before it stored its counters.
    pub resumed: u64,
    /// Part of `durable`: bytes of adopted files.
    #[serde(default)]
    pub adopted: u64,
    /// Bytes sent in this attempt; bytes that were sent again count again.
    pub sent: u64,
    /// Bytes read back and compared in this attempt, if this endpoint is the destination.
    #[serde(default)]
    pub read_back: u64,
}

/// Object counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Objects {
    /// Objects sent in this attempt.
    pub sent: u64,
    /// Objects that were durable before this attempt.
    pub resumed: u64,
}

/// Rates in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Current rate.
    pub now: Option<u64>,
    /// Mean rate of this attempt.
    pub mean: Option<u64>,
    /// Rate that the transfer may use.
    pub granted: Option<u64>,
    /// Rate planned to keep the promise of the transfer.
    #[serde(default)]
    pub planned: Option<u64>,
    /// Reason for the planned rate.
    #[serde(default)]
    pub reason: Option<ReasonWord>,
}

/// Reason for the planned rate of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonWord {
    /// The transfer's `not_before` has not come.
    NotBefore,
    /// The transfer gets the rate that its promise needs.
    Planned,
    /// The transfer gets more than its promise needs, from unused rate.
    Spare,
    /// The transfer gets less than its promise needs, because a resource currently provides less.
    Short,
    /// The transfer gets the highest rate that it may or can use.
    Ceiling,
    /// No rate is planned for the transfer now, and no unused rate is left.
    Suspended,
}

/// Kind of the limit that determines the rate of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateLimitWord {
    /// `rate_max` of the request.
    Request,
    /// `rate` of this endpoint.
    Endpoint,
    /// `rate` of a root.
    Root,
    /// `rate_max` of the owner's share.
    Owner,
    /// `rate_max` of the other endpoint's share.
    Peer,
    /// Measured capacity of the network.
    Link,
}

/// Limit at this endpoint that determines the permitted rate of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RateLimitAnswer {
    /// Kind of the limit.
    pub kind: RateLimitWord,
    /// Name of the root, owner or other endpoint; null for the other kinds.
    pub name: Option<String>,
    /// The limit in bytes per second. Several transfers may share it.
    pub rate: u64,
}

/// A promise that will be missed, or was missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissAnswer {
    /// Cause of the miss.
    pub cause: String,
    /// Promised deadline.
    pub deadline: Option<Timestamp>,
    /// Earliest time of completion if all other promises are kept.
    pub earliest_finish: Option<Timestamp>,
}

/// Range of the expected completion time of a promised transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EtaAnswer {
    /// Completion time if the transfer gets all unused rate.
    pub early: Timestamp,
    /// Deadline, or the expected completion time if the deadline will be missed; null if unknown.
    pub late: Option<Timestamp>,
}

/// A transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Id of the transfer.
    pub id: String,
    /// Number of the attempt. Each submission and each manual retry begins an attempt.
    pub attempt: u32,
    /// Number of sessions in this attempt.
    pub tries: u32,
    /// State of the transfer.
    pub state: State,
    /// Version of the transfer; increases with each change.
    pub version: u64,
    /// In the answer to a submission: true if a transfer with the same request was already live.
    pub attached: bool,
    /// Owner of the transfer.
    pub owner: String,
    /// The request as submitted and patched, without tickets.
    pub request: Request,
    /// Time at which this attempt was submitted.
    pub submitted_at: Timestamp,
    /// Time of the first start.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
    /// Time of the next retry.
    pub next_try_at: Option<Timestamp>,
    /// File counters.
    pub files: Files,
    /// Byte counters.
    pub bytes: Bytes,
    /// Object counters.
    pub objects: Objects,
    /// Time of this attempt by stage.
    #[serde(default)]
    pub profile: ProfileAnswer,
    /// Stage that took the most time; null if no stage took a third of the time.
    #[serde(default)]
    pub bottleneck: Option<StageWord>,
    /// Rates in bytes per second.
    pub rate: Rates,
    /// Active transfers only: limit that determines `rate.granted`. Null if no limit of this
    /// endpoint does.
    #[serde(default)]
    pub rate_limit: Option<RateLimitAnswer>,
    /// Active transfers only: number of data connections in use now. Null unless this endpoint
    /// reads the data, or tunes the number of connections.
    #[serde(default)]
    pub streams: Option<u32>,
    /// Active transfers only: true while the transfer keeps its session and moves no data.
    #[serde(default)]
    pub held: bool,
    /// Expected completion time at the current rate; null if unknown, and until the session has
    /// moved data for 5 seconds.
    pub eta: Option<Timestamp>,
    /// Active transfers only: seconds since bytes last moved. Null if less than 10 seconds have
    /// passed.
    #[serde(default)]
    pub silent_seconds: Option<u64>,
    /// Live transfers only: time at which a session broke off, if no later session has moved data.
    /// The endpoint tries again automatically; see `next_try_at` and `error`.
    #[serde(default)]
    pub interrupted_since: Option<Timestamp>,
    /// True if the deadline or the rate is promised.
    #[serde(default)]
    pub promised: bool,
    /// Expected completion time of a promised transfer; only in the answer for a single id.
    #[serde(default)]
    pub eta_between: Option<EtaAnswer>,
    /// Set when the promise will be missed.
    #[serde(default)]
    pub miss: Option<MissAnswer>,
    /// Cancelled transfers only: true after the partial data was removed because of `purge`.
    #[serde(default)]
    pub purged: bool,
    /// Error of the transfer as a whole.
    pub error: Option<ErrorParts>,
    /// Errors of the first 10 failed files.
    pub failures: Vec<PathError>,
    /// Origin in use: 0 for the sources, otherwise the number of the replica, counted from 1.
    pub source: u32,
    /// Claim on the space of a tier. Null if the destination is not in a fast root of a tier, and
    /// after the end of the transfer.
    #[serde(default)]
    pub space: Option<SpaceClaimAnswer>,
    /// The last 10 notices.
    pub notices: Vec<String>,
    /// Id of the trace to which the spans of the transfer belong: 32 hexadecimal digits. Null if
    /// the caller sent no trace and the endpoint exports no spans.
    #[serde(default)]
    pub trace_id: Option<String>,
    /// Receipt of this attempt. Null before the end of the attempt, for a moment after the end, and
    /// if the endpoint writes no receipts or has removed the receipt.
    #[serde(default)]
    pub receipt: Option<ReceiptReference>,
}

/// Reference to a receipt: a signed record of an ended attempt of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceiptReference {
    /// Id of the receipt: `sha256:` and 64 hexadecimal digits.
    pub id: String,
    /// Number of the receipt in the endpoint's chain of receipts, counted from 1.
    pub sequence: u64,
}

/// Options of the call that returns a receipt.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ReceiptQuery {
    /// False to return only the signed head, without the list of files.
    #[param(default = true)]
    pub files: bool,
}

impl Default for ReceiptQuery {
    fn default() -> Self {
        Self { files: true }
    }
}

impl Check for ReceiptQuery {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// The public keys of an endpoint's receipts, and its newest receipt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReceiptKeys {
    /// The keys as JWKs (RFC 7517, RFC 8037): the present key last, the earlier ones before it.
    #[schema(value_type = Vec<Object>)]
    pub keys: Vec<serde_json::Value>,
    /// The newest receipt of the endpoint; null if the endpoint has written no receipt.
    pub last: Option<ReceiptReference>,
}

/// A batch of requests.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    /// The requests.
    #[schema(value_type = Vec<Request>, min_items = 1, max_items = 1000)]
    pub transfers: Vec<BatchItem>,
    /// True to accept either all requests or none.
    #[serde(default)]
    pub atomic: bool,
}

/// One request of a batch. A malformed request is refused without affecting the others.
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
        // Check only the number of requests: a request that is out of bounds must fail alone.
        checks::page("transfers", self.transfers.len() as u64)
    }
}

/// Result of one request of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BatchResult {
    /// The request was accepted.
    Transfer(Box<Transfer>),
    /// The request was refused.
    Error(ErrorParts),
}

/// Results of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BatchAnswer {
    /// Results in the order of the requests.
    pub results: Vec<BatchResult>,
}

/// A page of transfers.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TransferList {
    /// The transfers, newest first.
    pub transfers: Vec<Transfer>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// Filters of the list of transfers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TransferQuery {
    /// States, or `live` or `terminal`; repeatable.
    #[param(inline)]
    pub state: Vec<StateWord>,
    /// Only transfers of this owner; for administrators.
    pub owner: Option<String>,
    /// Only transfers of this activity.
    pub activity: Option<String>,
    /// Only transfers of this class.
    #[param(value_type = Option<enums::Class>, inline)]
    pub class: Option<Class>,
    /// `KEY:VALUE`; repeatable. Only transfers that have all of these labels.
    pub label: Vec<String>,
    /// Prefix of the first source's URL.
    pub source: Option<String>,
    /// Prefix of the destination's URL.
    pub destination: Option<String>,
    /// Only transfers submitted after this time.
    #[param(value_type = Option<String>)]
    pub submitted_after: Option<Timestamp>,
    /// Only transfers submitted before this time.
    #[param(value_type = Option<String>)]
    pub submitted_before: Option<Timestamp>,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
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
                format!("{label:?} does not have the form KEY:VALUE"),
            )),
            None => Ok(()),
        }
    }
}

/// A query for transfers by id.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// Ids of the transfers.
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
    /// The transfers by id; null for an id that does not exist.
    pub transfers: BTreeMap<String, TransferOrNull>,
}

/// Outcome of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileState {
    /// The file is complete under its final name.
    Done,
    /// The file failed.
    Failed,
}

/// Outcome of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileOutcome {
    /// Path relative to the transfer's root.
    pub path: String,
    /// Outcome.
    pub state: FileState,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Adler-32 as eight hexadecimal digits.
    pub adler32: Option<String>,
    /// CRC-32C as eight hexadecimal digits.
    pub crc32c: Option<String>,
    /// Error of a failed file.
    pub error: Option<ErrorParts>,
}

/// Filters of the list of file outcomes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct FilesQuery {
    /// Only files with this outcome.
    #[param(inline)]
    pub state: Option<FileState>,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
    pub cursor: Option<String>,
}

impl Check for FilesQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of file outcomes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// The outcomes in the order in which they happened.
    pub files: Vec<FileOutcome>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// Condition and timeout of a wait.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Return as soon as the transfer's `version` exceeds this number. By default, return when the
    /// state is terminal.
    pub after: Option<u64>,
    /// Maximum seconds to wait.
    #[serde(default = "poll_default")]
    #[param(maximum = 60, default = 30)]
    pub timeout: u64,
}

impl Check for WaitQuery {
    fn check(&self) -> Result<()> {
        checks::within("timeout", self.timeout, &(0..=crate::POLL_SECONDS_MAX))
    }
}

/// Options of a cancellation.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CancelRequest {
    /// True to remove the partial data of unfinished files.
    pub purge: bool,
    /// Cancel only if the transfer still has this `version`, that is, if nobody has changed or
    /// resumed the transfer since. A transfer that is already cancelled stays cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

impl Check for CancelRequest {}

/// Changes to a transfer; `null` removes a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Patch {
    /// New priority; see [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 9)]
    pub priority: Option<u8>,
    /// New class; see [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<enums::Class>)]
    pub class: Option<Option<Class>>,
    /// New deadline; see [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Timestamp>)]
    pub deadline: Option<Option<Timestamp>>,
    /// New weight; see [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
    /// New minimum rate; see [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_min: Option<Option<u64>>,
    /// New rate limit; see [`Request`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_max: Option<Option<u64>>,
    /// New labels, replacing all existing labels; see [`Request`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

impl Patch {
    /// Returns `request` with these changes applied.
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
