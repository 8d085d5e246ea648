use super::CreditLedger;
use dray_core::{TargetId, Time};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn a_slow_target_holds_its_share_only() {
    let mut ledger = CreditLedger::new(64);
    ledger.add_target(TargetId(0));
    ledger.add_target(TargetId(1));
    assert_eq!(
        ledger.grants(Time::ZERO, |_| false),
        [(TargetId(0), 32), (TargetId(1), 32)]
    );
    for _ in 0..4 {
        assert!(ledger.take_back(TargetId(1)));
    }
    assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(1), 4)]);
    assert!(
        !ledger.take_back(TargetId(9)),
        "an unknown target has no credit"
    );
}

#[test]
fn a_congested_target_holds_what_its_writers_can_take() {
    let mut ledger = CreditLedger::new(64);
    ledger.add_target(TargetId(0));
    ledger.add_target(TargetId(1));
    let congested = |target| target == TargetId(1);
    assert_eq!(
        ledger.grants(Time::ZERO, congested),
        [(TargetId(0), 32), (TargetId(1), 2)],
        "none at all would be for ever"
    );
    for _ in 0..2 {
        assert!(ledger.take_back(TargetId(1)) && ledger.hold(TargetId(1), Time::ZERO));
    }
    assert_eq!(ledger.grants(Time::ZERO, congested), []);
    // The target's writers can accept four more objects. The ledger grants these four credits once.
    ledger.free(TargetId(1));
    assert_eq!(ledger.grants(Time::ZERO, congested), [(TargetId(1), 4)]);
    assert_eq!(ledger.grants(Time::ZERO, congested), []);
    for _ in 0..4 {
        assert!(ledger.take_back(TargetId(1)) && ledger.hold(TargetId(1), Time::ZERO));
    }
    ledger.free(TargetId(1));
    assert_eq!(ledger.grants(Time::ZERO, congested), [(TargetId(1), 1)]);
    assert_eq!(ledger.out(), 37);
    assert_eq!(
        ledger.grants(Time::ZERO, |_| false),
        [(TargetId(1), 27)],
        "well again"
    );
}

#[test]
fn a_long_way_is_filled_for_a_congested_target_too() {
    let mut ledger = CreditLedger::new(32);
    ledger.add_target(TargetId(0));
    // Each object is written on arrival, while objects with newer credit are in transit.
    let mut on_the_way = 0;
    for _ in 0..100 {
        on_the_way += ledger
            .grants(Time::ZERO, |_| true)
            .iter()
            .map(|(_, count)| count)
            .sum::<u32>();
        assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), Time::ZERO));
        ledger.free(TargetId(0));
        on_the_way -= 1;
    }
    assert!(on_the_way > 28, "{on_the_way}");
}

/// Timing of the simulated objects in milliseconds. `first` is the time from the first grant to the
/// arrival of its objects. `there_and_back` is the time from any later grant to the arrival of its
/// objects. `apart` is the minimum interval between two arrivals. `network` is the measured round
/// trip of the network, if any.
struct Way {
    first: u64,
    there_and_back: u64,
    apart: u64,
    network: Option<u64>,
}

/// Returns a path with at most one arrival per millisecond. Each object arrives `way` milliseconds
/// after its grant, and the round trip of the network is not measured.
const fn plain(way: u64) -> Way {
    Way {
        first: way,
        there_and_back: way,
        apart: 1,
        network: None,
    }
}

/// Grants as much credit as the ledger allows. Returns the maximum credit that was outstanding
/// until `objects` objects had arrived.
fn window_after(objects: u32, way: &Way) -> u32 {
    let mut ledger = CreditLedger::new(1024);
    ledger.add_target(TargetId(0));
    if let Some(network) = way.network {
        ledger.set_round_trip(Duration::from_millis(network));
    }
    let at = |milliseconds: u64| Time::from_nanos(milliseconds * 1_000_000);
    // Arrival times of the objects in transit.
    let mut to_come = std::collections::VecDeque::new();
    let mut now = 1;
    for object in 0..objects {
        let granted: u32 = ledger
            .grants(at(now), |_| false)
            .iter()
            .map(|(_, n)| n)
            .sum();
        let takes = match object {
            0 => way.first,
            _ => way.there_and_back,
        };
        to_come.extend(std::iter::repeat_n(now + takes, granted as usize));
        now = to_come
            .pop_front()
            .expect("some is on the way")
            .max(now + way.apart);
        assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), at(now)));
        ledger.free(TargetId(0));
    }
    ledger.grants(at(now), |_| false);
    ledger.out()
}

#[test]
fn a_burst_of_arrived_objects_does_not_enlarge_the_window() {
    let mut ledger = CreditLedger::new(1024);
    ledger.add_target(TargetId(0));
    let at = |milliseconds: u64| Time::from_nanos(milliseconds * 1_000_000);
    let mut here = 0;
    for burst in 1..200 {
        ledger.grants(at(10 * burst), |_| false);
        // All objects in transit arrive in one burst, as after a pause of a host that runs both
        // ends.
        while ledger.out() > here {
            assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), at(10 * burst + 9)));
            here += 1;
        }
        for _ in 0..here {
            ledger.free(TargetId(0));
        }
        here = 0;
    }
    ledger.grants(at(10_000), |_| false);
    assert_eq!(ledger.out(), 32);
}

#[test]
fn a_window_grows_to_several_times_what_the_way_holds() {
    assert_eq!(window_after(0, &plain(0)), 32);
    for (way, least, most) in [(1, 32, 32), (7, 32, 32), (20, 80, 256), (60, 240, 512)] {
        for network in [None, Some(way)] {
            let window = window_after(
                10_000,
                &Way {
                    network,
                    ..plain(way)
                },
            );
            assert!((least..=most).contains(&window), "{window} for {way} ms");
        }
    }
    assert!(window_after(10_000, &plain(500)) >= 896, "up to the pool");
}

#[test]
fn a_first_object_that_waited_for_decisions_makes_no_window_wide() {
    let way = Way {
        first: 30,
        there_and_back: 1,
        apart: 1,
        network: Some(1),
    };
    assert_eq!(window_after(10_000, &way), 32);
    let unknown = Way {
        network: None,
        ..way
    };
    assert!(window_after(10_000, &unknown) >= 64, "else it did");
}

#[test]
fn a_source_whose_storage_is_slow_and_takes_many_reads_gets_credit_for_them() {
    // A read takes 400 ms. The number of concurrent reads is limited only by credit.
    let way = Way {
        first: 400,
        there_and_back: 400,
        apart: 1,
        network: Some(1),
    };
    let window = window_after(20_000, &way);
    assert!((256..=1024).contains(&window), "{window}");
}

#[test]
fn returned_credit_is_granted_to_a_target_that_asks() {
    let mut ledger = CreditLedger::new(4);
    ledger.add_target(TargetId(0));
    assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(0), 4)]);
    ledger.add_target(TargetId(1));
    assert_eq!(ledger.grants(Time::ZERO, |_| false), [], "the pool is out");
    assert!(ledger.give_back(TargetId(0), 4));
    assert!(ledger.give_back(TargetId(1), 0), "asks");
    assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(1), 4)]);
    assert!(ledger.take_back(TargetId(1)));
    ledger.add_target(TargetId(0));
    assert_eq!(
        ledger.grants(Time::ZERO, |_| false),
        [(TargetId(0), 1)],
        "wanted again"
    );
}

#[test]
fn a_pool_smaller_than_its_targets_goes_round() {
    let mut ledger = CreditLedger::new(2);
    let mut served = std::collections::BTreeSet::new();
    for target in 0..5 {
        ledger.add_target(TargetId(target));
    }
    for _ in 0..10 {
        for (target, count) in ledger.grants(Time::ZERO, |_| false) {
            served.insert(target);
            for _ in 0..count {
                assert!(ledger.take_back(target));
            }
        }
    }
    assert_eq!(served.len(), 5);
}

proptest! {
    #[test]
    fn credit_out_never_exceeds_the_pool(
        pool in 2..300u32,
        steps in prop::collection::vec((0..4u8, 0..12u32), 0..300),
    ) {
        let mut ledger = CreditLedger::new(pool);
        let mut out = std::collections::BTreeMap::<TargetId, u32>::new();
        for (kind, target) in steps {
            let target = TargetId(target);
            match kind {
                0 => ledger.add_target(target),
                1 => {
                    let had = out.get(&target).copied().unwrap_or(0);
                    prop_assert_eq!(ledger.take_back(target), had > 0);
                    if had > 0 { out.insert(target, had - 1); }
                }
                2 => {
                    let had = out.get(&target).copied().unwrap_or(0);
                    prop_assert!(!ledger.give_back(target, had + 1));
                    if ledger.give_back(target, had) && had > 0 { out.insert(target, 0); }
                }
                _ => for (target, count) in ledger.grants(Time::ZERO, |target| target.0 % 3 == 0) {
                    *out.entry(target).or_default() += count;
                },
            }
            prop_assert_eq!(ledger.out(), out.values().sum::<u32>());
            prop_assert!(ledger.out() <= pool);
        }
    }
}
