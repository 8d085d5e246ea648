//! Calls on receipts: `/v1/transfers/{id}/receipt` and `/v1/receipts/keys`.

use super::Api;
use super::extract::{Caller, Id, Query};
use super::refusal::Answer;
use crate::actor::actor;
use crate::receipts::{Receipts, not_written_yet};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use dray_api::{ErrorAnswer, ReceiptKeys, ReceiptQuery, ReceiptReference};
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::ReceiptState;
use futures_util::stream;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

type Shared = State<Arc<Api>>;

/// Maximum time for which the call waits until a receipt is written.
const WAIT: Duration = Duration::from_secs(10);

/// Interval at which a waiting call looks for the receipt.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// Header with the id of the receipt.
const ID: HeaderName = HeaderName::from_static("dray-receipt");

fn missing(cause: &str) -> Error {
    Error::new(ErrorKind::NotFound, End::Here, "read the receipt").cause(cause)
}

fn receipts(api: &Api) -> Result<&Arc<Receipts>> {
    api.receipts.as_ref().ok_or_else(|| {
        missing("this endpoint writes no receipts").remedy(
            "ask the endpoint's administrator to set receipts.enabled = true; later transfers then \
                get receipts",
        )
    })
}

/// Returns the receipt of a transfer's last attempt: the signed head, then the list of files.
#[utoipa::path(get, path = "/v1/transfers/{id}/receipt", tag = "receipts",
    params(("id" = String, Path, description = "Id of the transfer."), ReceiptQuery),
    responses((status = 200, description = "The receipt. docs/reference/receipts.md describes the \
            format. The header `dray-receipt` contains the id of the receipt.",
        content_type = "text/plain", body = String),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn show(
    State(api): Shared,
    caller: Caller,
    Id(id): Id,
    Query(query): Query<ReceiptQuery>,
) -> Answer<Response> {
    let until = Instant::now() + WAIT;
    let receipt = loop {
        let (principal, id) = (caller.clone(), id.clone());
        let state = api
            .call(move |api| api.queue.receipt_of(&actor(&principal), &id))
            .await?;
        match state {
            ReceiptState::Written(receipt) => break receipt,
            ReceiptState::Due if Instant::now() < until && !api.is_stopping() => {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            ReceiptState::Due => return Err(not_written_yet().into()),
            ReceiptState::Missing => {
                receipts(&api)?;
                return Err(missing(
                    "the transfer has not ended, or ended before the endpoint wrote receipts, or \
                        its receipt was removed because of its age",
                )
                .remedy("see `state` and `ended_at` of the transfer")
                .into());
            }
        }
    };
    let body = body(&api, receipt.clone(), query).await?;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    let mut response = ([(header::CONTENT_TYPE, text)], body).into_response();
    if let Ok(value) = HeaderValue::from_str(&receipt.id) {
        response.headers_mut().insert(ID, value);
    }
    Ok(response)
}

async fn body(api: &Arc<Api>, receipt: ReceiptReference, query: ReceiptQuery) -> Answer<Body> {
    if !query.files {
        let head = api.call(move |api| receipts(api)?.head(&receipt)).await?;
        return Ok(Body::from(format!("{head}\n")));
    }
    let file = api.call(move |api| receipts(api)?.file(&receipt)).await?;
    let pieces = stream::unfold(Some((Arc::clone(api), file)), |state| async move {
        let (api, file) = state?;
        let piece = api.call(move |_| piece(file)).await;
        match piece {
            Ok((bytes, _)) if bytes.is_empty() => None,
            Ok((bytes, file)) => Some((Ok(bytes), Some((api, file)))),
            // The answer ends without its last part, so the caller sees an error.
            Err(_) => Some((
                Err(std::io::Error::other("the receipt cannot be read")),
                None,
            )),
        }
    });
    Ok(Body::from_stream(pieces))
}

fn piece(mut file: File) -> Result<(Bytes, File)> {
    let mut bytes = vec![0; PIECE_BYTES];
    let read = file.read(&mut bytes).map_err(|error| {
        Error::new(error.kind().into(), End::Here, "read the receipt").cause(error.to_string())
    })?;
    bytes.truncate(read);
    Ok((Bytes::from(bytes), file))
}

/// Returns the public keys of the endpoint's receipts.
#[utoipa::path(get, path = "/v1/receipts/keys", tag = "receipts",
    responses((status = 200, description = "The keys as a JWK set, and the newest receipt.",
        body = ReceiptKeys),
        (status = "default", description = "The request was refused.", body = ErrorAnswer)))]
pub(super) async fn keys(State(api): Shared, _: Caller) -> Answer<Json<ReceiptKeys>> {
    api.call(|api| receipts(api)?.public()).await.map(Json)
}
