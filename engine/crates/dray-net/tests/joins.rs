//! Streams that may join a session, and the refusal of other streams.

mod common;

use common::by_hand::{accepted, answers, frames, hello, joins, raw, tls};
use common::{Change, Object, PATIENCE, Site, connect, next_stream};
use dray_core::{ErrorKind, StreamId};
use dray_wire::codec::{CHALLENGE_FRAME_BYTES, Connection, Preamble, Security, encode_join};
use dray_wire::message::{Join, Message};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn a_stream_without_the_key_is_closed_without_a_word() {
    let site = Site::start(&Change::default());
    let (source, sink, pool) = site.push(&site.dial(), connect(2, true));
    let (_, mut good) = next_stream(&source.link.events);
    for security in [Security::Clear, Security::Tls] {
        let join = Join {
            ticket: [7; 16],
            stream: StreamId(90),
            proof: [7; 32],
        };
        let preamble = Preamble {
            connection: Connection::Data,
            security,
        };
        let mut challenge = [0; CHALLENGE_FRAME_BYTES];
        let mut rest = Vec::new();
        let mut speak = |stream: &mut dyn ReadWrite| {
            stream.read_exact(&mut challenge).expect("a challenge");
            stream.write_all(&encode_join(&join)).expect("sent");
            let _ = stream.read_to_end(&mut rest);
        };
        match security {
            Security::Clear => {
                let mut socket = TcpStream::connect(site.address).expect("connected");
                socket.set_read_timeout(Some(PATIENCE)).expect("set");
                socket.write_all(&preamble.to_bytes()).expect("sent");
                speak(&mut socket);
            }
            Security::Tls => speak(&mut tls(&site, Connection::Data)),
        }
        assert!(rest.is_empty(), "something was said: {rest:?}");
        assert_eq!(site.next_rejected().kind, ErrorKind::Unauthorized);
    }
    let object = Object::noise(1, 5000);
    object.send(&mut *good).expect("sent");
    object.expect(&sink.link.events, &pool);
}

#[test]
fn a_join_needs_the_key_a_fresh_number_a_granted_place_and_the_agreed_security() {
    let site = Site::start(&Change::default());
    let mut control = tls(&site, Connection::Control);
    let accept = accepted(&mut control, &connect(2, true));
    let (ticket, key) = (accept.ticket, accept.key);
    assert!(
        joins(&site, ticket, [1; 32], StreamId(0)).is_none(),
        "another key"
    );
    assert_eq!(site.next_rejected().kind, ErrorKind::Unauthorized);
    assert!(
        joins(&site, [1; 16], key, StreamId(0)).is_none(),
        "another ticket"
    );
    let first = joins(&site, ticket, key, StreamId(0)).expect("a stream");
    assert!(
        joins(&site, ticket, key, StreamId(0)).is_none(),
        "its number again"
    );
    let _second = joins(&site, ticket, key, StreamId(1)).expect("a stream");
    assert!(
        joins(&site, ticket, key, StreamId(2)).is_none(),
        "a third of two"
    );
    drop(first);
    std::thread::sleep(Duration::from_millis(100));
    assert!(
        joins(&site, ticket, key, StreamId(0)).is_none(),
        "an old number"
    );
    assert!(
        joins(&site, ticket, key, StreamId(3)).is_some(),
        "a place came free"
    );
    let mut under_tls = tls(&site, Connection::Control);
    let accept = accepted(&mut under_tls, &connect(2, false));
    assert!(
        joins(&site, accept.ticket, accept.key, StreamId(0)).is_none(),
        "clear, not asked for"
    );
    // A ticket is not valid any more after its session has ended.
    drop((control, site.sinks.recv_timeout(PATIENCE)));
    let mut gone = false;
    for number in 10..20 {
        gone |= joins(&site, ticket, key, StreamId(number)).is_none();
    }
    assert!(gone, "a ticket without its session");
}

#[test]
fn a_join_to_a_session_that_has_just_ended_is_not_reported() {
    let site = Site::start(&Change::default());
    let mut control = tls(&site, Connection::Control);
    let accept = accepted(&mut control, &connect(9, true));
    let (ticket, key) = (accept.ticket, accept.key);
    drop((control, site.sinks.recv_timeout(PATIENCE)));
    let begin = Instant::now();
    let mut number = 0;
    // The session may still be ending, so try several times.
    while joins(&site, ticket, key, StreamId(number)).is_some() {
        assert!(begin.elapsed() < PATIENCE, "the session goes on");
        number += 1;
    }
    assert!(joins(&site, ticket, key, StreamId(number + 1)).is_none());
    assert!(joins(&site, ticket, [1; 32], StreamId(number + 2)).is_none());
    let rejected = site.next_rejected();
    assert_eq!(rejected.kind, ErrorKind::Unauthorized);
    let others: Vec<_> = site.rejected.try_iter().collect();
    assert!(others.is_empty(), "only who has not the key: {others:?}");
}

#[test]
fn a_caller_that_leaves_before_a_request_is_not_reported() {
    let site = Site::start(&Change::default());
    // A connection that sends only half of a JOIN is reported as rejected.
    let half = raw(&site, b"DRAY\x02\x01\x00\x00half a JOIN");
    half.shutdown(Shutdown::Write).expect("half closed");
    let error = site.next_rejected().to_string();
    assert!(error.contains("join a stream"), "{error}");
    // Close these connections in the same way as a program that opened connections in advance, and
    // exits without using them.
    drop(raw(&site, b""));
    drop(raw(&site, b"DRAY\x02\x00\x00\x00\x16\x03"));
    let challenged = raw(&site, b"DRAY\x02\x01\x00\x00");
    assert_eq!(challenged.peek(&mut [0]).expect("a challenge"), 1);
    // The challenge was not read, so closing the connection resets it.
    drop(challenged);
    // This connection closes without TLS's close notification.
    let mut secure = tls(&site, Connection::Data);
    secure.conn.complete_io(&mut secure.sock).expect("secure");
    drop(secure);
    let rejected = site.rejected.recv_timeout(Duration::from_millis(500));
    assert!(rejected.is_err(), "{rejected:?}");
}

#[test]
fn a_refused_driver_may_finish_the_message_it_is_sending() {
    let site = Site::start(&Change::default());
    let mut stream = tls(&site, Connection::Control);
    let mut unknown = hello();
    unknown.token = b"another".to_vec();
    let hello = frames(&Message::Hello(unknown));
    stream.write_all(&hello).expect("sent");
    match &answers(&mut stream)[..] {
        [Message::Refuse(error)] => assert_eq!(error.kind, ErrorKind::Unauthorized),
        other => panic!("REFUSE was due, not {other:?}"),
    }
    // If the listener had reset the connection, the second write would fail.
    for _ in 0..3 {
        let more = stream.sock.write_all(&[0; 1000]);
        more.expect("it is read, and nothing comes of it");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(stream);
    assert_eq!(site.next_rejected().kind, ErrorKind::Unauthorized);
}

#[test]
fn a_refused_driver_that_stays_is_disconnected() {
    let site = Site::start(&Change {
        serve: &|serve| serve.timing.linger = Duration::from_millis(200),
        ..Change::default()
    });
    let mut stream = tls(&site, Connection::Control);
    let mut unknown = hello();
    unknown.token = b"another".to_vec();
    let hello = frames(&Message::Hello(unknown));
    stream.write_all(&hello).expect("sent");
    assert_eq!(site.next_rejected().kind, ErrorKind::Unauthorized);
    let begin = Instant::now();
    while stream.sock.write_all(&[0; 10]).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it is listened to for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
}
