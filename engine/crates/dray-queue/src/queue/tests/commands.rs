//! Tests of pausing, cancelling and holding, and of the messages to the dispatcher.

use super::routes::retry;
use super::{actor, begin, by, id, lost, queue, request};
use crate::queue::{Commands, Ending, Queue, Wish};
use dray_api::{Patch, State};
use dray_core::{ErrorKind, TransferId};
use serde_json::json;
use std::sync::{Arc, Mutex};

#[test]
fn a_cancellation_with_a_stale_version_is_refused() {
    let queue = queue();
    let alice = actor("alice");
    let seen = queue.submit(by("alice", request("t"))).expect("taken");
    let seen = seen.transfer.version;
    let patch = Patch {
        priority: Some(7),
        ..Patch::default()
    };
    let now = queue.patch(&alice, "t", &patch).expect("changed").version;
    let refused = queue.cancel_as_seen(&alice, "t", false, seen);
    assert_eq!(refused.expect_err("changed").kind, ErrorKind::AlreadyExists);
    assert_eq!(queue.show(&alice, "t").expect("there").state, State::Queued);
    let cancelled = queue.cancel_as_seen(&alice, "t", false, now);
    assert_eq!(cancelled.expect("as seen").state, State::Cancelled);
    // A caller that gets no answer to a cancellation repeats the cancellation.
    assert!(queue.cancel_as_seen(&alice, "t", false, now).is_ok());
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Heard {
    fn say(&self, what: String) {
        self.0.lock().expect("whole").push(what);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("whole"))
    }
}

impl Commands for Heard {
    fn wake(&self) {
        self.say("wake".into());
    }
    fn stop(&self, id: &TransferId, wish: Wish) {
        self.say(format!("stop {id} {}", wish.word()));
    }
    fn changed(&self, id: &TransferId) {
        self.say(format!("changed {id}"));
    }
    fn purge(&self) {
        self.say("purge".into());
    }
}

#[test]
fn commands_for_a_running_transfer_reach_the_dispatcher() {
    let queue = queue();
    let heard = Arc::new(Heard::default());
    queue.set_commands(Arc::clone(&heard) as Arc<dyn Commands>);
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    assert_eq!(heard.take(), ["wake"]);
    begin(&queue, "t");
    let patch: Patch = serde_json::from_value(json!({"weight": 7})).expect("good");
    queue.patch(&alice, "t", &patch).expect("changed");
    assert_eq!(heard.take(), ["changed t", "wake"]);
    let asked = queue.pause(&alice, "t").expect("asked");
    assert_eq!(asked.state, State::Active, "until its session has ended");
    assert_eq!(heard.take(), ["stop t pause"]);
    queue.pause(&alice, "t").expect("asked again");
    assert_eq!(heard.take(), Vec::<String>::new());
    assert_eq!(queue.wish(&id("t")).expect("read"), Some(Wish::Pause));
    let state = queue.ended(&id("t"), Ending::Stopped).expect("ended");
    assert_eq!(state, Some(State::Paused));
    queue.resume(&alice, "t").expect("asked");
    begin(&queue, "t");
    queue.cancel(&alice, "t", true).expect("asked");
    assert!(heard.take().contains(&"stop t purge".to_owned()));
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    assert!(heard.take().contains(&"purge".to_owned()));
    assert_eq!(queue.to_purge(10).expect("read").len(), 1);
    assert!(
        queue.delete(&alice, "t").is_err(),
        "not while it is removed"
    );
    assert!(queue.submit(by("alice", request("t"))).is_err());
    queue.purged(&id("t"), None).expect("written");
    assert!(queue.to_purge(10).expect("read").is_empty());
    assert_eq!(
        queue.delete(&alice, "t").expect("gone").state,
        State::Cancelled
    );
    assert!(queue.show(&alice, "t").is_err());
}

#[test]
fn a_purge_knows_if_any_attempt_has_begun() {
    let queue = queue();
    let alice = actor("alice");
    let purges = |queue: &Queue| {
        let jobs = queue.to_purge(10).expect("read");
        let told = jobs
            .iter()
            .map(|job| (job.input.id.to_string(), job.has_begun));
        told.collect::<Vec<_>>()
    };
    for name in ["never", "again"] {
        queue.submit(by("alice", request(name))).expect("taken");
    }
    begin(&queue, "again");
    let lost = Ending::Failed(lost());
    queue.ended(&id("again"), lost).expect("ended");
    retry(&queue, &alice, "again").expect("a second attempt");
    for name in ["never", "again"] {
        queue.cancel(&alice, name, true).expect("cancelled");
    }
    let wanted = [("never".to_owned(), false), ("again".to_owned(), true)];
    assert_eq!(purges(&queue), wanted);
    let report = crate::queue::PurgeReport {
        notice: "purged: nothing".to_owned(),
        is_purged: true,
    };
    queue.purged(&id("never"), Some(report)).expect("noted");
    assert_eq!(purges(&queue), wanted[1..]);
    let shown = queue.show(&alice, "never").expect("there");
    assert_eq!(shown.notices, ["purged: nothing"]);
    assert!(shown.purged);
    let again = queue.show(&alice, "again").expect("there");
    assert!(!again.purged, "not yet");
    queue
        .delete(&alice, "never")
        .expect("nothing is left to do");
}

#[test]
fn partial_data_of_a_failed_transfer_can_be_purged() {
    let queue = queue();
    let alice = actor("alice");
    let endings = [
        ("failed", Ending::Failed(lost())),
        ("incomplete", Ending::Incomplete),
        ("done", Ending::Done),
    ];
    for (name, ending) in endings {
        queue.submit(by("alice", request(name))).expect("taken");
        begin(&queue, name);
        queue.ended(&id(name), ending).expect("ended");
        let error = queue.cancel(&alice, name, false).expect_err("it ended");
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
    }
    assert!(
        queue.cancel(&alice, "done", true).is_err(),
        "nothing is partial"
    );
    for name in ["failed", "incomplete"] {
        let asked = queue.cancel(&alice, name, true).expect("asked");
        assert_eq!(asked.state, State::Cancelled);
        assert!(
            retry(&queue, &alice, name).is_err(),
            "not while it is removed"
        );
    }
    let shown = queue.show(&alice, "failed").expect("there");
    assert!(shown.error.is_some(), "why it failed can still be read");
    let jobs = queue.to_purge(10).expect("read");
    assert_eq!(jobs.iter().filter(|job| job.has_begun).count(), 2);
    for name in ["failed", "incomplete"] {
        queue.purged(&id(name), None).expect("written");
        retry(&queue, &alice, name).expect("a new attempt");
    }
}

#[test]
fn a_transfer_that_is_being_cancelled_takes_no_new_attempt() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    queue.cancel(&alice, "t", false).expect("asked");
    let retried = retry(&queue, &alice, "t").expect_err("lost otherwise");
    let again = queue.submit(by("alice", request("t")));
    for error in [retried, again.expect_err("lost otherwise").error] {
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
        assert!(error.cause.contains("being cancelled"), "{error}");
    }
    queue.ended(&id("t"), Ending::Stopped).expect("ended");
    let again = queue.submit(by("alice", request("t"))).expect("taken");
    assert!(again.is_new && again.transfer.attempt == 2);
}

#[test]
fn a_hold_is_shown_and_published_as_an_event() {
    let queue = queue();
    let alice = actor("alice");
    queue.submit(by("alice", request("t"))).expect("taken");
    begin(&queue, "t");
    queue.granted(&id("t"), Some(9), None);
    let shown = || queue.show(&alice, "t").expect("there");
    assert!(!shown().held);
    let before = queue.hub().last();
    // Holding a held transfer again is not counted.
    queue.held(&id("t"), true);
    queue.held(&id("t"), true);
    let held = shown();
    assert_eq!(
        (held.state, held.held, held.rate.granted),
        (State::Active, true, Some(0))
    );
    queue.held(&id("t"), false);
    assert_eq!((shown().held, shown().rate.granted), (false, Some(9)));
    assert_eq!(queue.hub().last(), before + 2);
    // A hold does not end a transfer. A transfer that has ended is not held.
    queue.held(&id("t"), true);
    queue.ended(&id("t"), Ending::Stopped).expect("written");
    assert_eq!((shown().state, shown().held), (State::Queued, false));
}

/// A receiver of commands that panics at its first wake-up.
pub(super) struct Fails(pub(super) std::sync::atomic::AtomicBool);

impl Commands for Fails {
    fn wake(&self) {
        let first = self.0.swap(false, std::sync::atomic::Ordering::Relaxed);
        assert!(!first, "a defect");
    }
    fn stop(&self, _: &TransferId, _: Wish) {}
    fn changed(&self, _: &TransferId) {}
    fn purge(&self) {}
}

#[test]
fn a_panic_of_the_dispatcher_does_not_end_the_writer() {
    let queue = queue();
    queue.set_commands(Arc::new(Fails(true.into())));
    assert!(queue.submit(by("alice", request("one"))).is_err());
    queue.submit(by("alice", request("two"))).expect("goes on");
    // The request is on the disk, so a repeated submission attaches to it.
    let again = queue.submit(by("alice", request("one"))).expect("there");
    assert!(!again.is_new);
}
