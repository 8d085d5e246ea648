use super::house;
use axum::body::Body;
use axum::http::{Request, header};
use dray_core::TransferId;
use dray_queue::Ending;
use dray_receipt::{KeyRing, id_of, verify_receipt};
use http_body_util::BodyExt;
use serde_json::json;
use std::sync::Arc;
use tower::ServiceExt;

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_for_those_who_see_the_transfer() {
    let house = house();
    let request = json!({
        "id": "one",
        "sources": [{"url": "/slow/a"}],
        "destination": {"url": "/fast/a"},
    });
    assert_eq!(house.post("alice", "/v1/transfers", request).await.0, 201);
    let call = "/v1/transfers/one/receipt";
    assert_eq!(
        house.get("alice", call).await.0,
        404,
        "the transfer has not ended"
    );
    let id = TransferId::new("one").expect("good");
    let queue = &house.api.queue;
    let version = house.get("alice", "/v1/transfers/one").await.1["version"].clone();
    let version = version.as_u64().expect("a number");
    queue.begin(&id, version).expect("written").expect("queued");
    queue.ended(&id, Ending::Done).expect("written");
    let receipts = Arc::clone(house.api.receipts.as_ref().expect("receipts"));
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let thread = std::thread::spawn({
        let (receipts, is_over) = (Arc::clone(&receipts), Arc::clone(&is_over));
        move || receipts.run(&|| is_over.load(std::sync::atomic::Ordering::Relaxed))
    });
    let (code, receipt) = house.get("alice", call).await;
    assert_eq!(code, 200, "the call waits for the receipt: {receipt}");
    let receipt = receipt.as_str().expect("text").to_owned();
    let (code, keys) = house.get("bob", "/v1/receipts/keys").await;
    assert_eq!(code, 200, "{keys}");
    let ring = KeyRing::parse(keys.to_string().as_bytes()).expect("keys");
    let line = receipt.lines().next().expect("a line");
    let (head, _) = verify_receipt(line, &ring).expect("signed");
    assert_eq!((head.sequence, head.previous), (1, None));
    assert_eq!(head.transfer.owner, "alice");
    let (_, shown) = house.get("alice", "/v1/transfers/one").await;
    let expected = json!({"id": id_of(line), "sequence": 1});
    assert_eq!((&shown["receipt"], &keys["last"]), (&expected, &expected));
    let raw = Request::get(format!("{call}?files=false"))
        .header(header::AUTHORIZATION, "Bearer root")
        .body(Body::empty())
        .expect("a request");
    let response = house.router.clone().oneshot(raw).await.expect("answered");
    assert_eq!(response.headers()["dray-receipt"], id_of(line));
    let bytes = response
        .into_body()
        .collect()
        .await
        .expect("whole")
        .to_bytes();
    assert_eq!(bytes, format!("{line}\n"));
    for (who, code) in [("bob", 404), ("", 401)] {
        assert_eq!(house.get(who, call).await.0, code, "{who:?}");
    }
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    receipts.wake();
    thread.join().expect("ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_without_receipts_says_so() {
    let house = super::house_with("[receipts]\nenabled = false\n");
    let (code, body) = house.get("bob", "/v1/receipts/keys").await;
    assert_eq!(code, 404);
    let remedy = body["error"]["remedy"].as_str().expect("a remedy");
    assert!(remedy.contains("receipts.enabled"), "{remedy}");
}
