//! Transfers that an endpoint cancels, because no caller asked about them.

use super::{actor, begin, by, queue, request};
use crate::clock;
use crate::queue::Ending;
use dray_api::State;
use dray_core::{End, Error, ErrorKind};
use std::time::Duration;

#[test]
fn a_running_transfer_without_callers_is_cancelled_with_the_error_unattended() {
    let queue = queue();
    let mut bound = request("bound");
    bound.bound_seconds = Some(1);
    queue.submit(by("alice", bound)).expect("taken");
    let job = begin(&queue, "bound");
    queue.noticed(&job.id, "it runs");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 1);
    let broken = Ending::Broken {
        error: Error::new(ErrorKind::Unreachable, End::Network, "connect"),
        has_progressed: false,
        is_whole: false,
        source: None,
    };
    queue.ended(&job.id, broken).expect("ended");
    let shown = queue.show(&actor("alice"), "bound").expect("there");
    assert_eq!(shown.state, State::Cancelled);
    let error = shown.error.expect("a reason");
    assert_eq!((&*error.kind, &*error.status), ("unattended", "temporary"));
    assert!(error.message.contains("1 seconds"), "{}", error.message);
}

#[test]
fn a_transfer_that_is_complete_in_spite_of_the_cancellation_has_no_error() {
    let queue = queue();
    let mut bound = request("done");
    bound.bound_seconds = Some(1);
    queue.submit(by("alice", bound)).expect("taken");
    let job = begin(&queue, "done");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 1);
    queue.ended(&job.id, Ending::Done).expect("ended");
    let shown = queue.show(&actor("alice"), "done").expect("there");
    assert_eq!((shown.state, shown.error), (State::Done, None));
}
