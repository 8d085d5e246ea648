//! State shared by the connections of one link: its inbox, streams, threads, counters and end.

use super::connection::ControlConnection;
use super::inbox::Inbox;
use super::socket::Socket;
use super::streams::Streams;
use super::{Timing, fail};
use crossbeam_channel::{Receiver, Sender, bounded};
use dray_core::lock::LockExt;
use dray_core::{Error, Result, StreamId};
use dray_link::batch::Batch;
use dray_link::panic_guard::caught;
use dray_link::threads::refused;
use dray_wire::message::{BlockState, Limits, Message};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Interval at which a network thread checks again whether the executor's backlog has become
/// shorter.
const BACKLOG_WAIT: Duration = Duration::from_micros(200);

/// A request to the driver's dialler thread.
pub(super) enum Note {
    /// A stream was lost: dial a replacement.
    Lost(Error),
    /// The attempts to open the first streams have ended: each stream is open or has failed.
    FirstOpened,
    /// Open new streams until this number of streams is open. Do not repeat a failed attempt.
    Want(usize),
}

/// The streams of a link, and the handles that the link drops when it ends.
struct Ends {
    streams: Streams,
    /// Every thread of the link holds a clone. When all clones are dropped, all threads have ended.
    running: Option<Sender<Infallible>>,
    /// Sender to the dialler thread; `None` at a passive end.
    dialler: Option<Sender<Note>>,
    control: Option<Arc<ControlConnection>>,
}

/// State of a link, shared by its connections.
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
    ends: Mutex<Ends>,
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
            ends: Mutex::new(Ends {
                streams: Streams::default(),
                running: Some(running),
                dialler,
                control: None,
            }),
            ended,
        })
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock_unpoisoned()
    }

    pub(super) const fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Returns true at the driver, the end that dials.
    pub(super) const fn is_driver(&self) -> bool {
        self.is_driver
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Records that an object has arrived: at the sink on receipt, at the source when the sink
    /// reports it.
    pub(super) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a counter that changes whenever an object arrives.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Starts a thread of this link. [`Self::close`] waits for it. If the thread panics, the link
    /// ends.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(super) fn spawn(
        self: &Arc<Self>,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let running = self.ends().running.clone();
        let hub = Arc::clone(self);
        let thread = thread::Builder::new().name(name.to_owned());
        let started = thread.spawn(move || {
            let _batch = Batch::begin();
            if let Err(error) = caught("register the connection", run) {
                hub.break_off(error);
            }
            drop(running);
        });
        started.map(drop).map_err(|error| refused(&error))
    }

    /// Sets the control connection, which the link closes at its end.
    pub(super) fn set_control(&self, control: Arc<ControlConnection>) {
        self.ends().control = Some(control);
    }

    /// Waits until the executor's queue is short enough for another event of `bytes` bytes, or
    /// until the link ends.
    pub(super) fn wait_for_room(&self, bytes: usize) {
        while self.inbox.is_full(bytes) && !self.is_over() {
            thread::sleep(BACKLOG_WAIT);
        }
    }

    /// Passes a control message to the executor. `bytes` is the length of its frame. Waits while
    /// the executor's queue is full. Drops the message if the link has ended.
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

    /// Ends a stream that the source reports as lost. The source asks which objects arrived on the
    /// stream, and the sink's machine answers only after the stream has ended at the sink too. So
    /// the sink ends the stream even if the stream never joined, or if only the source has noticed
    /// that the network path of the stream is dead.
    fn settle_lost(&self, stream: StreamId) {
        let is_sink = matches!(self.inbox, Inbox::Sink(..));
        if is_sink && self.ends().streams.end_lost(stream) {
            self.inbox.stream_lost(stream);
        }
    }

    /// Reports that the session cannot continue. Ends the streams of the session, so that no thread
    /// waits for data on them.
    pub(super) fn peer_lost(&self, error: Error) {
        self.inbox.peer_lost(error);
        self.cut_streams();
    }

    /// Ends the session as [`Self::peer_lost`] does, and sends the reason to the peer. The executor
    /// gets the error first, because sending blocks if the peer does not read.
    pub(super) fn break_off(&self, error: Error) {
        let control = self.ends().control.clone();
        if let Some(control) = &control {
            control.note_go_away(&error);
        }
        self.peer_lost(error);
        if let Some(control) = control {
            control.say_last_words();
        }
    }

    /// Asks the executor to end the session and to keep durable data.
    pub(super) fn announce_stop(&self) {
        self.inbox.announce_stop();
    }

    /// Returns the number of open streams. A stream that the peer has closed does not count, even
    /// if the stream's thread has not detected this yet.
    pub(super) fn live_streams(&self) -> usize {
        self.ends().streams.count_live()
    }

    /// Tells the executor of a source which streams the peer has closed. A sender with nothing to
    /// send would not detect the end of its stream, and the last objects on that stream may be
    /// lost. `known` contains, for each closed stream, the number of calls that found it closed.
    /// The second such call reports the stream. The first does not, because the regular end of a
    /// session closes streams too.
    pub(super) fn look_for_left(&self, known: &mut HashMap<StreamId, u32>) {
        if !matches!(self.inbox, Inbox::Source(_)) {
            return;
        }
        let looks = |id: StreamId| known.get(&id).map_or(1, |looks| looks.saturating_add(1));
        let left = (self.ends().streams.left())
            .map(|id| (id, looks(id)))
            .collect();
        *known = left;
        for (id, _) in known.iter().filter(|(_, looks)| **looks == 2) {
            self.inbox.stream_left(*id);
        }
    }

    /// Adds `stream`, which has joined the session, to the open streams of this link.
    ///
    /// # Errors
    /// If the link has ended, and the errors of [`Streams::add`].
    pub(super) fn register(
        self: &Arc<Self>,
        stream: StreamId,
        socket: &Arc<TcpStream>,
    ) -> Result<Registration> {
        let mut ends = self.ends();
        if self.is_over() {
            return Err(fail::protocol("join a stream", "the session has ended"));
        }
        ends.streams.add(stream, socket, self.streams_max)?;
        self.had_streams.store(true, Ordering::Release);
        drop(ends);
        Ok(Registration {
            hub: Arc::clone(self),
            stream,
        })
    }

    /// Returns true if at least one data stream has joined since the link began.
    pub(super) fn had_streams(&self) -> bool {
        self.had_streams.load(Ordering::Acquire)
    }

    /// Configures the socket of a stream for the running session.
    pub(super) fn settle(&self, socket: &mut Socket) -> Result<()> {
        let settled = socket.settle(self.timing.lost_after);
        settled.map_err(|error| fail::io_error("set up a stream", &error))
    }

    /// Reports a lost stream to the dialler, unless the link has ended.
    pub(super) fn stream_lost(&self, lost: Error) {
        if !self.is_over() {
            self.count_error();
            self.tell_dialler(Note::Lost(lost));
        }
    }

    /// Tells the dialler that no first stream is being opened any more.
    pub(super) fn first_opened(&self) {
        self.tell_dialler(Note::FirstOpened);
    }

    /// Asks the dialler for `streams` open streams, or for the granted number if that is lower.
    pub(super) fn want_streams(&self, streams: usize) {
        self.tell_dialler(Note::Want(streams.min(self.streams_max)));
    }

    fn tell_dialler(&self, note: Note) {
        if let Some(dialler) = &self.ends().dialler {
            let _ = dialler.send(note);
        }
    }

    /// Counts a stream that was lost or could not be opened.
    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of streams that were lost or could not be opened.
    pub(super) fn errors(&self) -> u32 {
        self.errors.load(Ordering::Relaxed)
    }

    fn cut_streams(&self) {
        self.is_over.store(true, Ordering::Release);
        let mut ends = self.ends();
        // The dialler thread ends when its last sender is dropped.
        ends.dialler = None;
        ends.streams.cut();
    }

    /// Ends the link regularly: closes this end's direction, then waits a limited time for the peer
    /// and for the threads. A driver that has sent BYE returns immediately and lets another thread
    /// wait, because the peer's answer may take a network round trip.
    pub(super) fn close(self: &Arc<Self>) {
        let control = self.ends().control.take();
        if let Some(control) = &control {
            control.close();
        }
        self.cut_streams();
        drop(self.ends().running.take());
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

    fn linger(&self, control: Option<Arc<ControlConnection>>) {
        // No thread sends on `ended`. The receive returns when the last thread of the link drops
        // its sender, or after the timeout.
        let _ = self.ended.recv_timeout(self.timing.linger);
        if let Some(control) = control {
            control.cut();
        }
    }

    /// Ends the link immediately.
    pub(super) fn cut(&self) {
        let control = self.ends().control.take();
        if let Some(control) = &control {
            control.cut();
        }
        self.cut_streams();
        drop(self.ends().running.take());
    }
}

/// Marks a stream as open until dropped.
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

    /// Removes the stream from the open streams.
    pub(super) fn end(&self) {
        self.hub.ends().streams.remove(self.stream);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends a link immediately when dropped, unless [`Self::close`] was called.
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
    use crossbeam_channel::unbounded;
    use dray_core::ErrorKind;
    use dray_link::link::SourceEvent;
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
        // `break_off` reports the error to the executor before it ends the streams, so wait for the
        // end.
        let until = Instant::now() + Duration::from_secs(10);
        while !hub.is_over() {
            assert!(Instant::now() < until, "the link goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
