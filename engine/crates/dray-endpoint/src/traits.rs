//! What the API asks of the rest of the endpoint: each a trait, so that it can be tested without.

use crate::access::Principal;
use dray_api::{
    AdmissionAnswer, MintedTicket, RenewRequest, Request, Scheduling, SchedulingPatch, Ticket,
    TicketList, TicketPatch, TicketQuery, TicketRequest,
};
use dray_core::Result;
use rustls::pki_types::CertificateDer;

/// Tickets. Whether the caller may do to the paths what the ticket allows was asked before
/// [`Tickets::mint`]. All calls may block.
pub trait Tickets: Send + Sync {
    /// Makes one.
    ///
    /// # Errors
    /// Of the store.
    fn mint(&self, caller: &Principal, request: &TicketRequest) -> Result<MintedTicket>;

    /// The caller's, newest first; an administrator's are all.
    ///
    /// # Errors
    /// `InvalidRequest` for a cursor that is none.
    fn list(&self, caller: &Principal, query: &TicketQuery) -> Result<TicketList>;

    /// One.
    ///
    /// # Errors
    /// `NotFound`, another owner's as well.
    fn show(&self, caller: &Principal, id: &str) -> Result<Ticket>;

    /// Changes what its sessions may take of the rate here, those that run and those to come.
    ///
    /// # Errors
    /// `NotFound`, another owner's as well; `InvalidRequest` for a floor above the ceiling.
    fn change(&self, caller: &Principal, id: &str, patch: &TicketPatch) -> Result<Ticket>;

    /// Takes one back and ends its sessions. One that was taken back stays so.
    ///
    /// # Errors
    /// `NotFound`, another owner's as well.
    fn revoke(&self, caller: &Principal, id: &str) -> Result<Ticket>;

    /// Makes one good for longer. `certificates` are those of the connection: the first one's key
    /// must be the ticket's `peer_key`.
    ///
    /// # Errors
    /// `Unauthorized` for a secret or a key that does not fit.
    fn renew(
        &self,
        certificates: &[CertificateDer<'static>],
        request: &RenewRequest,
    ) -> Result<Ticket>;
}

/// Would these be served in time? Changes nothing. May block.
pub trait Admission: Send + Sync {
    /// What each would get.
    ///
    /// # Errors
    /// When nobody can say.
    fn decide(&self, caller: &Principal, requests: &[Request]) -> Result<AdmissionAnswer>;
}

/// Which transfers run.
pub trait Scheduler: Send + Sync {
    /// What holds now.
    fn rules(&self) -> Scheduling;

    /// Changes it, until the endpoint is started again; what runs follows at once. Says what holds now.
    fn change(&self, patch: &SchedulingPatch) -> Scheduling;
}
