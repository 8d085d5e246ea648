//! Two ends on the loopback interface, without state machines. The test acts as the executor of
//! both ends.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its part, and sees it as a module"
)]

pub mod by_hand;
pub mod far;
pub mod proxy;

use crossbeam_channel::{Receiver, Sender, bounded, never, unbounded};
use dray_core::options::Options;
use dray_core::retry::RetryPolicy;
use dray_core::{
    BlockId, BufferId, ByteRange, Error, FileIndex, Result, StreamId, Sums, TargetId, TransferId,
};
use dray_link::link::{BlockSender, SinkEvent, SinkLink, SourceEvent, SourceLink};
use dray_link::pace::{Gate, Pace, SharedRates};
use dray_link::pool::Pool;
use dray_net::{
    Caller, Dial, Dialled, Fingerprint, Handler, Identity, Listener, Prepared, Presented, Request,
    Serve, Stopper, Timing, Token,
};
use dray_session::{sink, source};
use dray_wire::message::{BlockHead, Connect, Message, Role, Segment, SegmentKind, Selection};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub const TOKEN: &[u8] = b"a token for tests";
/// Time limit for a wait, long enough for a busy host. In a passing test all waits are far shorter.
pub const PATIENCE: Duration = Duration::from_secs(20);
pub const OBJECT_BYTES: u64 = 1 << 20;

/// A link of the passive end. Its session stays open until this value is dropped.
pub struct OpenLink<L> {
    pub link: L,
    _open: Sender<Infallible>,
}

/// A handler that passes the links of its sessions to the test.
pub struct ToTest {
    buffers: u32,
    pools: Sender<Arc<Pool>>,
    sinks: Sender<OpenLink<SinkLink>>,
    sources: Sender<OpenLink<SourceLink>>,
    refusal: Mutex<Option<Error>>,
    rejected: Sender<Error>,
}

impl Handler for ToTest {
    fn admit(&self, caller: &Caller) -> Result<()> {
        caller.must_show(&token())
    }

    fn prepare<'h>(&'h self, request: Request) -> Result<Prepared<'h>> {
        if let Some(error) = self.refusal.lock().expect("whole").clone() {
            return Err(error);
        }
        assert!(request.caller.peer.ip().is_loopback());
        assert!(request.peer_software.starts_with("dray "));
        match request.connect.passive_role {
            Role::Sink => {
                let pool = Arc::new(Pool::new(self.buffers, OBJECT_BYTES).expect("memory"));
                let _ = self.pools.send(Arc::clone(&pool));
                let run = Box::new(move |link| hold(&self.sinks, link));
                let shared = SharedRates::default();
                Ok(Prepared::Sink { pool, shared, run })
            }
            Role::Source => {
                let run = Box::new(move |link| hold(&self.sources, link));
                Ok(Prepared::Source { run })
            }
        }
    }

    fn rejected(&self, _peer: SocketAddr, error: &Error) {
        let _ = self.rejected.send(error.clone());
    }
}

fn hold<L>(to: &Sender<OpenLink<L>>, link: L) {
    let (open, closed) = bounded(0);
    if to.send(OpenLink { link, _open: open }).is_ok() {
        let _ = closed.recv();
    }
}

/// A passive end that runs in the process of the test.
pub struct Site {
    pub address: SocketAddr,
    pub pin: Fingerprint,
    pub stopper: Stopper,
    pub pools: Receiver<Arc<Pool>>,
    pub sinks: Receiver<OpenLink<SinkLink>>,
    pub sources: Receiver<OpenLink<SourceLink>>,
    pub rejected: Receiver<Error>,
    handler: Arc<ToTest>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// Settings of a site that a test changes.
pub struct Change<'a> {
    pub buffers: u32,
    pub serve: &'a dyn Fn(&mut Serve),
}

impl Default for Change<'_> {
    fn default() -> Self {
        Self {
            buffers: 8,
            serve: &|_| {},
        }
    }
}

impl Site {
    pub fn start(change: &Change<'_>) -> Self {
        let place = tempfile::tempdir().expect("a folder");
        let identity = Identity::load_or_create(place.path()).expect("an identity");
        let pin = identity.fingerprint();
        let mut serve = Serve::new(Presented::new(identity).expect("a key"));
        serve.allow_clear_data = true;
        (change.serve)(&mut serve);
        let listener = Listener::bind(&["127.0.0.1:0".to_owned()], serve).expect("bound");
        let (pools_in, pools) = unbounded();
        let (sinks_in, sinks) = unbounded();
        let (sources_in, sources) = unbounded();
        let (rejected_in, rejected) = unbounded();
        let handler = Arc::new(ToTest {
            buffers: change.buffers,
            pools: pools_in,
            sinks: sinks_in,
            sources: sources_in,
            refusal: Mutex::new(None),
            rejected: rejected_in,
        });
        let address = listener.addresses()[0];
        let stopper = listener.stopper();
        let theirs = Arc::clone(&handler);
        let thread = std::thread::spawn(move || listener.run(&*theirs));
        Self {
            address,
            pin,
            stopper,
            pools,
            sinks,
            sources,
            rejected,
            handler,
            thread: Some(thread),
        }
    }

    pub fn refuse_with(&self, error: Error) {
        *self.handler.refusal.lock().expect("whole") = Some(error);
    }

    pub fn dial(&self) -> Dial {
        self.dial_at(self.address)
    }

    /// As [`Self::dial`], for another address, such as that of a proxy.
    pub fn dial_at(&self, address: SocketAddr) -> Dial {
        let mut dial = Dial::new(address.to_string(), self.pin, token());
        dial.bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        dial.retry = RetryPolicy {
            backoff: Duration::from_millis(5),
            ..RetryPolicy::default()
        };
        dial
    }

    /// Begins a session whose passive end is a sink. Returns the link of the source, the link of
    /// the sink, and the pool of the sink.
    pub fn push(
        &self,
        dial: &Dial,
        connect: Connect,
    ) -> (Dialled<SourceLink>, OpenLink<SinkLink>, Arc<Pool>) {
        let source = dray_net::push(dial, connect).expect("a session");
        let sink = self.sinks.recv_timeout(PATIENCE).expect("a session");
        let pool = self.pools.recv_timeout(PATIENCE).expect("a pool");
        (source, sink, pool)
    }

    /// Begins a session whose passive end is a source. Returns the link of the sink, the link of
    /// the source, and the pool of the sink.
    pub fn pull(
        &self,
        dial: &Dial,
        connect: Connect,
    ) -> (Dialled<SinkLink>, OpenLink<SourceLink>, Arc<Pool>) {
        let pool = Arc::new(Pool::new(8, OBJECT_BYTES).expect("memory"));
        let sink = dray_net::pull(dial, connect, Arc::clone(&pool)).expect("a session");
        let source = self.sources.recv_timeout(PATIENCE).expect("a session");
        (sink, source, pool)
    }

    /// Returns the error with which the next connection was refused.
    pub fn next_rejected(&self) -> Error {
        self.rejected.recv_timeout(PATIENCE).expect("a rejection")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stopper.abort();
        // Drop the sessions that the test has not received, including sessions that are just
        // beginning.
        self.sinks = never();
        self.sources = never();
        let ran = self.thread.take().map(JoinHandle::join);
        let ran = ran.map(|ran| ran.expect("the listener does not panic"));
        assert_eq!(ran.unwrap_or(Ok(())), Ok(()));
    }
}

pub fn token() -> Token {
    Token::new(TOKEN).expect("a token")
}

pub fn connect(streams: u16, clear_data: bool) -> Connect {
    Connect {
        transfer: TransferId::new("net-test").expect("an id"),
        attempt: 1,
        passive_role: Role::Sink,
        paths: vec![b"/somewhere".to_vec()],
        selection: Selection::default(),
        options: Options::default(),
        demanded: None,
        streams,
        clear_data,
        addresses: Vec::new(),
        trace: None,
    }
}

/// Returns timeouts that are short enough for a test to detect a silent peer.
pub fn hasty() -> Timing {
    Timing {
        ping_after: Duration::from_millis(40),
        lost_after: Duration::from_millis(1500),
        linger: Duration::from_millis(500),
        ..Timing::default()
    }
}

pub type SourceEvents = Receiver<SourceEvent>;
pub type SinkEvents = Receiver<SinkEvent>;

fn source_event(events: &SourceEvents) -> SourceEvent {
    events
        .recv_timeout(PATIENCE)
        .expect("an event at the source")
}

/// Returns the next input for the machine of a source. Adds streams that arrive before it to
/// `streams`.
pub fn source_input(events: &SourceEvents, streams: &mut Streams) -> source::Input {
    loop {
        match source_event(events) {
            SourceEvent::Input(input) => return input,
            SourceEvent::Stream(stream, sender) => streams.push((stream, sender)),
            // A test that cuts streams handles these events itself.
            SourceEvent::Left(..) => {}
            SourceEvent::Listed { .. } => panic!("nobody lists"),
            SourceEvent::Shared(_) => panic!("nothing is shared"),
            SourceEvent::Broken(error) => panic!("{error}"),
        }
    }
}

pub type Streams = Vec<(StreamId, Box<dyn BlockSender>)>;

pub fn next_stream(events: &SourceEvents) -> (StreamId, Box<dyn BlockSender>) {
    loop {
        match source_event(events) {
            SourceEvent::Stream(stream, sender) => return (stream, sender),
            SourceEvent::Left(..) => {}
            SourceEvent::Input(input) => panic!("a stream was due, not {input:?}"),
            SourceEvent::Broken(error) => panic!("{error}"),
            SourceEvent::Shared(_) => panic!("nothing is shared"),
            SourceEvent::Listed { .. } => panic!("nobody lists"),
        }
    }
}

pub fn sink_input(events: &SinkEvents) -> sink::Input {
    match events.recv_timeout(PATIENCE).expect("an event at the sink") {
        SinkEvent::Input(input) => input,
        SinkEvent::Prepared(..) => panic!("nobody prepares"),
        SinkEvent::Broken(error) => panic!("{error}"),
    }
}

/// An object that has arrived at a sink.
pub struct Arrived {
    pub head: BlockHead,
    pub buffer: Option<BufferId>,
    pub verified: Result<()>,
}

pub fn arrived(events: &SinkEvents) -> Arrived {
    match sink_input(events) {
        sink::Input::BlockArrived {
            head,
            buffer,
            verified,
            ..
        } => Arrived {
            head,
            buffer,
            verified,
        },
        other => panic!("an object was due, not {other:?}"),
    }
}

/// Returns pseudo-random bytes, different for each `number`.
pub fn noise(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

/// An object to send: its head, and a pool whose buffer contains the payload.
pub struct Object {
    pub head: BlockHead,
    pub bytes: Vec<u8>,
    pool: Pool,
}

impl Object {
    pub fn new(number: u64, segments: Vec<Segment>, bytes: Vec<u8>) -> Self {
        let pool = Pool::new(1, bytes.len() as u64).expect("memory");
        let mut buffer = pool.buffer(BufferId(0)).expect("known");
        buffer.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        drop(buffer);
        let head = BlockHead {
            id: BlockId(number),
            target: TargetId(3),
            segments,
        };
        Self { head, bytes, pool }
    }

    /// Creates an object with a single data segment.
    pub fn noise(number: u64, length: usize) -> Self {
        let bytes = noise(number, length);
        let segments = vec![data(number, number << 20, &bytes)];
        Self::new(number, segments, bytes)
    }

    pub fn send(&self, stream: &mut dyn BlockSender) -> Result<()> {
        let mut buffer = self.pool.buffer(BufferId(0)).expect("known");
        let gate = Gate::default();
        stream.send(
            &self.head,
            Some(&mut buffer),
            &mut Pace::new(&gate, &|_| {}),
        )
    }

    /// Receives the object from the link of a sink, compares every byte, and returns the buffer to
    /// the pool.
    pub fn expect(&self, events: &SinkEvents, pool: &Pool) {
        let arrived = arrived(events);
        assert_eq!(arrived.head, self.head);
        arrived.verified.expect("the bytes that were sent");
        let id = arrived.buffer.expect("a payload");
        let buffer = pool.buffer(id).expect("known");
        assert!(
            buffer.bytes()[..self.bytes.len()] == self.bytes,
            "other bytes"
        );
        drop(buffer);
        pool.give(id);
    }
}

pub fn data(file: u64, offset: u64, bytes: &[u8]) -> Segment {
    let length = bytes.len() as u64;
    Segment {
        file: FileIndex(file),
        range: ByteRange { offset, length },
        kind: SegmentKind::Data(Sums::of(bytes)),
    }
}

/// Waits for the next message at a sink. Ignores streams that end during the wait.
pub fn message_at_sink(events: &SinkEvents) -> Message {
    loop {
        match sink_input(events) {
            sink::Input::Message(_, message) => return message,
            sink::Input::StreamLost(..) => {}
            other => panic!("a message was due, not {other:?}"),
        }
    }
}

/// Waits for the next message at a source. Drops the streams that arrive before the message. A
/// stream ends when it is dropped.
pub fn message_at_source(events: &SourceEvents) -> Message {
    match source_input(events, &mut Streams::new()) {
        source::Input::Message(message) => message,
        other => panic!("a message was due, not {other:?}"),
    }
}

/// Waits until a sink gets the report that its peer is lost. Ignores earlier events.
pub fn loss_at_sink(events: &SinkEvents) -> Error {
    loop {
        if let sink::Input::PeerLost(_, error) = sink_input(events) {
            return error;
        }
    }
}

/// Waits until a source gets the report that its peer is lost. Ignores earlier events.
pub fn loss_at_source(events: &SourceEvents) -> Error {
    let mut streams = Streams::new();
    loop {
        if let source::Input::PeerLost(error) = source_input(events, &mut streams) {
            return error;
        }
    }
}

/// Returns the error of a dial call that must have failed.
pub fn refusal<L>(outcome: Result<Dialled<L>>) -> Error {
    match outcome {
        Ok(_) => panic!("a session began"),
        Err(error) => error,
    }
}
