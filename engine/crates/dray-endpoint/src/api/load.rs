//! The call about running sessions and promises: `/v1/endpoint/load`.

use super::Api;
use super::extract::Caller;
use super::refusal::Answer;
use crate::live::{Moving, Way};
use axum::Json;
use axum::extract::State;
use dray_api::{EndpointLoad, ErrorAnswer, HiddenLoad, PAGE_MAX, SessionAnswer, SessionDirection};
use dray_queue::clock;
use std::sync::Arc;

/// Lists the running sessions and the promises that the caller may see.
#[utoipa::path(get, path = "/v1/endpoint/load", tag = "endpoint",
    responses((status = 200, description = "The sessions and the promises.",
        body = EndpointLoad),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<Json<EndpointLoad>> {
    let owner = (!caller.is_administrator).then(|| caller.owner.clone());
    api.call(move |api| {
        let owner = owner.as_deref();
        let all = api.live.all();
        let seen = all.iter();
        let seen = seen.filter(|moving| owner.is_none_or(|owner| moving.owner == owner));
        let sessions: Vec<_> = seen
            .take(PAGE_MAX as usize)
            .map(|moving| session(moving))
            .collect();
        let (promises, hidden) = api.queue.promises().list(owner, clock::now());
        let hidden = HiddenLoad {
            sessions: (all.len() - sessions.len()) as u64,
            promises: hidden,
        };
        Ok(EndpointLoad {
            sessions,
            promises,
            hidden,
        })
    })
    .await
    .map(Json)
}

fn session(moving: &Moving) -> SessionAnswer {
    SessionAnswer {
        transfer: moving.transfer.as_str().to_owned(),
        owner: moving.owner.clone(),
        peer: (!moving.peer.is_empty()).then(|| moving.peer.clone()),
        direction: match moving.way {
            Way::Out => SessionDirection::Out,
            Way::In => SessionDirection::In,
            Way::Within => SessionDirection::Within,
        },
        is_own: moving.is_own,
        roots: moving.roots.clone(),
        granted: moving.granted(),
        held: moving.is_still(),
        moved: moving.moved(),
        listed: moving.listed(),
        files_done: moving.files_done(),
        files_listed: moving.files_listed(),
    }
}
