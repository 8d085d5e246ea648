//! Calls about tiers: `/v1/tiers`.

use super::Api;
use super::extract::{Caller, Id};
use super::refusal::Answer;
use crate::actor::actor;
use axum::Json;
use axum::extract::State;
use dray_api::{ErrorAnswer, TierDetail, TierList};
use std::sync::Arc;

type Shared = State<Arc<Api>>;

/// Lists the tiers, each with its state.
#[utoipa::path(get, path = "/v1/tiers", tag = "tiers",
    responses((status = 200, description = "The tiers.", body = TierList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(State(api): Shared, _caller: Caller) -> Answer<Json<TierList>> {
    Ok(Json(TierList {
        tiers: api.tiers.list(),
    }))
}

/// Returns a tier with its versions.
#[utoipa::path(get, path = "/v1/tiers/{id}", tag = "tiers",
    params(("id" = String, Path, description = "Name of the tier.")),
    responses((status = 200, description = "The tier.", body = TierDetail),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<TierDetail>> {
    let principal = caller.clone();
    api.call(move |api| api.tiers.show(&actor(&principal), &id))
        .await
        .map(Json)
}
