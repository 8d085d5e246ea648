//! One of eight storage targets has a tenth of its normal speed. The tests check how much data
//! bypasses the slow target, and how much the slow target delays the other targets.

use dray_core::options::Order;
use dray_sim::experiments::slow_target;
use dray_sim::timing::{At, Slow};
use slow_target::{BUFFERS, Bound, Course, PERIOD, TARGETS, least_with_moving, run_with};
use std::time::Duration;

const SLOW: u32 = 3;

fn run(order: Order, end: At, bound: Bound, slow: Slow) -> Course {
    slow_target::run(order, end, bound, slow).expect("no promise is broken")
}

#[test]
fn until_the_tail_far_more_goes_than_file_after_file_and_the_others_lose_nothing() {
    for end in [At::Source, At::Sink] {
        for bound in [Bound::Targets, Bound::Link] {
            let free = run(Order::Layout, end, bound, Slow::Nowhere);
            let ours = run(Order::Layout, end, bound, Slow::Fixed(SLOW));
            let by_file = run(Order::File, end, bound, Slow::Fixed(SLOW));
            let times = ours.rate_until_tail(SLOW) / by_file.rate_until_tail(SLOW);
            assert!(times >= 1.8, "{end:?} {bound:?}: {times} times file order");
            let others = ours.others(SLOW) / free.others(SLOW);
            assert!(others <= 1.05, "{end:?} {bound:?}: others at {others}");
            // The slow target determines the duration, and is busy all the time.
            let alone = 10.0 * free.seconds();
            assert!(ours.seconds() <= 1.01 * alone, "{}", ours.seconds());
        }
    }
}

#[test]
fn congestion_that_moves_costs_what_it_must_and_no_more() {
    for end in [At::Source, At::Sink] {
        let slow = Slow::Moving(TARGETS, PERIOD);
        let free = run(Order::Layout, end, Bound::Link, Slow::Nowhere);
        let moving = run(Order::Layout, end, Bound::Link, slow);
        let times = moving.seconds() / free.seconds();
        assert!(times <= 1.10, "{end:?}: {times} times the run without");
        // Without spare capacity, each target loses the time in which it was congested.
        let free = run(Order::Layout, end, Bound::Targets, Slow::Nowhere);
        let moving = run(Order::Layout, end, Bound::Targets, slow);
        let times = moving.seconds() / least_with_moving(free.seconds());
        assert!(
            (0.999..=1.05).contains(&times),
            "{end:?}: {times} times the least"
        );
    }
}

#[test]
fn a_congested_target_holds_few_buffers_at_either_end_and_never_none() {
    let millis = Duration::from_millis;
    let slow = Slow::Fixed(SLOW);
    let course = run(Order::Layout, At::Source, Bound::Targets, slow);
    // In this period the congestion is detected, and the other targets are not finished yet.
    assert_eq!(course.crowd(SLOW, [millis(500), millis(1400)]), 1);
    // The slow target's share of the sink's buffers is sixteen. But the slow target may occupy only
    // five: four objects for its writers and one more.
    let sink = |slow| run_with(8 * BUFFERS, Order::Layout, At::Sink, Bound::Targets, slow);
    let crowd = sink(slow)
        .expect("it ends")
        .crowd(SLOW, [millis(2500), millis(13_000)]);
    assert!((4..=5).contains(&crowd), "{crowd} under way");
    let free = sink(Slow::Nowhere).expect("it ends");
    assert_eq!(free.crowd(SLOW, [millis(500), millis(1400)]), 16);
    // After the other targets have finished, the slow target may use all its readers, as far as
    // credit permits.
    let source = run_with(8 * BUFFERS, Order::Layout, At::Source, Bound::Targets, slow);
    let crowd = source
        .expect("it ends")
        .crowd(SLOW, [millis(3000), millis(13_000)]);
    assert_eq!(crowd, 4);
}
