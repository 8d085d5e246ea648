//! The fields of the signed head of a receipt.
//!
//! Times are in the form of RFC 3339, sizes in bytes, rates in bytes per second. A reader ignores
//! fields that it does not know, so that later versions can add fields. The signature also covers
//! these fields.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Value of `typ` in the header of a receipt. It names the version of the format.
pub const RECEIPT_TYPE: &str = "dray-receipt+1";

/// The signed head of a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Number of the receipt at its endpoint, counted from 1.
    pub sequence: u64,
    /// Id of the endpoint's previous receipt; null in the first receipt.
    pub previous: Option<String>,
    /// Time at which the receipt was written.
    pub issued_at: String,
    /// The endpoint that drove the transfer and signed the receipt.
    pub endpoint: EndpointPart,
    /// The transfer.
    pub transfer: TransferPart,
    /// The request for a deadline or rate, and its fulfilment.
    pub plan: PlanPart,
    /// Counters of files.
    pub files: FileCounts,
    /// Counters of bytes.
    pub bytes: ByteCounts,
    /// Counters of objects.
    pub objects: ObjectCounts,
    /// The first sessions of the attempt that broke off, with the reason for each break.
    pub breaks: Vec<Break>,
    /// Error of the transfer as a whole, in the form of the API.
    pub error: Option<Value>,
    /// The last notices of the transfer.
    pub notices: Vec<String>,
    /// The list of files, which follows the head.
    pub list: ListPart,
}

/// The endpoint that signed a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointPart {
    /// Name of the endpoint in URLs.
    pub name: String,
    /// Version of dray.
    pub version: String,
}

/// The transfer of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferPart {
    /// Id of the transfer.
    pub id: String,
    /// Number of the attempt.
    pub attempt: u64,
    /// Number of sessions of the attempt.
    pub tries: u64,
    /// State in which the attempt ended: `done`, `incomplete`, `failed` or `cancelled`.
    pub state: String,
    /// Owner of the transfer.
    pub owner: String,
    /// URLs of the sources, or of the replica that was read last. If the URLs have more than 1 MiB
    /// in total, only the first ones.
    pub sources: Vec<String>,
    /// Number of all sources.
    pub sources_count: u64,
    /// URL of the destination.
    pub destination: String,
    /// Condition under which bytes counted as durable: `none`, `file` or `object`.
    pub durability: String,
    /// Time of the submission of the attempt.
    pub submitted_at: String,
    /// Time at which the first session started.
    pub started_at: Option<String>,
    /// Time of the end.
    pub ended_at: Option<String>,
}

/// The request for a deadline or rate, and its fulfilment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPart {
    /// Requested deadline.
    pub deadline: Option<String>,
    /// Requested earliest start.
    pub not_before: Option<String>,
    /// Requested minimum rate.
    pub rate_min: Option<u64>,
    /// Requested maximum rate.
    pub rate_max: Option<u64>,
    /// True if the transfer ended after its deadline, or did not succeed; null without a deadline.
    pub missed: Option<bool>,
    /// Mean rate from the first start to the end.
    pub rate_mean: Option<u64>,
}

/// Counters of files; the same as those of the transfer in the API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCounts {
    /// Files found.
    pub listed: u64,
    /// Files complete under their final names.
    pub done: u64,
    /// Files that failed.
    pub failed: u64,
    /// Files skipped because they exist at the destination.
    pub skipped: u64,
    /// Files that already existed at the destination with the same content.
    pub adopted: u64,
}

impl FileCounts {
    /// Returns the number of files that must have a line with the state `done`: the complete files,
    /// without those that existed before the attempt. The list may have more such lines, because
    /// `adopted` also counts symbolic links, and files whose line a killed process did not count.
    #[must_use]
    pub const fn listed_done(&self) -> u64 {
        self.done.saturating_sub(self.adopted)
    }
}

/// Counters of bytes; the same as those of the transfer in the API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteCounts {
    /// Bytes of the listed files.
    pub listed: u64,
    /// Durable bytes.
    pub durable: u64,
    /// Bytes that were durable before this attempt, or that a killed session sent.
    pub resumed: u64,
    /// Bytes of adopted files.
    pub adopted: u64,
    /// Bytes sent in this attempt.
    pub sent: u64,
    /// Bytes read back and compared.
    pub read_back: u64,
    /// Bytes that the counters prove to have been sent more than once: `sent` + `resumed` +
    /// `adopted` - `durable`, or 0 if this is negative.
    pub sent_again: u64,
}

impl ByteCounts {
    /// Returns the counters with `sent_again` computed from the others.
    #[must_use]
    pub const fn with_sent_again(mut self) -> Self {
        let all = self.sent.saturating_add(self.resumed);
        let all = all.saturating_add(self.adopted);
        self.sent_again = all.saturating_sub(self.durable);
        self
    }
}

/// Counters of objects; the same as those of the transfer in the API.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCounts {
    /// Objects sent in this attempt.
    pub sent: u64,
    /// Objects that were durable before this attempt.
    pub resumed: u64,
}

/// A session that broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// Number of the session within the attempt, counted from 1.
    #[serde(rename = "try")]
    pub number: u64,
    /// Time of the break.
    pub at: String,
    /// Kind of the error, as in the API, or `interrupted` after the end of the endpoint's process.
    pub kind: String,
    /// The error in words.
    pub message: String,
}

/// The list of files of a receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPart {
    /// Number of lines.
    pub lines: u64,
    /// Number of bytes, with the line breaks.
    pub bytes: u64,
    /// SHA-256 of these bytes, as `sha256:` and 64 hexadecimal digits.
    pub digest: String,
}
