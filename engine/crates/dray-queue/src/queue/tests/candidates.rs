//! Candidates are found in every line, however long the other lines are.

use super::{actor, by, id, open, queue, request};
use crate::clock;
use crate::queue::{CandidateQuery, Counters, Ending, Queue, QueuedTransfer};
use dray_api::Timestamp;
use dray_api::{Patch, Request};
use dray_core::rate::Class;
use dray_sched::policy::Lines;
use serde_json::json;
use std::time::Duration;

const WIDE: CandidateQuery<'_> = CandidateQuery {
    lines: Lines::Deadlines,
    per_line: 10,
    oldest: 0,
    transfers_max: 1_000,
    from: "",
};

pub(super) fn all(queue: &Queue) -> Vec<QueuedTransfer> {
    queue.runnable(WIDE).expect("read").0
}

fn ids(seen: &[QueuedTransfer]) -> String {
    let ids: Vec<_> = seen.iter().map(|one| one.id.as_str()).collect();
    ids.join(" ")
}

fn with(id: &str, change: impl FnOnce(&mut Request)) -> Request {
    let mut request = request(id);
    change(&mut request);
    request
}

#[test]
fn a_long_line_hides_neither_other_owners_nor_what_is_more_urgent() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = super::settings(folder.path());
    settings.transfers = 10_000;
    settings.promises.transfers_max = 10_000;
    let hub = std::sync::Arc::new(crate::events::Hub::new(4, clock::now()));
    let queue = Queue::open(settings, hub).expect("opened");
    let many = (0..5_000).map(|at| Ok(by("alice", request(&format!("a{at}")))));
    let taken = queue.submit_all(many.collect(), false).expect("taken");
    assert!(taken.iter().all(Result::is_ok));
    queue.submit(by("bob", request("bobs"))).expect("taken");
    let urgent = with("urgent", |one| one.class = Some(Class::Realtime));
    queue.submit(by("alice", urgent)).expect("taken");
    let first = with("first", |one| one.priority = 9);
    queue.submit(by("alice", first)).expect("taken");
    let sight = CandidateQuery {
        per_line: 3,
        ..WIDE
    };
    let (seen, next) = queue.runnable(sight).expect("read");
    assert_eq!(ids(&seen), "urgent first a0 a1 a2 bobs");
    assert_eq!(next, None);
}

#[test]
fn what_waits_says_since_when_it_could_have_begun() {
    let queue = queue();
    let before = clock::now();
    queue.submit(by("alice", request("plain"))).expect("taken");
    // An hour ahead, so that the time stays in the future until the test passes a later time to
    // `tick`.
    let soon = before.after(Duration::from_secs(3_600));
    let later = with("later", |one| one.not_before = Some(soon));
    queue.submit(by("alice", later)).expect("taken");
    let past = with("past", |one| one.not_before = Some(Timestamp::from_ms(1)));
    queue.submit(by("alice", past)).expect("taken");
    let after = clock::now();
    let then = soon.after(Duration::from_millis(1));
    queue.tick(then).expect("looked after");
    let seen = all(&queue);
    assert_eq!(ids(&seen), "plain later past");
    assert!(before <= seen[0].waits_since && seen[0].waits_since <= after);
    assert_eq!(seen[1].waits_since, soon);
    // A transfer whose `not_before` is in the past waits since its submission.
    assert!(before <= seen[2].waits_since && seen[2].waits_since <= after);
}

#[test]
fn a_line_stands_in_the_order_of_deadlines_then_of_submission() {
    let queue = queue();
    let soon = clock::now().after(Duration::from_secs(60));
    let later = soon.after(Duration::from_millis(1));
    let due = |at: Timestamp| {
        move |one: &mut Request| {
            one.class = Some(Class::Background);
            one.deadline = Some(at);
        }
    };
    for one in [
        request("c"),
        with("b", due(later)),
        request("d"),
        with("a", due(soon)),
    ] {
        queue.submit(by("alice", one)).expect("taken");
    }
    assert_eq!(ids(&all(&queue)), "a b c d");
    assert_eq!(all(&queue)[0].deadline, Some(soon));
    // A patched priority changes the order of the candidates.
    let patch: Patch = serde_json::from_value(json!({"priority": 4})).expect("good");
    queue.patch(&actor("alice"), "d", &patch).expect("changed");
    assert_eq!(ids(&all(&queue)), "d a b c");
    super::begin(&queue, "d");
    queue.pause(&actor("alice"), "b").expect("paused");
    assert_eq!(ids(&all(&queue)), "a c");
}

#[test]
fn whose_time_has_not_come_stands_in_no_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    let then = clock::now().after(Duration::from_secs(3_600));
    let held = with("held", |one| one.not_before = Some(then));
    queue.submit(by("alice", held)).expect("taken");
    queue.submit(by("alice", request("now"))).expect("taken");
    queue.tick(clock::now()).expect("ticked");
    assert_eq!(ids(&all(&queue)), "now");
    drop(queue);
    let queue = open(folder.path());
    queue.requeue_interrupted().expect("taken up");
    assert_eq!(ids(&all(&queue)), "now");
    queue
        .tick(then.before(Duration::from_millis(1)))
        .expect("ticked");
    assert_eq!(ids(&all(&queue)), "now");
    queue.tick(then).expect("ticked");
    assert_eq!(ids(&all(&queue)), "held now");
    assert_eq!(
        queue
            .request(&id("held"))
            .expect("read")
            .map(|one| one.not_before),
        Some(Some(then))
    );
}

#[test]
fn more_owners_than_are_looked_at_take_turns_in_being_seen() {
    let queue = queue();
    for owner in ["a", "b", "c", "d", "e"] {
        for at in 0..3 {
            let one = request(&format!("{owner}{at}"));
            queue.submit(by(owner, one)).expect("taken");
        }
    }
    let mut from = String::new();
    let mut looks = Vec::new();
    for _ in 0..4 {
        let sight = CandidateQuery {
            per_line: 1,
            transfers_max: 2,
            from: &from,
            ..WIDE
        };
        let (seen, next) = queue.runnable(sight).expect("read");
        looks.push(ids(&seen));
        from = next.expect("more");
    }
    assert_eq!(looks, ["a0 b0", "c0 d0", "e0 a0", "b0 c0"]);
    let sight = CandidateQuery {
        from: "c",
        per_line: 1,
        ..WIDE
    };
    let (seen, next) = queue.runnable(sight).expect("read");
    assert_eq!((ids(&seen).as_str(), next), ("c0 d0 e0 a0 b0", None));
}

fn of(queue: &Queue, lines: Lines, per_line: u32) -> String {
    let sight = CandidateQuery {
        lines,
        per_line,
        ..WIDE
    };
    ids(&queue.runnable(sight).expect("read").0)
}

#[test]
fn each_activity_each_age_and_each_pair_has_a_front() {
    let queue = queue();
    let soon = clock::now().after(Duration::from_secs(60));
    let place = |id: &str, source: &str, destination: &str| {
        with(id, |one| {
            source.clone_into(&mut one.sources[0].url);
            destination.clone_into(&mut one.destination.url);
        })
    };
    for at in 0..3 {
        queue
            .submit(by("alice", request(&format!("b{at}"))))
            .expect("taken");
    }
    let due = with("due", |one| {
        one.class = Some(Class::Background);
        one.deadline = Some(soon);
    });
    queue.submit(by("alice", due)).expect("taken");
    let other = with("tape", |one| one.activity = Some("tape".to_owned()));
    queue.submit(by("alice", other)).expect("taken");
    let push = place("push", "/data/x", "dray://c.example:4735/data/y");
    queue.submit(by("alice", push)).expect("taken");
    let copy = place("copy", "/data/x", "/data/z");
    queue.submit(by("bob", copy)).expect("taken");
    let mut same = by("bob", place("same", "dray://b.example/data/x", "/data/z"));
    // The host is also recognized in a URL without a path.
    "dray://b.example".clone_into(&mut same.request.sources[0].url);
    queue.submit(same).expect("taken");
    assert_eq!(of(&queue, Lines::Deadlines, 1), "due tape copy");
    assert_eq!(of(&queue, Lines::Ages, 1), "b0 copy");
    assert_eq!(of(&queue, Lines::Ages, 2), "b0 b1 copy same");
    // The lines are pairs of endpoints: within this endpoint, to c, and from b.
    assert_eq!(of(&queue, Lines::Pairs, 1), "copy push b0 same");
    let sight = CandidateQuery {
        per_line: 1,
        oldest: 3,
        ..WIDE
    };
    let seen = queue.runnable(sight).expect("read").0;
    assert_eq!(ids(&seen), "due tape copy b0 b1 b2");
    assert_eq!(
        (seen[1].activity.as_str(), seen[1].has_run),
        ("tape", false)
    );
}

#[test]
fn what_runs_again_knows_what_it_has_sent() {
    let queue = queue();
    queue.submit(by("alice", request("t"))).expect("taken");
    super::begin(&queue, "t");
    let mut counters = Counters::default();
    counters.bytes.sent = 12;
    queue.progress(&id("t"), &counters);
    queue.ended(&id("t"), Ending::Stopped).expect("written");
    let seen = all(&queue);
    assert_eq!((seen[0].sent, seen[0].has_run), (12, true));
}
