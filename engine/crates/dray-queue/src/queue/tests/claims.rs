//! A transfer that claims space on a tier runs only after its claim is admitted.

use super::{Ending, actor, begin, by, id, open, queue, request};
use crate::SpaceClaim;
use dray_api::{State, Timestamp};
use std::collections::HashMap;

fn claim(bytes: Option<u64>, is_admitted: bool) -> SpaceClaim {
    SpaceClaim {
        tier: "burst".to_owned(),
        to: "/data/x".to_owned(),
        bytes,
        is_admitted,
    }
}

fn claiming(name: &str, bytes: u64) -> super::Submission {
    super::Submission {
        claim: Some(claim(Some(bytes), false)),
        ..by("alice", request(name))
    }
}

#[test]
fn a_transfer_runs_only_after_its_claim_is_admitted() {
    let queue = queue();
    queue.submit(claiming("one", 5)).expect("taken");
    let version = |name: &str| queue.show(&actor("alice"), name).expect("there").version;
    let can_run = |name: &str| queue.waiting(name).expect("read").is_some();
    assert!(!can_run("one"));
    let begun = queue.begin(&id("one"), version("one")).expect("read");
    assert!(begun.is_none(), "no caller of the queue starts it");
    // A patched transfer still waits for its claim.
    let patch = dray_api::Patch {
        priority: Some(7),
        ..Default::default()
    };
    queue
        .patch(&actor("alice"), "one", &patch)
        .expect("changed");
    queue.pause(&actor("alice"), "one").expect("paused");
    let paused = queue.tiers().claims("burst").expect("read");
    assert!(!paused[0].can_start, "a paused transfer claims nothing");
    queue
        .tiers()
        .admit(vec!["one".to_owned()])
        .expect("written");
    queue.resume(&actor("alice"), "one").expect("resumed");
    assert!(!can_run("one"), "a paused transfer was not admitted");

    let reason = ("no space".to_owned(), Some(Timestamp::from_ms(7)));
    let reasons = HashMap::from([("one".to_owned(), reason)]);
    queue.tiers().explain_waits("burst", reasons);
    let shown = queue.show(&actor("alice"), "one").expect("there");
    let space = shown.space.expect("a claim");
    assert_eq!((space.bytes, space.admitted), (Some(5), false));
    assert_eq!(space.reason.as_deref(), Some("no space"));
    assert_eq!(space.free_at, Some(Timestamp::from_ms(7)));

    let before = version("one");
    queue
        .tiers()
        .admit(vec!["one".to_owned()])
        .expect("written");
    assert!(can_run("one") && version("one") > before);
    let shown = queue.show(&actor("alice"), "one").expect("there");
    let space = shown.space.expect("a claim");
    assert!(space.admitted && space.reason.is_none());
    begin(&queue, "one");
    assert!(
        queue.tiers().claims("burst").expect("read")[0]
            .claim
            .is_admitted
    );
    queue.ended(&id("one"), Ending::Done).expect("ended");
    assert_eq!(queue.tiers().claims("burst").expect("read"), []);
    let shown = queue.show(&actor("alice"), "one").expect("there");
    assert!(shown.state == State::Done && shown.space.is_none());
}

#[test]
fn claims_survive_a_restart_in_the_order_of_submission() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    {
        let queue = open(&state);
        for name in ["b", "a", "c"] {
            queue.submit(claiming(name, 5)).expect("taken");
        }
        queue.submit(by("alice", request("free"))).expect("taken");
        queue.tiers().admit(vec!["a".to_owned()]).expect("written");
    }
    let queue = open(&state);
    let claims = queue.tiers().claims("burst").expect("read");
    let seen: Vec<(&str, bool)> = claims
        .iter()
        .map(|one| (one.id.as_str(), one.claim.is_admitted))
        .collect();
    assert_eq!(seen, [("b", false), ("a", true), ("c", false)]);
    assert_eq!(queue.tiers().claims("other").expect("read"), []);
}
