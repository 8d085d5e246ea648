//! A transfer with both ends in one process. Control messages pass through channels, and the two
//! ends exchange buffers without a copy of their bytes.

use crate::observe::{Observer, TargetLoad};
use crate::{sink, source};
use crossbeam_channel::{Sender, unbounded};
use dray_core::time::nanos;
use dray_core::{End, Error, ErrorKind, LogForm, PeerId, Result, StreamId};
use dray_link::link::{BlockSender, ControlSender, SinkEvent, SinkLink, SourceEvent, SourceLink};
use dray_link::pace::Pace;
use dray_link::pool::{Buffer, Pool};
use dray_link::threads;
use dray_session::source::Listed;
use dray_session::{Event, Outcome, Progress, UnderWay};
use dray_wire::message::{BlockHead, Message, Totals};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The only stream of an in-process link. Passing a buffer takes no time, so more streams would not
/// help.
const STREAM: StreamId = StreamId(0);

/// Stops a transfer that runs in this process.
#[derive(Clone)]
pub struct Stopper(Sender<SourceEvent>);

impl Stopper {
    /// Returns the event channel of the source's executor.
    #[must_use]
    pub const fn events(&self) -> &Sender<SourceEvent> {
        &self.0
    }

    /// Requests a stop. Durable data is kept, unless `purge` is set.
    pub fn stop(&self, purge: bool) {
        let input = dray_session::source::Input::Cancel { purge };
        let _ = self.0.send(SourceEvent::Input(input));
    }
}

/// Outcomes of both ends.
#[derive(Debug)]
pub struct Ends {
    /// Outcome and counters of the source.
    pub source: (Outcome, Progress),
    /// Outcome and counters of the sink.
    pub sink: (Outcome, Progress),
}

impl Ends {
    /// Returns the source's counters, completed with the counters that only the sink has.
    #[must_use]
    pub const fn progress(&self) -> Progress {
        Progress {
            files_updated: self.sink.1.files_updated,
            bytes_read_back: self.sink.1.bytes_read_back,
            objects_corrupt: self.sink.1.objects_corrupt,
            log_commits: self.sink.1.log_commits,
            log_time: self.sink.1.log_time,
            log_form: self.sink.1.log_form,
            ..self.source.1
        }
    }

    /// Merges the outcomes of the source and the sink into one. If one end failed, returns the
    /// outcome of that end, because the other end only reports that its peer is gone. The counters
    /// are those of [`Ends::progress`].
    #[must_use]
    pub fn into_outcome(self) -> (Outcome, Progress) {
        let is_echo =
            |error: &Error| matches!(error.kind, ErrorKind::Unreachable | ErrorKind::Cancelled);
        let progress = self.progress();
        let outcome = match (self.source.0, self.sink.0) {
            (Outcome::Failed(_), Outcome::Failed(error)) if !is_echo(&error) => {
                Outcome::Failed(error)
            }
            (source, _) => source,
        };
        (outcome, progress)
    }
}

/// Runs both ends of a transfer. `started` gets the stopper. The observer receives the source's
/// events and the sink's notices.
///
/// # Errors
/// The errors of [`source::run`], before any data moves.
pub fn run(
    source: source::Setup,
    sink: sink::Setup,
    observer: &dyn Observer,
    started: impl FnOnce(Stopper),
) -> Result<Ends> {
    let pool = Arc::new(Pool::new(sink.machine.buffers, sink.machine.buffer_bytes)?);
    let (to_source, source_events) = unbounded();
    let (to_sink, sink_events) = unbounded();
    let source_link = SourceLink {
        events: source_events,
        events_in: to_source.clone(),
        control: Box::new(ToSink(to_sink.clone())),
        close: Box::new(|| {}),
    };
    let sink_link = SinkLink {
        events: sink_events,
        events_in: to_sink.clone(),
        control: Box::new(ToSource(to_source.clone())),
        close: Box::new(|| {}),
    };
    let (source_events_in, sink_events_in) = (to_source.clone(), to_sink.clone());
    let stream = HandOver {
        pool: Arc::clone(&pool),
        sink: to_sink,
    };
    let _ = to_source.send(SourceEvent::Stream(STREAM, Box::new(stream)));
    started(Stopper(to_source));
    let sink_only = SinkOnly::default();
    let at_sink = AtSink {
        observer,
        sink_only: &sink_only,
    };
    let at_source = AtSource {
        observer,
        sink_only: &sink_only,
    };
    let check = sink.destination.final_check();
    let ends = std::thread::scope(|scope| {
        // Each end informs the other when it ends, as the receivers of a network link do. Otherwise
        // the other end would wait forever.
        let sink = threads::start(scope, || {
            let ended = sink::run(sink, &pool, sink_link, &at_sink);
            let lost = dray_session::source::Input::PeerLost(gone().at(End::Sink));
            let _ = source_events_in.send(SourceEvent::Input(lost));
            ended
        })?;
        let source = source::run(source, source_link, &at_source);
        let lost = dray_session::sink::Input::PeerLost(PeerId(0), gone().at(End::Source));
        let _ = sink_events_in.send(SinkEvent::Input(lost));
        // A panic inside an end becomes the outcome of that end, so the join itself does not fail.
        let failed = |_| {
            let error = Error::new(ErrorKind::Internal, End::Sink, "run the sink");
            (Outcome::Failed(error), Progress::default())
        };
        let sink = sink.join().unwrap_or_else(failed);
        Ok(Ends {
            source: source?,
            sink,
        })
    });
    if let Some(notice) = check.and_then(|check| check.notice()) {
        observer.event(&Event::Notice(notice));
    }
    ends
}

/// Counters that the source does not have.
#[derive(Default)]
struct SinkOnly {
    writers: AtomicU32,
    bytes_read_back: AtomicU64,
    objects_corrupt: AtomicU64,
    log_commits: AtomicU64,
    log_nanos: AtomicU64,
    log_form: OnceLock<LogForm>,
}

impl SinkOnly {
    fn complete(&self, progress: Progress) -> Progress {
        Progress {
            writers: self.writers.load(Ordering::Relaxed),
            bytes_read_back: self.bytes_read_back.load(Ordering::Relaxed),
            objects_corrupt: self.objects_corrupt.load(Ordering::Relaxed),
            log_commits: self.log_commits.load(Ordering::Relaxed),
            log_time: Duration::from_nanos(self.log_nanos.load(Ordering::Relaxed)),
            log_form: self.log_form.get().copied(),
            ..progress
        }
    }
}

/// Passes on the sink's notices and the counters that only the sink has. The source reports all
/// other events and counters.
struct AtSink<'a> {
    observer: &'a dyn Observer,
    sink_only: &'a SinkOnly,
}

impl Observer for AtSink<'_> {
    fn event(&self, event: &Event) {
        if matches!(event, Event::Notice(_)) {
            self.observer.event(event);
        }
    }

    fn progress(&self, progress: &Progress) {
        let (only, order) = (self.sink_only, Ordering::Relaxed);
        only.writers.store(progress.writers, order);
        only.bytes_read_back.store(progress.bytes_read_back, order);
        only.objects_corrupt.store(progress.objects_corrupt, order);
        only.log_commits.store(progress.log_commits, order);
        only.log_nanos.store(nanos(progress.log_time), order);
        if let Some(form) = progress.log_form {
            only.log_form.get_or_init(|| form);
        }
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.observer.targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.observer.wants_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.observer.under_way(end, found);
    }
}

/// Passes on the source's events and counters, completed with the sink's counters.
struct AtSource<'a> {
    observer: &'a dyn Observer,
    sink_only: &'a SinkOnly,
}

impl Observer for AtSource<'_> {
    fn event(&self, event: &Event) {
        self.observer.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(&self.sink_only.complete(*progress));
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.observer.targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.observer.wants_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.observer.under_way(end, found);
    }

    fn listed(&self, entries: &[Listed]) {
        self.observer.listed(entries);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        self.observer.object(stream, head);
    }

    fn store_verdict(&self, totals: &Totals) -> Result<()> {
        self.observer.store_verdict(totals)
    }
}

struct ToSink(Sender<SinkEvent>);

impl ControlSender for ToSink {
    fn send(&mut self, message: &Message) -> Result<()> {
        let input = dray_session::sink::Input::Message(PeerId(0), message.clone());
        self.0.send(SinkEvent::Input(input)).map_err(|_| gone())
    }
}

struct ToSource(Sender<SourceEvent>);

impl ControlSender for ToSource {
    fn send(&mut self, message: &Message) -> Result<()> {
        let input = dray_session::source::Input::Message(message.clone());
        self.0.send(SourceEvent::Input(input)).map_err(|_| gone())
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Unreachable, End::Here, "reach the other end").cause(
        "the thread of the \
        other end has ended",
    )
}

struct HandOver {
    pool: Arc<Pool>,
    sink: Sender<SinkEvent>,
}

impl BlockSender for HandOver {
    fn send(
        &mut self,
        head: &BlockHead,
        payload: Option<&mut Buffer>,
        pace: &mut Pace<'_>,
    ) -> Result<()> {
        let mut buffer = None;
        // The swap below passes the whole object to the sink in one step. So wait until the rate
        // permits all bytes of the object.
        if !pace.pass(head.payload_bytes().unwrap_or(0)) {
            return Err(gone());
        }
        if let (Some(payload), true) = (payload, head.payload_bytes() != Some(0)) {
            // The sink granted credit for this object, so a buffer of the sink is free.
            let id = self.pool.take().ok_or_else(gone)?;
            let mut free = self.pool.buffer(id).ok_or_else(gone)?;
            std::mem::swap(&mut *free, payload);
            buffer = Some(id);
        }
        // The bytes remain in the same memory, so no checksum is needed for the way to the sink.
        let input = dray_session::sink::Input::BlockArrived {
            peer: PeerId(0),
            head: head.clone(),
            buffer,
            verified: Ok(()),
        };
        self.sink.send(SinkEvent::Input(input)).map_err(|_| gone())
    }
}
