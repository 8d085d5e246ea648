//! Network faults during a session: changed bytes, cut streams, and silence.

mod common;

use common::proxy::{Flip, Proxy};
use common::{
    Change, Object, PATIENCE, SinkEvents, Site, SourceEvents, arrived, connect, hasty,
    loss_at_sink, loss_at_source, next_stream, sink_input,
};
use dray_core::retry::RetryPolicy;
use dray_core::{BlockId, ErrorKind, StreamId};
use dray_link::link::SourceEvent;
use dray_link::pool::Pool;
use dray_net::{Serve, Timing};
use dray_session::{sink, source};
use dray_wire::message::{BlockState, Message};
use std::collections::HashSet;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Number of bytes that a dialler sends on a clear stream before its first object: preamble and
/// JOIN.
const BEFORE_FIRST_OBJECT: u64 = 8 + 64;

/// Number of bytes before the payload of an object with one data segment: the prefix of the frame,
/// the fixed part of the head, and the segment.
const HEAD_BYTES: u64 = 12 + 16 + 33;

/// Starts a site whose data streams pass through a proxy.
fn site_behind(proxy: &Proxy, change: &dyn Fn(&mut Serve)) -> Site {
    let advertise = proxy.address.to_string();
    let site = Site::start(&Change {
        serve: &|serve| {
            serve.advertise = vec![advertise.clone()];
            change(serve);
        },
        ..Change::default()
    });
    proxy.set_target(site.address);
    site
}

#[test]
fn a_changed_payload_is_reported_and_the_next_objects_arrive() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let (source, sink, pool) = site.push(&site.dial(), connect(1, true));
    let (_, mut stream) = next_stream(&source.link.events);
    // The changed byte is in the second of three objects.
    let offset = BEFORE_FIRST_OBJECT + HEAD_BYTES + 50_000 + HEAD_BYTES + 31_234;
    proxy.flip(Flip {
        is_to_listener: true,
        offset,
    });
    let objects: Vec<_> = (0..3).map(|number| Object::noise(number, 50_000)).collect();
    for object in &objects {
        object.send(&mut *stream).expect("sent");
    }
    objects[0].expect(&sink.link.events, &pool);
    let changed = arrived(&sink.link.events);
    assert_eq!(changed.head, objects[1].head);
    assert_eq!(
        changed.verified.expect_err("changed").kind,
        ErrorKind::ChecksumMismatch
    );
    assert!(
        changed.buffer.is_some(),
        "its buffer comes along, to be given back"
    );
    objects[2].expect(&sink.link.events, &pool);
}

#[test]
fn a_changed_head_ends_its_stream_and_takes_no_buffer_along() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let (source, sink, pool) = site.push(&site.dial(), connect(1, true));
    let (number, mut stream) = next_stream(&source.link.events);
    proxy.flip(Flip {
        is_to_listener: true,
        offset: BEFORE_FIRST_OBJECT + 20,
    });
    let _ = Object::noise(1, 100).send(&mut *stream);
    match sink_input(&sink.link.events) {
        sink::Input::StreamLost(_, lost) => assert_eq!(lost, number),
        other => panic!("the stream's end was due, not {other:?}"),
    }
    let free = std::iter::from_fn(|| pool.take()).count();
    assert_eq!(free, 8);
}

#[test]
fn a_changed_byte_under_tls_ends_its_stream() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let (source, sink, pool) = site.push(&site.dial(), connect(1, false));
    let (number, mut stream) = next_stream(&source.link.events);
    proxy.flip(Flip {
        is_to_listener: true,
        offset: 100_000,
    });
    let _ = Object::noise(1, 1 << 20).send(&mut *stream);
    match sink_input(&sink.link.events) {
        sink::Input::StreamLost(_, lost) => assert_eq!(lost, number),
        other => panic!("the stream's end was due, not {other:?}"),
    }
    assert_eq!(
        std::iter::from_fn(|| pool.take()).count(),
        8,
        "buffers come back"
    );
}

/// Sends objects until the stream fails.
fn send_until_dead(stream: &mut dyn dray_link::link::BlockSender) {
    let begin = Instant::now();
    while Object::noise(9, 1 << 20).send(stream).is_ok() {
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "it does not notice"
        );
    }
}

#[test]
fn a_source_that_drives_dials_a_new_stream_for_a_dead_one() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    for clear in [false, true] {
        let (source, sink, pool) = site.push(&site.dial(), connect(2, clear));
        let (first, mut one) = next_stream(&source.link.events);
        let (second, mut two) = next_stream(&source.link.events);
        proxy.cut_data();
        send_until_dead(&mut *one);
        send_until_dead(&mut *two);
        let (third, mut three) = next_stream(&source.link.events);
        let (fourth, _four) = next_stream(&source.link.events);
        assert!(
            third.0 >= 2 && fourth.0 >= 2 && third != fourth,
            "new numbers"
        );
        // Send the messages that a source's machine sends after a loss. They make the sink end each
        // lost stream, even if the JOIN of the stream was still in transit at the cut.
        let mut control = source.link.control;
        for stream in [first, second] {
            let blocks = vec![BlockId(9)];
            control
                .send(&Message::StreamLost { stream, blocks })
                .expect("sent");
        }
        let mut lost = HashSet::new();
        while lost.len() < 2 {
            match sink_input(&sink.link.events) {
                sink::Input::StreamLost(_, stream) => assert!(lost.insert(stream), "twice"),
                sink::Input::Message(..) => {}
                other => panic!("the streams' ends were due, not {other:?}"),
            }
        }
        assert_eq!(lost, HashSet::from([first, second]));
        let object = Object::noise(1, 5000);
        object.send(&mut *three).expect("sent");
        loop {
            match sink_input(&sink.link.events) {
                sink::Input::Message(..) => {}
                sink::Input::BlockArrived { head, .. } => break assert_eq!(head, object.head),
                other => panic!("an object was due, not {other:?}"),
            }
        }
        while pool.take().is_some() {}
    }
}

#[test]
fn streams_are_opened_when_they_are_wanted_and_one_that_is_not_missed_is_not_replaced() {
    let site = Site::start(&Change::default());
    let mut dial = site.dial();
    dial.streams_first = 1;
    let (source, _sink, _pool) = site.push(&dial, connect(4, true));
    let events = &source.link.events;
    let mut streams = vec![next_stream(events)];
    assert_eq!(source.streams, 4, "granted");
    assert!(events.try_recv().is_err(), "one was wanted");
    source.growth.want(3);
    streams.extend([next_stream(events), next_stream(events)]);
    // At most the granted number of streams is opened.
    source.growth.want(9);
    streams.push(next_stream(events));
    assert_eq!(source.growth.errors(), 0);
    source.growth.want(3);
    let lost = ErrorKind::TimedOut;
    let lost = dray_core::Error::new(lost, dray_core::End::Network, "send an object");
    let (_, mut stream) = streams.pop().expect("four");
    stream.give_up(&lost);
    drop(stream);
    assert_eq!(source.growth.errors(), 1);
    let quiet = events.recv_timeout(Duration::from_millis(300));
    assert!(quiet.is_err(), "three are left, and wanted");
    let (_, mut stream) = streams.pop().expect("three");
    stream.give_up(&lost);
    drop(stream);
    // Two streams are live, which is fewer than requested.
    let (number, _stream) = next_stream(events);
    assert_eq!(number, StreamId(4));
}

#[test]
fn streams_that_the_far_side_does_not_take_are_errors_and_are_not_tried_again() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let mut dial = site.dial();
    dial.streams_first = 1;
    let (source, _sink, _pool) = site.push(&dial, connect(4, true));
    let events = &source.link.events;
    let _stream = next_stream(events);
    proxy.refuse(true);
    source.growth.want(4);
    let begin = Instant::now();
    while source.growth.errors() < 3 {
        assert!(begin.elapsed() < PATIENCE, "{}", source.growth.errors());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(events.recv_timeout(Duration::from_millis(300)).is_err());
    assert_eq!(source.growth.errors(), 3, "none is tried again");
}

#[test]
fn a_sink_reads_the_arrived_objects_of_a_lost_stream_before_it_ends_it() {
    let site = Site::start(&Change::default());
    let (source, sink, pool) = site.push(&site.dial(), connect(1, false));
    let mut control = source.link.control;
    let (alive, mut stream) = next_stream(&source.link.events);
    let object = Object::noise(1, 5000);
    object.send(&mut *stream).expect("sent");
    object.expect(&sink.link.events, &pool);
    let never_joined = StreamId(4711);
    for asked in [never_joined, alive, never_joined] {
        let question = Message::StreamLost {
            stream: asked,
            blocks: vec![BlockId(1)],
        };
        control.send(&question).expect("sent");
    }
    let mut lost = Vec::new();
    let mut questions = 0;
    while questions < 3 || lost.len() < 2 {
        match sink_input(&sink.link.events) {
            sink::Input::StreamLost(_, stream) => lost.push(stream),
            sink::Input::Message(..) => questions += 1,
            other => panic!("questions and ends were due, not {other:?}"),
        }
    }
    lost.sort();
    assert_eq!(lost, [alive, never_joined], "each once");
}

#[test]
fn a_sink_that_drives_dials_a_new_stream_for_a_dead_one() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let (sink, source, pool) = site.pull(&site.dial(), connect(1, false));
    let (first, mut one) = next_stream(&source.link.events);
    proxy.cut_data();
    match sink_input(&sink.link.events) {
        sink::Input::StreamLost(_, lost) => assert_eq!(lost, first),
        other => panic!("the stream's end was due, not {other:?}"),
    }
    // Although the passive source has not noticed the loss of the first stream, it accepts the new
    // stream.
    let (second, mut two) = next_stream(&source.link.events);
    assert_ne!(first, second);
    let object = Object::noise(1, 5000);
    object.send(&mut *two).expect("sent");
    object.expect(&sink.link.events, &pool);
    send_until_dead(&mut *one);
}

/// Waits until the source has got reports of `count` streams that the other end has closed. Returns
/// these streams.
fn next_left(events: &SourceEvents, count: usize) -> HashSet<StreamId> {
    let until = Instant::now() + Duration::from_secs(10);
    let mut left = HashSet::new();
    while left.len() < count {
        let wait = until.saturating_duration_since(Instant::now());
        match events.recv_timeout(wait).expect("closed streams were due") {
            SourceEvent::Left(stream, _) => assert!(left.insert(stream), "twice"),
            // If the sink is the driver, it dials new streams.
            SourceEvent::Input(source::Input::Message(..)) | SourceEvent::Stream(..) => {}
            _ => panic!("only closed streams were due"),
        }
    }
    left
}

/// Cuts both streams of a session while they are idle. The source must get exactly one report for
/// each.
fn cut_idle(proxy: &Proxy, (source, sink): (&SourceEvents, &SinkEvents), pool: &Pool) {
    let (first, mut one) = next_stream(source);
    let (second, _two) = next_stream(source);
    let object = Object::noise(1, 5000);
    object.send(&mut *one).expect("sent");
    object.expect(sink, pool);
    proxy.cut_data();
    assert_eq!(next_left(source, 2), HashSet::from([first, second]));
    let until = Instant::now() + Duration::from_millis(700);
    while let Ok(event) = source.recv_deadline(until) {
        assert!(!matches!(event, SourceEvent::Left(..)), "told twice");
    }
}

#[test]
fn a_source_hears_that_an_idle_stream_was_closed_at_its_other_end() {
    for clear in [true, false] {
        let proxy = Proxy::start();
        let site = site_behind(&proxy, &|_| {});
        let (source, sink, pool) = site.push(&site.dial(), connect(2, clear));
        cut_idle(&proxy, (&source.link.events, &sink.link.events), &pool);
        let proxy = Proxy::start();
        let site = site_behind(&proxy, &|_| {});
        let (sink, source, pool) = site.pull(&site.dial(), connect(2, clear));
        cut_idle(&proxy, (&source.link.events, &sink.link.events), &pool);
    }
}

#[test]
fn without_any_stream_the_session_ends_after_the_tries_allowed() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let mut dial = site.dial();
    dial.retry = RetryPolicy {
        attempts_max: 3,
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(10),
    };
    let (source, _sink, _) = site.push(&dial, connect(1, false));
    let (_, mut stream) = next_stream(&source.link.events);
    proxy.refuse(true);
    proxy.cut_data();
    send_until_dead(&mut *stream);
    let error = loss_at_source(&source.link.events);
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.to_string().contains("all data streams"), "{error}");
}

#[test]
fn without_any_stream_the_session_ends_though_more_are_wanted() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let mut dial = site.dial();
    // The delay is long enough for the request for streams to arrive between two attempts.
    dial.retry = RetryPolicy {
        attempts_max: 3,
        backoff: Duration::from_millis(300),
        backoff_max: Duration::from_millis(600),
    };
    dial.streams_first = 1;
    let (sink, source, _pool) = site.pull(&dial, connect(4, false));
    let (first, _stream) = next_stream(&source.link.events);
    proxy.refuse(true);
    proxy.cut_data();
    match sink_input(&sink.link.events) {
        sink::Input::StreamLost(_, lost) => assert_eq!(lost, first),
        other => panic!("the stream's end was due, not {other:?}"),
    }
    sink.growth.want(2);
    sink.growth.want(1);
    let error = loss_at_sink(&sink.link.events);
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.to_string().contains("all data streams"), "{error}");
}

#[test]
fn first_streams_under_way_are_not_opened_once_more_when_some_are_wanted() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    // New streams are accepted, but no bytes pass.
    proxy.freeze();
    let mut dial = site.dial();
    dial.streams_first = 3;
    let (source, _sink, _pool) = site.push(&dial, connect(8, true));
    let seen = |count| {
        let begin = Instant::now();
        while proxy.data_connections() < count {
            assert!(begin.elapsed() < PATIENCE, "{}", proxy.data_connections());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    seen(3);
    source.growth.want(4);
    seen(4);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(proxy.data_connections(), 4);
    assert_eq!(source.growth.errors(), 0);
}

#[test]
fn a_session_without_a_first_stream_ends_with_the_reason() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let site = Site::start(&Change {
        serve: &|serve| serve.advertise = vec![address.to_string()],
        ..Change::default()
    });
    let (source, sink, _) = site.push(&site.dial(), connect(3, false));
    let error = loss_at_source(&source.link.events);
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.cause.contains(&address.to_string()), "{error}");
    assert!(!source.growth.had_streams());
    match sink_input(&sink.link.events) {
        sink::Input::Message(_, Message::GoAway(told)) => assert_eq!(told, error),
        other => panic!("GO_AWAY was due, not {other:?}"),
    }
}

#[test]
fn streams_that_carry_nothing_are_not_dialled_for_ever() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let mut dial = site.dial();
    dial.retry = RetryPolicy {
        attempts_max: 4,
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(10),
    };
    proxy.cut_after_join();
    let (source, _sink, _) = site.push(&dial, connect(1, true));
    let mut streams = Vec::new();
    let mut count = 0;
    let lost = loop {
        match source.link.events.recv_timeout(PATIENCE).expect("an event") {
            SourceEvent::Stream(_, mut stream) => {
                // The first send may seem to succeed, because the socket accepts the bytes.
                send_until_dead(&mut *stream);
                streams.push(stream);
                count += 1;
                assert!(count < 20, "there is no end to it");
            }
            SourceEvent::Input(source::Input::PeerLost(error)) => break error,
            // The link may see that the proxy closed a stream before this test sends on it.
            SourceEvent::Left(..) => {}
            _ => panic!("streams or the end were due"),
        }
    };
    assert_eq!(lost.kind, ErrorKind::Unreachable, "{lost}");
    assert_eq!(count, 4);
}

#[test]
fn streams_are_dialled_again_as_long_as_objects_come_through() {
    let proxy = Proxy::start();
    let site = site_behind(&proxy, &|_| {});
    let (source, sink, pool) = site.push(&site.dial(), connect(1, true));
    let mut to_source = sink.link.control;
    let mut streams = Vec::new();
    for round in 0..12 {
        let (_, mut stream) = loop {
            match source.link.events.recv_timeout(PATIENCE).expect("an event") {
                SourceEvent::Stream(number, stream) => break (number, stream),
                SourceEvent::Input(source::Input::Message(_)) | SourceEvent::Left(..) => {}
                _ => panic!("a stream was due in round {round}"),
            }
        };
        let object = Object::noise(round, 1000);
        object.send(&mut *stream).expect("sent");
        object.expect(&sink.link.events, &pool);
        let states = vec![(object.head.id, BlockState::Written)];
        to_source.send(&Message::BlockSync(states)).expect("sent");
        // Wait for the sink's report before the cut. Otherwise the source cannot know that the
        // object has arrived.
        let begin = Instant::now();
        while source.link.events.is_empty() && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        proxy.cut_data();
        send_until_dead(&mut *stream);
        match sink_input(&sink.link.events) {
            sink::Input::StreamLost(..) => streams.push(stream),
            other => panic!("the stream's end was due, not {other:?}"),
        }
    }
}

#[test]
fn a_peer_that_falls_silent_is_lost_in_time_at_both_ends() {
    let proxy = Proxy::start();
    let site = Site::start(&Change {
        serve: &|serve| serve.timing = hasty(),
        ..Change::default()
    });
    proxy.set_target(site.address);
    // Control and data connections both pass through the proxy.
    let mut dial = site.dial_at(proxy.address);
    dial.timing = hasty();
    let (source, sink, _) = site.push(&dial, connect(1, false));
    let (_, _stream) = next_stream(&source.link.events);
    let begin = Instant::now();
    proxy.freeze();
    for error in [
        loss_at_source(&source.link.events),
        loss_at_sink(&sink.link.events),
    ] {
        assert_eq!(error.kind, ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("sent nothing"), "{error}");
    }
    assert!(begin.elapsed() >= Duration::from_millis(700));
    assert!(begin.elapsed() < Timing::default().lost_after);
    assert_eq!(proxy.data_connections(), 1);
}
