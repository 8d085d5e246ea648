//! Handlers about the endpoint itself: description, scheduling rules, health, counters and
//! admission.

use super::Api;
use super::extract::{Body, Caller};
use super::refusal::Answer;
use crate::metrics::Samples;
use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use dray_access::Action;
use dray_api::api_path::ApiPath;
use dray_api::{
    AdmissionAnswer, AdmissionRequest, EndpointAnswer, ErrorAnswer, Health, LimitsAnswer, PAGE_MAX,
    RetryWish, RootAnswer, Scheduling, SchedulingPatch, You,
};
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use std::sync::Arc;

type Shared = State<Arc<Api>>;

/// Describes the endpoint and the rights of the caller.
#[utoipa::path(get, path = "/v1/endpoint", tag = "endpoint",
    responses((status = 200, description = "The description of the endpoint.",
        body = EndpointAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn endpoint(State(api): Shared, caller: Caller) -> Answer<Json<EndpointAnswer>> {
    // Read on a worker thread, because a round of the dispatcher may hold the lock on the rules.
    let scheduling = api.call(|api| Ok(api.scheduler.rules())).await?;
    let may = |action, root: &str| {
        let path = ApiPath {
            root: root.to_owned(),
            path: RelPath::root(),
            is_folder: true,
        };
        api.access.allow(&caller, action, &path).is_ok()
    };
    let roots = api.roots.iter().map(|root| RootAnswer {
        name: root.name().to_owned(),
        read: may(Action::Read, root.name()),
        write: may(Action::Modify, root.name()),
        stage: may(Action::Stage, root.name()),
    });
    let limits = &api.config.limits;
    Ok(Json(EndpointAnswer {
        name: api.config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        key: api.about.identity.fingerprint().to_string(),
        address: api.about.address.clone(),
        roots: roots.collect(),
        you: You {
            principal: caller.name.clone(),
            owner: caller.owner.clone(),
            administrator: caller.is_administrator,
        },
        limits: LimitsAnswer {
            transfers_active: limits.transfers_active,
            transfers_queued: limits.transfers_queued,
            per_owner_queued: limits.per_owner_queued,
            per_owner_active: limits.per_owner_active,
            body_bytes: limits.body_bytes.0,
            page: PAGE_MAX,
            events_listeners_per_owner: limits.events_listeners_per_owner,
        },
        retry: RetryWish {
            tries: api.config.retry.tries,
            interval_seconds: api.config.retry.interval_seconds,
        },
        scheduling,
    }))
}

/// Changes the scheduling rules until the endpoint restarts. For administrators.
#[utoipa::path(patch, path = "/v1/endpoint/scheduling", tag = "endpoint",
    request_body = SchedulingPatch,
    responses((status = 200, description = "The new scheduling rules.", body = Scheduling),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn scheduling(
    State(api): Shared,
    caller: Caller,
    Body(patch): Body<SchedulingPatch>,
) -> Answer<Json<Scheduling>> {
    if !caller.is_administrator {
        let error = Error::new(ErrorKind::PermissionDenied, End::Here, "change the policy");
        return Err(error
            .cause("only administrators may change the policy")
            .remedy(
                "ask an administrator to add you to `administrators` in the endpoint's \
                configuration",
            )
            .into());
    }
    api.call(move |api| {
        let rules = api.scheduler.change(&patch);
        tracing::info!("{} changed the scheduling: {rules:?}", caller.name);
        Ok(rules)
    })
    .await
    .map(Json)
}

/// Reports whether the endpoint accepts requests.
#[utoipa::path(get, path = "/healthz", tag = "endpoint", security(()),
    responses((status = 200, description = "The endpoint accepts requests.", body = Health),
        (status = 503, description = "The endpoint is stopping.", body = Health)))]
pub(super) async fn healthz(State(api): Shared) -> (StatusCode, Json<Health>) {
    let (code, status) = match api.is_stopping() {
        false => (StatusCode::OK, "ok"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    };
    let status = status.to_owned();
    (code, Json(Health { status }))
}

/// Returns counters in Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "endpoint",
    responses((status = 200, description = "Counters in Prometheus text format.", body = String,
            content_type = "text/plain"),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn metrics(State(api): Shared, request: Request) -> Answer<impl IntoResponse> {
    if !api.config.metrics.open {
        let (mut parts, _) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, &api).await?;
        if !caller.is_administrator {
            return Err(
                Error::new(ErrorKind::PermissionDenied, End::Here, "read the counters")
                    .cause("only administrators may read the counters")
                    .remedy(
                        "ask the administrator to set metrics.open in the endpoint's \
                        configuration",
                    )
                    .into(),
            );
        }
    }
    let roots = api.spaces.read().await;
    let text = api
        .call(|api| {
            let samples = Samples {
                tiers: api.tiers.samples()?,
                targets: api.live.targets(|_| true),
                sinks: api.live.sinks(),
                roots,
                spans: api.telemetry.is_on().then(|| api.telemetry.counts()),
            };
            api.metrics.text(&api.queue, &samples)
        })
        .await?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text))
}

/// Returns this document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "endpoint", security(()),
    responses((status = 200, description = "The OpenAPI document.", body = serde_json::Value)))]
pub(super) async fn document(State(api): Shared) -> impl IntoResponse {
    let kind = "application/json";
    // Any cache may keep the document, because it is public and the same for all callers.
    ([(header::CONTENT_TYPE, kind)], api.document.clone())
}

/// Checks whether requests would be admitted, without submitting them.
#[utoipa::path(post, path = "/v1/admission", tag = "admission", request_body = AdmissionRequest,
    responses((status = 200, description = "The decision about a promise for each request.",
        body = AdmissionAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn admission(
    State(api): Shared,
    caller: Caller,
    Body(request): Body<AdmissionRequest>,
) -> Answer<Json<AdmissionAnswer>> {
    let principal = caller.clone();
    api.call(move |api| {
        let checked = request.transfers.into_iter().map(|one| {
            let submission = api.submission(&principal, one, None)?;
            Ok((submission.request, submission.route))
        });
        let checked = checked.collect::<Result<Vec<_>>>()?;
        Ok(api.queue.promises().admission(&principal.owner, &checked))
    })
    .await
    .map(Json)
}
