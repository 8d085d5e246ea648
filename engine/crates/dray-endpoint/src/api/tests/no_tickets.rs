//! Tickets for tests of other calls: every call about a ticket is refused.

use crate::traits::Tickets;
use dray_access::Principal;
use dray_api::{
    MintedTicket, RenewRequest, Ticket, TicketList, TicketPatch, TicketQuery, TicketRequest,
};
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::TicketClaim;
use rustls::pki_types::CertificateDer;

/// Refuses every call with `Unsupported`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NoTickets;

fn no_tickets<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, End::Here, "use tickets")
        .cause("this endpoint does not issue any")
        .remedy("submit the transfer to this endpoint instead"))
}

impl Tickets for NoTickets {
    fn mint(
        &self,
        _: &Principal,
        _: &TicketRequest,
        _: Option<TicketClaim>,
    ) -> Result<MintedTicket> {
        no_tickets()
    }

    fn list(&self, _: &Principal, _: &TicketQuery) -> Result<TicketList> {
        no_tickets()
    }

    fn show(&self, _: &Principal, _: &str) -> Result<Ticket> {
        no_tickets()
    }

    fn change(&self, _: &Principal, _: &str, _: &TicketPatch) -> Result<Ticket> {
        no_tickets()
    }

    fn revoke(&self, _: &Principal, _: &str) -> Result<Ticket> {
        no_tickets()
    }

    fn renew(&self, _: &[CertificateDer<'static>], _: &RenewRequest) -> Result<Ticket> {
        no_tickets()
    }
}
