//! Tests of the counters.

use super::{Metrics, RootSpace, Samples, TierSample};
use crate::queue_settings::queue_settings;
use axum::http::Method;
use dray_api::{Request, Route, TargetAnswer, TargetEnd, TargetState};
use dray_config::Config;
use dray_core::TransferId;
use dray_queue::clock;
use dray_queue::events::Hub;
use dray_queue::promises::Lack;
use dray_queue::{Actor, Counters, Ending, Queue, Submission};
use dray_telemetry::Counts;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MEGA: u64 = 1_000_000;

/// Opens the queue of an endpoint whose link has 100 MB/s.
fn open(state: &Path) -> Arc<Queue> {
    let text = format!(
        "name = \"a.example\"\nstate = {state:?}\nrate = \"100MB/s\"\n\
         [[root]]\nname = \"data\"\npath = \"/data\"\n"
    );
    let config = Config::parse("test", &text).expect("good");
    let hub = Arc::new(Hub::new(4, clock::now()));
    Queue::open(queue_settings(&config), hub).expect("opened")
}

fn request(id: &str) -> Request {
    serde_json::from_value(json!({
        "id": id,
        "sources": [{"url": "dray://b.example/data/x", "ticket": "drt_one"}],
        "destination": {"url": "/data/x"},
    }))
    .expect("good")
}

/// Returns a request that needs `megas` MB/s for the next 1 000 seconds.
fn due(name: &str, megas: u64) -> Request {
    Request {
        deadline: Some(clock::now().after(Duration::from_secs(1_001))),
        bytes_expected: Some(megas * 1_000 * MEGA),
        ..request(name)
    }
}

fn by(owner: &str, request: Request) -> Submission {
    Submission {
        route: Route::parse(&request, |_| false).expect("good"),
        request,
        owner: owner.to_owned(),
        principal: format!("{owner}@test"),
        claim: None,
    }
}

fn id(text: &str) -> TransferId {
    TransferId::new(text).expect("good")
}

fn actor(owner: &str) -> Actor {
    Actor {
        owner: owner.to_owned(),
        is_administrator: owner == "root",
    }
}

fn begin(queue: &Queue, text: &str) {
    let version = queue.show(&actor("root"), text).expect("there").version;
    let begun = queue.begin(&id(text), version).expect("written");
    begun.expect("still queued");
}

#[test]
fn a_histogram_counts_what_is_below_each_end() {
    let metrics = Metrics::default();
    for ms in [1, 3, 60, 40_000] {
        let took = Duration::from_millis(ms);
        metrics.answered(&Method::GET, "/v1/endpoint", 200, took);
    }
    let mut text = String::new();
    metrics.api(&mut text);
    let labels = "method=\"GET\",route=\"/v1/endpoint\"";
    for (end, count) in [
        ("0.001", 1),
        ("0.005", 2),
        ("0.05", 2),
        ("30", 3),
        ("+Inf", 4),
    ] {
        let line = format!("dray_api_seconds_bucket{{{labels},le=\"{end}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(text.contains(&format!(
        "dray_api_requests_total{{{labels},code=\"200\"}} 4"
    )));
}

#[test]
fn callers_choose_no_labels() {
    let metrics = Metrics::default();
    for at in 0..3_000 {
        let method = Method::from_bytes(format!("M{at}").as_bytes()).expect("a word");
        metrics.answered(&method, "none", 405, Duration::ZERO);
    }
    let mut text = String::new();
    metrics.api(&mut text);
    assert!(text.lines().count() < 30, "{text}");
}

#[test]
fn metrics_report_held_transfers_and_promises() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    let metrics = Metrics::default();
    let value = |name: &str| {
        let text = metrics.text(&queue, &Samples::default()).expect("read");
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{name}: {text}"))
    };
    let held = || -> [u64; 3] {
        ["held", "holds_total", "let_go_total"].map(|name| value(&format!("dray_policy_{name}")))
    };
    queue.submit(by("alice", request("plain"))).expect("taken");
    begin(&queue, "plain");
    assert_eq!(held(), [0, 0, 0]);
    queue.held(&id("plain"), true);
    queue.held(&id("plain"), true);
    assert_eq!(held(), [1, 1, 0]);
    assert_eq!(value("dray_bytes_sent_total"), 0);
    let mut counters = Counters::default();
    counters.bytes.sent = 100;
    queue.progress(&id("plain"), &counters);
    assert_eq!(value("dray_bytes_sent_total"), 100);
    queue.lets_go(&id("plain"));
    queue.ended(&id("plain"), Ending::Stopped).expect("ended");
    assert_eq!(held(), [0, 1, 1]);
    assert_eq!(value("dray_bytes_sent_total"), 100);
    let promised = || -> [u64; 4] {
        ["", "_moving", "_missing", "_seatless"].map(|name| value(&format!("dray_promises{name}")))
    };
    queue.submit(by("alice", due("one", 60))).expect("fits");
    let now = clock::now();
    queue.promises().replan(&[], now);
    assert_eq!(promised(), [1, 1, 0, 0]);
    let found = [("one", Lack::InAll)];
    queue.promises().seatless(&found, now);
    assert_eq!(promised(), [1, 1, 0, 1]);
    queue
        .cancel(&actor("alice"), "one", false)
        .expect("cancelled");
    queue.promises().seatless(&[], now);
    assert_eq!(promised(), [0; 4]);
}

#[test]
fn the_page_of_metrics_names_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    let target = TargetAnswer {
        end: TargetEnd::Sink,
        name: "a \"b\"".to_owned(),
        sessions: 1,
        under_way: 2,
        service_seconds: Some(0.5),
        state: TargetState::Congested,
    };
    let root = RootSpace {
        root: "data".to_owned(),
        free: 1,
        total: 2,
    };
    let samples = Samples {
        tiers: vec![TierSample::default()],
        targets: vec![target],
        roots: vec![root],
        spans: Some(Counts::default()),
        ..Samples::default()
    };
    let text = Metrics::default().text(&queue, &samples).expect("read");
    let page = include_str!("../../../../../docs/reference/metrics.md");
    let told: BTreeSet<&str> = (text.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let written: BTreeSet<&str> = (page.lines())
        .filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next())
        .collect();
    assert_eq!(told, written);
}
