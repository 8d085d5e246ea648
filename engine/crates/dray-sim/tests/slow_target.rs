//! One of eight targets at a tenth of its speed: what goes around it, and what that costs the others.

use dray_core::options::Order;
use dray_sim::experiments::slow_target;
use dray_sim::timing::{At, Slow};
use slow_target::{Bound, Course, PERIOD, TARGETS, least_with_moving};

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
            // The slow target goes at its own speed all the time.
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
        // With nothing to spare each target loses what it could not give.
        let free = run(Order::Layout, end, Bound::Targets, Slow::Nowhere);
        let moving = run(Order::Layout, end, Bound::Targets, slow);
        let times = moving.seconds() / least_with_moving(free.seconds());
        assert!(
            (0.999..=1.05).contains(&times),
            "{end:?}: {times} times the least"
        );
    }
}
