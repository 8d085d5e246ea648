//! Calls that stage and evict copies: `/v1/staging`.

use super::Api;
use super::extract::{Body, Caller, Id, Query};
use super::refusal::Answer;
use crate::actor::actor;
use crate::staging::Stager;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use dray_api::{
    ErrorAnswer, PinRequest, Staged, StagedDirection, StagedList, StagingQuery, StagingRequest,
};
use std::sync::Arc;

type Shared = State<Arc<Api>>;

impl Api {
    fn stager(&self, size: Option<u64>) -> Stager<'_> {
        Stager {
            queue: &self.queue,
            roots: &self.roots,
            access: &*self.access,
            accounts: &self.accounts,
            tiers: &self.config.tier,
            admission: &self.tiers,
            size,
        }
    }
}

async fn stage(
    api: &Arc<Api>,
    caller: &Caller,
    request: StagingRequest,
    direction: StagedDirection,
) -> Answer<(StatusCode, Json<Staged>)> {
    let principal = (*caller).clone();
    let sources = api.unsized_staging(&request, direction);
    let size = api.sizes(caller, vec![sources]).await?.pop().flatten();
    let (staged, is_new) = api
        .call(move |api| {
            let stager = api.stager(size);
            Ok(stager.stage(&principal, request, direction))
        })
        .await??;
    caller.concerns(&staged.transfer);
    let code = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((code, Json(staged)))
}

/// Copies a file or folder into the fast root.
#[utoipa::path(post, path = "/v1/staging/in", tag = "staging", request_body = StagingRequest,
    responses((status = 201, description = "A new staging entry.", body = Staged),
        (status = 200, description = "An existing staging entry.", body = Staged),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn stage_in(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<StagingRequest>,
) -> Answer<(StatusCode, Json<Staged>)> {
    stage(&api, &caller, request, StagedDirection::In).await
}

/// Copies a file or folder into the slow root.
#[utoipa::path(post, path = "/v1/staging/out", tag = "staging", request_body = StagingRequest,
    responses((status = 201, description = "A new staging entry.", body = Staged),
        (status = 200, description = "An existing staging entry.", body = Staged),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn stage_out(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<StagingRequest>,
) -> Answer<(StatusCode, Json<Staged>)> {
    stage(&api, &caller, request, StagedDirection::Out).await
}

/// Lists staging entries, newest first.
#[utoipa::path(get, path = "/v1/staging", tag = "staging", params(StagingQuery),
    responses((status = 200, description = "One page of the list of staging entries.",
        body = StagedList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(
    State(api): Shared,
    caller: Caller,
    Query(query): Query<StagingQuery>,
) -> Answer<Json<StagedList>> {
    let principal = caller.clone();
    api.call(move |api| api.queue.staging().list(&actor(&principal), &query))
        .await
        .map(Json)
}

/// Returns a staging entry.
#[utoipa::path(get, path = "/v1/staging/{id}", tag = "staging",
    params(("id" = String, Path, description = "Id of the staging entry.")),
    responses((status = 200, description = "The staging entry.", body = Staged),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<Json<Staged>> {
    let principal = caller.clone();
    api.call(move |api| Ok(api.queue.staging().show(&actor(&principal), &id)?.1))
        .await
        .map(Json)
}

/// Pins the fast copy, or removes its pin.
#[utoipa::path(post, path = "/v1/staging/{id}/pin", tag = "staging",
    params(("id" = String, Path, description = "Id of the staging entry.")),
    request_body = PinRequest,
    responses((status = 200, description = "The staging entry.", body = Staged),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn pin(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Body(pin): Body<PinRequest>,
) -> Answer<Json<Staged>> {
    let principal = caller.clone();
    api.call(move |api| api.stager(None).pin(&principal, &id, pin.lifetime_seconds))
        .await
        .map(Json)
}

/// Deletes the fast copy.
#[utoipa::path(post, path = "/v1/staging/{id}/evict", tag = "staging",
    params(("id" = String, Path, description = "Id of the staging entry.")),
    responses((status = 200, description = "The staging entry.", body = Staged),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn evict(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<Json<Staged>> {
    let principal = caller.clone();
    api.storage_turn(&caller, move |api, given| {
        api.stager(None).evict(&principal, &id, given)
    })
    .await
    .map(Json)
}
