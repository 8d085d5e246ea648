//! The call about storage targets: `/v1/targets`.

use super::Api;
use super::extract::Caller;
use super::refusal::Answer;
use axum::Json;
use axum::extract::State;
use dray_api::{ErrorAnswer, TargetList};
use std::sync::Arc;

/// Lists the storage targets that running sessions use, with their load.
#[utoipa::path(get, path = "/v1/targets", tag = "endpoint",
    responses((status = 200, description = "The targets.", body = TargetList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(State(api): State<Arc<Api>>, _caller: Caller) -> Answer<Json<TargetList>> {
    Ok(Json(TargetList {
        targets: api.live.targets(),
    }))
}
