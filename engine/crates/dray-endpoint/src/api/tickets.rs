//! Calls on tickets: `/v1/tickets`.

use super::Api;
use super::extract::{Body, Caller, Certificates, Id, Query, SmallBody};
use super::refusal::Answer;
use super::submission::writing;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dray_access::Action;
use dray_api::api_path::ApiPath;
use dray_api::{
    Direction, ErrorAnswer, MintedTicket, RenewRequest, Ticket, TicketList, TicketPatch,
    TicketQuery, TicketRequest,
};
use std::sync::Arc;

type Shared = State<Arc<Api>>;

/// Issues a ticket.
#[utoipa::path(post, path = "/v1/tickets", tag = "tickets", request_body = TicketRequest,
    responses((status = 201, description = "The ticket with its secret. No other call returns the \
        secret.",
            body = MintedTicket),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn mint(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<TicketRequest>,
) -> Answer<(StatusCode, Json<MintedTicket>)> {
    let principal = caller.clone();
    let minted = api
        .call(move |api| {
            let action = match request.direction {
                Direction::Read => Action::Read,
                Direction::Write => writing(request.overwrite),
            };
            for path in &request.paths {
                let path = ApiPath::parse(path)?;
                api.access.allow(&principal, action, &path)?;
                api.roots.find(&path)?;
            }
            let claim = api.tiers.ticket_claim(&request)?;
            api.tickets.mint(&principal, &request, claim)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(minted)))
}

/// Lists the caller's tickets.
#[utoipa::path(get, path = "/v1/tickets", tag = "tickets", params(TicketQuery),
    responses((status = 200, description = "One page of the list of tickets.", body = TicketList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(
    State(api): Shared,
    caller: Caller,
    Query(query): Query<TicketQuery>,
) -> Answer<Json<TicketList>> {
    let principal = caller.clone();
    api.call(move |api| api.tickets.list(&principal, &query))
        .await
        .map(Json)
}

/// Returns a ticket without its secret.
#[utoipa::path(get, path = "/v1/tickets/{id}", tag = "tickets",
    params(("id" = String, Path, description = "Id of the ticket.")),
    responses((status = 200, description = "The ticket.", body = Ticket),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<Json<Ticket>> {
    let principal = caller.clone();
    api.call(move |api| api.tickets.show(&principal, &id))
        .await
        .map(Json)
}

/// Changes the weight and rates of a ticket's sessions.
#[utoipa::path(patch, path = "/v1/tickets/{id}", tag = "tickets",
    params(("id" = String, Path, description = "Id of the ticket.")), request_body = TicketPatch,
    responses((status = 200, description = "The ticket.", body = Ticket),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn change(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Body(patch): Body<TicketPatch>,
) -> Answer<Json<Ticket>> {
    let principal = caller.clone();
    let ticket = api
        .call(move |api| api.tickets.change(&principal, &id, &patch))
        .await?;
    caller.concerns(&ticket.transfer);
    Ok(Json(ticket))
}

/// Revokes a ticket.
#[utoipa::path(delete, path = "/v1/tickets/{id}", tag = "tickets",
    params(("id" = String, Path, description = "Id of the ticket.")),
    responses((status = 200, description = "The ticket.", body = Ticket),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn revoke(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<Json<Ticket>> {
    let principal = caller.clone();
    let ticket = api
        .call(move |api| api.tickets.revoke(&principal, &id))
        .await?;
    caller.concerns(&ticket.transfer);
    Ok(Json(ticket))
}

/// Renews a ticket. The caller must prove that it holds the key `peer_key` of the ticket.
#[utoipa::path(post, path = "/v1/tickets/renew", tag = "tickets", request_body = RenewRequest,
    security(("certificate" = [])),
    responses((status = 200, description = "The ticket.", body = Ticket),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn renew(
    State(api): Shared,
    Certificates(certificates): Certificates,
    SmallBody(request): SmallBody<RenewRequest>,
) -> Answer<Json<Ticket>> {
    api.renewal(move |api| api.tickets.renew(&certificates.0, &request))
        .await
        .map(Json)
}
