//! The object log of a transfer, and the treatment of its unfinished files by the next session.

use crate::api_path::decode;
use crate::checks::{self, Check};
use dray_core::{RelPath, Result};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Maximum number of ranges that an answer contains for one file.
pub const LOG_RANGES_MAX: usize = 32;

/// A page of an object log.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Maximum number of files of the page.
    #[serde(default = "crate::page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
    #[param(max_length = 16384)]
    pub cursor: Option<String>,
}

impl LogQuery {
    /// Returns the path after which the page begins.
    ///
    /// # Errors
    /// `InvalidRequest` if the cursor is not one of this call.
    pub fn after(&self) -> Result<Option<RelPath>> {
        let path = |cursor: &String| {
            let path = decode(cursor).and_then(|bytes| RelPath::parse(&bytes));
            path.map_err(|_| {
                checks::refused("cursor", "send the value of `next` from an earlier answer")
            })
        };
        self.cursor.as_ref().map(path).transpose()
    }
}

impl Check for LogQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())?;
        self.after().map(|_| ())
    }
}

/// The treatment of an unfinished file by the next session of the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogVerdict {
    /// The session continues the file.
    Trusted,
    /// The session begins the file again.
    NotTrusted,
    /// The session leaves the file unchanged, and the file fails.
    Refused,
}

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// An unfinished file in an object log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogFileAnswer {
    /// Path relative to the destination folder.
    pub path: String,
    /// Name of the partial file.
    pub partial: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// Bytes in the log.
    pub bytes_logged: u64,
    /// Bytes that the next session need not send.
    pub bytes_trusted: u64,
    /// Treatment of the file by the next session.
    pub verdict: LogVerdict,
    /// Reason for the treatment.
    pub why: String,
    /// The trusted ranges in ascending order. At most 32.
    pub trusted: Vec<LogRange>,
    /// Number of trusted ranges that are not in `trusted`.
    pub ranges_more: u64,
}

/// An object log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogAnswer {
    /// Path of the log.
    pub path: String,
    /// Form of the log, as `dray cp --log` takes it.
    pub form: String,
    /// The mechanism of the form, in words.
    pub mechanism: String,
    /// The method of the form.
    pub method: String,
    /// True if a thread of its own writes the log.
    pub is_async: bool,
    /// True if the log contains checksums of the ranges.
    pub has_sums: bool,
    /// Id of the transfer that has written to the log last.
    pub transfer: String,
    /// Number of tenures of the log: each session that takes the log increases the number.
    pub epoch: u64,
    /// Number of unfinished files.
    pub files: u64,
    /// Size of the log in bytes.
    pub bytes: u64,
    /// Number of bytes at the end of the log that are ignored, because their write was not
    /// completed.
    pub torn_bytes: u64,
    /// The damage of the log. `null` if the log is intact.
    pub damage: Option<String>,
}

/// The object log of a transfer, with one page of its unfinished files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TransferLogAnswer {
    /// Address of the endpoint of the destination, which has the log. `null` if the destination is
    /// at this endpoint.
    pub endpoint: Option<String>,
    /// The log. `null` if the log is at another endpoint, or if there is no log: the transfer has
    /// not begun, or no file is unfinished.
    pub log: Option<LogAnswer>,
    /// Unfinished files, sorted by path.
    pub files: Vec<LogFileAnswer>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}
