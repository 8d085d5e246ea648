//! Tests of the ends of sessions: retries and counters.

use super::routes::retry;
use super::{actor, begin, broken, by, candidates, id, lost, open, queue, request};
use crate::clock;
use crate::queue::{ByKind, Counters, Ending};
use dray_api::State;
use dray_core::{End, Error, ErrorKind, RelPath};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn a_session_without_a_place_is_retried_without_limit() {
    let queue = queue();
    let alice = actor("alice");
    let full = Ending::TurnedAway {
        error: Error::new(ErrorKind::NoPlace, End::Sink, "begin a session"),
        source: None,
    };
    let tries = |name: &str, ending: &Ending| {
        begin(&queue, name);
        queue.ended(&id(name), ending.clone()).expect("written");
        let soon = clock::now().after(Duration::from_secs(3_600));
        queue.tick(soon).expect("looked after");
        queue.show(&alice, name).expect("there").state
    };
    for name in ["there", "two", "once"] {
        let mut wanted = request(name);
        if name == "once" {
            wanted.retry = Some(dray_api::RetryWish {
                tries: 0,
                interval_seconds: 1,
            });
        }
        queue.submit(by("alice", wanted)).expect("taken");
    }
    for _ in 0..15 {
        assert_eq!(tries("there", &full), State::Queued);
    }
    // A refusal for lack of a slot also does not count towards the tries after later breaks.
    assert_eq!(tries("there", &broken(false)), State::Queued);
    assert_eq!(tries("there", &broken(false)), State::Failed);
    // A request without retries fails, even if the other end only had no free slot.
    assert_eq!(tries("once", &full), State::Failed);
    // With several replicas, the next session reads the next one.
    let next = Ending::TurnedAway {
        error: Error::new(ErrorKind::NoPlace, End::Source, "begin a session"),
        source: Some(1),
    };
    assert_eq!(tries("two", &next), State::Queued);
    assert_eq!(begin(&queue, "two").source, 1);
}

#[test]
fn a_transfer_is_interrupted_until_a_session_moves_data() {
    let queue = queue();
    let alice = actor("alice");
    let shown = || queue.show(&alice, "t").expect("there");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    assert_eq!(shown().interrupted_since, None);
    queue.ended(&id("t"), broken(true)).expect("ended");
    let waiting = shown();
    let since = waiting.interrupted_since.expect("a session broke off");
    let error = waiting.error.expect("the cause");
    assert!(
        error.remedy.contains("tries again automatically"),
        "{error:?}"
    );
    let soon = clock::now().after(Duration::from_secs(3_600));
    queue.tick(soon).expect("looked after");
    begin(&queue, "t");
    // The new session has not reached the other end yet, and breaks off later.
    queue.progress(&id("t"), &Counters::default());
    assert_eq!(shown().interrupted_since, Some(since));
    let mut moved = Counters::default();
    moved.bytes.sent = 1;
    queue.progress(&id("t"), &moved);
    assert_eq!(shown().interrupted_since, None);
    queue.ended(&id("t"), Ending::Done).expect("ended");
    assert_eq!(shown().interrupted_since, None);
}

#[test]
fn a_broken_transfer_waits_and_fails_after_its_retries() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    let state = queue.ended(&id("t"), broken(false)).expect("ended");
    assert_eq!(state, Some(State::Waiting));
    let shown = queue.show(&alice, "t").expect("there");
    let next = shown.next_try_at.expect("a time");
    assert!(shown.error.is_some());
    assert_eq!(queue.tick(clock::now()).expect("ticked").due, 0);
    assert!(candidates::all(&queue).is_empty());
    assert_eq!(queue.tick(next).expect("ticked").due, 1);
    let runnable = candidates::all(&queue);
    assert_eq!(runnable.len(), 1);
    assert!(
        queue.begin(&id("t"), 1).expect("asked").is_none(),
        "an old version"
    );
    let job = queue
        .begin(&id("t"), runnable[0].version)
        .expect("asked")
        .expect("queued");
    assert_eq!(job.session % 1_000, 2);
    assert!(queue.begin(&id("t"), job.version).expect("asked").is_none());
    let state = queue.ended(&id("t"), broken(false)).expect("ended");
    assert_eq!(state, Some(State::Failed));
    let failed = queue.show(&alice, "t").expect("there");
    assert_eq!(failed.error.expect("why").status, "exhausted");
    assert!(failed.ended_at.is_some() && failed.next_try_at.is_none());
    assert_eq!(queue.ended(&id("t"), Ending::Done).expect("asked"), None);
    let retried = retry(&queue, &alice, "t").expect("retried");
    assert_eq!((retried.attempt, retried.state), (2, State::Queued));
}

#[test]
fn counters_of_sessions_add_up_and_survive() {
    let folder = tempfile::tempdir().expect("a folder");
    let alice = actor("alice");
    let queue = open(folder.path());
    queue.submit(by("alice", request("t"))).expect("taken");
    let job = begin(&queue, "t");
    let mut counters = Counters::default();
    (
        counters.bytes.sent,
        counters.bytes.durable,
        counters.bytes.resumed,
        counters.bytes.read_back,
    ) = (100, 90, 10, 10);
    queue.progress(&job.id, &counters);
    queue.file_failed(&job.id, &RelPath::parse(b"a%\xff").expect("good"), &lost());
    for at in 0..20 {
        queue.noticed(&job.id, &format!("notice {at}"));
    }
    let shown = queue.show(&alice, "t").expect("there");
    assert_eq!(shown.bytes.sent, 100);
    assert_eq!(shown.failures[0].path, "a%25%FF");
    assert_eq!(shown.notices.len(), 10);
    queue.ended(&job.id, Ending::Stopped).expect("ended");
    let job = begin(&queue, "t");
    (
        counters.bytes.sent,
        counters.bytes.durable,
        counters.bytes.resumed,
        counters.bytes.read_back,
    ) = (50, 140, 90, 90);
    queue.progress(&job.id, &counters);
    let bytes = queue.show(&alice, "t").expect("there").bytes;
    assert_eq!((bytes.sent, bytes.durable, bytes.resumed), (150, 140, 10));
    assert_eq!(bytes.read_back, 100);
    queue.ended(&job.id, Ending::Done).expect("ended");
    drop(queue);
    let shown = open(folder.path()).show(&alice, "t").expect("there");
    assert_eq!((shown.state, shown.bytes.sent), (State::Done, 150));
    assert_eq!(shown.notices[9], "notice 19");
}

#[test]
fn counters_never_decrease() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    let job = begin(&queue, "t");
    let mut counters = Counters::default();
    (counters.bytes.sent, counters.bytes.durable) = (100, 90);
    (counters.files.listed, counters.files.done) = (5, 3);
    queue.progress(&job.id, &counters);
    queue.ended(&job.id, Ending::Stopped).expect("ended");
    // A session that ends early has not found the durable data of earlier sessions again.
    let job = begin(&queue, "t");
    queue.progress(&job.id, &Counters::default());
    let shown = queue.show(&alice, "t").expect("there");
    assert_eq!((shown.bytes.durable, shown.files.done), (90, 3));
    assert_eq!(shown.files.listed, 5);
    queue.ended(&job.id, Ending::Incomplete).expect("ended");
    assert_eq!(queue.bytes_sent(), 100);
    retry(&queue, &alice, "t").expect("retried");
    assert_eq!(queue.bytes_sent(), 100);
    let job = begin(&queue, "t");
    (counters.bytes.sent, counters.bytes.durable) = (7, 97);
    queue.progress(&job.id, &counters);
    queue.ended(&job.id, Ending::Done).expect("ended");
    assert_eq!(queue.bytes_sent(), 107);
    queue.delete(&alice, "t").expect("forgotten");
    assert_eq!(queue.bytes_sent(), 107);
}

/// Returns the counters of a session that has listed three files with 30 bytes each.
fn listed(files_done: u64, sent: u64, durable: u64) -> Counters {
    let mut counters = Counters::default();
    (counters.files.listed, counters.files.listing_done) = (3, true);
    (counters.files.done, counters.files.failed) = (files_done, 3 - files_done);
    (counters.bytes.listed, counters.bytes.sent) = (90, sent);
    counters.bytes.durable = durable;
    counters
}

#[test]
fn the_last_session_decides_the_durable_bytes_of_an_ended_attempt() {
    let alice = actor("alice");
    let whole = Ending::Broken {
        error: lost(),
        has_progressed: false,
        is_whole: true,
        source: None,
    };
    for (ending, done, durable) in [
        (Ending::Incomplete, 2, 60),
        (Ending::Failed(lost()), 2, 60),
        (whole, 2, 60),
        (broken(false), 3, 90),
        (Ending::Stopped, 3, 90),
    ] {
        let queue = queue();
        let mut once = request("t");
        once.retry = Some(dray_api::RetryWish {
            tries: 0,
            interval_seconds: 1,
        });
        queue.submit(by("alice", once)).expect("taken");
        begin(&queue, "t");
        queue.progress(&id("t"), &listed(3, 90, 90));
        queue.ended(&id("t"), Ending::Stopped).expect("ended");
        // The second session finds that one file is lost, and cannot write the file again.
        begin(&queue, "t");
        let mut second = listed(2, 15, 60);
        second.bytes.resumed = 60;
        queue.progress(&id("t"), &second);
        let live = queue.show(&alice, "t").expect("there");
        assert_eq!((live.files.done, live.bytes.durable), (3, 90));
        queue.ended(&id("t"), ending.clone()).expect("ended");
        let shown = queue.show(&alice, "t").expect("there");
        assert_eq!(
            (shown.files.done, shown.bytes.durable),
            (done, durable),
            "{ending:?}"
        );
        assert_eq!((shown.files.listed, shown.bytes.sent), (3, 105));
    }
}

#[test]
fn files_of_an_earlier_session_that_are_skipped_count_as_done() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    // One file exists before the attempt, and `overwrite: never` skips it.
    let session = |listing_done: bool, done: u64, skipped: u64| {
        let mut counters = Counters::default();
        (counters.files.listed, counters.files.listing_done) = (6, listing_done);
        (counters.files.done, counters.files.skipped) = (done, skipped);
        counters
    };
    let files = || {
        let shown = queue.show(&alice, "t").expect("there").files;
        (shown.done, shown.skipped)
    };
    begin(&queue, "t");
    queue.progress(&id("t"), &session(false, 3, 1));
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    begin(&queue, "t");
    queue.progress(&id("t"), &session(false, 0, 2));
    assert_eq!(files(), (3, 1));
    queue.progress(&id("t"), &session(false, 1, 4));
    assert_eq!(files(), (4, 1));
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    begin(&queue, "t");
    queue.progress(&id("t"), &session(true, 1, 5));
    assert_eq!(files(), (5, 1));
    queue.ended(&id("t"), Ending::Done).expect("ended");
    assert_eq!(files(), (5, 1));
}

#[test]
fn bytes_that_were_lost_and_sent_again_count_as_sent_again() {
    let queue = queue();
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    queue.progress(&id("t"), &listed(3, 120, 120));
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    begin(&queue, "t");
    let mut second = listed(3, 30, 90);
    second.bytes.resumed = 60;
    queue.progress(&id("t"), &second);
    queue.ended(&id("t"), Ending::Done).expect("ended");
    let tally = queue.tally();
    assert_eq!(tally.bytes_resent.load(Ordering::Relaxed), 60);
}

#[test]
fn endings_are_counted_by_state_and_kind() {
    let queue = queue();
    let alice = actor("alice");
    let count = |kind: ErrorKind, counts: &ByKind| {
        let mut all = counts.iter();
        all.find(|(other, _)| *other == kind)
            .map(|(_, count)| count)
    };
    let ended = || -> Vec<u64> { queue.tally().ended().map(|(_, count)| count).collect() };
    queue.submit(by("alice", request("t"))).expect("taken");
    let job = begin(&queue, "t");
    let mut counters = Counters::default();
    (counters.bytes.sent, counters.bytes.durable) = (100, 60);
    queue.progress(&job.id, &counters);
    let state = queue.ended(&job.id, broken(true)).expect("ended");
    assert_eq!(state, Some(State::Waiting));
    let tally = queue.tally();
    assert_eq!(
        count(ErrorKind::Unreachable, &tally.sessions_failed),
        Some(1)
    );
    assert_eq!(tally.retries.load(Ordering::Relaxed), 1);
    assert_eq!(ended(), [0; 4]);
    queue.cancel(&alice, "t", false).expect("cancelled");
    // A second cancellation ends nothing.
    let _ = queue.cancel(&alice, "t", false);
    assert_eq!(ended(), [0, 0, 0, 1]);
    retry(&queue, &alice, "t").expect("retried");
    let job = begin(&queue, "t");
    let path = RelPath::parse(b"a").expect("a path");
    let error = Error::new(ErrorKind::ChecksumMismatch, End::Sink, "verify the file");
    queue.file_failed(&job.id, &path, &error);
    assert_eq!(
        count(ErrorKind::ChecksumMismatch, &tally.files_failed),
        Some(1)
    );
    assert_eq!(
        count(ErrorKind::ChecksumMismatch, &tally.sessions_failed),
        Some(0)
    );
    (counters.bytes.sent, counters.bytes.durable) = (70, 100);
    counters.bytes.resumed = 60;
    queue.progress(&job.id, &counters);
    queue.ended(&job.id, Ending::Done).expect("ended");
    // 40 bytes were missing, and 70 were sent.
    assert_eq!(tally.bytes_resent.load(Ordering::Relaxed), 30);
    assert_eq!(ended(), [1, 0, 0, 1]);
}
