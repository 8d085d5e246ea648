//! Tests of ticket renewals by callers that are not authenticated.

use super::house;
use crate::connection::PeerCertificates;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures_util::stream;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::time::Duration;

fn renewal(body: Body, certificates: &[&'static [u8]]) -> Request<Body> {
    let shown = certificates.iter().map(|der| CertificateDer::from(*der));
    Request::post("/v1/tickets/renew")
        .extension(PeerCertificates(shown.collect()))
        .body(body)
        .expect("a request")
}

#[tokio::test]
async fn a_body_without_a_certificate_is_not_read() {
    let house = house();
    // The body never ends. If the API read the body, the call would time out.
    let endless = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let answer = house.send(renewal(endless, &[]));
    let answer = tokio::time::timeout(Duration::from_secs(5), answer).await;
    let (code, body) = answer.expect("answered at once");
    assert_eq!(code, StatusCode::UNAUTHORIZED);
    assert_eq!(body["error"]["kind"], "unauthorized");
}

#[tokio::test]
async fn a_body_is_read_up_to_the_size_of_a_ticket() {
    let house = house();
    let sent = |bytes: usize| {
        let ticket = "x".repeat(bytes);
        renewal(
            Body::from(format!("{{\"ticket\": \"{ticket}\"}}")),
            &[b"any"],
        )
    };
    let (code, body) = house.send(sent(5_000)).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
    // A body of 4000 bytes is read, and then refused because no ticket is that long.
    assert_eq!(house.send(sent(4_000)).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(house.send(sent(256)).await.0, StatusCode::NOT_IMPLEMENTED);
}

#[tokio::test]
async fn renewals_wait_only_for_other_renewals() {
    let house = house();
    let all = house.api.renewals.acquire_many(8).await.expect("free");
    let ask = || house.send(renewal(Body::from("{\"ticket\": \"drt_x\"}"), &[b"any"]));
    let waits = tokio::time::timeout(Duration::from_millis(200), ask());
    assert!(waits.await.is_err(), "it has no place of other callers");
    assert_eq!(house.get("alice", "/v1/transfers").await.0, 200);
    drop(all);
    assert_eq!(ask().await.0, StatusCode::NOT_IMPLEMENTED);
}

#[tokio::test]
async fn calls_are_limited_and_a_refused_call_gets_a_reason() {
    let house = house();
    let all = house.api.calls.acquire_many(256).await.expect("free");
    let (code, refused) = house.get("alice", "/v1/transfers").await;
    assert_eq!(code, 503, "{refused}");
    assert_eq!(refused["error"]["kind"], "busy");
    let cause = refused["error"]["cause"].to_string();
    assert!(cause.contains("256 API calls"), "{cause}");
    drop(all);
    assert_eq!(house.get("alice", "/v1/transfers").await.0, 200);
}
