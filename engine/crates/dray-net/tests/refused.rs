//! Refused callers. Each gets a plain message if it may know the reason, gets no further access,
//! and does not affect other sessions.

mod common;

use common::by_hand::{accepted, answers, frames, hello, raw, tls};
use common::{
    Change, Object, PATIENCE, Site, connect, loss_at_sink, message_at_source, next_stream, refusal,
};
use dray_core::{End, ErrorKind, TargetId};
use dray_link::link::ControlSender;
use dray_link::pool::Pool;
use dray_net::{Dial, Fingerprint, IDENTITY_FILE, Identity, Token, pull, push};
use dray_wire::bounds::HELLO_BYTES_MAX;
use dray_wire::codec::Connection;
use dray_wire::message::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn another_key_is_refused_naming_both() {
    let site = Site::start(&Change::default());
    let mut dial = site.dial();
    let wrong = format!("sha256:{}", "5a".repeat(32));
    dial.trust = wrong.parse::<Fingerprint>().expect("a fingerprint").into();
    let error = refusal(push(&dial, connect(1, false)));
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    let text = error.to_string();
    for part in [&wrong, &site.pin.to_string(), &site.address.to_string()] {
        assert!(text.contains(part), "{text}");
    }
    assert!(site.next_rejected().to_string().contains("TLS") || site.sinks.is_empty());
}

/// A listener that presents another end's certificate, which is public, without having its key.
#[derive(Debug)]
struct Impostor(Arc<CertifiedKey>);

impl ResolvesServerCert for Impostor {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

fn pem_of_new_identity() -> (Vec<u8>, Fingerprint) {
    let place = tempfile::tempdir().expect("a folder");
    let identity = Identity::load_or_create(place.path()).expect("an identity");
    let pem = std::fs::read(place.path().join(IDENTITY_FILE)).expect("read");
    (pem, identity.fingerprint())
}

#[test]
fn the_pinned_certificate_without_its_key_is_refused() {
    let (victim, pin) = pem_of_new_identity();
    let (own, _) = pem_of_new_identity();
    let certificate = CertificateDer::from_pem_slice(&victim).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(&own).expect("a key");
    let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
    let certified = CertifiedKey::new(vec![certificate], key);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Impostor(Arc::new(certified))));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    let heard = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("accepted");
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).expect("a connection");
        let _ = socket.read_exact(&mut [0; 8]);
        while tls.is_handshaking() && tls.complete_io(&mut socket).is_ok() {}
        let mut bytes = Vec::new();
        let _ = rustls::Stream::new(&mut tls, &mut socket).read_to_end(&mut bytes);
        bytes
    });
    let dial = Dial::new(address.to_string(), pin, common::token());
    let error = refusal(push(&dial, connect(1, false)));
    assert_eq!(error.kind, ErrorKind::Protocol, "{error}");
    assert!(heard.join().expect("ran").is_empty(), "the token was sent");
}

#[test]
fn a_wrong_token_is_refused_and_shown_to_nobody() {
    let site = Site::start(&Change::default());
    let mut dial = site.dial();
    dial.token = Token::new(b"wrong-token-value").expect("a token");
    let error = refusal(push(&dial, connect(1, false)));
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    let there = site.next_rejected();
    assert_eq!(there.kind, ErrorKind::Unauthorized);
    for text in [format!("{error:?} {there:?} {dial:?}"), error.to_string()] {
        assert!(!text.contains("wrong-token-value"), "{text}");
        assert!(!text.contains("a token for tests"), "{text}");
    }
    assert!(site.sinks.is_empty());
}

#[test]
fn nobody_there_is_said_with_the_address() {
    let free = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = free.local_addr().expect("an address");
    drop(free);
    let site = Site::start(&Change::default());
    let error = refusal(push(&site.dial_at(address), connect(1, false)));
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    let mut dial = site.dial();
    dial.address = "no-port".to_owned();
    assert_eq!(
        refusal(push(&dial, connect(1, false))).kind,
        ErrorKind::InvalidRequest
    );
    dial = site.dial();
    dial.bind = vec!["::1".parse().expect("an address")];
    let error = refusal(push(&dial, connect(1, false)));
    assert!(error.to_string().contains("--bind"), "{error}");
}

#[test]
fn something_that_never_answers_is_given_up_in_time() {
    let mute = TcpListener::bind("127.0.0.1:0").expect("bound");
    let site = Site::start(&Change::default());
    let mut dial = site.dial_at(mute.local_addr().expect("an address"));
    dial.timing.handshake = Duration::from_millis(200);
    let begin = Instant::now();
    let error = refusal(push(&dial, connect(1, false)));
    assert_eq!(error.kind, ErrorKind::TimedOut);
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn clear_data_needs_the_other_ends_consent() {
    let site = Site::start(&Change {
        serve: &|serve| serve.allow_clear_data = false,
        ..Change::default()
    });
    let error = refusal(push(&site.dial(), connect(1, true)));
    assert_eq!(error.kind, ErrorKind::Unsupported);
    // The same end accepts sessions with streams under TLS.
    let (source, _sink, _) = site.push(&site.dial(), connect(1, false));
    assert_eq!(source.streams, 1);
}

#[test]
fn streams_and_sessions_are_granted_up_to_a_limit() {
    let site = Site::start(&Change {
        serve: &|serve| {
            serve.streams_max = 2;
            serve.sessions_max = 1;
        },
        ..Change::default()
    });
    let (source, _sink, _) = site.push(&site.dial(), connect(9, false));
    assert_eq!(source.streams, 2);
    let error = refusal(push(&site.dial(), connect(1, false)));
    assert_eq!(error.kind, ErrorKind::NoPlace);
}

#[test]
fn connections_made_ahead_of_a_session_that_does_not_want_them_leave_in_good_order() {
    let site = Site::start(&Change {
        serve: &|serve| serve.streams_max = 1,
        ..Change::default()
    });
    let (source, sink, pool) = site.push(&site.dial(), connect(4, false));
    let (_, mut stream) = next_stream(&source.link.events);
    let object = Object::noise(1, 5000);
    object.send(&mut *stream).expect("sent");
    object.expect(&sink.link.events, &pool);
    let mut stranger = site.dial();
    stranger.token = Token::new(b"another").expect("a token");
    for _ in 0..3 {
        let error = refusal(push(&stranger, connect(4, false)));
        assert_eq!(error.kind, ErrorKind::Unauthorized);
        // Only the refused connection is reported.
        assert!(site.next_rejected().to_string().contains("token"));
    }
    drop((source, stream, sink, pool));
    // When another session has delivered an object, all earlier connections have closed.
    let (source, sink, pool) = site.push(&site.dial(), connect(4, false));
    let (_, mut stream) = next_stream(&source.link.events);
    object.send(&mut *stream).expect("sent");
    object.expect(&sink.link.events, &pool);
    let rejected: Vec<_> = site.rejected.try_iter().collect();
    assert!(rejected.is_empty(), "{rejected:?}");
}

#[test]
fn a_null_end_accepts_only_drivers_that_expect_it() {
    let change = Change {
        serve: &|serve| serve.keeps_nothing = true,
        ..Change::default()
    };
    let site = Site::start(&change);
    let error = refusal(push(&site.dial(), connect(1, false)));
    assert_eq!(
        (error.kind, error.end),
        (ErrorKind::IncompatiblePeer, End::Sink)
    );
    assert!(error.cause.contains("stores no data"), "{error}");
    let by_name = format!("dray://{}/null:", site.address);
    assert!(error.remedy.contains(&by_name), "{error}");
    assert!(site.sinks.is_empty(), "nothing was begun");
    let mut knowing = site.dial();
    knowing.may_keep_nothing = true;
    let dialled = push(&knowing, connect(1, false)).expect("let in");
    assert!(dialled.agreed.keeps_nothing());
    // This site is not a null end.
    let site = Site::start(&Change::default());
    let dialled = push(&site.dial(), connect(1, false)).expect("let in");
    assert!(!dialled.agreed.keeps_nothing());
    drop((
        dialled,
        site.sinks.recv_timeout(PATIENCE).expect("a session"),
    ));
    // A driver that requires a null end refuses this site.
    let mut asking = site.dial();
    (asking.may_keep_nothing, asking.must_keep_nothing) = (true, true);
    let error = refusal(push(&asking, connect(1, false)));
    assert_eq!(
        (error.kind, error.end),
        (ErrorKind::InvalidRequest, End::Sink)
    );
    assert!(site.sinks.is_empty(), "nothing was begun");
}

#[test]
fn a_driver_that_keeps_nothing_is_let_in_where_that_is_known() {
    let site = Site::start(&Change::default());
    let mut nowhere = site.dial();
    (nowhere.may_keep_nothing, nowhere.keeps_nothing) = (true, true);
    let read = |site: &Site, dial: &Dial| {
        let mut dial = dial.clone();
        dial.address = site.address.to_string();
        dial.trust = site.pin.into();
        pull(
            &dial,
            connect(2, false),
            Arc::new(Pool::new(8, 1 << 20).expect("memory")),
        )
    };
    let error = refusal(read(&site, &nowhere));
    assert_eq!(
        (error.kind, error.end),
        (ErrorKind::IncompatiblePeer, End::Sink)
    );
    assert!(error.cause.contains("stores no data"), "{error}");
    assert_eq!(site.next_rejected().cause, error.cause);
    assert!(site.sources.is_empty(), "nothing was begun");
    let knowing = Site::start(&Change {
        serve: &|serve| serve.may_keep_nothing = true,
        ..Change::default()
    });
    let dialled = read(&knowing, &nowhere).expect("let in");
    assert!(dialled.agreed.keeps_nothing());
}

#[test]
fn a_newer_peer_gets_the_versions_of_this_end() {
    let site = Site::start(&Change::default());
    let mut stream = tls(&site, Connection::Control);
    let mut future = hello();
    future.versions = (900, 901);
    stream
        .write_all(&frames(&Message::Hello(future)))
        .expect("sent");
    match &answers(&mut stream)[..] {
        [Message::Hello(_), Message::Refuse(error)] => {
            assert_eq!(error.kind, ErrorKind::IncompatiblePeer);
            assert!(error.to_string().contains("900"), "{error}");
        }
        other => panic!("HELLO and REFUSE were due, not {other:?}"),
    }
}

/// Returns true if the listener closes the connection within half of [`PATIENCE`].
fn is_closed(stream: &mut impl Read) -> bool {
    let begin = Instant::now();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    begin.elapsed() < PATIENCE / 2
}

#[test]
fn a_control_connection_in_clear_is_refused_before_the_token_is_read() {
    let site = Site::start(&Change::default());
    let mut socket = raw(&site, b"DRAY\x01\x01\x00\x00");
    let _ = socket.write_all(&frames(&Message::Hello(hello())));
    assert!(answers(&mut socket).is_empty());
    assert!(site.next_rejected().to_string().contains("not encrypted"));
}

/// Handshake timeout for tests that wait until it passes. It is still long enough for a busy host.
const SHORT_HANDSHAKE: Duration = Duration::from_secs(4);

/// Sets a flag at the end of a test, even if the test fails. Threads that run until the flag is set
/// would otherwise never end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn hostile_connections_end_while_a_good_session_works() {
    let site = Site::start(&Change {
        serve: &|serve| {
            serve.timing.handshake = SHORT_HANDSHAKE;
        },
        ..Change::default()
    });
    let (source, sink, pool) = site.push(&site.dial(), connect(1, false));
    let (_, mut stream) = next_stream(&source.link.events);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let mut sent = 0;
            while !is_over.load(Ordering::SeqCst) || sent < 10 {
                let object = Object::noise(sent, 200_000);
                object.send(&mut *stream).expect("sent");
                object.expect(&sink.link.events, &pool);
                sent += 1;
            }
        });
        let over = Over(&is_over);
        garbage(&site);
        truncated(&site);
        oversize(&site);
        slow(&site);
        drop(over);
        good.join().expect("the good session was not harmed");
    });
    // A new caller is still admitted.
    let (source, ..) = site.push(&site.dial(), connect(1, false));
    drop(source);
}

fn garbage(site: &Site) {
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"DRAY\x01\x01\x00\x00",
        b"DRAY\x03\x00\x00\x00",
        b"DRAY\x01\x00\x00\x00 this is no ClientHello at all, is it?",
        b"DRAY\x02\x01\x00\x00 and this is no JOIN frame: it should be 64 bytes of something else",
        &[0xff; 4096],
    ] {
        assert!(is_closed(&mut raw(site, bytes)), "{}", bytes.escape_ascii());
        site.next_rejected();
    }
    let mut stream = tls(site, Connection::Control);
    stream.write_all(&[0xee; 5000]).expect("sent");
    assert!(is_closed(&mut stream));
    site.next_rejected();
    let mut stream = tls(site, Connection::Control);
    stream.write_all(&frames(&Message::Bye)).expect("sent");
    assert!(is_closed(&mut stream));
    site.next_rejected();
}

fn truncated(site: &Site) {
    drop(raw(site, b"DRA"));
    site.next_rejected();
    drop(raw(site, b"DRAY\x01\x00\x00\x00\x16\x03"));
    site.next_rejected();
    let hello = frames(&Message::Hello(hello()));
    let mut stream = tls(site, Connection::Control);
    stream.write_all(&hello[..hello.len() / 2]).expect("sent");
    drop(stream);
    site.next_rejected();
}

/// Sends lengths and counts that would cost memory if the listener trusted them.
fn oversize(site: &Site) {
    for length in [HELLO_BYTES_MAX + 1, u32::MAX] {
        let mut stream = tls(site, Connection::Control);
        let mut frame = frames(&Message::Hello(hello()));
        frame[..4].copy_from_slice(&length.to_le_bytes());
        stream.write_all(&frame).expect("sent");
        assert!(is_closed(&mut stream));
        let error = site.next_rejected();
        assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
    }
}

/// Sends one byte from time to time, which must not extend the timeout.
fn slow(site: &Site) {
    let begin = Instant::now();
    let mut dribble = raw(site, b"DRAY\x01\x00\x00\x00");
    let mut in_tls = tls(site, Connection::Control);
    let hello = frames(&Message::Hello(hello()));
    let mut bytes = hello.iter();
    while begin.elapsed() < SHORT_HANDSHAKE + Duration::from_millis(500) {
        let _ = dribble.write_all(&[0x16]);
        let _ = in_tls.write_all(&[*bytes.next().expect("not so fast")]);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_closed(&mut dribble));
    assert!(is_closed(&mut in_tls));
    site.next_rejected();
    site.next_rejected();
}

#[test]
fn a_crowd_of_strangers_shuts_nobody_out() {
    let site = Site::start(&Change {
        serve: &|serve| {
            serve.timing.handshake = 10 * PATIENCE;
            serve.pending_max = 8;
            serve.sessions_max = 4;
        },
        ..Change::default()
    });
    // Open more connections than the set of pending connections can hold. None of them closes on
    // its own.
    let crowd: Vec<_> = (0..60).map(|_| raw(&site, b"DRAY")).collect();
    let begin = Instant::now();
    let source = loop {
        match push(&site.dial(), connect(1, false)) {
            Ok(source) => break source,
            // The threads of evicted connections need some time to end.
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
    };
    let sink = site.sinks.recv_timeout(PATIENCE).expect("a session");
    let pool = site.pools.recv_timeout(PATIENCE).expect("a pool");
    let (_, mut stream) = next_stream(&source.link.events);
    let object = Object::noise(7, 100);
    object.send(&mut *stream).expect("sent");
    object.expect(&sink.link.events, &pool);
    drop(crowd);
}

#[test]
fn an_object_without_credit_ends_the_session_and_no_other() {
    let site = Site::start(&Change {
        buffers: 2,
        ..Change::default()
    });
    let (good, good_sink, good_pool) = site.push(&site.dial(), connect(1, false));
    let (_, mut good_stream) = next_stream(&good.link.events);
    let (source, sink, _) = site.push(&site.dial(), connect(1, false));
    let (_, mut stream) = next_stream(&source.link.events);
    for number in 0..3 {
        // No buffer is free for the third object.
        let _ = Object::noise(number, 1000).send(&mut *stream);
    }
    let error = loss_at_sink(&sink.link.events);
    assert_eq!(error.kind, ErrorKind::Protocol);
    assert!(error.to_string().contains("credit"), "{error}");
    // The source gets the reason for the end of the session.
    match message_at_source(&source.link.events) {
        Message::GoAway(told) => assert_eq!(told, error),
        other => panic!("GO_AWAY was due, not {other:?}"),
    }
    let object = Object::noise(1, 5000);
    object.send(&mut *good_stream).expect("sent");
    object.expect(&good_sink.link.events, &good_pool);
}

#[test]
fn an_executor_hears_that_its_link_broke_off_before_a_peer_that_does_not_read() {
    let site = Site::start(&Change {
        buffers: 2,
        ..Change::default()
    });
    let (source, mut sink, _) = site.push(&site.dial(), connect(1, false));
    let (_, mut stream) = next_stream(&source.link.events);
    // The test does not read the events of the source. So the source stops reading from the socket,
    // and the sink's writes then block.
    let mut control = sink.link.control;
    sink.link.control = Box::new(Nobody);
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    std::thread::spawn(move || {
        let message = Message::Credit(vec![(TargetId(0), 1); 256]);
        while control.send(&message).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut before = 0;
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::Relaxed);
        if now > 0 && now == before {
            break;
        }
        before = now;
    }
    for number in 0..3 {
        let _ = Object::noise(number, 1000).send(&mut *stream);
    }
    let error = loss_at_sink(&sink.link.events);
    assert!(error.to_string().contains("credit"), "{error}");
}

/// A control sender that drops all messages.
struct Nobody;

impl ControlSender for Nobody {
    fn send(&mut self, _message: &Message) -> dray_core::Result<()> {
        Ok(())
    }
}

#[test]
fn a_ping_is_answered_with_its_value() {
    let site = Site::start(&Change::default());
    let mut stream = tls(&site, Connection::Control);
    accepted(&mut stream, &connect(1, false));
    stream
        .write_all(&frames(&Message::Ping(4711)))
        .expect("sent");
    let mut answer = vec![0; frames(&Message::Pong(4711)).len()];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, frames(&Message::Pong(4711)));
    // The connection itself answers a PING, so the executor gets no event.
    let sink = site.sinks.recv_timeout(PATIENCE).expect("a session");
    assert!(sink.link.events.is_empty());
}

#[test]
fn a_message_that_is_garbage_ends_its_session_with_a_reason() {
    let site = Site::start(&Change::default());
    let mut stream = tls(&site, Connection::Control);
    stream
        .write_all(&frames(&Message::Hello(hello())))
        .expect("sent");
    stream
        .write_all(&frames(&Message::Connect(connect(1, false))))
        .expect("sent");
    let sink = site.sinks.recv_timeout(PATIENCE).expect("a session");
    stream.write_all(&[0x33; 64]).expect("sent");
    let error = loss_at_sink(&sink.link.events);
    assert!(
        matches!(error.kind, ErrorKind::Protocol | ErrorKind::LimitExceeded),
        "{error}"
    );
    match &answers(&mut stream)[..] {
        [Message::Hello(_), Message::Accept(_), Message::GoAway(told)] => {
            assert_eq!(told.kind, error.kind);
        }
        other => panic!("HELLO, ACCEPT and GO_AWAY were due, not {other:?}"),
    }
}
