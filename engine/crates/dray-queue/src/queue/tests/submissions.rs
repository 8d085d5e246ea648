//! Tests of submissions: attaching, batches, places and limits.

use super::routes::retry;
use super::{actor, begin, by, id, lost, queue, request, settings};
use crate::clock;
use crate::events::Hub;
use crate::queue::{Ending, Queue};
use dray_api::{Patch, State};
use dray_core::ErrorKind;
use serde_json::json;
use std::sync::Arc;

#[test]
fn resubmission_attaches_or_starts_an_attempt_or_is_refused() {
    let queue = queue();
    let alice = actor("alice");
    let first = queue.submit(by("alice", request("t"))).expect("taken");
    assert!(first.is_new && !first.transfer.attached);
    assert_eq!((first.transfer.attempt, first.transfer.version), (1, 1));

    // The same request with a newer ticket, submitted while the transfer runs, attaches to the
    // transfer.
    let mut renewed = request("t");
    renewed.sources[0].ticket = Some("drt_two".into());
    let again = queue.submit(by("alice", renewed)).expect("taken");
    assert!(!again.is_new && again.transfer.attached);
    assert_eq!(again.transfer.attempt, 1);
    let shown = serde_json::to_string(&again.transfer).expect("JSON");
    assert!(!shown.contains("drt_"), "{shown}");
    let job = begin(&queue, "t");
    assert_eq!(job.request.sources[0].ticket.as_deref(), Some("drt_two"));

    // A different request and a request of another owner are refused.
    let mut other = request("t");
    other.verify = true;
    let error = queue.submit(by("alice", other.clone())).expect_err("other");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    let error = queue.submit(by("bob", request("t"))).expect_err("bob's");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    assert!(!error.to_string().contains("alice") && !error.to_string().contains("active"));
    let error = queue.show(&actor("bob"), "t").expect_err("hidden");
    assert_eq!(error.kind, ErrorKind::NotFound);

    // After the transfer has ended, the same submission begins a new attempt.
    queue.ended(&id("t"), Ending::Incomplete).expect("ended");
    let error = queue.submit(by("bob", other.clone())).expect_err("bob's");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    let anew = queue.submit(by("alice", other)).expect("taken");
    assert!(anew.is_new && anew.transfer.request.verify);
    assert_eq!(
        (anew.transfer.attempt, anew.transfer.state),
        (2, State::Queued)
    );
    assert!(anew.transfer.version > again.transfer.version);
    let shown = queue.show(&alice, "t").expect("there");
    assert_eq!(shown.tries, 0);
    assert!(shown.ended_at.is_none() && shown.error.is_none());
}

#[test]
fn a_patched_transfer_is_still_the_same_request() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    let patch: Patch =
        serde_json::from_value(json!({"priority": 9, "rate_max": 5, "labels": {"a": "b"}}))
            .expect("good");
    let changed = queue.patch(&alice, "t", &patch).expect("changed");
    assert_eq!(changed.request.priority, 9);
    assert_eq!(changed.version, 2);
    let same = queue.patch(&alice, "t", &patch).expect("nothing to do");
    assert_eq!(same.version, 2);
    let back: Patch = serde_json::from_value(json!({"rate_max": null})).expect("good");
    let changed = queue.patch(&alice, "t", &back).expect("changed");
    assert_eq!(changed.request.rate_max, None);
    assert!(
        !queue
            .submit(by("alice", request("t")))
            .expect("taken")
            .is_new
    );
    let bad: Patch = serde_json::from_value(json!({"rate_min": 7, "rate_max": 6})).expect("read");
    assert!(queue.patch(&alice, "t", &bad).is_err());
}

#[test]
fn an_atomic_batch_is_taken_whole_or_not_at_all() {
    let queue = queue();
    queue.submit(by("bob", request("taken"))).expect("taken");
    let batch = || {
        vec![
            Ok(by("alice", request("one"))),
            Ok(by("alice", request("taken"))),
            Err(lost()),
        ]
    };
    let none = queue.submit_all(batch(), true).expect("answered");
    let kinds: Vec<_> = none
        .iter()
        .map(|one| one.as_ref().expect_err("none").kind)
        .collect();
    assert_eq!(
        kinds,
        [
            ErrorKind::Cancelled,
            ErrorKind::AlreadyExists,
            ErrorKind::Unreachable
        ]
    );
    assert!(queue.show(&actor("alice"), "one").is_err());
    let some = queue.submit_all(batch(), false).expect("answered");
    assert!(some[0].is_ok() && some[1].is_err() && some[2].is_err());
    assert!(queue.show(&actor("alice"), "one").is_ok());
}

#[test]
fn a_full_queue_is_busy_but_attaches_to_known_transfers() {
    let queue = queue();
    let many = (0..2000).map(|at| Ok(by("alice", request(&format!("t{at}")))));
    let taken = queue.submit_all(many.collect(), false).expect("answered");
    assert!(taken.iter().all(Result::is_ok));
    let error = queue
        .submit(by("alice", request("more")))
        .expect_err("full");
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(queue.submit(by("alice", request("t7"))).is_ok(), "attached");
}

#[test]
fn a_refused_attempt_takes_no_place_in_the_queue() {
    let queue = queue();
    queue.submit(by("alice", request("purged"))).expect("taken");
    begin(&queue, "purged");
    queue
        .ended(&id("purged"), Ending::Failed(lost()))
        .expect("ended");
    queue
        .cancel(&actor("alice"), "purged", true)
        .expect("asked");
    let many = (0..1999).map(|at| Ok(by("alice", request(&format!("t{at}")))));
    let taken = queue.submit_all(many.collect(), false).expect("answered");
    assert!(taken.iter().all(Result::is_ok));
    let batch = vec![
        Ok(by("alice", request("purged"))),
        Ok(by("alice", request("last"))),
        Ok(by("alice", request("more"))),
    ];
    let taken = queue.submit_all(batch, false).expect("answered");
    let kinds = taken
        .iter()
        .map(|one| one.as_ref().err().map(|error| error.kind));
    let kinds: Vec<_> = kinds.collect();
    assert_eq!(
        kinds,
        [Some(ErrorKind::AlreadyExists), None, Some(ErrorKind::Busy)]
    );
    queue
        .cancel(&actor("alice"), "t7", false)
        .expect("cancelled");
    queue.submit(by("alice", request("more"))).expect("taken");
    let full = retry(&queue, &actor("alice"), "t7").expect_err("full");
    assert!(
        full.to_string().contains("try the transfer again"),
        "{full}"
    );
}

#[test]
fn transfers_and_tickets_of_an_owner_are_limited() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = settings(folder.path());
    settings.transfers_of_owner = 3;
    settings.tickets_of_owner = 2;
    let queue = Queue::open(settings, Arc::new(Hub::new(4, clock::now()))).expect("opened");
    let batch = |owner: &str, names: &[&str]| {
        let of = |name: &&str| Ok(by(owner, request(name)));
        names.iter().map(of).collect::<Vec<_>>()
    };
    let taken = queue.submit_all(batch("alice", &["a", "b", "c", "d"]), false);
    let taken = taken.expect("answered");
    assert!(taken[..3].iter().all(Result::is_ok));
    let error = &taken[3].as_ref().expect_err("one too many").error;
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(
        error.to_string().contains("3 transfers of alice"),
        "{error}"
    );
    assert!(queue.submit(by("bob", request("e"))).is_ok());
    begin(&queue, "a");
    queue.ended(&id("a"), Ending::Incomplete).expect("ended");
    assert!(
        queue.submit(by("alice", request("d"))).is_ok(),
        "a place is free"
    );
    assert!(
        queue.submit(by("alice", request("a"))).is_err(),
        "no second one"
    );

    let again = retry(&queue, &actor("alice"), "a").expect_err("by hand neither");
    assert_eq!(again.kind, ErrorKind::Busy);

    let ticket = |id: &str, owner: &str| crate::queue::TicketRow {
        id: id.to_owned(),
        transfer: "t".to_owned(),
        direction: dray_api::Direction::Read,
        paths: vec!["/data/x".to_owned()],
        overwrite: dray_core::options::Overwrite::Never,
        owner: owner.to_owned(),
        principal: owner.to_owned(),
        peer_key: String::new(),
        issued_at: clock::now(),
        expires_at: clock::now(),
        renewable_until: clock::now(),
        is_revoked: false,
        wish: dray_api::RateWish::default(),
        claim: None,
    };
    let keep = |id: &str, owner: &str, secret: u8| {
        let kept = queue.tickets().insert(&ticket(id, owner), [secret; 32]);
        kept.map_err(|error| error.kind)
    };
    assert_eq!(keep("one", "alice", 1), Ok(()));
    assert_eq!(keep("two", "alice", 2), Ok(()));
    assert_eq!(keep("three", "alice", 3), Err(ErrorKind::Busy));
    assert_eq!(keep("three", "bob", 3), Ok(()));
}
