use super::{ANSWERED_MIN, OVERTAKEN_BY, OVERTAKEN_MIN, QUIET_MAX, QUIET_MIN, Streams, Verdict};
use dray_core::{BlockId, StreamId, TargetId, Time};
use std::time::Duration;

const ONE: StreamId = StreamId(1);
const OTHER: StreamId = StreamId(2);
const TARGET: TargetId = TargetId(7);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Advances the time in steps of a tenth of a second, and checks the streams at each step. The sink
/// answers immediately. Returns the streams given up, with the times.
fn pass(streams: &mut Streams, from: u64, until: u64) -> Vec<(StreamId, u64)> {
    let mut given_up = Vec::new();
    for millis in (from..until).step_by(100) {
        match streams.look(2, at(millis)) {
            Some(Verdict::Ask) => streams.heard(at(millis)),
            Some(Verdict::GiveUp(stream, _)) => given_up.push((stream, millis)),
            None => {}
        }
    }
    given_up
}

/// Passes one object that never arrives to stream ONE. Passes `count` objects to stream OTHER, each
/// of which arrives after 10 ms.
fn overtaken_by(count: u32) -> Streams {
    let mut streams = Streams::default();
    streams.handed(ONE, BlockId(0), TARGET, at(0));
    for number in 1..=u64::from(count) {
        streams.handed(OTHER, BlockId(number), TARGET, at(10 * number - 10));
        streams.answered(BlockId(number), at(10 * number));
    }
    streams
}

#[test]
fn a_stream_that_is_overtaken_and_of_which_nothing_comes_is_given_up_once() {
    let ends = OVERTAKEN_MIN + ANSWERED_MIN;
    for count in [1, OVERTAKEN_BY] {
        let mut streams = overtaken_by(count);
        let given_up = pass(&mut streams, 0, 60_000);
        let [(ONE, millis)] = given_up[..] else {
            panic!("{given_up:?}");
        };
        let waited = Duration::from_millis(millis);
        assert!(
            waited >= ends && waited < ends + Duration::from_secs(1),
            "{millis} ms"
        );
    }
}

#[test]
fn a_target_that_stands_still_is_no_streams_fault() {
    // The target's writers finish objects out of order. Then its storage stalls, with objects of
    // both streams in transit.
    let mut streams = overtaken_by(3);
    for number in 10..30 {
        streams.handed(OTHER, BlockId(number), TARGET, at(40));
    }
    assert_eq!(pass(&mut streams, 40, 100_000), []);
    // The storage resumes, but the objects on stream ONE do not arrive.
    for number in 10..30 {
        streams.answered(BlockId(number), at(100_000 + number));
    }
    let given_up = pass(&mut streams, 100_100, 110_000);
    assert!(matches!(given_up[..], [(ONE, _)]), "{given_up:?}");
}

#[test]
fn storage_that_stands_still_for_minutes_loses_one_stream_and_not_all() {
    let mut streams = Streams::default();
    for (block, stream) in [(0, ONE), (1, OTHER), (2, StreamId(3))] {
        streams.handed(stream, BlockId(block), TARGET, at(0));
    }
    let given_up = pass(&mut streams, 0, 235_000);
    assert_eq!(given_up.len(), 1, "{given_up:?}");
}

#[test]
fn an_overtaken_object_counts_after_an_earlier_object_of_its_stream_arrives() {
    let mut streams = Streams::default();
    for block in [0, 1] {
        streams.handed(ONE, BlockId(block), TARGET, at(0));
    }
    streams.handed(OTHER, BlockId(2), TARGET, at(0));
    streams.answered(BlockId(2), at(10));
    // The first object had already arrived at the sink. The next object on the same stream has not,
    // and all other objects are done.
    streams.answered(BlockId(0), at(20));
    let given_up = pass(&mut streams, 0, 10_000);
    assert!(matches!(given_up[..], [(ONE, _)]), "{given_up:?}");
}

#[test]
fn a_stream_of_which_anything_comes_is_not_stuck() {
    let mut streams = overtaken_by(OVERTAKEN_BY);
    let mut given_up = Vec::new();
    // The first object on stream ONE is never answered, but later objects on that stream arrive.
    for second in 1..60 {
        streams.handed(ONE, BlockId(1000 + second), TARGET, at(1000 * second));
        given_up.extend(pass(&mut streams, 1000 * second, 1000 * second + 1000));
        streams.answered(BlockId(1000 + second), at(1000 * second + 1000));
    }
    assert_eq!(given_up, []);
}

#[test]
fn a_slow_target_is_no_fault_of_a_stream() {
    let mut streams = Streams::default();
    let slow = TargetId(8);
    let mut given_up = Vec::new();
    // Stream ONE carries objects of a slow target, which are written in order, one every twenty
    // seconds. Stream OTHER carries objects of a fast target all the time.
    for number in 0..5 {
        streams.handed(ONE, BlockId(10_000 + number), slow, at(0));
    }
    for second in 1..100 {
        streams.handed(OTHER, BlockId(second), TARGET, at(1000 * second));
        streams.answered(BlockId(second), at(1000 * second + 10));
        if second % 20 == 0 {
            streams.answered(BlockId(10_000 + second / 20 - 1), at(1000 * second));
        }
        given_up.extend(pass(&mut streams, 1000 * second, 1000 * second + 1000));
    }
    assert_eq!(given_up, []);
}

#[test]
fn no_stream_is_given_up_if_the_sink_stops() {
    let mut streams = overtaken_by(OVERTAKEN_BY);
    let mut asked = 0;
    for second in 0..59 {
        match streams.look(2, at(1000 * second)) {
            Some(Verdict::Ask) => asked += 1,
            Some(verdict) => panic!("{verdict:?}"),
            None => {}
        }
    }
    assert_eq!(asked, 11, "each five seconds");
    // The sink resumes. Its reports from before the stall arrive first.
    streams.heard(at(60_000));
    streams.answered(BlockId(0), at(60_001));
    assert_eq!(pass(&mut streams, 60_001, 100_000), []);
}

#[test]
fn an_object_without_later_objects_is_given_up_after_the_longer_wait() {
    let mut streams = Streams::default();
    streams.handed(ONE, BlockId(0), TARGET, at(0));
    let quiet = u64::try_from(QUIET_MIN.as_millis()).expect("short");
    assert_eq!(pass(&mut streams, 0, quiet), []);
    assert_eq!(pass(&mut streams, quiet, quiet + 5000).len(), 1);
}

#[test]
fn a_lone_stream_is_not_judged() {
    let mut streams = overtaken_by(OVERTAKEN_BY);
    for second in 0..600 {
        assert_eq!(streams.look(1, at(1000 * second)), None);
    }
}

#[test]
fn each_stream_given_up_doubles_the_added_wait_for_the_next_one() {
    let mut streams = Streams::default();
    let (mut waits, mut number, mut now) = (Vec::new(), 0, 0);
    // Streams that replace the first one are stuck too.
    for stream in 10..18 {
        streams.handed(StreamId(stream), BlockId(number), TARGET, at(now));
        for _ in 0..OVERTAKEN_BY {
            number += 1;
            streams.handed(OTHER, BlockId(number), TARGET, at(now));
            streams.answered(BlockId(number), at(now));
        }
        number += 1;
        let given_up = pass(&mut streams, now, now + 400_000);
        assert_eq!(given_up.len(), 1, "{given_up:?}");
        waits.push((given_up[0].1 - now) / 1000);
        now = given_up[0].1;
    }
    assert_eq!(waits, [7, 12, 22, 42, 82, 162, 302, 302]);
}

#[test]
fn an_object_that_no_other_can_overtake_waits_twice_as_long_up_to_minutes() {
    let mut streams = Streams::default();
    let (mut waits, mut now) = (Vec::new(), 0);
    for stream in 10..20 {
        streams.handed(StreamId(stream), BlockId(stream.into()), TARGET, at(now));
        let given_up = pass(&mut streams, now, now + 10_000_000);
        assert_eq!(given_up.len(), 1, "{given_up:?}");
        waits.push((given_up[0].1 - now) / 1000);
        now = given_up[0].1;
    }
    let (least, most) = (QUIET_MIN.as_secs(), QUIET_MAX.as_secs());
    assert_eq!(waits[..3], [least + 2, 2 * least + 2, most + 2]);
    assert!(
        waits[3..]
            .iter()
            .all(|wait| (most..=most + 2).contains(wait)),
        "{waits:?}"
    );
}
