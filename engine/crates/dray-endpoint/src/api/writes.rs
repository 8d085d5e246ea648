//! Calls about write jobs: `/v1/tiers/{id}/writes` and `/v1/writes`.

use super::Api;
use super::extract::{Body, Caller, Id, Query};
use super::refusal::Answer;
use crate::actor::actor;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dray_access::Action;
use dray_api::{ErrorAnswer, WriteJob, WriteList, WriteQuery, WriteRequest};
use std::sync::Arc;

type Shared = State<Arc<Api>>;

/// Asks for a turn to write a version.
#[utoipa::path(post, path = "/v1/tiers/{id}/writes", tag = "tiers", request_body = WriteRequest,
    params(("id" = String, Path, description = "Name of the tier.")),
    responses((status = 201, description = "The write job.", body = WriteJob),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn submit(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Body(request): Body<WriteRequest>,
) -> Answer<(StatusCode, Json<WriteJob>)> {
    let principal = caller.clone();
    let job = api
        .call(move |api| {
            let paths = api.tiers.write_paths(&id, &request)?;
            api.access.allow(&principal, Action::Modify, &paths.fast)?;
            api.tiers.submit_write(&principal, &id, &request, &paths)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(job)))
}

/// Lists the write jobs of a tier.
#[utoipa::path(get, path = "/v1/tiers/{id}/writes", tag = "tiers",
    params(("id" = String, Path, description = "Name of the tier."), WriteQuery),
    responses((status = 200, description = "One page of the list of write jobs.", body = WriteList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<WriteQuery>,
) -> Answer<Json<WriteList>> {
    let principal = caller.clone();
    api.call(move |api| api.tiers.list_writes(&actor(&principal), &id, &query))
        .await
        .map(Json)
}

/// Returns a write job, and renews its lease if its owner asks.
#[utoipa::path(get, path = "/v1/writes/{id}", tag = "tiers",
    params(("id" = String, Path, description = "Id of the write job.")),
    responses((status = 200, description = "The write job.", body = WriteJob),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<Json<WriteJob>> {
    let principal = caller.clone();
    api.call(move |api| api.tiers.show_write(&actor(&principal), &id))
        .await
        .map(Json)
}

/// Renews the lease of a write job.
#[utoipa::path(post, path = "/v1/writes/{id}/renew", tag = "tiers",
    params(("id" = String, Path, description = "Id of the write job.")),
    responses((status = 200, description = "The write job.", body = WriteJob),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn renew(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<WriteJob>> {
    let principal = caller.clone();
    api.call(move |api| api.tiers.show_write(&actor(&principal), &id))
        .await
        .map(Json)
}

/// Ends a write job: its version is complete.
#[utoipa::path(post, path = "/v1/writes/{id}/complete", tag = "tiers",
    params(("id" = String, Path, description = "Id of the write job.")),
    responses((status = 200, description = "The write job.", body = WriteJob),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn complete(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<WriteJob>> {
    let principal = caller.clone();
    api.storage_turn(&caller, move |api, _| {
        api.tiers.complete_write(&actor(&principal), &id)
    })
    .await
    .map(Json)
}

/// Ends a write job without a version.
#[utoipa::path(delete, path = "/v1/writes/{id}", tag = "tiers",
    params(("id" = String, Path, description = "Id of the write job.")),
    responses((status = 200, description = "The write job.", body = WriteJob),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn give_up(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<WriteJob>> {
    let principal = caller.clone();
    api.call(move |api| api.tiers.give_up_write(&actor(&principal), &id))
        .await
        .map(Json)
}
