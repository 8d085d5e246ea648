//! What a request is made of.

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, BYTES_MAX, WORD_BYTES_MAX, refused};
use crate::enums;
use crate::tickets::{TICKET_PREFIX, is_ticket};
use dray_core::options::Links;
use dray_core::patterns::{PATTERN_BYTES_MAX, PATTERNS_MAX};
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
    /// What the other endpoint gave out for this transfer. Never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256, pattern = "^drt_", write_only)]
    pub ticket: Option<String>,
    /// The other endpoint's key, as the ticket's answer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub key: Option<String>,
    /// Where sessions are listened for, as the ticket's answer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub address: Option<String>,
    /// Size of the one file there, as in the ticket's answer: replicas are compared by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

// A ticket must not get into a log by way of a debug line.
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
        // Nothing else belongs there: somebody's token would be kept with the transfer, and sent on.
        let ticket = self.ticket.as_ref();
        if !ticket.is_none_or(|ticket| is_ticket(ticket.as_bytes())) {
            let cause = format!("a ticket begins with {}", TICKET_PREFIX);
            return Err(refused(&format!("{field}.ticket"), cause));
        }
        Ok(())
    }
}

/// What the one file must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// `adler32:HHHHHHHH` or `crc32c:HHHHHHHH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(adler32|crc32c):[0-9A-Fa-f]{1,8}$")]
    pub checksum: Option<String>,
}

impl Content {
    /// The checksum demanded. It was checked when the request was read.
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

/// Some bytes of the one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// How many.
    #[schema(minimum = 1)]
    pub length: u64,
}

/// Which entries are taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Whether folders are entered.
    pub recursive: bool,
    /// Patterns to take; empty takes all.
    #[schema(max_items = 1024)]
    pub include: Vec<String>,
    /// Patterns to leave out.
    #[schema(max_items = 1024)]
    pub exclude: Vec<String>,
    /// Only these bytes of a single file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// How links are treated.
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
                return Err(refused("selection.range", "it ends past 2^64 bytes"));
            }
        }
        Ok(())
    }
}

/// Packet marking (scitags.org).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SciTag {
    /// The experiment's number (nine bits of the flow label).
    #[schema(minimum = 1, maximum = 511)]
    pub experiment: u16,
    /// The activity's number (six bits of it).
    #[schema(minimum = 0, maximum = 63)]
    pub activity: u16,
}

impl SciTag {
    pub(crate) fn check(self) -> Result<()> {
        checks::within("scitag.experiment", self.experiment, &(1..=511))?;
        checks::within("scitag.activity", self.activity, &(0..=63))
    }
}

/// When a transfer is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryWish {
    /// Tries without anything new being safe, before it has failed.
    #[serde(default = "tries_default")]
    #[schema(minimum = 0, maximum = 1000)]
    pub tries: u32,
    /// Seconds between them.
    #[serde(default = "interval_default")]
    #[schema(minimum = 0, maximum = 86400)]
    pub interval_seconds: u64,
}

impl RetryWish {
    pub(crate) fn check(self) -> Result<()> {
        let seconds = self.interval_seconds;
        checks::within("retry.tries", self.tries, &(0..=1_000))?;
        checks::within("retry.interval_seconds", seconds, &(0..=86_400))
    }
}

const fn tries_default() -> u32 {
    5
}

const fn interval_default() -> u64 {
    10
}
