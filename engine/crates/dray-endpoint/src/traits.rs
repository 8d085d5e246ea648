//! Traits by which the API calls the rest of the endpoint. Tests of the API implement them.

use dray_access::Principal;
use dray_api::{
    MintedTicket, RenewRequest, Scheduling, SchedulingPatch, Ticket, TicketList, TicketPatch,
    TicketQuery, TicketRequest,
};
use dray_core::Result;
use rustls::pki_types::CertificateDer;

/// Tickets. The caller checks the permissions on the paths before [`Tickets::mint`]. All calls may
/// block.
pub trait Tickets: Send + Sync {
    /// Issues a ticket.
    ///
    /// # Errors
    /// Those of the store.
    fn mint(&self, caller: &Principal, request: &TicketRequest) -> Result<MintedTicket>;

    /// Lists the caller's tickets, newest first; for an administrator, all tickets.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid cursor.
    fn list(&self, caller: &Principal, query: &TicketQuery) -> Result<TicketList>;

    /// Returns a ticket.
    ///
    /// # Errors
    /// `NotFound`, for a ticket of another owner as well.
    fn show(&self, caller: &Principal, id: &str) -> Result<Ticket>;

    /// Changes the weight and rates of the ticket's sessions here, of running and of later ones.
    ///
    /// # Errors
    /// `NotFound`, for a ticket of another owner as well; `InvalidRequest` for a minimum above the
    /// maximum.
    fn change(&self, caller: &Principal, id: &str, patch: &TicketPatch) -> Result<Ticket>;

    /// Revokes a ticket and ends its sessions. A revocation is permanent.
    ///
    /// # Errors
    /// `NotFound`, for a ticket of another owner as well.
    fn revoke(&self, caller: &Principal, id: &str) -> Result<Ticket>;

    /// Extends a ticket. `certificates` are those of the connection: the first one's key must be
    /// the ticket's `peer_key`.
    ///
    /// # Errors
    /// `Unauthorized` if the secret or the key is not that of the ticket.
    fn renew(
        &self,
        certificates: &[CertificateDer<'static>],
        request: &RenewRequest,
    ) -> Result<Ticket>;
}

/// The rules that decide which transfers run.
pub trait Scheduler: Send + Sync {
    /// Returns the present rules.
    fn rules(&self) -> Scheduling;

    /// Changes the rules until the endpoint restarts, and returns the new ones. Running transfers
    /// follow immediately.
    fn change(&self, patch: &SchedulingPatch) -> Scheduling;
}
