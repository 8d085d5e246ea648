//! State shared by the connections of one link: the executor's inbox, the live streams, the end.

use super::channel::Channel;
use super::control::Shared;
use super::data::StreamSender;
use super::receive::StreamReceiver;
use super::socket::{has_left, shut};
use super::{PEER, Timing, fail};
use crate::batch::Batch;
use crate::link::{SinkEvent, SourceEvent};
use crate::pace::SharedRates;
use crate::panic_guard::caught;
use crate::pool::Pool;
use crate::threads::refused;
use crossbeam_channel::{Receiver, Sender, bounded};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result, StreamId};
use dray_session::{sink, source};
use dray_wire::message::{BlockState, Limits, Message};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Events that may wait for an executor before its network threads stop reading; the peer then feels
/// it as a full socket. Guess, revisit.
const BACKLOG_MAX: usize = 32;

/// The same before a long message is handed in. With [`LONG_BYTES`] this bounds what a peer can make
/// this end hold: decoded, a message is up to sixteen times as long as its frame.
const BACKLOG_MAX_LONG: usize = 2;

/// Bytes of a frame from which its message is a long one.
const LONG_BYTES: usize = 64 << 10;

/// Pause of a network thread before it checks a backlog again.
const BACKLOG_WAIT: Duration = Duration::from_micros(200);

/// Streams that may join one session over its life: a limit of the list of numbers used.
const JOINS_MAX: usize = 1 << 16;

/// Destination of a link's events.
pub(super) enum Inbox {
    /// The executor of a source.
    Source(Sender<SourceEvent>),
    /// The executor of a sink. Its receivers fill the pool, at these rates at most.
    Sink(Sender<SinkEvent>, Arc<Pool>, SharedRates),
}

impl Inbox {
    fn backlog(&self) -> usize {
        match self {
            Self::Source(events) => events.len(),
            Self::Sink(events, ..) => events.len(),
        }
    }

    // An executor that has ended hears nothing more, and that is no error.

    fn message(&self, message: Message) {
        match self {
            Self::Source(events) => {
                let input = source::Input::Message(message);
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::Message(PEER, message);
                let _ = events.send(SinkEvent::Input(input));
            }
        }
    }

    fn peer_lost(&self, error: Error) {
        match self {
            Self::Source(events) => {
                let input = source::Input::PeerLost(error);
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::PeerLost(PEER, error);
                let _ = events.send(SinkEvent::Input(input));
            }
        }
    }

    fn leave(&self) {
        let error = |end| {
            Error::new(ErrorKind::Busy, end, "go on")
                .cause("the server stops")
                .remedy(
                    "run the same command again when the server runs again; durable data is \
                         kept",
                )
        };
        match self {
            Self::Source(events) => {
                let input = source::Input::Leave(error(End::Source));
                let _ = events.send(SourceEvent::Input(input));
            }
            Self::Sink(events, ..) => {
                let input = sink::Input::Leave(error(End::Sink));
                let _ = events.send(SinkEvent::Input(input));
            }
        }
    }
}

/// A job of the driver's dialler.
pub(super) enum Note {
    /// A stream was lost: dial another.
    Lost(Error),
    /// The first streams have been opened, as far as they could be.
    FirstOpened,
    /// Have so many streams alive; none is tried again.
    Want(usize),
}

/// Asks for more streams of a link while it runs, at the driver.
#[derive(Clone)]
pub struct Growth(Arc<Hub>);

impl Growth {
    pub(super) const fn new(hub: Arc<Hub>) -> Self {
        Self(hub)
    }

    /// Asks the dialler to raise the number of live streams to `streams`, or to the granted number if
    /// that is lower. Returns immediately; the other end may still refuse a stream.
    pub fn want(&self, streams: u32) {
        if !self.0.is_over() {
            let streams = usize::try_from(streams).unwrap_or(usize::MAX);
            self.0
                .tell_dialler(Note::Want(streams.min(self.0.streams_max)));
        }
    }

    /// Returns true once a data stream has joined. A session that is lost before that counts as not
    /// begun.
    #[must_use]
    pub fn had_streams(&self) -> bool {
        self.0.had_streams.load(Ordering::Acquire)
    }

    /// Streams that are alive.
    #[must_use]
    pub fn live(&self) -> usize {
        self.0.live_streams()
    }

    /// Streams that were lost or could not be made, since the link began; the number goes round.
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.0.errors.load(Ordering::Relaxed)
    }
}

struct Streams {
    live: HashMap<StreamId, Arc<TcpStream>>,
    used: HashSet<StreamId>,
    /// Lent to threads; when all are gone, so are the threads.
    running: Option<Sender<Infallible>>,
    /// The dialler of streams, at the driver.
    dialler: Option<Sender<Note>>,
    control: Option<Arc<Shared>>,
}

impl Streams {
    fn count_live(&self) -> usize {
        self.live
            .values()
            .filter(|stream| !has_left(stream))
            .count()
    }
}

/// See the module's head.
pub(super) struct Hub {
    inbox: Inbox,
    limits: Limits,
    timing: Timing,
    streams_max: usize,
    is_driver: bool,
    is_over: AtomicBool,
    progress: AtomicU64,
    errors: AtomicU32,
    had_streams: AtomicBool,
    streams: Mutex<Streams>,
    ended: Receiver<Infallible>,
}

impl Hub {
    pub(super) fn new(
        inbox: Inbox,
        limits: Limits,
        timing: Timing,
        streams_max: u16,
        dialler: Option<Sender<Note>>,
    ) -> Arc<Self> {
        let (running, ended) = bounded(0);
        Arc::new(Self {
            inbox,
            limits,
            timing,
            streams_max: streams_max.into(),
            is_driver: dialler.is_some(),
            is_over: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            errors: AtomicU32::new(0),
            had_streams: AtomicBool::new(false),
            streams: Mutex::new(Streams {
                live: HashMap::new(),
                used: HashSet::new(),
                running: Some(running),
                dialler,
                control: None,
            }),
            ended,
        })
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock_unpoisoned()
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns true if the link has ended.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// An object came through: the sink has it, or says so.
    pub(super) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// A number that changes whenever an object came through.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Starts a thread that [`Self::close`] waits for. The link ends with it if it panics.
    ///
    /// # Errors
    /// When the system gives no further thread.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let running = self.streams().running.clone();
        let hub = Arc::clone(self);
        let thread = thread::Builder::new().name(name.to_owned());
        let started = thread.spawn(move || {
            let _batch = Batch::begin();
            if let Err(error) = caught("keep the connection", run) {
                hub.break_off(error);
            }
            drop(running);
        });
        started.map(drop).map_err(|error| refused(&error))
    }

    /// Names the control connection, which ends with the link.
    pub(super) fn set_control(&self, control: Arc<Shared>) {
        self.streams().control = Some(control);
    }

    /// Waits while the executor has much to do already, before something of this many bytes.
    pub(super) fn wait_for_room(&self, bytes: usize) {
        let most = match bytes {
            LONG_BYTES.. => BACKLOG_MAX_LONG,
            _ => BACKLOG_MAX,
        };
        while self.inbox.backlog() >= most && !self.is_over() {
            thread::sleep(BACKLOG_WAIT);
        }
    }

    /// Hands in a control message whose frame had so many bytes, when there is room for it; once the
    /// link is over, the machine would not listen.
    pub(super) fn message(&self, message: Message, bytes: usize) {
        self.wait_for_room(bytes);
        if self.is_over() {
            return;
        }
        if let (Inbox::Source(_), Message::BlockSync(states)) = (&self.inbox, &message) {
            let came =
                |state: &BlockState| matches!(state, BlockState::Written | BlockState::Durable);
            if states.iter().any(|(_, state)| came(state)) {
                self.note_progress();
            }
        }
        let asked = match &message {
            Message::StreamLost { stream, .. } => Some(*stream),
            _ => None,
        };
        self.inbox.message(message);
        if let Some(stream) = asked {
            self.settle_lost(stream);
        }
    }

    /// The source has lost a stream and asks what came over it. The sink's machine answers when the
    /// stream has ended here too, so it must, even if its join never came or its path is dead in a way
    /// that only the source has noticed.
    fn settle_lost(&self, stream: StreamId) {
        let Inbox::Sink(events, ..) = &self.inbox else {
            return;
        };
        let mut streams = self.streams();
        if let Some(socket) = streams.live.get(&stream) {
            // What has arrived is still read, and then comes the end.
            let _ = socket.shutdown(Shutdown::Read);
        } else if streams.used.len() < JOINS_MAX && streams.used.insert(stream) {
            // It never joined, and now never will.
            let _ = events.send(SinkEvent::Input(sink::Input::StreamLost(PEER, stream)));
        }
    }

    /// The session cannot go on; the streams end too, so that nobody waits on one.
    pub(super) fn peer_lost(&self, error: Error) {
        self.inbox.peer_lost(error);
        self.cut_streams();
    }

    /// Ends the session as [`Self::peer_lost`] does, and sends the peer the reason. The executor gets
    /// the error first, because sending may block if the peer does not read.
    pub(super) fn break_off(&self, error: Error) {
        let control = self.streams().control.clone();
        if let Some(control) = &control {
            control.note_go_away(&error);
        }
        self.peer_lost(error);
        if let Some(control) = control {
            control.say_last_words();
        }
    }

    /// Asks the executor to end the session and to keep durable data.
    pub(super) fn leave(&self) {
        self.inbox.leave();
    }

    /// Returns the number of live streams. A stream that its peer has closed does not count, even if
    /// its thread has not detected that yet.
    pub(super) fn live_streams(&self) -> usize {
        self.streams().count_live()
    }

    /// Reports streams that the peer has closed to a source's executor. A stream with nothing to send
    /// would not detect this, and its last objects may be lost. `known` counts the checks that found a
    /// stream closed. A stream is reported at its second such check, because the end of a session
    /// closes its streams too.
    pub(super) fn look_for_left(&self, known: &mut HashMap<StreamId, u32>) {
        let Inbox::Source(events) = &self.inbox else {
            return;
        };
        let streams = self.streams();
        let left = streams.live.iter().filter(|(_, stream)| has_left(stream));
        let looks = |id: &StreamId| known.get(id).map_or(1, |looks| looks.saturating_add(1));
        let left = left.map(|(id, _)| (*id, looks(id))).collect();
        drop(streams);
        *known = left;
        for (id, _) in known.iter().filter(|(_, looks)| **looks == 2) {
            let error = io::Error::from(io::ErrorKind::ConnectionReset);
            let error = fail::io_error("send an object", &error);
            let _ = events.send(SourceEvent::Left(*id, error));
        }
    }

    /// Adds a stream that has joined.
    ///
    /// # Errors
    /// If the link has ended, the number was used before, the granted number of streams is alive, or
    /// the system refuses a thread. In the last case a passive end without another stream ends the
    /// link and sends the driver the reason; otherwise the driver would only see its streams close.
    pub(super) fn attach(self: &Arc<Self>, stream: StreamId, mut channel: Channel) -> Result<()> {
        let refuse = |cause: &str| Err(fail::protocol("join a stream", cause));
        {
            let mut streams = self.streams();
            if self.is_over() {
                return refuse("the session is over");
            }
            if streams.count_live() >= self.streams_max || streams.used.len() >= JOINS_MAX {
                return refuse("more streams than were granted");
            }
            if !streams.used.insert(stream) {
                return refuse("its number was used before");
            }
            let socket = Arc::clone(channel.socket().stream());
            streams.live.insert(stream, socket);
            self.had_streams.store(true, Ordering::Release);
        }
        let registration = Registration {
            hub: Arc::clone(self),
            stream,
        };
        let started = match channel.socket_mut().settle(self.timing.lost_after) {
            Ok(()) => self.start(channel, registration),
            Err(error) => Err(fail::io_error("set up a stream", &error)),
        };
        if let (Err(error), Inbox::Sink(events, ..)) = (&started, &self.inbox) {
            // Its number counts as used, and the source may believe that it is up.
            let _ = events.send(SinkEvent::Input(sink::Input::StreamLost(PEER, stream)));
            let is_lack = error.kind == ErrorKind::Busy;
            if is_lack && !self.is_driver && self.live_streams() == 0 {
                self.break_off(error.clone().at(End::Sink));
            }
        }
        started
    }

    fn start(self: &Arc<Self>, channel: Channel, registration: Registration) -> Result<()> {
        match &self.inbox {
            Inbox::Source(events) => {
                let stream = registration.stream();
                let sender = StreamSender::new(channel, registration);
                let _ = events.send(SourceEvent::Stream(stream, Box::new(sender)));
                Ok(())
            }
            Inbox::Sink(events, pool, shared) => {
                let (events, pool) = (events.clone(), Arc::clone(pool));
                let shared = shared.clone();
                let receiver = StreamReceiver::new(channel, registration, events, pool, shared);
                self.spawn("dray-stream", move || receiver.run())
            }
        }
    }

    /// Tells the driver's half that a stream died.
    pub(super) fn stream_lost(&self, lost: Error) {
        if !self.is_over() {
            self.count_error();
            self.tell_dialler(Note::Lost(lost));
        }
    }

    /// Tells it that none of the first is under way any more.
    pub(super) fn first_opened(&self) {
        self.tell_dialler(Note::FirstOpened);
    }

    fn tell_dialler(&self, note: Note) {
        if let Some(dialler) = &self.streams().dialler {
            let _ = dialler.send(note);
        }
    }

    /// A stream was lost or could not be made.
    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    fn cut_streams(&self) {
        self.is_over.store(true, Ordering::Release);
        let mut streams = self.streams();
        // The dialler ends with its last sender.
        streams.dialler = None;
        for (_, stream) in streams.live.drain() {
            shut(&stream);
        }
    }

    /// Ends the link regularly: ends this end's direction, then waits a limited time for the peer and
    /// for the threads. A driver that has sent BYE returns immediately and waits on another thread,
    /// because the peer's end may be a round trip away.
    pub(super) fn close(self: &Arc<Self>) {
        let control = self.streams().control.take();
        if let Some(control) = &control {
            control.close();
        }
        self.cut_streams();
        drop(self.streams().running.take());
        let is_done = control
            .as_ref()
            .is_some_and(|control| control.has_said_bye());
        if self.is_driver && is_done {
            let hub = Arc::clone(self);
            let peer = control.clone();
            let thread = thread::Builder::new().name("dray-linger".to_owned());
            if thread.spawn(move || hub.linger(peer)).is_ok() {
                return;
            }
        }
        self.linger(control);
    }

    fn linger(&self, control: Option<Arc<Shared>>) {
        // Nothing is ever sent: this ends when the last thread has, or with the time.
        let _ = self.ended.recv_timeout(self.timing.linger);
        if let Some(control) = control {
            control.cut();
        }
    }

    /// Ends the link at once.
    pub(super) fn cut(&self) {
        let control = self.streams().control.take();
        if let Some(control) = &control {
            control.cut();
        }
        self.cut_streams();
        drop(self.streams().running.take());
    }
}

/// A stream's place among the live ones, given back when dropped.
pub(super) struct Registration {
    hub: Arc<Hub>,
    stream: StreamId,
}

impl Registration {
    pub(super) const fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub(super) const fn stream(&self) -> StreamId {
        self.stream
    }

    /// The stream is alive no longer.
    pub(super) fn end(&self) {
        self.hub.streams().live.remove(&self.stream);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends a link when dropped, unless it was closed in good order before.
pub(super) struct Closer(Option<Arc<Hub>>);

impl Closer {
    pub(super) const fn new(hub: Arc<Hub>) -> Self {
        Self(Some(hub))
    }

    pub(super) fn close(mut self) {
        if let Some(hub) = self.0.take() {
            hub.close();
        }
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        if let Some(hub) = self.0.take() {
            hub.cut();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hub, Inbox, Timing};
    use crate::link::SourceEvent;
    use crossbeam_channel::unbounded;
    use dray_core::ErrorKind;
    use dray_session::source::Input;
    use dray_wire::message::Limits;
    use std::time::{Duration, Instant};

    #[test]
    fn a_link_ends_with_a_thread_that_panics() {
        let (events_in, events) = unbounded();
        let inbox = Inbox::Source(events_in);
        let hub = Hub::new(inbox, Limits::default(), Timing::default(), 1, None);
        hub.spawn("panics", || panic!("on purpose"))
            .expect("started");
        let Ok(SourceEvent::Input(Input::PeerLost(error))) = events.recv() else {
            panic!("the executor hears nothing");
        };
        assert_eq!(error.kind, ErrorKind::Internal);
        assert!(error.cause.contains("on purpose"), "{error}");
        // The executor hears of it first; the streams are cut next.
        let until = Instant::now() + Duration::from_secs(10);
        while !hub.is_over() {
            assert!(Instant::now() < until, "the link goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
