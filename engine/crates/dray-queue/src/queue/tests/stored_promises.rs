//! A promise is stored together with its transfer, and exists once or not at all.

use super::routes::retry;
use super::{actor, begin, by, id, request, route, staging};
use crate::clock;
use crate::events::Hub;
use crate::promises::{Ask, NO_ROOM, SessionProgress};
use crate::queue::{Counters, Ending, FAILURES_MAX, Queue, Settings};
use dray_api::{AdmissionWord, Patch, Request, RetryWish, State};
use dray_core::ErrorKind;
use dray_core::rate::Class;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MEGA: u64 = 1_000_000;

fn open(state: &Path, rate: Option<u64>) -> Arc<Queue> {
    let settings = Settings {
        transfers: 100_000,
        retry: RetryWish {
            tries: 5,
            interval_seconds: 10,
        },
        keep_count: 100_000,
        promises: super::promise_settings(rate),
        ..super::settings(state)
    };
    Queue::open(settings, Arc::new(Hub::new(4, clock::now()))).expect("opened")
}

const RATE: Option<u64> = Some(100 * MEGA);

/// Returns a request that needs `megas` megabytes per second for the next 1 000 seconds.
fn due(name: &str, megas: u64) -> Request {
    Request {
        deadline: Some(clock::now().after(Duration::from_secs(1_001))),
        bytes_expected: Some(megas * 1_000 * MEGA),
        ..request(name)
    }
}

#[test]
fn a_refusal_stores_nothing_and_names_a_possible_promise() {
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
    // The same request again attaches to the transfer, and gets no further promise.
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
        .cancel(&actor("alice"), "one", false)
        .expect("cancelled");
    queue
        .cancel(&actor("alice"), "plain", false)
        .expect("cancelled");
    let all = queue.submit_all(batch(60, 30), true).expect("answered");
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

#[test]
fn promises_survive_a_restart_with_the_remaining_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    queue.submit(by("alice", due("one", 60))).expect("fits");
    let shown = queue.show(&actor("alice"), "one").expect("there");
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
    assert!(queue.show(&actor("alice"), "one").expect("there").promised);
    // Transfer one needs only 5 MB/s after the restart, because most of its bytes are durable.
    queue.submit(by("alice", due("two", 90))).expect("fits");
    let refused = queue
        .submit(by("alice", due("three", 10)))
        .expect_err("too much");
    assert_eq!(refused.kind, ErrorKind::NotAdmitted);
}

#[test]
fn a_transfer_that_ends_or_pauses_loses_its_promise() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
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
fn a_change_requests_a_new_promise_and_an_impossible_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    let before = queue
        .submit(by("alice", due("one", 60)))
        .expect("fits")
        .transfer;
    let patch = |seconds| Patch {
        deadline: Some(Some(clock::now().after(Duration::from_secs(seconds)))),
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
fn a_retry_continues_without_a_promise_that_is_no_longer_possible() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    queue.submit(by("alice", due("one", 60))).expect("fits");
    queue.cancel(&alice, "one", false).expect("cancelled");
    queue.submit(by("alice", due("two", 60))).expect("fits");
    let retried = retry(&queue, &alice, "one").expect("retried");
    assert!(
        !retried.promised && !retried.notices.is_empty(),
        "{retried:?}"
    );
    queue.cancel(&alice, "two", false).expect("cancelled");
    queue.cancel(&alice, "one", false).expect("cancelled");
    assert!(retry(&queue, &alice, "one").expect("retried").promised);
}

#[test]
fn a_transfer_without_a_promise_gets_a_notice_despite_many_other_notices() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    let unknown = Request {
        bytes_expected: None,
        ..due("one", 60)
    };
    queue.submit(by("alice", unknown)).expect("taken");
    let notes = (0..FAILURES_MAX + 2).map(|at| ("one".to_owned(), format!("word {at}")));
    queue.note_all(&mut notes.collect()).expect("written");
    queue.submit(by("alice", due("two", 60))).expect("fits");
    let version = queue.show(&alice, "one").expect("there").version;
    queue.begin(&id("one"), version).expect("asked");
    queue.listed(&id("one"), 60_000 * MEGA).expect("asked");
    let notices = queue.show(&alice, "one").expect("there").notices;
    assert_eq!(notices.len(), FAILURES_MAX);
    assert_eq!(notices.last().map(String::as_str), Some(NO_ROOM));
    // A patch of a running transfer also adds the reason as a notice.
    let size = Patch {
        deadline: Some(None),
        ..Patch::default()
    };
    queue.patch(&alice, "one", &size).expect("taken");
    let soon = Patch {
        deadline: Some(Some(clock::now().after(Duration::from_secs(600)))),
        ..Patch::default()
    };
    let patched = queue.patch(&alice, "one", &soon).expect("taken");
    let last = patched.notices.last().expect("it is told");
    assert!(
        !patched.promised && last.contains("bytes_expected"),
        "{patched:?}"
    );
}

#[test]
fn a_transfer_gets_its_promise_when_its_size_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
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

/// Lets the promises measure a link of 80 megabytes per second.
fn measure(queue: &Queue) {
    for second in 0..4 {
        let seen = SessionProgress {
            session: 1,
            own: None,
            moved: second * 80 * MEGA,
            done: 0,
            listed: None,
            is_hungry: true,
            granted: None,
        };
        let at = clock::now().after(Duration::from_secs(second));
        queue.promises().replan(&[seen], at);
    }
}

#[test]
fn all_transfers_that_wait_for_a_capacity_request_a_promise_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), None);
    let names: Vec<String> = (0..130).map(|number| format!("t{number}")).collect();
    let small = |name: &str| Request {
        bytes_expected: Some(MEGA),
        ..due(name, 1)
    };
    let all = names.iter().map(|name| Ok(by("alice", small(name))));
    queue.submit_all(all.collect(), false).expect("taken");
    let large = queue.submit(by("alice", due("large", 500))).expect("taken");
    assert!(!large.transfer.promised);
    measure(&queue);
    for _ in 0..3 {
        queue.tick(clock::now()).expect("looked");
    }
    let has_none = |name: &&String| !queue.promises().is_promised(name);
    assert_eq!(names.iter().find(has_none), None);
    let large = queue.show(&actor("alice"), "large").expect("there");
    assert!(
        (large.notices.iter()).any(|notice| notice.contains("breaking other promises")),
        "{large:?}"
    );
}

#[test]
fn due_transfers_are_found_behind_many_that_are_not_due() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let late = |number: u64| Request {
        bytes_expected: Some(MEGA),
        ..due(&format!("late{number}"), 1)
    };
    let all = (0..260).map(|number| Ok(by("alice", late(number))));
    let all = queue.submit_all(all.collect(), true).expect("taken");
    assert!(all.iter().all(Result::is_ok));
    let now = Request {
        deadline: Some(clock::now().after(Duration::from_secs(3_000))),
        ..due("now", 1)
    };
    assert!(
        queue
            .submit(by("alice", now))
            .expect("fits")
            .transfer
            .promised
    );
    let over = clock::now().after(Duration::from_secs(1_500));
    queue.promises().replan(&[], over);
    let movers = queue.promises().movers(over);
    let movers: Vec<&str> = movers.iter().map(|one| &*one.id).collect();
    assert_eq!(movers, ["now"]);
    let waiting = |ids: &[&str]| {
        let found = queue.waiting_of(ids.iter().copied()).expect("looked");
        let mut found: Vec<String> = found.into_iter().collect();
        found.sort();
        found.join(" ")
    };
    assert_eq!(waiting(&["now", "late7", "none"]), "late7 now");
    let chosen = queue.waiting("now").expect("looked").expect("waits");
    begin(&queue, "now");
    assert_eq!(waiting(&["now", "late7"]), "late7");
    assert_eq!((chosen.id.as_str(), &*chosen.owner), ("now", "alice"));
    assert_eq!(
        queue.waiting("now").expect("looked").map(|one| one.id),
        None
    );
}

#[test]
fn a_deadline_that_is_set_before_the_files_are_listed_is_promised_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    let taken = queue.submit(by("alice", request("one"))).expect("taken");
    let job = queue
        .begin(&id("one"), taken.transfer.version)
        .expect("asked")
        .expect("begun");
    let mut counters = Counters::default();
    counters.bytes.listed = 60_000 * MEGA;
    counters.files.listing_done = true;
    queue.progress(&job.id, &counters);
    // The counters of the running transfer are not in the database yet.
    let patch = Patch {
        deadline: Some(Some(clock::now().after(Duration::from_secs(1_001)))),
        ..Patch::default()
    };
    let patched = queue.patch(&alice, "one", &patch).expect("taken");
    assert!(patched.promised, "{patched:?}");
    assert!(queue.submit(by("alice", due("two", 60))).is_err());
}

#[test]
fn a_change_of_weight_or_class_requests_no_promise() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    queue.submit(by("alice", due("one", 60))).expect("fits");
    queue.cancel(&alice, "one", false).expect("cancelled");
    queue.submit(by("alice", due("two", 60))).expect("fits");
    // The retried transfer continues without a promise, because no promise is possible now.
    assert!(!retry(&queue, &alice, "one").expect("retried").promised);
    let patch = Patch {
        weight: Some(500),
        class: Some(Some(Class::Realtime)),
        ..Patch::default()
    };
    let patched = queue.patch(&alice, "one", &patch).expect("changed");
    assert_eq!((patched.promised, patched.request.weight), (false, 500));
    let patched = queue.patch(&alice, "two", &patch).expect("changed");
    assert_eq!((patched.promised, patched.request.weight), (true, 500));
}

#[test]
fn a_missed_deadline_is_reported_even_if_the_queue_cannot_write() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    queue.submit(by("alice", due("one", 60))).expect("fits");
    let before = queue.hub().last();
    let (free, busy) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            queue.write(move |_, _| {
                let _ = busy.recv();
                Ok(())
            })
        });
        let is_noted = queue.foretold("one", "alice", "too late", None);
        assert!(!is_noted, "its row has to be written");
        assert_eq!(queue.hub().last(), before + 1);
        free.send(()).expect("waited for");
        assert!(blocked.join().is_ok_and(|written| written.is_ok()));
    });
    let mut notes = vec![("one".to_owned(), "too late".to_owned())];
    queue.note_all(&mut notes).expect("written");
    assert_eq!(notes, []);
    let shown = queue.show(&alice, "one").expect("there");
    assert_eq!(shown.notices, ["too late"]);
}

#[test]
fn a_refused_staging_gets_an_offer_that_can_be_accepted() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    queue.submit(by("alice", due("one", 60))).expect("fits");
    let stage = |wanted: Request| {
        let row = staging::row("two", "alice", "/fast/x");
        queue.submit_staged(by("alice", wanted), row, None)
    };
    let refused = stage(due("two", 60)).expect_err("too much");
    assert_eq!(refused.kind, ErrorKind::NotAdmitted);
    assert!(!refused.cause.is_empty() && !refused.remedy.is_empty());
    let offer = refused.admission.clone().expect("an offer");
    assert!(!queue.is_known(&id("two")).expect("asked"));
    assert!(queue.staging().show(&actor("root"), "two").is_err());
    let again = Request {
        deadline: offer.earliest_finish,
        ..due("two", 60)
    };
    assert!(stage(again).expect("as offered").transfer.promised);
    assert!(queue.staging().show(&actor("root"), "two").is_ok());
}

#[test]
fn a_refused_new_attempt_keeps_the_existing_copy() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let row = || staging::row("s", "alice", "/fast/x");
    let taken = queue.submit_staged(by("alice", due("s", 10)), row(), None);
    assert!(taken.expect("fits").transfer.promised);
    begin(&queue, "s");
    queue.ended(&id("s"), Ending::Done).expect("ended");
    let shown = || queue.staging().show(&actor("root"), "s").expect("there").0;
    let before = shown();
    assert!(before.staged_at.is_some() && before.expires_at.is_some());
    let refused = queue.submit(by("alice", due("s", 1_000)));
    // The row describes a copy that exists. Only a request for the same copy may use its id.
    assert_eq!(refused.expect_err("taken").kind, ErrorKind::AlreadyExists);
    let refused = queue.submit_staged(by("alice", due("s", 1_000)), row(), None);
    assert_eq!(refused.expect_err("too much").kind, ErrorKind::NotAdmitted);
    assert_eq!(shown(), before);
    // A refused request of a batch that is not atomic leaves the row unchanged too.
    let late = Request {
        deadline: Some(clock::now().before(Duration::from_secs(1))),
        ..due("s", 10)
    };
    let batch = vec![Ok(by("alice", late)), Ok(by("alice", due("t", 10)))];
    let taken = queue.submit_all(batch, false).expect("answered");
    assert!(taken[0].is_err() && taken[1].is_ok());
    assert_eq!(shown(), before);
    // The refused transfer has used its sequence number up, so no other transfer gets the number.
    let transfer = queue.show(&actor("alice"), "s").expect("there");
    assert_eq!((transfer.state, transfer.attempt), (State::Done, 1));
}

#[test]
fn after_a_failed_write_only_stored_transfers_have_promises() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    queue.submit(by("alice", due("one", 60))).expect("fits");
    // Create the state that an interrupted write leaves: the broker has a promise without a row.
    let wanted = due("none", 30);
    let route = route(&wanted);
    let ask = Ask {
        key: 1_000,
        id: "none",
        owner: "alice",
        request: &wanted,
        route: &route,
        source: 0,
        bytes: wanted.bytes_stated(),
        done: 0,
    };
    let given = queue.promises().take(&[ask], clock::now()).expect("fits");
    assert!(given[0].promise.is_some());
    queue.set_commands(Arc::new(super::commands::Fails(true.into())));
    assert!(queue.submit(by("alice", request("two"))).is_err());
    queue
        .submit(by("alice", request("three")))
        .expect("goes on");
    let is_promised = |name: &str| queue.promises().is_promised(name);
    assert!(is_promised("one") && !is_promised("none"));
}

#[test]
fn notes_of_a_running_transfer_are_shown_and_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path(), RATE);
    let alice = actor("alice");
    queue.submit(by("alice", due("one", 60))).expect("fits");
    let wanted = Request {
        deadline: None,
        admission: Some(AdmissionWord::BestEffort),
        ..due("two", 60)
    };
    queue.submit(by("alice", wanted)).expect("asks for nothing");
    begin(&queue, "two");
    queue.noticed(&id("two"), "its first word");
    let patch = Patch {
        deadline: Some(due("two", 60).deadline),
        ..Patch::default()
    };
    let patched = queue.patch(&alice, "two", &patch).expect("best effort");
    assert!(!patched.promised);
    let is_told = |notices: &[String]| {
        assert_eq!(notices[0], "its first word", "{notices:?}");
        notices.len() > 1
    };
    let notices = || queue.show(&alice, "two").expect("there").notices;
    assert!(is_told(&patched.notices) && is_told(&notices()));
    let before = notices();
    queue.ended(&id("two"), Ending::Incomplete).expect("ended");
    assert_eq!(notices(), before);
}
