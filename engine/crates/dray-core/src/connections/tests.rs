//! Tests of single decisions, and property tests with arbitrary sequences of calls.

use super::{
    CALLERS_MAX, Call, Direction, Flow, Mapping, Outcome, PASSED_MAX, PIECE_BYTES_MIN, Place, Rule,
    Switchboard,
};
use crate::Time;
use proptest::prelude::*;
use std::time::Duration;

const READ: Flow = Flow {
    direction: Direction::Read,
    waits: true,
};
const WRITE: Flow = Flow {
    direction: Direction::Write,
    waits: false,
};
const BYTES: u64 = 1 << 20;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn call(caller: u64, flow: Flow, bytes: u64) -> Call {
    Call {
        caller,
        flow,
        bytes,
        pieces_max: usize::MAX,
    }
}

fn one(board: &mut Switchboard, caller: u64, now: Time) -> Option<Place> {
    board.enter(caller, WRITE, now);
    let place = board.take(call(caller, WRITE, BYTES), now).pop();
    board.leave(caller, WRITE, now);
    place
}

#[test]
fn a_thread_keeps_its_connection_or_takes_the_next() {
    let mut board = Switchboard::new(3, 9, Rule::Always(Mapping::ThreadToSingle));
    let mut homes = |caller| one(&mut board, caller, at(0)).map(|place| place.connection);
    assert_eq!(homes(7), homes(7));
    assert_eq!(
        [homes(7), homes(8), homes(9), homes(10)],
        [0, 1, 2, 0].map(Some)
    );
    let mut board = Switchboard::new(3, 9, Rule::Always(Mapping::ThreadToMultiple));
    let mut turns = |caller| one(&mut board, caller, at(0)).map(|place| place.connection);
    assert_eq!(
        [turns(7), turns(7), turns(7), turns(8)],
        [0, 1, 2, 0].map(Some)
    );
}

#[test]
fn a_full_connection_is_waited_for_by_its_thread_and_passed_over_by_others() {
    let mut board = Switchboard::new(2, 1, Rule::Always(Mapping::ThreadToSingle));
    let first = one(&mut board, 1, at(0)).expect("free");
    assert_eq!(one(&mut board, 1, at(0)), None);
    board.ended(first, WRITE, Outcome::Carried, at(1));
    assert_eq!(
        one(&mut board, 1, at(1)).map(|place| place.connection),
        Some(0)
    );

    let mut board = Switchboard::new(2, 1, Rule::Always(Mapping::ThreadToMultiple));
    assert!(one(&mut board, 1, at(0)).is_some());
    assert_eq!(
        one(&mut board, 1, at(0)).map(|place| place.connection),
        Some(1)
    );
    assert_eq!(one(&mut board, 1, at(0)), None);
}

#[test]
fn the_rule_goes_by_direction_durability_and_threads() {
    let setting = |flow, threads, connections| {
        let mut board = Switchboard::new(connections, 4, Rule::Automatic);
        for caller in 0..threads {
            board.enter(caller, flow, at(0));
        }
        let setting = board.setting(flow);
        (setting.mapping, setting.pieces)
    };
    let (single, multiple) = (Mapping::ThreadToSingle, Mapping::ThreadToMultiple);
    let durable = Flow {
        waits: true,
        ..WRITE
    };
    let ahead = Flow {
        waits: false,
        ..READ
    };
    assert_eq!(setting(WRITE, 8, 8), (single, 1));
    assert_eq!(setting(WRITE, 2, 8), (multiple, 1));
    assert_eq!(setting(durable, 16, 8), (single, 1));
    assert_eq!(setting(durable, 2, 8), (multiple, 4));
    assert_eq!(setting(READ, 8, 8), (multiple, 1));
    assert_eq!(setting(READ, 1, 8), (multiple, 8));
    assert_eq!(setting(READ, 3, 8), (multiple, 4));
    assert_eq!(setting(ahead, 1, 8), (multiple, 1));
}

#[test]
fn pieces_are_a_whole_call_together_and_not_too_small() {
    let pieces = |connections, depth, bytes| {
        let mut board = Switchboard::new(connections, depth, Rule::Automatic);
        board.enter(1, READ, at(0));
        let places = board.take(call(1, READ, bytes), at(0));
        assert_eq!(places.iter().map(|place| place.bytes).sum::<u64>(), bytes);
        places.len()
    };
    assert_eq!(pieces(8, 1, BYTES + 3), 8);
    assert_eq!(pieces(5, 1, BYTES), 5);
    assert_eq!(pieces(8, 4, 3 * PIECE_BYTES_MIN), 3);
    assert_eq!(pieces(8, 4, 10), 1);
    assert_eq!(pieces(8, 4, 0), 1);
    let mut board = Switchboard::new(8, 1, Rule::Automatic);
    let whole = Call {
        pieces_max: 1,
        ..call(1, READ, BYTES)
    };
    assert_eq!(board.take(whole, at(0)).len(), 1);
}

#[test]
fn a_broken_connection_is_left_alone_for_longer_each_time_and_then_tried() {
    let mut board = Switchboard::new(2, 4, Rule::Always(Mapping::ThreadToMultiple));
    board.broke(0, at(0));
    board.broke(0, at(1));
    for _ in 0..3 {
        assert_eq!(
            one(&mut board, 1, at(999)).map(|place| place.connection),
            Some(1)
        );
    }
    assert_eq!(
        one(&mut board, 1, at(1000)).map(|place| place.connection),
        Some(0)
    );
    board.broke(0, at(1000));
    assert!(board.is_down(0, at(2999)) && !board.is_down(0, at(3000)));
    // All connections are broken. The connection that broke first is used, so that its error is
    // reported.
    board.broke(1, at(2500));
    assert_eq!(
        one(&mut board, 1, at(2600)).map(|place| place.connection),
        Some(0)
    );
}

#[test]
fn a_thread_leaves_a_home_that_broke_and_comes_back() {
    let mut board = Switchboard::new(2, 4, Rule::Always(Mapping::ThreadToSingle));
    board.broke(0, at(0));
    assert_eq!(
        one(&mut board, 1, at(1)).map(|place| place.connection),
        Some(1)
    );
    assert_eq!(
        one(&mut board, 1, at(2000)).map(|place| place.connection),
        Some(0)
    );
}

#[test]
fn callers_without_end_are_not_remembered_without_end() {
    let mut board = Switchboard::new(2, 4, Rule::Automatic);
    for caller in 0..3 * CALLERS_MAX as u64 {
        board.enter(caller, READ, at(caller));
        board.leave(caller, READ, at(caller));
    }
    assert_eq!(board.callers(), CALLERS_MAX);
}

#[derive(Debug, Clone)]
enum Step {
    Call(u64, bool),
    End(usize, u8),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..6_u64, any::<bool>()).prop_map(|(caller, reads)| Step::Call(caller, reads)),
        3 => (any::<usize>(), 0..20_u8).prop_map(|(which, how)| Step::End(which, how)),
        1 => (0..3000_u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn no_connection_is_overfull_and_none_is_idle_for_ever(
        connections in 1..9_usize,
        depth in 1..4_u32,
        rule in prop::sample::select(vec![
            Rule::Automatic,
            Rule::Always(Mapping::ThreadToSingle),
            Rule::Always(Mapping::ThreadToMultiple),
        ]),
        steps in steps(),
    ) {
        let mut board = Switchboard::new(connections, depth, rule);
        let mut open: Vec<(Place, Flow)> = Vec::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Call(caller, reads) => {
                    let flow = if reads { READ } else { WRITE };
                    board.enter(caller, flow, at(now));
                    let places = board.take(call(caller, flow, BYTES), at(now));
                    let is_full = open.len() >= connections * depth as usize;
                    prop_assert!(!is_full || places.is_empty());
                    if board.setting(flow).mapping == Mapping::ThreadToMultiple {
                        let is_any_up = (0..connections).any(|at_| {
                            let calls = open.iter().filter(|(place, _)| place.connection == at_);
                            !board.is_down(at_, at(now)) && calls.count() < depth as usize
                        });
                        prop_assert!(!is_any_up || !places.is_empty());
                    }
                    let moved: u64 = places.iter().map(|place| place.bytes).sum();
                    prop_assert!(places.is_empty() || moved == BYTES);
                    open.extend(places.into_iter().map(|place| (place, flow)));
                    board.leave(caller, flow, at(now));
                }
                Step::End(which, how) if !open.is_empty() => {
                    let (place, flow) = open.swap_remove(which % open.len());
                    let outcome = match how {
                        0 => Outcome::Broken,
                        1 => Outcome::Failed,
                        _ => Outcome::Carried,
                    };
                    board.ended(place, flow, outcome, at(now));
                }
                Step::End(..) => {}
                Step::Wait(millis) => now += millis,
            }
            for connection in 0..connections {
                let calls = open.iter().filter(|(place, _)| place.connection == connection);
                prop_assert!(calls.count() <= depth as usize);
            }
        }
        for (place, flow) in open {
            board.ended(place, flow, Outcome::Carried, at(now));
        }
        // Every connection is tried again, whatever its measured time.
        now += 60_000;
        let mut tried = vec![Rule::Always(Mapping::ThreadToSingle) == rule; connections];
        for _ in 0..(PASSED_MAX as usize + 1) * connections {
            board.enter(1, READ, at(now));
            for place in board.take(call(1, READ, BYTES), at(now)) {
                tried[place.connection] = true;
                board.ended(place, READ, Outcome::Carried, at(now));
            }
            board.leave(1, READ, at(now));
            now += 1;
        }
        prop_assert!(tried.iter().all(|tried| *tried));
    }
}
