//! Tests of events and long polls.

use super::{House, house, request};
use axum::body::Body;
use axum::http::{Request, header};
use dray_api::{Event, EventKind};
use dray_queue::clock;
use dray_queue::events::EVENTS_MAX;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tower::ServiceExt;

async fn listen(house: &House, who: &str, last: Option<u64>) -> (u16, Body) {
    let mut request = Request::get("/v1/events")
        .header(header::AUTHORIZATION, format!("Bearer {who}"))
        .header(header::ACCEPT, "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = house
        .router
        .clone()
        .oneshot(request)
        .await
        .expect("answered");
    (response.status().as_u16(), response.into_body())
}

/// Reads events of a stream until `fits` returns true. Returns `None` if the stream ends first.
async fn hear(body: &mut Body, fits: impl Fn(&Value) -> bool) -> Option<Value> {
    let wait = async {
        while let Some(frame) = body.frame().await {
            let data = frame.expect("whole").into_data().unwrap_or_default();
            let text = String::from_utf8_lossy(&data).into_owned();
            let data = text.lines().find_map(|line| line.strip_prefix("data: "));
            let Some(data) = data else { continue };
            let event: Value = serde_json::from_str(data).expect("JSON");
            assert!(text.contains(&format!("id: {}", event["id"])), "{text}");
            if fits(&event) {
                return Some(event);
            }
        }
        None
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_gets_its_own_events_and_resumes_after_the_last_one() {
    let house = house();
    let (code, mut alice) = listen(&house, "alice", None).await;
    assert_eq!(code, 200);
    let (_, mut root) = listen(&house, "root", None).await;
    house.post("bob", "/v1/transfers", request("b")).await;
    house.post("alice", "/v1/transfers", request("a")).await;
    let event = hear(&mut alice, |_| true).await.expect("an event");
    assert_eq!(
        (&event["transfer"], &event["state"]),
        (&json!("a"), &json!("queued"))
    );
    assert_eq!(
        (&event["type"], &event["version"]),
        (&json!("state"), &json!(1))
    );
    assert_eq!(
        hear(&mut root, |_| true).await.expect("an event")["transfer"],
        "b"
    );
    drop(alice);
    house
        .post("alice", "/v1/transfers/a/pause", Value::Null)
        .await;
    let (_, mut again) = listen(&house, "alice", event["id"].as_u64()).await;
    let event = hear(&mut again, |_| true).await.expect("an event");
    assert_eq!(event["state"], "paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_deleted_events_reports_a_gap() {
    let house = house();
    house.post("alice", "/v1/transfers", request("a")).await;
    let (_, answer) = house.get("alice", "/v1/events?after=5&timeout=0").await;
    assert_eq!(answer["events"][0]["type"], "gap");
    assert_eq!(answer["events"][1]["transfer"], "a");
    let (_, mut stream) = listen(&house, "alice", Some(5)).await;
    let first = hear(&mut stream, |_| true).await.expect("an event");
    assert_eq!(first["type"], "gap");
    let last = answer["last"].as_u64().expect("a number");
    let (_, empty) = house
        .get("alice", &format!("/v1/events?after={last}&timeout=0"))
        .await;
    assert_eq!(empty, json!({"events": [], "last": last}));
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_are_limited_and_slow_listeners_are_disconnected() {
    let house = house();
    let (_, mut slow) = listen(&house, "alice", None).await;
    let (_, _second) = listen(&house, "alice", None).await;
    assert_eq!(listen(&house, "alice", None).await.0, 429);
    house.post("alice", "/v1/transfers", request("a")).await;
    hear(&mut slow, |_| true).await.expect("an event");
    // The listener has received all events. It then does not read while 60 events occur.
    let idle = tokio::time::timeout(Duration::from_millis(200), slow.frame()).await;
    assert!(idle.is_err(), "nothing to hear");
    for _ in 0..30 {
        house
            .post("alice", "/v1/transfers/a/pause", Value::Null)
            .await;
        house
            .post("alice", "/v1/transfers/a/resume", Value::Null)
            .await;
    }
    assert_eq!(hear(&mut slow, |_| true).await, None, "cut");
    drop(slow);
    assert_eq!(listen(&house, "alice", None).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_answers_after_an_event() {
    let house = Arc::new(house());
    house.post("alice", "/v1/transfers", request("a")).await;
    let poller = Arc::clone(&house);
    let events = tokio::spawn(async move { poller.get("alice", "/v1/events?timeout=20").await });
    let waiter = Arc::clone(&house);
    let wait =
        tokio::spawn(async move { waiter.get("alice", "/v1/transfers/a/wait?timeout=20").await });
    let next = Arc::clone(&house);
    let changed = tokio::spawn(async move {
        next.get("alice", "/v1/transfers/a/wait?timeout=20&after=1")
            .await
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let start = Instant::now();
    house
        .post("alice", "/v1/transfers/a/pause", Value::Null)
        .await;
    let (_, heard) = events.await.expect("ended");
    assert_eq!(heard["events"][0]["state"], "paused");
    assert_eq!(changed.await.expect("ended").1["version"], 2);
    assert!(!wait.is_finished(), "paused is not the end");
    house
        .post("alice", "/v1/transfers/a/cancel", Value::Null)
        .await;
    assert_eq!(wait.await.expect("ended").1["state"], "cancelled");
    assert!(start.elapsed() < Duration::from_secs(5));
    let (code, now) = house.get("alice", "/v1/transfers/a/wait").await;
    assert_eq!((code, &now["state"]), (200, &json!("cancelled")));
}

/// Many events of other owners do not cause a gap for a caller that polls.
#[tokio::test]
async fn events_of_other_owners_are_no_gap() {
    let house = Arc::new(house());
    let poller = Arc::clone(&house);
    let poll = tokio::spawn(async move { poller.get("bob", "/v1/events?timeout=20").await });
    let hub = house.api.queue.hub();
    let publish = |owner: &str, count: usize| {
        for _ in 0..count {
            let event = Event::new(EventKind::State, clock::now());
            hub.publish(Some(owner.into()), event);
        }
    };
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        publish("alice", EVENTS_MAX / 2);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!poll.is_finished(), "nothing was his");
    publish("bob", 1);
    let (_, heard) = poll.await.expect("ended");
    let events = heard["events"].as_array().expect("events");
    assert_eq!((events.len(), &events[0]["type"]), (1, &json!("state")));
    assert_eq!(events[0]["id"], heard["last"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_all_waiting_calls() {
    let house = Arc::new(house());
    house.post("alice", "/v1/transfers", request("a")).await;
    let (_, mut stream) = listen(&house, "alice", None).await;
    let waiter = Arc::clone(&house);
    let wait =
        tokio::spawn(async move { waiter.get("alice", "/v1/transfers/a/wait?timeout=60").await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        house.get("", "/healthz").await,
        (200, json!({"status": "ok"}))
    );
    house.api.stop();
    assert_eq!(wait.await.expect("ended").1["state"], "queued");
    assert_eq!(hear(&mut stream, |_| true).await, None);
    assert_eq!(
        house.get("", "/healthz").await,
        (503, json!({"status": "stopping"}))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_does_not_use_all_permits_of_listeners() {
    let house = Arc::new(house());
    house.post("alice", "/v1/transfers", request("a")).await;
    let polls: Vec<_> = (0..8)
        .map(|_| {
            let poller = Arc::clone(&house);
            tokio::spawn(async move { poller.get("alice", "/v1/events?timeout=20").await.0 })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (code, error) = house.get("alice", "/v1/endpoint").await;
    assert_eq!((code, &error["error"]["kind"]), (429, &json!("busy")));
    assert_eq!(house.get("bob", "/v1/endpoint").await.0, 200);
    house.api.stop();
    for poll in polls {
        assert_eq!(poll.await.expect("ended"), 200);
    }
    assert_eq!(house.get("alice", "/v1/endpoint").await.0, 200);
}
