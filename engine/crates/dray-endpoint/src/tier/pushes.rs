//! Claims of pushes: sessions in which another endpoint, or a program, writes to a fast root.
//!
//! A ticket that states a number of bytes claims this space from its issue until the transfer or
//! the ticket ends. A session that uses the ticket begins only after the claim is admitted. A
//! session without such a claim uses as much space as the files that it has listed.

use super::admission::{Claimant, Claims, Lingering, Waiting, completed_at};
use super::fast_roots::root_of;
use super::{Round, Tiers};
use crate::live::{Moving, Way};
use dray_api::api_path::ApiPath;
use dray_api::{Direction, TicketRequest, Timestamp};
use dray_core::Result;
use dray_queue::{TicketClaim, TicketRow, TierVersion};
use std::sync::Arc;

/// Prefix of the ids of tickets among the ids of claims. No id of a transfer has a slash.
const TICKET: &str = "ticket/";

/// Returns the id of the claim of a ticket.
#[must_use]
pub fn claim_id(ticket: &str) -> String {
    format!("{TICKET}{ticket}")
}

impl Tiers {
    /// Returns the claim of a ticket on the space of a tier. Returns `None` if the ticket states no
    /// number of bytes, or if its paths are outside the fast roots.
    ///
    /// # Errors
    /// `NoSpace` if the tier can never hold so many bytes.
    pub fn ticket_claim(&self, request: &TicketRequest) -> Result<Option<TicketClaim>> {
        let Some(bytes) = request
            .bytes
            .filter(|_| request.direction == Direction::Write)
        else {
            return Ok(None);
        };
        for path in &request.paths {
            if let Some(tier) = self.with_fast(&ApiPath::parse(path)?.root) {
                self.check_space(tier, bytes)?;
                return Ok(Some(TicketClaim {
                    tier: tier.config.name.to_string(),
                    bytes,
                    is_admitted: false,
                    is_ended: false,
                }));
            }
        }
        Ok(None)
    }
}

impl Round<'_> {
    /// Adds the claims of tickets, and the sessions without a claim, to `claims`. Returns the
    /// admitted claims and the sessions, by id.
    pub(super) fn pushes(
        &mut self,
        rows: &[TierVersion],
        claims: &mut Claims,
    ) -> Result<Vec<(String, Lingering)>> {
        let all = self.all;
        let mut sessions = all.live.all();
        sessions.retain(|one| {
            !one.is_own && one.way == Way::In && self.fast_path(&one.paths).is_some()
        });
        let mut found = Vec::new();
        for ticket in all.queue.tickets().with_claims(self.name(), self.now)? {
            let of_ticket = |one: &&Arc<Moving>| one.ticket.as_deref() == Some(ticket.id.as_str());
            let own: Vec<Arc<Moving>> = sessions.iter().filter(of_ticket).cloned().collect();
            sessions.retain(|one| one.ticket.as_deref() != Some(ticket.id.as_str()));
            found.extend(self.ticket(&ticket, &own, rows, claims));
        }
        let mut pushes = std::mem::take(&mut self.memory.pushes);
        pushes.retain(|number, _| sessions.iter().any(|one| one.number() == *number));
        for session in &sessions {
            let since = *pushes.entry(session.number()).or_insert(self.now);
            let total = session.listed().max(session.moved());
            let left = total.saturating_sub(session.moved());
            if let Some(path) = self.fast_path(&session.paths) {
                let id = format!("session/{}", session.number());
                found.push((id, self.count(path, total, left, since, rows, claims)));
            }
        }
        self.memory.pushes = pushes;
        Ok(found)
    }

    /// Counts the claim of a ticket. Returns the claim if it uses space.
    fn ticket(
        &self,
        ticket: &TicketRow,
        sessions: &[Arc<Moving>],
        rows: &[TierVersion],
        claims: &mut Claims,
    ) -> Option<(String, Lingering)> {
        let claim = ticket.claim.as_ref()?;
        let path = self.fast_path(&ticket.paths)?;
        let id = claim_id(&ticket.id);
        if !claim.is_admitted {
            claims.waiting.push(Waiting {
                id,
                root: root_of(path).to_owned(),
                bytes: claim.bytes,
                since: ticket.issued_at,
                kind: Claimant::Ticket,
            });
            return None;
        }
        let listed: u64 = sessions.iter().map(|one| one.listed()).sum();
        let moved: u64 = sessions.iter().map(|one| one.moved()).sum();
        let total = claim.bytes.max(listed);
        let left = total.saturating_sub(moved);
        let counted = self.count(path, total, left, ticket.issued_at, rows, claims);
        Some((id, counted))
    }

    /// Counts `total` bytes of a push that began at `since`, of which `left` bytes are not written.
    fn count(
        &self,
        path: &str,
        total: u64,
        left: u64,
        since: Timestamp,
        rows: &[TierVersion],
        claims: &mut Claims,
    ) -> Lingering {
        let bytes = total.saturating_sub(completed_at(path, Some(since), rows));
        claims.admitted = claims.admitted.saturating_add(bytes);
        let outstanding = claims
            .outstanding
            .entry(root_of(path).to_owned())
            .or_default();
        *outstanding = outstanding.saturating_add(left);
        claims.paths.push(path.to_owned());
        Lingering {
            bytes,
            path: path.to_owned(),
            scans: self.memory.scans,
        }
    }

    /// Returns the first path in a fast root of the tier.
    fn fast_path<'p>(&self, paths: &'p [String]) -> Option<&'p str> {
        let is_fast = |path: &&String| {
            let root = root_of(path);
            self.tier
                .config
                .fast
                .iter()
                .any(|name| name.as_str() == root)
        };
        let path = paths.iter().find(is_fast)?;
        Some(path.trim_end_matches('/'))
    }

    /// Admits the claims of tickets, by the ids of their claims.
    pub(super) fn admit_tickets(&self, ids: &[String]) -> Result<()> {
        let tickets = ids.iter().filter_map(|id| id.strip_prefix(TICKET));
        let tickets = tickets.map(str::to_owned).collect();
        self.all.queue.tickets().admit(tickets)
    }
}
