//! The call about storage targets: `/v1/targets`.

use super::Api;
use super::extract::{Caller, Query};
use super::refusal::Answer;
use crate::live::Moving;
use axum::Json;
use axum::extract::State;
use dray_api::{ErrorAnswer, TargetList, TargetsQuery};
use std::sync::Arc;

/// Lists the storage targets that running sessions use, with their load.
#[utoipa::path(get, path = "/v1/targets", tag = "endpoint", params(TargetsQuery),
    responses((status = 200, description = "The targets.", body = TargetList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<TargetsQuery>,
) -> Answer<Json<TargetList>> {
    let is_seen = |moving: &Moving| match &query.transfer {
        // Any caller may see the sums over all sessions.
        None => true,
        Some(id) => {
            let is_permitted = caller.is_administrator || moving.owner == caller.owner;
            moving.transfer.as_str() == id && is_permitted
        }
    };
    Ok(Json(TargetList {
        targets: api.live.targets(is_seen),
    }))
}
