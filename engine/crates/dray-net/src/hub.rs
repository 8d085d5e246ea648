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

/// Pause of a network thread before it checks a backlog again.
const BACKLOG_WAIT: Duration = Duration::from_micros(200);

/// A job of the driver's dialler.
pub(super) enum Note {
    /// A stream was lost: dial another.
    Lost(Error),
    /// The first streams have been opened, as far as they could be.
    FirstOpened,
    /// Have so many streams alive; none is tried again.
    Want(usize),
}

/// Handles of a link that are taken from it when it ends, and its streams.
struct Ends {
    streams: Streams,
    /// Lent to threads; when all are dropped, all threads have ended.
    running: Option<Sender<Infallible>>,
    /// The dialler of streams, at the driver.
    dialler: Option<Sender<Note>>,
    control: Option<Arc<ControlConnection>>,
}

/// The link; see the documentation of the module.
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

    /// Returns true at the end that dials.
    pub(super) const fn is_driver(&self) -> bool {
        self.is_driver
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
        let running = self.ends().running.clone();
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
    pub(super) fn set_control(&self, control: Arc<ControlConnection>) {
        self.ends().control = Some(control);
    }

    /// Waits while the executor has much to do already, before something of this many bytes.
    pub(super) fn wait_for_room(&self, bytes: usize) {
        while self.inbox.is_full(bytes) && !self.is_over() {
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
        let is_sink = matches!(self.inbox, Inbox::Sink(..));
        if is_sink && self.ends().streams.end_lost(stream) {
            self.inbox.stream_lost(stream);
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
    pub(super) fn leave(&self) {
        self.inbox.leave();
    }

    /// Returns the number of live streams. A stream that its peer has closed does not count, even if
    /// its thread has not detected that yet.
    pub(super) fn live_streams(&self) -> usize {
        self.ends().streams.count_live()
    }

    /// Reports streams that the peer has closed to a source's executor. A stream with nothing to send
    /// would not detect this, and its last objects may be lost. `known` counts the checks that found a
    /// stream closed. A stream is reported at its second such check, because the end of a session
    /// closes its streams too.
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

    /// Adds a stream that has joined to the live ones.
    ///
    /// # Errors
    /// If the link has ended, and as [`Streams::add`].
    pub(super) fn register(
        self: &Arc<Self>,
        stream: StreamId,
        socket: &Arc<TcpStream>,
    ) -> Result<Registration> {
        let mut ends = self.ends();
        if self.is_over() {
            return Err(fail::protocol("join a stream", "the session is over"));
        }
        ends.streams.add(stream, socket, self.streams_max)?;
        self.had_streams.store(true, Ordering::Release);
        drop(ends);
        Ok(Registration {
            hub: Arc::clone(self),
            stream,
        })
    }

    /// Returns true once a data stream has joined.
    pub(super) fn had_streams(&self) -> bool {
        self.had_streams.load(Ordering::Acquire)
    }

    /// Sets a stream's socket up for the session.
    pub(super) fn settle(&self, socket: &mut Socket) -> Result<()> {
        let settled = socket.settle(self.timing.lost_after);
        settled.map_err(|error| fail::io_error("set up a stream", &error))
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

    /// Asks the dialler for so many live streams, or the granted number if that is lower.
    pub(super) fn want_streams(&self, streams: usize) {
        self.tell_dialler(Note::Want(streams.min(self.streams_max)));
    }

    fn tell_dialler(&self, note: Note) {
        if let Some(dialler) = &self.ends().dialler {
            let _ = dialler.send(note);
        }
    }

    /// A stream was lost or could not be made.
    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of streams that were lost or could not be made.
    pub(super) fn errors(&self) -> u32 {
        self.errors.load(Ordering::Relaxed)
    }

    fn cut_streams(&self) {
        self.is_over.store(true, Ordering::Release);
        let mut ends = self.ends();
        // The dialler ends with its last sender.
        ends.dialler = None;
        ends.streams.cut();
    }

    /// Ends the link regularly: ends this end's direction, then waits a limited time for the peer and
    /// for the threads. A driver that has sent BYE returns immediately and waits on another thread,
    /// because the peer's end may be a round trip away.
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
        // Nothing is ever sent: this ends when the last thread has, or with the time.
        let _ = self.ended.recv_timeout(self.timing.linger);
        if let Some(control) = control {
            control.cut();
        }
    }

    /// Ends the link at once.
    pub(super) fn cut(&self) {
        let control = self.ends().control.take();
        if let Some(control) = &control {
            control.cut();
        }
        self.cut_streams();
        drop(self.ends().running.take());
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
        self.hub.ends().streams.remove(self.stream);
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
        // The executor hears of it first; the streams are cut next.
        let until = Instant::now() + Duration::from_secs(10);
        while !hub.is_over() {
            assert!(Instant::now() < until, "the link goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
