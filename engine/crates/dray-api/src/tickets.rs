//! Tickets. A caller obtains a ticket from one endpoint, and another endpoint uses it for one
//! transfer.

use crate::api_path::TEXT_BYTES_MAX;
use crate::checks::{self, BYTES_MAX, Check};
use crate::enums::{self, Direction};
use crate::page_default;
use crate::space_claim::SpaceClaimAnswer;
use crate::timestamp::Timestamp;
use dray_core::options::Overwrite;
use dray_core::{Result, TransferId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use utoipa::{IntoParams, ToSchema};

/// Prefix of every ticket, by which people and secret scanners recognize a ticket.
pub const TICKET_PREFIX: &str = "drt_";

/// Number of random bytes in a ticket.
pub const TICKET_RANDOM_BYTES: usize = 32;

/// Number of characters of a ticket after its prefix; each encodes six bits.
const SECRET_LETTERS: usize = (8 * TICKET_RANDOM_BYTES).div_ceil(6);

/// Characters of a ticket: Base64 for URLs (RFC 4648, section 5).
pub const TICKET_ALPHABET: &[u8; 64] =
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Maximum number of paths of one ticket.
const PATHS_MAX: usize = 256;

/// Maximum size of all paths of a ticket in bytes.
const PATHS_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a ticket as text in bytes, with a margin.
const TICKET_BYTES_MAX: usize = 256;

/// Returns true if a text has the prefix of a ticket.
#[must_use]
pub fn is_ticket(shown: &[u8]) -> bool {
    shown.starts_with(TICKET_PREFIX.as_bytes())
}

/// Returns the text with every ticket in it hidden, because users put tickets into wrong fields.
#[must_use]
pub fn without_tickets(text: &str) -> Cow<'_, str> {
    let mut blanked = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(TICKET_PREFIX) {
        let (before, ticket) = rest.split_at(at + TICKET_PREFIX.len());
        let end = ticket
            .bytes()
            .position(|byte| !TICKET_ALPHABET.contains(&byte));
        let (secret, after) = ticket.split_at(end.unwrap_or(ticket.len()));
        blanked.push_str(before);
        // A shorter text is a name that begins with the prefix by chance, so keep it.
        blanked.push_str(if secret.len() < SECRET_LETTERS {
            secret
        } else {
            "(hidden)"
        });
        rest = after;
    }
    match blanked.is_empty() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(blanked + rest),
    }
}

/// Returns the text if it is an id that may be logged; `None` otherwise. A user may have sent a
/// token or a ticket in place of an id by mistake.
#[must_use]
pub fn shown_id(text: &str) -> Option<&str> {
    let is_id = TransferId::new(text).is_ok() && without_tickets(text) == text;
    is_id.then_some(text)
}

/// A request for a ticket.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TicketRequest {
    /// Id of the transfer that will use the ticket.
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub transfer: String,
    /// Direction of the data.
    pub direction: Direction,
    /// Paths that the ticket covers, with all paths below them.
    #[schema(min_items = 1, max_items = 256)]
    pub paths: Vec<String>,
    /// Key of the endpoint that will present the ticket.
    #[schema(pattern = "^sha256:[0-9a-fA-F]{64}$")]
    pub peer_key: String,
    /// Seconds until the ticket expires; default: the endpoint's configuration.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub lifetime_seconds: Option<u64>,
    /// Seconds during which running sessions and the holder can renew the ticket. Default and
    /// maximum: the endpoint's configuration.
    #[serde(default)]
    #[schema(minimum = 1)]
    pub renewable_seconds: Option<u64>,
    /// Strongest treatment of existing files that the transfer may request.
    #[serde(default)]
    #[schema(value_type = enums::Overwrite)]
    pub overwrite: Overwrite,
    /// Bytes that the transfer writes. If a path is in a fast root of a tier, the ticket claims
    /// this space there until the end of the transfer or of the ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 9223372036854775807_u64)]
    pub bytes: Option<u64>,
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
                let cause = format!(
                    "a path has {} bytes; {TEXT_BYTES_MAX} bytes are allowed",
                    path.len()
                );
                return Err(checks::refused("paths", cause));
            }
        }
        // Bound the total size of the paths, because the database keeps a ticket for days. A caller
        // with more paths can use the path of a folder, which covers all entries of the folder.
        let bytes: usize = self.paths.iter().map(String::len).sum();
        if bytes > PATHS_BYTES_MAX {
            let cause =
                format!("the paths have {bytes} bytes in total; {PATHS_BYTES_MAX} are allowed");
            return Err(checks::refused("paths", cause));
        }
        if self.peer_key.parse::<dray_core::Fingerprint>().is_err() {
            let cause = "write the key as sha256: and 64 hexadecimal digits";
            return Err(checks::refused("peer_key", cause));
        }
        checks::seconds("lifetime_seconds", self.lifetime_seconds)?;
        checks::within_if("bytes", self.bytes, &(1..=BYTES_MAX))?;
        if self.bytes.is_some() && self.direction == Direction::Read {
            let cause = "only a ticket with the direction `write` can reserve space";
            return Err(checks::refused("bytes", cause));
        }
        checks::seconds("renewable_seconds", self.renewable_seconds)
    }
}

/// A ticket without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ticket {
    /// Id of the ticket; it is not secret.
    pub id: String,
    /// Id of the transfer that uses the ticket.
    pub transfer: String,
    /// Direction of the data.
    pub direction: Direction,
    /// Paths that the ticket covers.
    pub paths: Vec<String>,
    /// Owner on whose behalf the ticket was issued.
    pub owner: String,
    /// Key of the endpoint that may present the ticket.
    pub peer_key: String,
    /// Time of issue.
    pub issued_at: Timestamp,
    /// Time at which the ticket expires.
    pub expires_at: Timestamp,
    /// Time until which the ticket can be renewed.
    pub renewable_until: Timestamp,
    /// True if the ticket was revoked.
    pub revoked: bool,
    /// Number of running sessions that use the ticket.
    pub sessions: u32,
    /// Weight of the ticket's sessions in the sharing of this endpoint's rate.
    pub weight: u32,
    /// Bytes per second that the sessions should get at this endpoint.
    pub rate_min: Option<u64>,
    /// Bytes per second that the sessions must not exceed at this endpoint. If the other endpoint
    /// also sets a limit, the lower limit applies.
    pub rate_max: Option<u64>,
    /// Claim on the space of a tier; null without a claim, and after the end of the transfer.
    #[serde(default)]
    pub space: Option<SpaceClaimAnswer>,
}

/// Changes to a ticket's sessions; `null` removes a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TicketPatch {
    /// New weight; see [`Ticket`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: Option<u32>,
    /// New minimum rate; see [`Ticket`].
    #[serde(
        deserialize_with = "checks::some",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub rate_min: Option<Option<u64>>,
    /// New rate limit; see [`Ticket`].
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

/// A new ticket with its secret. Only the answer that issues the ticket contains the secret.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct MintedTicket {
    /// The ticket.
    #[serde(flatten)]
    pub about: Ticket,
    /// Secret text of the ticket.
    pub ticket: String,
    /// Key of this endpoint.
    pub key: String,
    /// Address at which this endpoint listens for sessions.
    pub address: String,
}

// Written by hand, so that debug output never contains the secret.
impl std::fmt::Debug for MintedTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MintedTicket({:?})", self.about)
    }
}

/// Filters of the list of tickets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct TicketQuery {
    /// Only tickets of this transfer.
    pub transfer: Option<String>,
    /// Maximum number of items of the page.
    #[serde(default = "page_default")]
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: u32,
    /// Cursor from `next` of the previous page.
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
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// A request to renew a ticket.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// Secret text of the ticket.
    #[schema(max_length = 256)]
    pub ticket: String,
    /// Seconds from now until the ticket expires; default: the endpoint's configuration.
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
