//! Tickets: what a caller gets here for the endpoint that will dial.

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, Check};
use crate::enums::{self, Direction};
use crate::page_default;
use crate::timestamp::Timestamp;
use dray_core::options::Overwrite;
use dray_core::{Result, TransferId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How a ticket begins, so that people and programs that look for secrets know one.
pub const TICKET_PREFIX: &str = "drt_";

/// Paths of one ticket.
const PATHS_MAX: usize = 256;

/// Bytes of all paths of a ticket.
const PATHS_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a ticket as text, with room.
const TICKET_BYTES_MAX: usize = 256;

/// Whether a text is meant as a ticket.
#[must_use]
pub fn is_ticket(shown: &[u8]) -> bool {
    shown.starts_with(TICKET_PREFIX.as_bytes())
}

/// A request for a ticket.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TicketRequest {
    /// The transfer it is for.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub transfer: String,
    /// Which way.
    pub direction: Direction,
    /// Which paths, and what lies beneath them.
    #[schema(min_items = 1, max_items = 256)]
    pub paths: Vec<String>,
    /// The key of the endpoint that will show it.
    #[schema(pattern = "^sha256:[0-9a-fA-F]{64}$")]
    pub peer_key: String,
    /// Seconds.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub lifetime_seconds: Option<u64>,
    /// Seconds for which sessions and its holder may keep it good, in all; by default, and at the most, as
    /// long as the endpoint keeps any.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub renewable_seconds: Option<u64>,
    /// What the transfer may do with files that stand there.
    #[serde(default)]
    #[schema(value_type = enums::Overwrite)]
    pub overwrite: Overwrite,
}

impl Check for TicketRequest {
    fn transfer(&self) -> Option<&str> {
        Some(&self.transfer)
    }

    fn about(&self) -> Vec<String> {
        self.paths.clone()
    }

    fn check(&self) -> Result<()> {
        TransferId::new(self.transfer.as_str())
            .map_err(|error| checks::refused("transfer", error.cause))?;
        checks::count("paths", self.paths.len(), &(1..=PATHS_MAX))?;
        for path in &self.paths {
            if path.len() > TEXT_BYTES_MAX {
                return Err(checks::refused("paths", "a path is too long"));
            }
        }
        // It is kept for days, and a folder's ticket covers what lies beneath.
        if self.paths.iter().map(String::len).sum::<usize>() > PATHS_BYTES_MAX {
            return Err(checks::refused("paths", "together they are too long"));
        }
        if self.peer_key.parse::<dray_core::Fingerprint>().is_err() {
            let cause = "write sha256: and 64 hexadecimal digits";
            return Err(checks::refused("peer_key", cause));
        }
        checks::seconds("lifetime_seconds", self.lifetime_seconds)?;
        checks::seconds("renewable_seconds", self.renewable_seconds)
    }
}

/// A ticket, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ticket {
    /// Its name, which is no secret.
    pub id: String,
    /// The transfer it is for.
    pub transfer: String,
    /// Which way.
    pub direction: Direction,
    /// Which paths.
    pub paths: Vec<String>,
    /// On whose behalf.
    pub owner: String,
    /// Who may show it.
    pub peer_key: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// Until when it is good.
    pub expires_at: Timestamp,
    /// Until when it can be made good for longer.
    pub renewable_until: Timestamp,
    /// Whether it was taken back.
    pub revoked: bool,
    /// Sessions that live on it.
    pub sessions: u32,
    /// Its sessions' part of what is shared here.
    pub weight: u32,
    /// Bytes per second that they should have here.
    pub rate_min: Option<u64>,
    /// Bytes per second that they must not exceed here; the lower end wins.
    pub rate_max: Option<u64>,
}

/// What to change of a ticket's sessions; `null` takes a bound away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TicketPatch {
    /// See [`Ticket`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
    /// See [`Ticket`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_min: Option<Option<u64>>,
    /// See [`Ticket`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_max: Option<Option<u64>>,
}

impl Check for TicketPatch {
    fn check(&self) -> Result<()> {
        checks::within_if("weight", self.weight, &(1..=1000))?;
        checks::within_if("rate_min", self.rate_min.flatten(), &(1..=u64::MAX))?;
        checks::within_if("rate_max", self.rate_max.flatten(), &(1..=u64::MAX))
    }
}

/// A ticket as it is given out, once.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct MintedTicket {
    /// The ticket.
    #[serde(flatten)]
    pub about: Ticket,
    /// The secret.
    pub ticket: String,
    /// This endpoint's key.
    pub key: String,
    /// Where it listens for sessions.
    pub address: String,
}

// A secret must not get into a log by way of a debug line.
impl std::fmt::Debug for MintedTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MintedTicket({:?})", self.about)
    }
}

/// Which tickets to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TicketQuery {
    /// Those of one transfer.
    pub transfer: Option<String>,
    /// Items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

impl Check for TicketQuery {
    fn check(&self) -> Result<()> {
        checks::page("limit", self.limit.into())
    }
}

/// A page of tickets.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TicketList {
    /// The tickets, newest first.
    pub tickets: Vec<Ticket>,
    /// Goes on from here.
    pub next: Option<String>,
}

/// A ticket that should live longer.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The secret.
    #[schema(max_length = 256)]
    pub ticket: String,
    /// Seconds from now.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub lifetime_seconds: Option<u64>,
}

impl std::fmt::Debug for RenewRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RenewRequest({:?} seconds)", self.lifetime_seconds)
    }
}

impl Check for RenewRequest {
    fn check(&self) -> Result<()> {
        checks::text("ticket", &self.ticket, TICKET_BYTES_MAX)?;
        checks::seconds("lifetime_seconds", self.lifetime_seconds)
    }
}
