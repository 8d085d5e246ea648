//! Parts of a request for a transfer.

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, BYTES_MAX, WORD_BYTES_MAX, refused};
use crate::enums;
use crate::tickets::{TICKET_PREFIX, is_ticket};
use dray_core::options::Links;
use dray_core::patterns::{PATTERN_BYTES_MAX, PATTERNS_MAX};
use dray_core::rate::Class;
use dray_core::{Checksum, Result};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One side of a transfer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// `dray://HOST[:PORT]/ROOT/PATH`, or `/ROOT/PATH` at this endpoint.
    #[schema(max_length = 16384)]
    pub url: String,
    /// Ticket that the other endpoint issued for this transfer. Write-only: answers never show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = "^drt_", write_only)]
    pub ticket: Option<String>,
    /// Key of the other endpoint, copied from the answer of the ticket call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub key: Option<String>,
    /// Address at which the other endpoint listens for sessions, copied from the answer of the
    /// ticket call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub address: Option<String>,
    /// Size of the file in bytes, if the URL names a single file. The endpoint compares the sizes
    /// of replicas before it moves bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

// Written by hand, so that debug output never contains the ticket.
impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("url", &self.url)
            .field("ticket", &self.ticket.as_ref().map(|_| "..."))
            .field("key", &self.key)
            .field("address", &self.address)
            .field("size", &self.size)
            .finish()
    }
}

impl Place {
    /// Returns the place at `url`, without a ticket.
    #[must_use]
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ticket: None,
            key: None,
            address: None,
            size: None,
        }
    }

    pub(crate) fn check(&self, field: &str) -> Result<()> {
        checks::text(&format!("{field}.url"), &self.url, TEXT_BYTES_MAX)?;
        for (name, value) in [
            ("ticket", &self.ticket),
            ("key", &self.key),
            ("address", &self.address),
        ] {
            let value = value.as_deref().unwrap_or_default();
            checks::text(&format!("{field}.{name}"), value, WORD_BYTES_MAX)?;
        }
        // Accept only tickets. A bearer token in this field would be stored with the transfer and
        // sent to the other endpoint.
        let ticket = self.ticket.as_ref();
        if !ticket.is_none_or(|ticket| is_ticket(ticket.as_bytes())) {
            let cause = format!("the value is not a ticket: a ticket begins with {TICKET_PREFIX}");
            return Err(refused(&format!("{field}.ticket"), cause));
        }
        Ok(())
    }
}

/// Expected size and checksum of a single file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Expected size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Expected checksum: `adler32:HHHHHHHH` or `crc32c:HHHHHHHH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(adler32|crc32c):[0-9A-Fa-f]{1,8}$")]
    pub checksum: Option<String>,
}

impl Content {
    /// Returns the expected checksum. The request was checked before, so the text is valid.
    #[must_use]
    pub fn demanded(&self) -> Option<Checksum> {
        self.checksum.as_deref().and_then(Checksum::parse)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.checksum.is_some() && self.demanded().is_none() {
            let cause = "write adler32:HHHHHHHH or crc32c:HHHHHHHH (hexadecimal)";
            return Err(refused("content.checksum", cause));
        }
        checks::within_if("content.size", self.size, &(0..=BYTES_MAX))
    }
}

/// A byte range of a single file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    #[schema(minimum = 1)]
    pub length: u64,
}

/// Selection of the entries to copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// True to copy folders with everything in them.
    pub recursive: bool,
    /// Patterns of the entries to copy; an empty list selects all.
    #[schema(max_items = 1024)]
    pub include: Vec<String>,
    /// Patterns of the entries to leave out.
    #[schema(max_items = 1024)]
    pub exclude: Vec<String>,
    /// Byte range to copy of a single file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Treatment of symbolic links.
    #[schema(value_type = enums::Links)]
    pub links: Links,
}

impl Selection {
    pub(crate) fn check(&self) -> Result<()> {
        for (field, patterns) in [
            ("selection.include", &self.include),
            ("selection.exclude", &self.exclude),
        ] {
            checks::count(field, patterns.len(), &(0..=PATTERNS_MAX))?;
            for pattern in patterns {
                checks::text(field, pattern, PATTERN_BYTES_MAX)?;
            }
        }
        if let Some(range) = self.range {
            checks::within("selection.range.length", range.length, &(1..=BYTES_MAX))?;
            if range.offset.checked_add(range.length).is_none() {
                return Err(refused("selection.range", "the range ends past 2^64 bytes"));
            }
        }
        Ok(())
    }
}

/// Packet marking (scitags.org).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SciTag {
    /// Number of the experiment (nine bits of the flow label).
    #[schema(minimum = 1, maximum = 511)]
    pub experiment: u16,
    /// Number of the activity (six bits of the flow label).
    #[schema(minimum = 0, maximum = 63)]
    pub activity: u16,
}

impl SciTag {
    pub(crate) fn check(self) -> Result<()> {
        checks::within("scitag.experiment", self.experiment, &(1..=511))?;
        checks::within("scitag.activity", self.activity, &(0..=63))
    }
}

/// Number and interval of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryWish {
    /// Number of consecutive tries without new durable data before the transfer fails.
    #[serde(default = "tries_default")]
    #[schema(minimum = 0, maximum = 1000)]
    pub tries: u32,
    /// Seconds between two tries. After the loss of a session that lasted at least one second and
    /// made data durable, the endpoint first tries every 0.2 seconds for one second, if the interval
    /// is longer than 0.2 seconds. These tries do not count towards `tries`.
    #[serde(default = "interval_default")]
    #[schema(minimum = 0, maximum = 86400)]
    pub interval_seconds: u64,
}

impl Default for RetryWish {
    fn default() -> Self {
        Self {
            tries: tries_default(),
            interval_seconds: interval_default(),
        }
    }
}

impl RetryWish {
    pub(crate) fn check(self) -> Result<()> {
        let seconds = self.interval_seconds;
        checks::within("retry.tries", self.tries, &(0..=1_000))?;
        checks::within("retry.interval_seconds", seconds, &(0..=86_400))
    }
}

/// The rates that a session requests. They can change while the session is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateWish {
    /// Weight of the session in shared rates.
    pub weight: u32,
    /// Minimum bytes per second: all sessions get their minimum before any session gets more.
    pub rate_min: Option<u64>,
    /// Maximum bytes per second.
    pub rate_max: Option<u64>,
    /// Class that decides the order of sessions for spare rate.
    pub class: Class,
}

impl Default for RateWish {
    fn default() -> Self {
        Self {
            weight: 100,
            rate_min: None,
            rate_max: None,
            class: Class::Background,
        }
    }
}

const fn tries_default() -> u32 {
    5
}

const fn interval_default() -> u64 {
    10
}
