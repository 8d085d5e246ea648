//! Calls to other endpoints on behalf of a caller: `/v1/peers`.

use super::Api;
use super::extract::{Body, Caller, Id};
use super::refusal::Answer;
use crate::peers::PeerCall;
use axum::Json;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use dray_api::{
    EndpointAnswer, Entry, EntryList, ErrorAnswer, MintedTicket, PeerList, PeerListRequest,
    PeerMkdirRequest, PeerQuery, PeerTicketRequest,
};
use dray_core::{End, Error, ErrorKind};
use serde_json::json;
use std::sync::Arc;

type Shared = State<Arc<Api>>;

/// Lists the other endpoints in the configuration.
#[utoipa::path(get, path = "/v1/peers", tag = "peers",
    responses((status = 200, description = "The other endpoints.", body = PeerList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(State(api): Shared, _caller: Caller) -> Answer<Json<PeerList>> {
    let peers = api.peers.list();
    Ok(Json(PeerList { peers }))
}

/// Describes another endpoint, and the rights of the caller there.
#[utoipa::path(post, path = "/v1/peers/{id}/endpoint", tag = "peers",
    params(("id" = String, Path, description = "Name of the other endpoint.")),
    request_body = PeerQuery,
    responses((status = 200, description = "The description of the other endpoint.",
        body = EndpointAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn endpoint(
    State(api): Shared,
    caller: Caller,
    Id(peer): Id,
    Body(query): Body<PeerQuery>,
) -> Answer<Json<EndpointAnswer>> {
    let call = PeerCall {
        owner: &caller.owner,
        peer: &peer,
        token: &query.token,
        method: Method::GET,
        path: "/v1/endpoint",
        body: None,
    };
    Ok(Json(api.peers.ask(call).await?))
}

/// Lists a folder of another endpoint.
#[utoipa::path(post, path = "/v1/peers/{id}/list", tag = "peers",
    params(("id" = String, Path, description = "Name of the other endpoint.")),
    request_body = PeerListRequest,
    responses((status = 200, description = "One page of the list of entries in the folder.",
        body = EntryList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn folder(
    State(api): Shared,
    caller: Caller,
    Id(peer): Id,
    Body(request): Body<PeerListRequest>,
) -> Answer<Json<EntryList>> {
    let limit = request.limit.to_string();
    let mut query = vec![("path", request.path.as_str()), ("limit", &limit)];
    query.extend(request.cursor.as_deref().map(|cursor| ("cursor", cursor)));
    let query = serde_html_form::to_string(&query).map_err(|error| {
        Error::new(
            ErrorKind::InvalidRequest,
            End::Here,
            "list the folder of a peer",
        )
        .cause(error.to_string())
        .remedy("correct the path or the cursor")
    })?;
    let path = format!("/v1/storage/list?{query}");
    let call = PeerCall {
        owner: &caller.owner,
        peer: &peer,
        token: &request.token,
        method: Method::GET,
        path: &path,
        body: None,
    };
    Ok(Json(api.peers.ask(call).await?))
}

/// Creates a folder at another endpoint.
#[utoipa::path(post, path = "/v1/peers/{id}/mkdir", tag = "peers",
    params(("id" = String, Path, description = "Name of the other endpoint.")),
    request_body = PeerMkdirRequest,
    responses((status = 200, description = "The folder, which may have existed before.", body = Entry),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn mkdir(
    State(api): Shared,
    caller: Caller,
    Id(peer): Id,
    Body(request): Body<PeerMkdirRequest>,
) -> Answer<Json<Entry>> {
    let body = json!({"path": request.path, "parents": request.parents});
    let call = PeerCall {
        owner: &caller.owner,
        peer: &peer,
        token: &request.token,
        method: Method::POST,
        path: "/v1/storage/mkdir",
        body: Some(&body),
    };
    Ok(Json(api.peers.ask(call).await?))
}

/// Gets a ticket of another endpoint, which this endpoint will present.
#[utoipa::path(post, path = "/v1/peers/{id}/ticket", tag = "peers",
    params(("id" = String, Path, description = "Name of the other endpoint.")),
    request_body = PeerTicketRequest,
    responses((status = 201, description = "The ticket with its secret.", body = MintedTicket),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn ticket(
    State(api): Shared,
    caller: Caller,
    Id(peer): Id,
    Body(request): Body<PeerTicketRequest>,
) -> Answer<(StatusCode, Json<MintedTicket>)> {
    let body = json!({
        "transfer": request.transfer,
        "direction": request.direction,
        "paths": request.paths,
        "overwrite": request.overwrite,
        "peer_key": api.about.identity.fingerprint().to_string(),
    });
    let call = PeerCall {
        owner: &caller.owner,
        peer: &peer,
        token: &request.token,
        method: Method::POST,
        path: "/v1/tickets",
        body: Some(&body),
    };
    Ok((StatusCode::CREATED, Json(api.peers.ask(call).await?)))
}
