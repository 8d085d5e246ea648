//! Tests of transfers that are cancelled if no caller asks about them.

use super::{actor, by, queue, request};
use crate::clock;
use dray_api::State;
use std::time::Duration;

#[test]
fn a_bound_transfer_is_cancelled_without_queries() {
    let queue = queue();
    let mut bound = request("bound");
    bound.bound_seconds = Some(1);
    queue.submit(by("alice", bound)).expect("taken");
    queue.submit(by("alice", request("free"))).expect("taken");
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 0);
    std::thread::sleep(Duration::from_millis(600));
    queue.show(&actor("alice"), "bound").expect("asked for");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 1);
    let shown = queue.show(&actor("alice"), "bound").expect("there");
    assert_eq!(shown.state, State::Cancelled);
    assert_eq!(&*shown.error.expect("a reason").kind, "unattended");
}

#[test]
fn the_bound_starts_when_the_submission_is_written() {
    let queue = queue();
    let mut bound = request("bound");
    bound.bound_seconds = Some(1);
    // Wait until no caller has asked about any transfer for longer than the bound.
    std::thread::sleep(Duration::from_millis(1100));
    // The dispatcher's round runs after the write, and before the caller's request is recorded.
    let taken = queue.write(move |connection, effects| {
        let (submission, now) = (by("alice", bound), clock::now());
        let alone = crate::queue::submit::Promising::Alone;
        let places = crate::queue::quota::Limits {
            all: 1,
            of_owner: 1,
        };
        let mut room =
            crate::queue::quota::Quota::count(connection, places, crate::queue::submit::SUBMIT)?;
        crate::queue::submit::take(
            connection,
            effects,
            (submission, None),
            &mut room,
            alone,
            now,
        )
        .map_err(|refused| refused.error)
    });
    assert!(taken.expect("taken").1);
    assert_eq!(queue.tick(clock::now()).expect("ticked").forsaken, 0);
    let shown = queue.show(&actor("root"), "bound").expect("there");
    assert_eq!(shown.state, State::Queued);
}
