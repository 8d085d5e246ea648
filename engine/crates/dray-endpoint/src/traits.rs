//! Traits through which the API calls the other parts of the endpoint. Tests of the API implement
//! these traits.

use dray_access::Principal;
use dray_api::{
    MintedTicket, RenewRequest, Scheduling, SchedulingPatch, Ticket, TicketList, TicketPatch,
    TicketQuery, TicketRequest,
};
use dray_core::Result;
use dray_queue::TicketClaim;
use rustls::pki_types::CertificateDer;

/// The tickets of the endpoint. Before [`Tickets::mint`], the caller of the trait checks the
/// permissions on the paths. All methods may block.
pub trait Tickets: Send + Sync {
    /// Issues a ticket, with its claim on the space of a tier.
    ///
    /// # Errors
    /// The errors of the store.
    fn mint(
        &self,
        caller: &Principal,
        request: &TicketRequest,
        claim: Option<TicketClaim>,
    ) -> Result<MintedTicket>;

    /// Lists the caller's tickets, newest first. An administrator gets all tickets.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid cursor.
    fn list(&self, caller: &Principal, query: &TicketQuery) -> Result<TicketList>;

    /// Returns a ticket.
    ///
    /// # Errors
    /// `NotFound`, also for a ticket of another owner.
    fn show(&self, caller: &Principal, id: &str) -> Result<Ticket>;

    /// Changes the weight and the rates of a ticket's sessions at this endpoint. The change applies
    /// to running sessions and to later ones.
    ///
    /// # Errors
    /// `NotFound`, also for a ticket of another owner. `InvalidRequest` for a minimum above the
    /// maximum.
    fn change(&self, caller: &Principal, id: &str, patch: &TicketPatch) -> Result<Ticket>;

    /// Revokes a ticket and ends its sessions. A revocation is permanent.
    ///
    /// # Errors
    /// `NotFound`, also for a ticket of another owner.
    fn revoke(&self, caller: &Principal, id: &str) -> Result<Ticket>;

    /// Extends a ticket. `certificates` are the certificates of the caller's connection. The key of
    /// the first certificate must be the ticket's `peer_key`.
    ///
    /// # Errors
    /// `Unauthorized` if the secret or the key does not match the ticket.
    fn renew(
        &self,
        certificates: &[CertificateDer<'static>],
        request: &RenewRequest,
    ) -> Result<Ticket>;
}

/// The rules that decide which transfers run.
pub trait Scheduler: Send + Sync {
    /// Returns the current rules.
    fn rules(&self) -> Scheduling;

    /// Changes the rules until the endpoint restarts, and returns the new rules. They apply
    /// immediately, also to running transfers.
    fn change(&self, patch: &SchedulingPatch) -> Scheduling;
}
