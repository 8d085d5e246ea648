//! Tests of new attempts at a start.

use super::{actor, begin, by, id, open, request};
use crate::queue::restart::FailedAtStart;
use crate::{Ending, Queue};
use dray_api::{Request, State};
use dray_core::{End, Error, ErrorKind};
use std::time::Duration;

const BOUNDS: FailedAtStart = FailedAtStart {
    age_max: Duration::from_secs(3600),
    attempts_max: 3,
};

/// Returns a request with a destination of its own.
fn apart(name: &str) -> Request {
    let mut request = request(name);
    request.destination.url = format!("/data/{name}");
    request
}

fn fail(queue: &Queue, name: &str, kind: ErrorKind) {
    begin(queue, name);
    let error = Error::new(kind, End::Sink, "write");
    queue
        .ended(&id(name), Ending::Failed(error))
        .expect("ended");
    let failed = queue.show(&actor("alice"), name).expect("there");
    assert_eq!(failed.state, State::Failed);
}

#[test]
fn a_start_retries_failed_transfers_within_the_bounds() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let alice = actor("alice");
    let queue = open(&state);
    for name in ["away", "refused", "done"] {
        queue.submit(by("alice", apart(name))).expect("taken");
    }
    fail(&queue, "away", ErrorKind::Io);
    fail(&queue, "refused", ErrorKind::PermissionDenied);
    begin(&queue, "done");
    queue.ended(&id("done"), Ending::Done).expect("ended");
    let kept = queue.show(&alice, "away").expect("there").error;
    assert_eq!(kept.expect("kept").kind, "io");
    // Copy the database as a kill would leave it.
    let left = folder.path().join("left");
    std::fs::create_dir(&left).expect("made");
    for name in ["queue.db", "queue.db-wal"] {
        std::fs::copy(state.join(name), left.join(name)).expect("copied");
    }
    let queue = open(&left);
    let old = FailedAtStart {
        age_max: Duration::ZERO,
        ..BOUNDS
    };
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(queue.retry_failed(old).expect("too old"), 0);
    assert_eq!(queue.retry_failed(BOUNDS).expect("retried"), 1);
    let states = ["away", "refused", "done"].map(|name| queue.show(&alice, name).expect("there"));
    let states = states.map(|transfer| (transfer.state, transfer.attempt));
    assert_eq!(
        states,
        [(State::Queued, 2), (State::Failed, 1), (State::Done, 1)]
    );
    assert_eq!(queue.retry_failed(BOUNDS).expect("nothing"), 0);
    fail(&queue, "away", ErrorKind::Io);
    assert_eq!(queue.retry_failed(BOUNDS).expect("retried"), 1);
    fail(&queue, "away", ErrorKind::Io);
    assert_eq!(queue.retry_failed(BOUNDS).expect("three attempts"), 0);
}

#[test]
fn a_start_retries_no_transfer_without_its_ticket() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    let mut bare = request("bare");
    for source in &mut bare.sources {
        source.ticket = None;
    }
    queue.submit(by("alice", bare)).expect("taken");
    fail(&queue, "bare", ErrorKind::Io);
    assert_eq!(queue.retry_failed(BOUNDS).expect("nothing"), 0);
}

#[test]
fn a_start_retries_no_transfer_whose_destination_has_a_later_transfer() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    queue.submit(by("alice", request("first"))).expect("taken");
    fail(&queue, "first", ErrorKind::Io);
    queue.submit(by("alice", request("second"))).expect("taken");
    begin(&queue, "second");
    queue.ended(&id("second"), Ending::Done).expect("ended");
    assert_eq!(queue.retry_failed(BOUNDS).expect("nothing"), 0);
}

#[test]
fn transfers_that_are_not_worth_a_try_do_not_hide_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(&folder.path().join("state"));
    queue.submit(by("alice", apart("away"))).expect("taken");
    fail(&queue, "away", ErrorKind::Io);
    // A start looks at the latest failures first.
    for at in 0..1_001 {
        let name = format!("refused{at}");
        queue.submit(by("alice", apart(&name))).expect("taken");
        fail(&queue, &name, ErrorKind::PermissionDenied);
    }
    assert_eq!(queue.retry_failed(BOUNDS).expect("retried"), 1);
    let away = queue.show(&actor("alice"), "away").expect("there");
    assert_eq!((away.state, away.attempt), (State::Queued, 2));
}
