//! Promises stand beside the transfers they were made to, and are there once or not at all.

use super::{by, id, request, who};
use crate::api::types::{Patch, Request, State};
use crate::config::Config;
use crate::events::Hub;
use crate::moment::Moment;
use crate::queue::{Counters, Ending, Queue};
use dray_core::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MEGA: u64 = 1_000_000;

fn open(state: &Path, rate: &str) -> Arc<Queue> {
    let text = format!(
        "name = \"a.example\"\nstate = {state:?}\n{rate}\n\
         [[root]]\nname = \"data\"\npath = \"/data\"\n"
    );
    let config = Config::parse("test", &text).expect("good");
    Queue::open(&config, Arc::new(Hub::new(4, Moment::now()))).expect("opened")
}

const RATE: &str = "rate = \"100MB/s\"";

/// Needs `megas` megabytes per second for the next 1 000 seconds.
fn due(name: &str, megas: u64) -> Request {
    Request {
        deadline: Some(Moment::now().after(Duration::from_secs(1_001))),
        bytes_expected: Some(megas * 1_000 * MEGA),
        ..request(name)
    }
}

#[test]
fn a_refusal_leaves_nothing_and_says_what_could_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let taken = queue.submit(by("alice", due("one", 60))).expect("fits");
    assert!(taken.transfer.promised);
    let refused = queue
        .submit(by("alice", due("two", 60)))
        .expect_err("too much");
    assert_eq!(refused.kind, ErrorKind::NotAdmitted);
    let offer = refused.admission.clone().expect("an offer");
    assert!(!queue.is_known(&id("two")).expect("asked"));
    let earliest = offer.earliest_finish.expect("offered");
    let again = Request {
        deadline: Some(earliest),
        ..due("two", 60)
    };
    let taken = queue.submit(by("alice", again)).expect("as offered");
    assert!(taken.transfer.promised);
    // The same again is the same, and asks for nothing more.
    let again = queue
        .submit(by("alice", taken.transfer.request))
        .expect("attached");
    assert!(!again.is_new && again.transfer.promised);
    let count = queue.promises().counts.refused.load(Ordering::Relaxed);
    assert_eq!(count, 1);
}

#[test]
fn an_atomic_batch_is_a_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let batch = |first, second| {
        vec![
            Ok(by("alice", due("one", first))),
            Ok(by("alice", request("plain"))),
            Ok(by("alice", due("two", second))),
        ]
    };
    let none = queue.submit_all(batch(60, 60), true).expect("answered");
    let kinds = none
        .iter()
        .map(|one| one.as_ref().err().map(|error| error.kind));
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(
        kinds,
        [
            Some(ErrorKind::Cancelled),
            Some(ErrorKind::Cancelled),
            Some(ErrorKind::NotAdmitted)
        ]
    );
    for name in ["one", "plain", "two"] {
        assert!(!queue.is_known(&id(name)).expect("asked"), "{name}");
        assert!(!queue.promises().is_promised(name), "{name}");
    }
    let some = queue.submit_all(batch(60, 60), false).expect("answered");
    let taken: Vec<bool> = some.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [true, true, false]);
    queue
        .cancel(&who("alice"), "one", false)
        .expect("cancelled");
    queue
        .cancel(&who("alice"), "plain", false)
        .expect("cancelled");
    let all = queue.submit_all(batch(60, 30), true).expect("answered");
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

#[test]
fn promises_are_there_again_after_a_restart_with_what_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    queue.submit(by("alice", due("one", 60))).expect("fits");
    let shown = queue.show(&who("alice"), "one").expect("there");
    let job = queue
        .begin(&id("one"), shown.version)
        .expect("asked")
        .expect("begun");
    let mut counters = Counters::default();
    counters.bytes.durable = 55_000 * MEGA;
    queue.progress(&job.id, &counters);
    queue.ended(&job.id, Ending::Stopped).expect("noted");
    drop(queue);
    let queue = open(folder.path(), RATE);
    assert!(queue.show(&who("alice"), "one").expect("there").promised);
    // Only 5 MB/s of it are still needed.
    queue.submit(by("alice", due("two", 90))).expect("fits");
    let refused = queue
        .submit(by("alice", due("three", 10)))
        .expect_err("too much");
    assert_eq!(refused.kind, ErrorKind::NotAdmitted);
}

#[test]
fn what_ends_or_pauses_gives_its_promise_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = who("alice");
    queue.submit(by("alice", due("one", 60))).expect("fits");
    assert!(queue.submit(by("alice", due("two", 60))).is_err());
    assert!(!queue.pause(&alice, "one").expect("paused").promised);
    queue.submit(by("alice", due("two", 60))).expect("fits now");
    let resumed = queue.resume(&alice, "one").expect("goes on");
    assert!(!resumed.promised && resumed.state == State::Queued);
    assert!(resumed.notices[0].contains("not promised"), "{resumed:?}");
    let version = queue.show(&alice, "two").expect("there").version;
    queue
        .begin(&id("two"), version)
        .expect("asked")
        .expect("begun");
    queue.ended(&id("two"), Ending::Done).expect("noted");
    assert_eq!(queue.promises().counts.kept.load(Ordering::Relaxed), 1);
    queue
        .submit(by("alice", due("three", 90)))
        .expect("room again");
    drop(queue);
    let queue = open(folder.path(), RATE);
    let promised = |name| queue.promises().is_promised(name);
    assert_eq!(
        (promised("one"), promised("two"), promised("three")),
        (false, false, true)
    );
}

#[test]
fn a_change_is_asked_for_and_what_cannot_be_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = who("alice");
    let before = queue
        .submit(by("alice", due("one", 60)))
        .expect("fits")
        .transfer;
    let patch = |seconds| Patch {
        deadline: Some(Some(Moment::now().after(Duration::from_secs(seconds)))),
        ..Patch::default()
    };
    let refused = queue
        .patch(&alice, "one", &patch(300))
        .expect_err("200 MB/s");
    assert_eq!(refused.kind, ErrorKind::NotAdmitted);
    assert!(refused.admission.is_some());
    let after = queue.show(&alice, "one").expect("there");
    assert_eq!(
        (after.request.deadline, after.version),
        (before.request.deadline, before.version)
    );
    assert!(after.promised);
    assert!(
        queue.submit(by("alice", due("two", 60))).is_err(),
        "still held"
    );
    assert!(
        queue
            .patch(&alice, "one", &patch(2_001))
            .expect("fits")
            .promised
    );
    queue
        .submit(by("alice", due("two", 60)))
        .expect("room by now");
    let none = Patch {
        deadline: Some(None),
        ..Patch::default()
    };
    assert!(!queue.patch(&alice, "one", &none).expect("fits").promised);
}

#[test]
fn a_retry_goes_on_without_what_cannot_be_promised_any_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = who("alice");
    queue.submit(by("alice", due("one", 60))).expect("fits");
    queue.cancel(&alice, "one", false).expect("cancelled");
    queue.submit(by("alice", due("two", 60))).expect("fits");
    let retried = queue.retry(&alice, "one").expect("retried");
    assert!(
        !retried.promised && !retried.notices.is_empty(),
        "{retried:?}"
    );
    queue.cancel(&alice, "two", false).expect("cancelled");
    queue.cancel(&alice, "one", false).expect("cancelled");
    assert!(queue.retry(&alice, "one").expect("retried").promised);
}

#[test]
fn a_size_that_becomes_known_is_promised() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = who("alice");
    let unknown = Request {
        bytes_expected: None,
        ..due("one", 60)
    };
    let taken = queue.submit(by("alice", unknown)).expect("taken").transfer;
    assert!(
        !taken.promised && taken.notices[0].contains("bytes_expected"),
        "{taken:?}"
    );
    let job = queue
        .begin(&id("one"), taken.version)
        .expect("asked")
        .expect("begun");
    queue.listed(&job.id, 60_000 * MEGA).expect("asked");
    assert!(queue.show(&alice, "one").expect("there").promised);
    assert!(queue.submit(by("alice", due("two", 60))).is_err());
}
