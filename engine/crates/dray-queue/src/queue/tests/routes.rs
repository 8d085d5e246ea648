//! Tests of rows that older versions wrote without a route, and of damaged routes.

use super::{actor, by, id, open, request, settings};
use crate::clock;
use crate::events::Hub;
use crate::queue::row::Row;
use crate::queue::{Actor, Queue, Settings, Submission};
use dray_api::{Request, Route, Side, State, Transfer};
use dray_core::{ErrorKind, Result};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// A queue that the program of version 11 wrote, the last version without routes.
const VERSION_11: &str = include_str!("version_11.sql");

pub(super) fn route(request: &Request) -> Route {
    Route::parse(request, |address| address.starts_with("a.example:")).expect("good")
}

/// Returns the route of [`request`], which is the same for all ids.
pub(super) fn any_route() -> Route {
    route(&request("any"))
}

/// Retries a transfer with the route of [`route`].
pub(super) fn retry(queue: &Queue, caller: &Actor, name: &str) -> Result<Transfer> {
    let request = queue.show(caller, name)?.request;
    queue.retry(caller, name, along(any_route(), request))
}

fn along(route: Route, request: Request) -> Submission {
    Submission {
        request,
        route,
        owner: "alice".to_owned(),
        principal: "alice".to_owned(),
        claim: None,
    }
}

fn execute(state: &Path, statements: &str) {
    let database = rusqlite::Connection::open(state.join("queue.db")).expect("opened");
    database.execute_batch(statements).expect("executed");
}

/// Writes the recorded queue of version 11 to a state folder.
fn record(state: &Path) {
    std::fs::create_dir(state).expect("a folder");
    execute(state, VERSION_11);
}

/// Returns the settings of an endpoint `a.example` that is also called `alias`.
fn with_alias(state: &Path, alias: &'static str) -> Settings {
    let is_own = move |address: &str| {
        let host = address.split(':').next().unwrap_or_default();
        [alias, "a.example"]
            .map(str::to_lowercase)
            .contains(&host.to_lowercase())
    };
    Settings {
        is_own: Arc::new(is_own),
        ..settings(state)
    }
}

fn try_open(settings: Settings) -> Result<Arc<Queue>> {
    Queue::open(settings, Arc::new(Hub::new(4, clock::now())))
}

fn row(queue: &Queue, name: &str) -> Row {
    let row = queue.read(|connection| Row::find(connection, name));
    row.expect("read").expect("there")
}

#[test]
fn the_routes_of_an_older_queue_are_resolved_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    record(&state);
    let wanted = [
        (
            "pull",
            json!({"sources": ["dray://b.example:4735/data/x"], "destination": "/data/y"}),
        ),
        (
            "push",
            json!({"sources": ["/data/x"], "destination": "dray://b.example:5000/data/in/"}),
        ),
        (
            "within",
            json!({"sources": ["/data/x"], "destination": "/data/y"}),
        ),
        (
            "many",
            json!({"sources": ["/data/one", "/data/two%3F", "/data/%FF/"],
                "destination": "dray://b.example:4735/data/in/"}),
        ),
        (
            "replicas",
            json!({"sources": ["dray://b.example:4735/data/x"],
                "replicas": ["dray://c.example:4735/data/x", "/data/x"],
                "destination": "/data/y"}),
        ),
        (
            "paused",
            json!({"sources": ["dray://b.example:4735/data/x"], "destination": "/data/y"}),
        ),
        (
            "failed",
            json!({"sources": ["/data/none"], "destination": "/data/copy"}),
        ),
    ];
    // The second start must not resolve the URLs again, although the endpoint has another name by
    // then.
    for alias in ["old.example", "b.example"] {
        let queue = try_open(with_alias(&state, alias)).expect("opened");
        for (name, route) in &wanted {
            let found = row(&queue, name).route;
            assert_eq!(serde_json::to_value(found).expect("JSON"), *route, "{name}");
        }
    }
    let queue = open(&state);
    assert_eq!(
        queue.show(&actor("alice"), "paused").expect("there").state,
        State::Paused
    );
    execute(
        &state,
        "UPDATE transfers SET not_before = NULL, held_until = NULL",
    );
    let waiting = super::candidates::all(&queue);
    let replicas = waiting.iter().find(|one| one.id.as_str() == "replicas");
    let replicas = replicas.expect("a candidate");
    let found = queue.request_and_route(&replicas.id).expect("read");
    let (_, route) = found.expect("there");
    assert_eq!(route.peer(1), Some("c.example:4735"));
    let peer = route
        .source(replicas.source as usize)
        .and_then(Side::address);
    assert_eq!(replicas.source_peer.as_deref(), peer);
    assert_eq!(replicas.sink_peer.as_deref(), route.destination().address());
    let version = queue.show(&actor("alice"), "many").expect("there").version;
    let input = queue.begin(&id("many"), version).expect("written");
    assert_eq!(input.expect("queued").route.origin(0).len(), 3);
}

#[test]
fn a_transfer_whose_urls_cannot_be_read_fails_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    record(&state);
    execute(
        &state,
        "UPDATE transfers SET request = json_set(request, '$.destination.url', 'http://b/x')
             WHERE id IN ('push', 'done', 'cancelled');
         UPDATE transfers SET request = '{}' WHERE id = 'failed';
         UPDATE transfers SET wish = 'purge' WHERE id = 'cancelled';
         INSERT INTO promises VALUES ('push', 2, 1, NULL, NULL, '[]', 0);",
    );
    let queue = open(&state);
    let alice = actor("alice");
    let failed = queue.show(&alice, "push").expect("there");
    assert_eq!(failed.state, State::Failed);
    let error = failed.error.expect("a reason");
    assert!(
        error.cause.contains("is neither a URL of an endpoint"),
        "{error:?}"
    );
    assert!(failed.ended_at.is_some() && !failed.promised);
    let purged = queue.show(&alice, "cancelled").expect("there");
    assert!(purged.notices[0].contains("the partial data of the transfer remains"));
    assert!(queue.to_purge(9).expect("read").is_empty());
    assert!(row(&queue, "done").route.is_none());
    assert_eq!(
        queue.show(&alice, "pull").expect("there").state,
        State::Queued
    );
    let route: Route = serde_json::from_value(json!({
        "sources": ["/data/x"],
        "destination": "/data/y",
    }))
    .expect("a route");
    let request = queue.show(&alice, "done").expect("there").request;
    let other = super::request("other");
    let busy = queue
        .retry(&alice, "done", along(route.clone(), other))
        .expect_err("of other URLs");
    assert_eq!(busy.kind, ErrorKind::Busy);
    queue
        .retry(&alice, "done", along(route.clone(), request))
        .expect("retried");
    assert_eq!(row(&queue, "done").route, Some(route));
    drop(queue);
    // The row of an ended transfer stays unchanged, also at a later start.
    drop(open(&state));
}

#[test]
fn a_purge_without_a_route_does_not_stop_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    record(&state);
    execute(
        &state,
        "UPDATE transfers SET request = json_set(request, '$.destination.url', 'http://b/x')
             WHERE id = 'failed';",
    );
    let queue = open(&state);
    let alice = actor("alice");
    for name in ["failed", "pull"] {
        queue.cancel(&alice, name, true).expect("cancelled");
    }
    let jobs = queue.to_purge(9).expect("read");
    let ids: Vec<_> = jobs.iter().map(|job| job.input.id.as_str()).collect();
    assert_eq!(ids, ["pull"]);
    let kept = queue.show(&alice, "failed").expect("there");
    let notice = kept.notices.last().expect("a notice");
    assert!(
        notice.starts_with("the partial data of the transfer remains"),
        "{notice}"
    );
    queue.delete(&alice, "failed").expect("deleted");
}

#[test]
fn a_route_or_request_that_cannot_be_read_is_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let queue = open(&state);
    queue.submit(by("alice", request("t"))).expect("taken");
    drop(queue);
    let changes = [
        (
            "route = '{}'",
            "the resolved URLs of transfer t cannot be read",
        ),
        (
            "route = '{'",
            "the resolved URLs of transfer t cannot be read",
        ),
        (
            "route = NULL, request = '{}'",
            "the request of transfer t cannot be read",
        ),
    ];
    for (change, cause) in changes {
        execute(&state, &format!("UPDATE transfers SET {change}"));
        let error = try_open(settings(&state)).expect_err("damaged");
        assert_eq!(error.kind, ErrorKind::Io);
        assert!(error.cause.contains(cause), "{error}");
        assert!(
            error.remedy.contains("restore queue.db from a backup"),
            "{error}"
        );
    }
}
