//! Tests of staged copies: a copy is created together with its transfer, still exists after the
//! transfer is deleted, and ends when it is evicted.

mod tape;

use super::routes::retry;
use super::{actor, begin, by, id, lost, open, queue, request};
use crate::clock;
use crate::queue::{Ending, Queue, Refused, StagedRow, Submitted};
use dray_api::{Staged, StagedDirection, StagedState, StagingRequest};
use dray_core::ErrorKind;
use serde_json::json;
use std::time::Duration;

pub(super) fn row(name: &str, owner: &str, fast: &str) -> StagedRow {
    let request = json!({"id": name, "path": "/slow/x", "pin_seconds": 60, "lifetime_seconds": 90});
    let request: StagingRequest = serde_json::from_value(request).expect("good");
    StagedRow {
        id: name.to_owned(),
        owner: owner.to_owned(),
        direction: StagedDirection::In,
        request,
        fast_path: fast.to_owned(),
        slow_path: "/slow/x".to_owned(),
        pinned_until: None,
        staged_at: None,
        expires_at: None,
        evicted_at: None,
        bytes: 0,
        is_hit: false,
    }
}

fn stage(queue: &Queue, name: &str, owner: &str, fast: &str) -> Result<Submitted, Refused> {
    queue.submit_staged(by(owner, request(name)), row(name, owner, fast), None)
}

fn shown(queue: &Queue, name: &str) -> Staged {
    let shown = queue.staging().show(&actor("root"), name);
    shown.expect("there").1
}

fn done(queue: &Queue, name: &str) {
    begin(queue, name);
    queue.ended(&id(name), Ending::Done).expect("ended");
}

#[test]
fn a_transfer_and_what_it_stages_are_kept_together_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let queue = open(&state);
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    // Copy the files to get the state that a kill directly after the answer would leave.
    let left = folder.path().join("left");
    std::fs::create_dir(&left).expect("made");
    for name in ["queue.db", "queue.db-wal"] {
        std::fs::copy(state.join(name), left.join(name)).expect("copied");
    }
    let after = open(&left);
    assert_eq!(shown(&after, "s").state, StagedState::Queued);
    assert!(after.show(&actor("alice"), "s").is_ok());
    let again = stage(&after, "s", "alice", "/fast/x").expect("attached");
    assert!(!again.is_new);

    // A transfer is also refused if its id belongs to a staged copy of another owner.
    done(&queue, "s");
    queue.delete(&actor("alice"), "s").expect("forgotten");
    let error = stage(&queue, "s", "bob", "/fast/y").expect_err("alice's");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    assert!(
        !queue.is_known(&id("s")).expect("asked"),
        "not without its row"
    );
    assert_eq!(shown(&queue, "s").state, StagedState::Staged);
}

#[test]
fn pin_and_lifetime_outlive_the_transfer_and_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let queue = open(folder.path());
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    let job = begin(&queue, "s");
    let mut counters = crate::queue::Counters::default();
    counters.bytes.durable = 77;
    queue.progress(&job.id, &counters);
    let before = clock::now();
    queue.ended(&job.id, Ending::Done).expect("ended");
    let staged = shown(&queue, "s");
    let pin = staged.pinned_until.expect("a pin");
    assert!(pin >= before.after(Duration::from_secs(60)));
    let lifetime = staged.expires_at.expect("a lifetime");
    assert_eq!(lifetime, pin.after(Duration::from_secs(30)));
    queue.delete(&actor("alice"), "s").expect("forgotten");
    drop(queue);
    let queue = open(folder.path());
    let kept = shown(&queue, "s");
    assert_eq!(
        (kept.state, kept.pinned_until, kept.expires_at, kept.bytes),
        (StagedState::Staged, Some(pin), Some(lifetime), 77)
    );
    // The row of an evicted copy is kept as long as ended transfers are.
    queue
        .staging()
        .evicted("/fast/x", clock::now())
        .expect("noted");
    queue.tick(clock::now()).expect("ticked");
    assert_eq!(shown(&queue, "s").state, StagedState::Evicted);
    let later = clock::now().after(Duration::from_secs(31 * 86_400));
    queue.tick(later).expect("ticked");
    assert!(queue.staging().show(&actor("alice"), "s").is_err());
}

#[test]
fn what_failed_goes_with_its_transfer_and_a_new_attempt_begins_anew() {
    let queue = queue();
    let alice = actor("alice");
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    begin(&queue, "s");
    queue
        .ended(&id("s"), Ending::Failed(lost()))
        .expect("ended");
    let failed = shown(&queue, "s");
    assert_eq!(failed.state, StagedState::Failed);
    assert!(failed.pinned_until.is_none() && failed.expires_at.is_none());
    retry(&queue, &alice, "s").expect("retried");
    done(&queue, "s");
    queue
        .staging()
        .evicted("/fast/x", clock::now())
        .expect("noted");
    assert_eq!(shown(&queue, "s").state, StagedState::Evicted);
    // A new transfer for an evicted copy makes the copy exist again.
    let again = stage(&queue, "s", "alice", "/fast/x").expect("taken");
    assert!(again.is_new);
    assert_eq!(shown(&queue, "s").state, StagedState::Queued);
    begin(&queue, "s");
    queue
        .ended(&id("s"), Ending::Failed(lost()))
        .expect("ended");
    queue.delete(&alice, "s").expect("forgotten");
    assert!(queue.staging().show(&alice, "s").is_err());
}

#[test]
fn the_id_of_a_copy_that_is_there_names_nothing_else() {
    let queue = queue();
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    done(&queue, "s");
    let pin = shown(&queue, "s").pinned_until;
    let mut other = request("s");
    other.verify = true;
    let error = queue.submit(by("alice", other.clone())).expect_err("taken");
    assert!(
        error.to_string().contains("the staging entry of /fast/x"),
        "{error}"
    );
    let error = stage(&queue, "s", "alice", "/fast/elsewhere").expect_err("taken");
    assert_eq!(error.kind, ErrorKind::AlreadyExists);
    // A new transfer for the same copy keeps the pin.
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    assert_eq!(shown(&queue, "s").pinned_until, pin);
    done(&queue, "s");
    queue
        .staging()
        .evicted("/fast/x", clock::now())
        .expect("noted");
    queue.submit(by("alice", other)).expect("free again");
    assert!(queue.staging().show(&actor("alice"), "s").is_err());
}

#[test]
fn a_pin_or_a_copy_on_its_way_holds_whoever_staged_it() {
    let queue = queue();
    let at = |paths: &[&str]| {
        let held = queue.staging().holds(paths.iter().copied(), clock::now());
        held.expect("asked").unwrap_or_default()
    };
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    assert!(at(&["/fast", "/fast/x"]).contains("being staged"));
    done(&queue, "s");
    assert!(at(&["/fast", "/fast/x"]).contains("pinned until"));
    assert_eq!(at(&["/fast", "/fast/xy", "/fast/x/y"]), "");
    let over = Some(clock::now().before(Duration::from_secs(1)));
    queue.staging().pin("s", over).expect("noted");
    assert_eq!(at(&["/fast/x"]), "", "a pin that is over holds nothing");
    stage(&queue, "s", "alice", "/fast/x").expect("taken");
    assert!(at(&["/fast/x"]).contains("being staged"));
    queue.delete(&actor("alice"), "s").expect_err("it runs");
}

#[test]
fn what_lies_in_an_evicted_copy_is_evicted_too() {
    let queue = queue();
    for (name, fast) in [
        ("a", "/fast/x"),
        ("b", "/fast/x/y"),
        ("c", "/fast/x0"),
        ("d", "/fast"),
    ] {
        stage(&queue, name, name, fast).expect("taken");
        done(&queue, name);
    }
    stage(&queue, "e", "e", "/fast/x/z").expect("taken");
    queue
        .staging()
        .evicted("/fast/x", clock::now())
        .expect("noted");
    let states = ["a", "b", "c", "d", "e"].map(|name| shown(&queue, name).state);
    use StagedState::{Evicted, Queued, Staged};
    assert_eq!(states, [Evicted, Evicted, Staged, Staged, Queued]);
}
