//! Sessions between two ends over real sockets. Every message and object arrives unchanged,
//! whichever end has dialled, and a session ends regularly.

mod common;

use common::far::far;
use common::{
    Change, Object, PATIENCE, Site, arrived, connect, data, hasty, loss_at_source, message_at_sink,
    message_at_source, next_stream, noise, sink_input, source_input,
};
use dray_core::{BlockId, ByteRange, Error, ErrorKind, FileIndex, Status, TargetId};
use dray_link::pace::{Gate, Pace};
use dray_session::sink;
use dray_wire::message::{BlockHead, Message, Segment, SegmentKind};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};

/// Returns pseudo-random messages, the same in each run. They include every kind of message that
/// the network layer passes to the machines.
fn messages() -> Vec<Message> {
    let mut runner = TestRunner::deterministic();
    let strategy = dray_wire::testing::message();
    let mut kinds = HashSet::new();
    let mut messages = Vec::new();
    for _ in 0..400 {
        let message = strategy.new_tree(&mut runner).expect("a message").current();
        if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
            kinds.insert(std::mem::discriminant(&message));
            messages.push(message);
        }
    }
    assert_eq!(
        kinds.len(),
        25,
        "HELLO to BYE, PROFILE, STREAMS and STRIPES, without PING and PONG"
    );
    messages
}

#[test]
fn every_message_arrives_in_order_both_ways() {
    let site = Site::start(&Change::default());
    let (source, sink, _) = site.push(&site.dial(), connect(1, false));
    let sent = messages();
    let mut to_sink = source.link.control;
    let mut to_source = sink.link.control;
    // Send in both directions concurrently. Otherwise one end could wait forever until the other
    // end's queue is read.
    thread::scope(|scope| {
        scope.spawn(|| {
            sent.iter()
                .for_each(|message| to_sink.send(message).expect("sent"))
        });
        scope.spawn(|| {
            sent.iter()
                .for_each(|message| to_source.send(message).expect("sent"))
        });
        for message in &sent {
            assert_eq!(&message_at_sink(&sink.link.events), message);
        }
        for message in &sent {
            assert_eq!(&message_at_source(&source.link.events), message);
        }
    });
}

/// Measures the time from dialling until an object arrives at a sink. A byte takes the time
/// `one_way` to reach the sink.
fn first_object(one_way: Duration, clear: bool) -> Duration {
    let site = Site::start(&Change::default());
    let dial = site.dial_at(far(site.address, one_way));
    let begin = Instant::now();
    thread::scope(|scope| {
        let sink = scope.spawn(|| {
            let mut sink = site.sinks.recv_timeout(PATIENCE).expect("a session");
            let ready = Message::Rate(Some(1));
            sink.link.control.send(&ready).expect("sent");
            let listed = message_at_sink(&sink.link.events);
            assert_eq!(listed, Message::Rate(Some(2)));
            let credit = Message::Credit(vec![(TargetId(0), 1)]);
            sink.link.control.send(&credit).expect("sent");
            let arrived = arrived(&sink.link.events);
            (begin.elapsed(), sink, arrived)
        });
        let mut source = dray_net::push(&dial, connect(4, clear)).expect("a session");
        let mut streams = Vec::new();
        let mut next = || match source_input(&source.link.events, &mut streams) {
            dray_session::source::Input::Message(message) => message,
            other => panic!("a message was due, not {other:?}"),
        };
        assert_eq!(next(), Message::Rate(Some(1)));
        let listed = Message::Rate(Some(2));
        source.link.control.send(&listed).expect("sent");
        assert!(matches!(next(), Message::Credit(_)));
        let stream = streams.pop();
        let (_, mut stream) = stream.unwrap_or_else(|| next_stream(&source.link.events));
        Object::noise(1, 5000).send(&mut *stream).expect("sent");
        sink.join().expect("a sink").0
    })
}

#[test]
fn the_first_object_is_there_after_three_turns_and_a_half() {
    // TLS, then HELLO with CONNECT, and then the entries of the listing each take `2 * one_way`.
    // The object takes `one_way`.
    let one_way = Duration::from_millis(400);
    for clear in [false, true] {
        // A busy host can delay the object, but cannot speed it up. So one fast try is enough.
        let mut tries = (0..5).map(|_| first_object(one_way, clear));
        let soon = tries.find(|took| {
            assert!(*took >= 7 * one_way, "nobody is that near: {took:?}");
            *took < 8 * one_way
        });
        assert!(soon.is_some(), "it waits for a turn more");
    }
}

#[test]
fn senders_that_block_do_not_stop_their_receivers() {
    let site = Site::start(&Change::default());
    let (source, sink, _) = site.push(&site.dial(), connect(1, false));
    let ranges = |number: u64| ByteRange {
        offset: number << 20,
        length: 1 << 20,
    };
    let long = Message::Done {
        index: FileIndex(1),
        ranges: (0..60_000).map(ranges).collect(),
    };
    let mut to_sink = source.link.control;
    let mut to_source = sink.link.control;
    // Send far more than the buffers of the sockets hold, in both directions concurrently.
    thread::scope(|scope| {
        scope.spawn(|| (0..24).for_each(|_| to_sink.send(&long).expect("sent")));
        scope.spawn(|| (0..24).for_each(|_| to_source.send(&long).expect("sent")));
        scope.spawn(|| (0..24).for_each(|_| assert_eq!(message_at_sink(&sink.link.events), long)));
        for _ in 0..24 {
            assert_eq!(message_at_source(&source.link.events), long);
        }
    });
}

#[test]
fn events_that_wait_for_a_slow_executor_are_bounded() {
    let site = Site::start(&Change::default());
    let (source, sink, _) = site.push(&site.dial(), connect(1, false));
    let ranges = |number: u64| ByteRange {
        offset: number << 20,
        length: 1 << 20,
    };
    let long = Message::Done {
        index: FileIndex(1),
        ranges: (0..60_000).map(ranges).collect(),
    };
    let mut to_sink = source.link.control;
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..40).for_each(|_| to_sink.send(&long).expect("sent"));
            (0..4000).for_each(|_| to_sink.send(&Message::Rate(Some(1))).expect("sent"));
        });
        // No thread reads messages for some time.
        thread::sleep(Duration::from_millis(500));
        assert!(
            sink.link.events.len() <= 3,
            "{} long ones wait",
            sink.link.events.len()
        );
        (0..40).for_each(|_| assert_eq!(message_at_sink(&sink.link.events), long));
        thread::sleep(Duration::from_millis(300));
        assert!(
            sink.link.events.len() <= 33,
            "{} wait",
            sink.link.events.len()
        );
        for _ in 0..4000 {
            assert_eq!(message_at_sink(&sink.link.events), Message::Rate(Some(1)));
        }
    });
}

/// Returns test objects: a pack of two files, an object with a hole in the middle, and an object
/// that is longer than one read.
fn objects() -> Vec<Object> {
    let (first, second) = (noise(100, 5), noise(101, 70_000));
    let hole = Segment {
        file: FileIndex(101),
        range: ByteRange {
            offset: 70_000,
            length: 1 << 40,
        },
        kind: SegmentKind::Hole,
    };
    let pack = Object::new(
        0,
        vec![data(100, 0, &first), hole, data(101, 0, &second)],
        [first, second].concat(),
    );
    let lengths = [1, 1023, 4096, 1 << 18, (1 << 20) - 1, 1 << 20];
    let plain = lengths.iter().zip(1..);
    let plain = plain.map(|(length, number)| Object::noise(number, *length));
    std::iter::once(pack).chain(plain).collect()
}

fn only_holes(number: u64) -> BlockHead {
    BlockHead {
        id: BlockId(number),
        target: TargetId(3),
        segments: vec![Segment {
            file: FileIndex(9),
            range: ByteRange {
                offset: 4096,
                length: 1 << 50,
            },
            kind: SegmentKind::Hole,
        }],
    }
}

#[test]
fn objects_arrive_whole_on_every_stream_in_clear_and_under_tls() {
    let site = Site::start(&Change::default());
    for (clear, count) in [(false, 1), (true, 1), (false, 4), (true, 4)] {
        let (source, sink, pool) = site.push(&site.dial(), connect(count, clear));
        assert_eq!(source.streams, count);
        let mut numbers = HashSet::new();
        for _ in 0..count {
            let (number, mut stream) = next_stream(&source.link.events);
            assert!(numbers.insert(number));
            for object in objects() {
                object.send(&mut *stream).expect("sent");
                object.expect(&sink.link.events, &pool);
            }
            let gate = Gate::default();
            let mut pace = Pace::new(&gate, &|_| {});
            stream.send(&only_holes(77), None, &mut pace).expect("sent");
            let hole = arrived(&sink.link.events);
            assert_eq!((hole.head, hole.buffer), (only_holes(77), None));
            assert_eq!(hole.verified, Ok(()));
            // Ending the stream between two objects loses no object.
            drop(stream);
            match sink_input(&sink.link.events) {
                sink::Input::StreamLost(_, lost) => assert_eq!(lost, number),
                other => panic!("the stream's end was due, not {other:?}"),
            }
        }
    }
}

#[test]
fn a_passive_source_sends_on_the_streams_that_the_driver_dials() {
    let site = Site::start(&Change::default());
    for clear in [false, true] {
        let (sink, source, pool) = site.pull(&site.dial(), connect(3, clear));
        let mut streams = Vec::new();
        for _ in 0..3 {
            let (_, mut stream) = next_stream(&source.link.events);
            for object in objects() {
                object.send(&mut *stream).expect("sent");
                object.expect(&sink.link.events, &pool);
            }
            streams.push(stream);
        }
        let mut to_source = sink.link.control;
        to_source
            .send(&Message::ListEnd { entries: 3 })
            .expect("sent");
        assert_eq!(
            message_at_source(&source.link.events),
            Message::ListEnd { entries: 3 }
        );
    }
}

#[test]
fn the_last_word_arrives_before_the_end() {
    let site = Site::start(&Change::default());
    for _ in 0..20 {
        let (source, sink, _) = site.push(&site.dial(), connect(2, false));
        let mut to_source = sink.link.control;
        to_source.send(&Message::Bye).expect("sent");
        let closing = thread::spawn(sink.link.close);
        assert_eq!(message_at_source(&source.link.events), Message::Bye);
        let begin = Instant::now();
        (source.link.close)();
        closing.join().expect("closed");
        assert!(
            begin.elapsed() < Duration::from_secs(1),
            "ends wait for each other"
        );
    }
}

#[test]
fn an_idle_session_lives_on_pings_that_nobody_sees() {
    let site = Site::start(&Change {
        serve: &|serve| serve.timing = hasty(),
        ..Change::default()
    });
    let mut dial = site.dial();
    dial.timing = hasty();
    let (source, sink, _) = site.push(&dial, connect(1, false));
    let (_, _stream) = next_stream(&source.link.events);
    thread::sleep(Duration::from_secs(4));
    if let Ok(dray_link::link::SourceEvent::Input(input)) = source.link.events.try_recv() {
        panic!("nothing was due, not {input:?}");
    }
    assert!(sink.link.events.is_empty());
    let mut to_sink = source.link.control;
    to_sink.send(&Message::Bye).expect("sent");
    assert_eq!(message_at_sink(&sink.link.events), Message::Bye);
}

#[test]
fn a_link_that_is_dropped_ends_the_session() {
    let site = Site::start(&Change::default());
    let (source, sink, _) = site.push(&site.dial(), connect(1, false));
    drop(sink);
    let error = loss_at_source(&source.link.events);
    assert_eq!(error.kind, ErrorKind::Unreachable);
}

#[test]
fn sessions_are_asked_to_stop_and_the_listener_then_returns() {
    let site = Site::start(&Change::default());
    let (source, sink, pool) = site.push(&site.dial(), connect(1, false));
    // Wait until the stream is connected: a stream that finds no listener counts as a lost session.
    let (_, mut stream) = next_stream(&source.link.events);
    let object = Object::noise(1, 1000);
    object.send(&mut *stream).expect("sent");
    object.expect(&sink.link.events, &pool);
    site.stopper.stop();
    match sink_input(&sink.link.events) {
        sink::Input::Stopping(error) => assert_eq!(error.status, Status::Temporary),
        other => panic!("leave was due, not {other:?}"),
    }
    // The session still works after the stop, but new sessions are refused.
    let mut to_source = sink.link.control;
    to_source.send(&Message::Bye).expect("sent");
    assert_eq!(message_at_source(&source.link.events), Message::Bye);
    let error = common::refusal(dray_net::push(&site.dial(), connect(1, false)));
    assert_eq!(error.kind, ErrorKind::Unreachable);
}

#[test]
fn the_error_of_the_handler_reaches_the_driver_unchanged() {
    let site = Site::start(&Change::default());
    let refusal = Error::new(
        ErrorKind::PathEscapes,
        dray_core::End::Sink,
        "open the destination",
    )
    .cause("/etc is not exported")
    .remedy("choose a path below /data");
    site.refuse_with(refusal.clone());
    let error = common::refusal(dray_net::push(&site.dial(), connect(1, false)));
    assert_eq!(error, refusal);
}
