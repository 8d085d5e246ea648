//! Calls on transfers: `/v1/transfers`.

use super::Api;
use super::extract::{Body, Caller, Id, OptionalBody, Query};
use super::refusal::Answer;
use super::spans;
use super::submission::with_id;
use crate::actor::actor;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dray_api::{
    BatchAnswer, BatchItem, BatchRequest, BatchResult, CancelRequest, ErrorAnswer, EventKind,
    FileList, FilesQuery, Patch, QueryAnswer, QueryRequest, Request, Transfer, TransferList,
    TransferQuery, WaitQuery, of_item,
};
use dray_core::TraceContext;
use dray_queue::events::Published;
use dray_queue::{Refused, Submitted};
use dray_telemetry::Kind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Interval at which a waiting call reads the transfer again, even without an event. Each read
/// counts as a request of the caller, so a transfer with `bound_seconds` is not cancelled while a
/// call waits for it.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

type Shared = State<Arc<Api>>;

fn submitted(one: Submitted) -> Response {
    let code = success(one.is_new);
    let place = format!("/v1/transfers/{}", one.transfer.id);
    let mut response = (code, Json(one.transfer)).into_response();
    // Always succeeds, because an id only has characters that a header allows.
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// Submits a request for a transfer.
#[utoipa::path(post, path = "/v1/transfers", tag = "transfers", request_body = Request,
    responses(
        (status = 201, description = "A new attempt of the transfer.", body = Transfer),
        (status = 200, description = "The existing transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn submit(
    State(api): Shared,
    headers: HeaderMap,
    caller: Caller,
    Body(request): Body<Request>,
) -> Answer<Response> {
    let parent = request.trace().or_else(|| spans::caller(&headers));
    let mut span = spans::begin(&api, "POST /v1/transfers", parent);
    let done = submit_one(&api, &caller, request, span.context()).await;
    if let Ok(done) = &done {
        caller.concerns(done.transfer.id.as_str());
        span.set("dray.transfer.id", done.transfer.id.as_str());
    }
    let is_new = done.as_ref().is_ok_and(|done| done.is_new);
    spans::end(span, &done, success(is_new));
    done.map(submitted)
}

async fn submit_one(
    api: &Arc<Api>,
    caller: &Caller,
    request: Request,
    trace: Option<TraceContext>,
) -> Answer<Submitted> {
    let principal = (*caller).clone();
    let sizes = vec![api.unsized_transfer(&request)];
    let size = api.sizes(caller, sizes).await?.pop().flatten();
    let done = api
        .call(move |api| {
            let request = with_trace(with_id(request)?, trace);
            let submission = api.submission(&principal, request, size)?;
            let mut admission = api.telemetry.span("admission", Kind::Internal, trace);
            let done = api.queue.submit(submission);
            match &done {
                Ok(done) => admission.set("dray.promised", done.transfer.promised),
                Err(refused) => admission.fail(&refused.error),
            }
            admission.end();
            Ok(done)
        })
        .await??;
    Ok(done)
}

/// Returns the request with the span to which the spans of the transfer belong. An invalid value of
/// the caller is dropped.
fn with_trace(mut request: Request, trace: Option<TraceContext>) -> Request {
    request.traceparent = trace.map(|trace| trace.to_string());
    request
}

const fn success(is_new: bool) -> StatusCode {
    match is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}

/// Submits a batch of requests.
#[utoipa::path(post, path = "/v1/transfers/batch", tag = "transfers", request_body = BatchRequest,
    responses((status = 200, description = "The result of each request of the batch.",
        body = BatchAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn batch(
    State(api): Shared,
    headers: HeaderMap,
    caller: Caller,
    Body(batch): Body<BatchRequest>,
) -> Answer<Json<BatchAnswer>> {
    let parent = spans::caller(&headers);
    let mut span = spans::begin(&api, "POST /v1/transfers/batch", parent);
    span.set("dray.transfers", batch.transfers.len() as u64);
    let done = submit_all(&api, &caller, batch, span.context()).await;
    spans::end(span, &done, StatusCode::OK);
    done.map(Json)
}

async fn submit_all(
    api: &Arc<Api>,
    caller: &Caller,
    batch: BatchRequest,
    trace: Option<TraceContext>,
) -> Answer<BatchAnswer> {
    let principal = (*caller).clone();
    let sources = batch.transfers.iter().map(|BatchItem(request)| {
        let request = request.as_ref().ok()?;
        api.unsized_transfer(request)
    });
    let sizes = api.sizes(caller, sources.collect()).await?;
    let results = api
        .call(move |api| {
            let mut admission = api.telemetry.span("admission", Kind::Internal, trace);
            let requests = batch.transfers.into_iter().zip(sizes).enumerate();
            let submissions = requests.map(|(at, (BatchItem(request), size))| {
                let request = request.and_then(|request| {
                    let trace = request.trace().or(trace);
                    Ok(with_trace(with_id(*request)?, trace))
                });
                let submission =
                    request.and_then(|request| api.submission(&principal, request, size));
                submission.map_err(|error| of_item(at, error))
            });
            let done = api.queue.submit_all(submissions.collect(), batch.atomic);
            if let Err(error) = &done {
                admission.fail(error);
            }
            admission.end();
            done
        })
        .await?;
    let result = |result: Result<Submitted, Refused>| match result {
        Ok(done) => BatchResult::Transfer(Box::new(done.transfer)),
        Err(refused) => BatchResult::Error(refused.into()),
    };
    Ok(BatchAnswer {
        results: results.into_iter().map(result).collect(),
    })
}

/// Lists transfers, newest first.
#[utoipa::path(get, path = "/v1/transfers", tag = "transfers", params(TransferQuery),
    responses((status = 200, description = "One page of the list of transfers.",
        body = TransferList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn list(
    State(api): Shared,
    caller: Caller,
    Query(query): Query<TransferQuery>,
) -> Answer<Json<TransferList>> {
    let principal = caller.clone();
    api.call(move |api| api.queue.list(&actor(&principal), &query))
        .await
        .map(Json)
}

/// Returns transfers by id.
#[utoipa::path(post, path = "/v1/transfers/query", tag = "transfers", request_body = QueryRequest,
    responses((status = 200, description = "The requested transfers, by id.", body = QueryAnswer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn query(
    State(api): Shared,
    caller: Caller,
    Body(query): Body<QueryRequest>,
) -> Answer<Json<QueryAnswer>> {
    let principal = caller.clone();
    let transfers = api
        .call(move |api| api.queue.query(&actor(&principal), &query.ids))
        .await?;
    Ok(Json(QueryAnswer { transfers }))
}

/// Reads a transfer for a caller.
pub(super) async fn look(api: &Arc<Api>, caller: &Caller, id: &str) -> Answer<Transfer> {
    let (principal, id) = ((*caller).clone(), id.to_owned());
    api.call(move |api| api.queue.show(&actor(&principal), &id))
        .await
}

/// Returns a transfer.
#[utoipa::path(get, path = "/v1/transfers/{id}", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    responses((status = 200, description = "The transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(State(api): Shared, caller: Caller, Id(id): Id) -> Answer<Json<Transfer>> {
    look(&api, &caller, &id).await.map(Json)
}

/// Lists the outcomes of a transfer's files.
#[utoipa::path(get, path = "/v1/transfers/{id}/files", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer."), FilesQuery),
    responses((status = 200, description = "One page of the list of files.", body = FileList),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn files(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<FilesQuery>,
) -> Answer<Json<FileList>> {
    let principal = caller.clone();
    api.call(move |api| api.queue.files(&actor(&principal), &id, &query))
        .await
        .map(Json)
}

/// Waits for the end of a transfer, or for a change.
#[utoipa::path(get, path = "/v1/transfers/{id}/wait", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer."), WaitQuery),
    responses((status = 200, description = "The transfer at the end of the wait.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn wait(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<WaitQuery>,
) -> Answer<Json<Transfer>> {
    let mut asking = None;
    let deadline = Instant::now() + Duration::from_secs(query.timeout);
    let hub = Arc::clone(api.queue.hub());
    let mut happened = hub.watch();
    let mut stopping = api.stopping.subscribe();
    let is_change = |published: &Published| {
        published.event.kind == EventKind::State
            && published.event.transfer.as_deref() == Some(id.as_str())
    };
    loop {
        // Read the number of the last event before the transfer, so that an event between the two
        // reads is not missed.
        let mut seen = hub.last();
        let transfer = look(&api, &caller, &id).await?;
        // After `look`, because a caller that may not see the transfer must not mark it as watched.
        asking.get_or_insert_with(|| api.queue.asking(Some(&id), &caller.owner));
        let is_awaited = match query.after {
            Some(version) => transfer.version > version,
            None => transfer.state.is_terminal(),
        };
        if is_awaited || api.is_stopping() || Instant::now() >= deadline {
            return Ok(Json(transfer));
        }
        let until = deadline.min(Instant::now() + LOOK_INTERVAL);
        loop {
            let heard = hub.since(seen, 1, is_change);
            if heard.is_gap || !heard.events.is_empty() {
                break;
            }
            seen = heard.last;
            let next = async {
                tokio::select! {
                    _ = happened.changed() => {}
                    _ = stopping.changed() => {}
                }
            };
            if timeout_at(until, next).await.is_err() || api.is_stopping() {
                break;
            }
        }
    }
}

/// Cancels a transfer. Durable data is kept unless `purge` is set.
#[utoipa::path(post, path = "/v1/transfers/{id}/cancel", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    request_body = CancelRequest,
    responses((status = 200, description = "The transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn cancel(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    OptionalBody(how): OptionalBody<CancelRequest>,
) -> Answer<Json<Transfer>> {
    let principal = caller.clone();
    api.call(move |api| match how.version {
        None => api.queue.cancel(&actor(&principal), &id, how.purge),
        Some(version) => api
            .queue
            .cancel_as_seen(&actor(&principal), &id, how.purge, version),
    })
    .await
    .map(Json)
}

/// Pauses a transfer.
#[utoipa::path(post, path = "/v1/transfers/{id}/pause", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    responses((status = 200, description = "The transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn pause(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<Transfer>> {
    let principal = caller.clone();
    api.call(move |api| api.queue.pause(&actor(&principal), &id))
        .await
        .map(Json)
}

/// Resumes a paused transfer.
#[utoipa::path(post, path = "/v1/transfers/{id}/resume", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    responses((status = 200, description = "The transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn resume(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<Transfer>> {
    let principal = caller.clone();
    api.call(move |api| api.queue.resume(&actor(&principal), &id))
        .await
        .map(Json)
}

/// Starts a new attempt of a transfer that has ended.
#[utoipa::path(post, path = "/v1/transfers/{id}/retry", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    responses((status = 200, description = "The transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn retry(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<Transfer>> {
    let principal = caller.clone();
    api.call(move |api| {
        // Checked again, because the permissions may have changed since the first submission.
        let transfer = api.queue.show(&actor(&principal), &id)?;
        let size = (transfer.bytes.listed > 0).then_some(transfer.bytes.listed);
        let submission = api.submission(&principal, transfer.request, size)?;
        (api.queue).retry(&actor(&principal), &id, submission)
    })
    .await
    .map(Json)
}

/// Changes a transfer.
#[utoipa::path(patch, path = "/v1/transfers/{id}", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    request_body = Patch,
    responses((status = 200, description = "The transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn patch(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Body(patch): Body<Patch>,
) -> Answer<Json<Transfer>> {
    let principal = caller.clone();
    let patched = api
        .call(move |api| Ok(api.queue.patch(&actor(&principal), &id, &patch)))
        .await?;
    Ok(Json(patched?))
}

/// Deletes the record of a transfer that has ended.
#[utoipa::path(delete, path = "/v1/transfers/{id}", tag = "transfers",
    params(("id" = String, Path, description = "Id of the transfer.")),
    responses((status = 200, description = "The deleted transfer.", body = Transfer),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn delete(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
) -> Answer<Json<Transfer>> {
    let principal = caller.clone();
    api.call(move |api| api.queue.delete(&actor(&principal), &id))
        .await
        .map(Json)
}
