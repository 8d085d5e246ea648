//! The store of tickets: the issued tickets, their holders and their validity. The table of tickets
//! is in the queue's database.

use crate::actor::actor;
use crate::live::Live;
use crate::passive::TicketBook;
use crate::tier::claim_id;
use crate::traits::Tickets;
use dray_access::Principal;
use dray_access::tickets::{self, Grant, Secret};
use dray_api::RateWish;
use dray_api::Timestamp;
use dray_api::api_path::ApiPath;
use dray_api::{
    MintedTicket, RenewRequest, SpaceClaimAnswer, Ticket, TicketList, TicketPatch, TicketQuery,
    TicketRequest,
};
use dray_core::{End, Error, ErrorKind, Result, TransferId};
use dray_net::{Fingerprint, Presented, fingerprint_of};
use dray_queue::clock;
use dray_queue::{Queue, TicketClaim, TicketRow};
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use std::time::Duration;

/// Interval between deletions of old tickets, in seconds.
const PRUNE_SECONDS: i64 = 600;

/// The tickets that this endpoint has issued.
pub struct TicketStore {
    queue: Arc<Queue>,
    live: Live,
    lifetime: Duration,
    lifetime_max: Duration,
    /// Key that this endpoint presents to other endpoints.
    identity: Presented,
    /// Address for sessions, as other hosts reach it.
    address: String,
}

impl TicketStore {
    /// Creates a store of tickets that name this endpoint's key and `address`.
    #[must_use]
    pub const fn new(
        queue: Arc<Queue>,
        live: Live,
        rules: &dray_config::Tickets,
        identity: Presented,
        address: String,
    ) -> Self {
        Self {
            queue,
            live,
            lifetime: Duration::from_secs(rules.lifetime),
            lifetime_max: Duration::from_secs(rules.lifetime_max),
            identity,
            address,
        }
    }

    /// Checks the tickets of all running sessions. Extends tickets that are still valid, and ends
    /// the sessions of tickets that have expired or were revoked. Must be called once per second.
    pub fn look(&self) {
        let now = clock::now();
        for moving in self.live.all() {
            let Some(id) = &moving.ticket else { continue };
            let checked = self.queue.tickets().by_id(id).and_then(|row| {
                let row = row.ok_or_else(tickets::unknown)?;
                grant(&row)?.check(Some(peer_key(&row)?), now.as_ms())
            });
            match checked {
                Ok(()) => self.used(id),
                Err(error) if error.kind == ErrorKind::Unauthorized => {
                    moving.handle.end_session(error)
                }
                Err(error) => tracing::error!("cannot read ticket {id}: {error}"),
            }
        }
        if now.as_ms() / 1000 % PRUNE_SECONDS != 0 {
            return;
        }
        // Expired tickets are kept for one more day, so that a caller can still ask about its
        // ticket.
        if let Err(error) = self
            .queue
            .tickets()
            .prune(now.before(Duration::from_secs(86_400)))
        {
            tracing::error!("cannot delete old tickets: {error}");
        }
    }

    fn shown(&self, row: TicketRow) -> Ticket {
        let sessions = self.live.of_ticket(&row.id).len();
        let claim = row.claim.as_ref();
        let claim = claim.filter(|claim| !claim.is_ended && !row.is_revoked);
        let space = claim.map(|claim| {
            let id = claim_id(&row.id);
            let wait = self.queue.tiers().wait_of(&claim.tier, &id);
            let (reason, free_at) = wait.filter(|_| !claim.is_admitted).unzip();
            SpaceClaimAnswer {
                tier: claim.tier.clone(),
                bytes: Some(claim.bytes),
                admitted: claim.is_admitted,
                reason,
                free_at: free_at.flatten(),
            }
        });
        Ticket {
            id: row.id,
            transfer: row.transfer,
            direction: row.direction,
            paths: row.paths,
            owner: row.owner,
            peer_key: row.peer_key,
            issued_at: row.issued_at,
            expires_at: row.expires_at,
            renewable_until: row.renewable_until,
            revoked: row.is_revoked,
            sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
            weight: row.wish.weight,
            rate_min: row.wish.rate_min,
            rate_max: row.wish.rate_max,
            space,
        }
    }

    fn find(&self, caller: &Principal, id: &str) -> Result<TicketRow> {
        let row = self.queue.tickets().by_id(id)?;
        row.filter(|row| caller.sees(&row.owner)).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, End::Here, "find the ticket")
                .cause("the ticket does not exist, or belongs to another owner")
                .remedy("list your tickets with GET /v1/tickets")
        })
    }

    /// Extends a ticket to `wanted` from now, but not beyond its `renewable_until`. Never shortens
    /// it.
    fn extend(&self, row: &TicketRow, wanted: Duration) -> Result<Timestamp> {
        let until = clock::now().after(wanted).min(row.renewable_until);
        let until = until.max(row.expires_at);
        self.queue.tickets().renew(&row.id, until)?;
        Ok(until)
    }
}

impl Tickets for TicketStore {
    fn mint(
        &self,
        caller: &Principal,
        request: &TicketRequest,
        claim: Option<TicketClaim>,
    ) -> Result<MintedTicket> {
        let secret = Secret::draw()?;
        let digest = secret.digest();
        let now = clock::now();
        let seconds = |asked: Option<u64>, usual| asked.map_or(usual, Duration::from_secs);
        let renewable =
            seconds(request.renewable_seconds, self.lifetime_max).min(self.lifetime_max);
        let lifetime = seconds(request.lifetime_seconds, self.lifetime).min(renewable);
        // The paths are parsed and formatted again, so that the ticket shows exactly the permitted
        // paths.
        let paths = request.paths.iter().map(|path| ApiPath::parse(path));
        let paths: Vec<ApiPath> = paths.collect::<Result<_>>()?;
        let row = TicketRow {
            // The id has eight bytes of the secret's digest. They reveal nothing about the secret.
            id: digest[..8]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            transfer: request.transfer.clone(),
            direction: request.direction,
            paths: paths.iter().map(ApiPath::text).collect(),
            overwrite: request.overwrite,
            owner: caller.owner.clone(),
            principal: caller.name.clone(),
            peer_key: request.peer_key.parse::<Fingerprint>()?.to_string(),
            issued_at: now,
            expires_at: now.after(lifetime),
            renewable_until: now.after(renewable),
            is_revoked: false,
            wish: RateWish::default(),
            claim,
        };
        self.queue.tickets().insert(&row, digest)?;
        Ok(MintedTicket {
            about: self.shown(row),
            ticket: secret.expose().to_owned(),
            key: self.identity.fingerprint().to_string(),
            address: self.address.clone(),
        })
    }

    fn list(&self, caller: &Principal, query: &TicketQuery) -> Result<TicketList> {
        let (rows, next) = self.queue.tickets().list(
            &actor(caller),
            query.transfer.as_deref(),
            query.limit,
            query.cursor.as_deref(),
        )?;
        Ok(TicketList {
            tickets: rows.into_iter().map(|row| self.shown(row)).collect(),
            next,
        })
    }

    fn show(&self, caller: &Principal, id: &str) -> Result<Ticket> {
        self.find(caller, id).map(|row| self.shown(row))
    }

    fn change(&self, caller: &Principal, id: &str, patch: &TicketPatch) -> Result<Ticket> {
        let mut row = self.find(caller, id)?;
        let wish = RateWish {
            weight: patch.weight.unwrap_or(row.wish.weight),
            rate_min: patch.rate_min.unwrap_or(row.wish.rate_min),
            rate_max: patch.rate_max.unwrap_or(row.wish.rate_max),
            ..row.wish
        };
        if let (Some(low), Some(high)) = (wish.rate_min, wish.rate_max)
            && low > high
        {
            return Err(
                Error::new(ErrorKind::InvalidRequest, End::Here, "change the ticket")
                    .cause(format!("rate_min {low} is greater than rate_max {high}"))
                    .remedy("change both rates, or set one of the rates to null"),
            );
        }
        self.queue.tickets().set_wish(id, wish)?;
        for moving in self.live.of_ticket(id) {
            moving.set_wish(wish);
        }
        row.wish = wish;
        Ok(self.shown(row))
    }

    fn revoke(&self, caller: &Principal, id: &str) -> Result<Ticket> {
        let mut row = self.find(caller, id)?;
        self.queue.tickets().revoke(id)?;
        row.is_revoked = true;
        let refused = Error::new(ErrorKind::Unauthorized, End::Network, "use the ticket")
            .cause(format!("ticket {id} was revoked"))
            .remedy(
                "get another ticket with POST /v1/tickets, and submit the same request with \
                the new ticket",
            );
        for moving in self.live.of_ticket(id) {
            moving.handle.end_session(refused.clone());
        }
        Ok(self.shown(row))
    }

    fn renew(
        &self,
        certificates: &[CertificateDer<'static>],
        request: &RenewRequest,
    ) -> Result<Ticket> {
        let digest = tickets::digest_of(request.ticket.as_bytes());
        let row = self.queue.tickets().by_secret(digest)?;
        let mut row = row.ok_or_else(tickets::unknown)?;
        let key = certificates.first().and_then(fingerprint_of);
        grant(&row)?.check(key, clock::now().as_ms())?;
        let asked = request.lifetime_seconds.map(Duration::from_secs);
        row.expires_at = self.extend(&row, asked.unwrap_or(self.lifetime))?;
        Ok(self.shown(row))
    }
}

impl TicketBook for TicketStore {
    fn present(&self, digest: &[u8; 32], key: Option<Fingerprint>) -> Result<Grant> {
        let row = self.queue.tickets().by_secret(*digest)?;
        let grant = grant(&row.ok_or_else(tickets::unknown)?)?;
        grant.check(key, clock::now().as_ms())?;
        Ok(grant)
    }

    fn check_space(&self, id: &str) -> Result<()> {
        let row = self
            .queue
            .tickets()
            .by_id(id)?
            .ok_or_else(tickets::unknown)?;
        let Some(claim) = row
            .claim
            .filter(|claim| !claim.is_admitted && !claim.is_ended)
        else {
            return Ok(());
        };
        let wait = self.queue.tiers().wait_of(&claim.tier, &claim_id(id));
        let wait = wait.map_or_else(String::new, |(reason, _)| format!(": {reason}"));
        // The driver waits and tries again, as it does for a session slot.
        Err(Error::new(ErrorKind::NoPlace, End::Sink, "begin a session")
            .cause(format!(
                "the ticket waits for space on the tier {}{wait}",
                claim.tier
            ))
            .remedy("wait; the transfer starts as soon as the tier has enough space"))
    }

    fn ended(&self, id: &str) {
        if let Err(error) = self.queue.tickets().end_claim(id) {
            tracing::error!("cannot release the space that ticket {id} has reserved: {error}");
        }
    }

    fn used(&self, id: &str) {
        let extended = self.queue.tickets().by_id(id).and_then(|row| match row {
            Some(row) if is_half_gone(&row, self.lifetime) => {
                self.extend(&row, self.lifetime).map(|_| ())
            }
            _ => Ok(()),
        });
        if let Err(error) = extended {
            tracing::error!("cannot extend the validity of ticket {id}: {error}");
        }
    }
}

/// Returns true if a ticket has less than half of its lifetime left. An earlier extension would not
/// be worth a write to the database.
fn is_half_gone(row: &TicketRow, lifetime: Duration) -> bool {
    row.expires_at < clock::now().after(lifetime / 2)
}

fn peer_key(row: &TicketRow) -> Result<Fingerprint> {
    row.peer_key.parse()
}

fn grant(row: &TicketRow) -> Result<Grant> {
    Ok(Grant {
        id: row.id.clone(),
        transfer: TransferId::new(row.transfer.as_str())?,
        direction: row.direction,
        paths: row
            .paths
            .iter()
            .map(|path| ApiPath::parse(path))
            .collect::<Result<_>>()?,
        owner: row.owner.clone(),
        principal: row.principal.clone(),
        overwrite: row.overwrite,
        peer_key: peer_key(row)?,
        expires_at: row.expires_at.as_ms(),
        revoked: row.is_revoked,
        wish: row.wish,
    })
}
