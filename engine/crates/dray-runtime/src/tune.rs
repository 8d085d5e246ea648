//! Tunes the number of streams of a transfer that this end drives. The observer of a session
//! reports the throughput to the tuner and applies the tuner's settings. If the sink drives the
//! session, it also opens the streams, and tells the source how many streams to use.
//!
//! Goals: the results are available to further sessions, and to a caller that stores them.
//!
//! Non-goals:
//! - the choice of settings ([`dray_sched::tuner`]);
//! - readers and writers, which the machine of each end tunes ([`dray_sched::tuner::threads`]);
//! - the size of objects, which does not change during a transfer.

mod bottleneck;
pub mod memory;

use crate::handle::Handle;
use crate::observe::{Observer, TargetLoad};
use bottleneck::{BottleneckFinder, Interval};
use crossbeam_channel::Sender;
use dray_core::lock::LockExt;
use dray_core::options::Options;
use dray_core::{End, Result, StreamId};
use dray_link::link::{SinkEvent, SourceEvent};
use dray_net::Growth;
use dray_sched::tuner::{Bottleneck, Bounds, Errors, Remembered, Sample, Setting, Tuner};
use dray_session::sink;
use dray_session::source::{self, Listed};
use dray_session::{Event, Progress, UnderWay};
use dray_wire::message::{BlockHead, Role, Totals};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Initial number of streams of a tuned transfer. It equals the default of other transfers.
pub const STREAMS_FIRST: u16 = dray_core::options::STREAMS_USUAL;

/// Maximum number of streams that a tuner chooses. It equals the maximum that an end grants by
/// default.
pub const STREAMS_MOST: u16 = 64;

/// Minimum number of streams. A stalled stream can be detected only by comparison with another one.
const STREAMS_LEAST: u32 = 2;

/// Maximum time from a reduction of the number of streams to the next measurement. The tuner
/// measures earlier if all data on the closed streams has arrived.
const DRAINS_MOST: Duration = Duration::from_secs(5);

/// Delay at a sink from a reduction of the number of streams to the next measurement. The delay is
/// constant, because a sink does not know the amount of data on the closed streams. The delay
/// equals one window of the tuner, so that the tuner ignores one window. The value is estimated,
/// not measured.
const DRAINS_THERE: Duration = Duration::from_secs(1);

/// Interval between two samples. The simulator's experiments use the same interval.
const SAMPLE: Duration = Duration::from_millis(250);

/// Results of the tuner, over all sessions of a transfer.
pub(crate) struct TunerResults {
    /// Initial setting of the next session.
    next: Mutex<Option<Remembered>>,
    /// Setting that the caller may store for later transfers.
    kept: Mutex<Option<Remembered>>,
}

impl TunerResults {
    /// Returns results that begin with the setting `known` from an earlier transfer.
    pub(crate) const fn new(known: Option<Remembered>) -> Self {
        Self {
            next: Mutex::new(known),
            kept: Mutex::new(None),
        }
    }

    /// Returns the setting that the caller may store for later transfers.
    pub(crate) fn kept(&self) -> Option<Remembered> {
        *self.kept.lock_unpoisoned()
    }

    /// Returns the initial number of streams of the next session, at most [`STREAMS_FIRST`] and at
    /// most `streams_most`. If an earlier session chose a larger number, this session opens the
    /// further streams after its first sample.
    pub(crate) fn first(&self, streams_most: u16, options: &Options) -> u16 {
        let streams = first(&self.tuner(streams_most, options));
        u16::try_from(streams).unwrap_or(streams_most)
    }

    fn tuner(&self, streams_most: u16, options: &Options) -> Tuner {
        let setting = |streams| Setting {
            streams,
            readers: 1,
            writers: 1,
            object_bytes: options.object_bytes,
        };
        let most = u32::from(streams_most);
        let bounds = Bounds {
            least: setting(STREAMS_LEAST.min(most)),
            most: setting(most),
        };
        match &*self.next.lock_unpoisoned() {
            Some(known) => Tuner::recall(&bounds, known),
            None => Tuner::new(&bounds, setting(STREAMS_FIRST.into())),
        }
    }
}

/// Returns the initial number of streams of a session with this tuner.
fn first(tuner: &Tuner) -> u32 {
    tuner.setting().streams.min(STREAMS_FIRST.into())
}

/// The machine that receives the tuner's settings.
pub(crate) enum Machine {
    /// This end is the source.
    Source(Sender<SourceEvent>),
    /// This end is the sink.
    Sink(Sender<SinkEvent>),
}

impl Machine {
    const fn role(&self) -> Role {
        match self {
            Self::Source(_) => Role::Source,
            Self::Sink(_) => Role::Sink,
        }
    }

    fn set_streams(&self, streams: u32) {
        // A machine that has ended needs no setting.
        let _ = match self {
            Self::Source(events) => {
                let input = source::Input::SetStreams(streams);
                events.send(SourceEvent::Input(input)).is_ok()
            }
            Self::Sink(events) => {
                let input = sink::Input::SetStreams(streams);
                events.send(SinkEvent::Input(input)).is_ok()
            }
        };
    }
}

/// The tuned session.
pub(crate) struct Session<'a> {
    /// The session's machine at this end.
    pub(crate) machine: Machine,
    /// The session's streams.
    pub(crate) growth: Growth,
    /// Maximum number of streams.
    pub(crate) granted: u16,
    /// The handle that controls the rate of the transfer.
    pub(crate) handle: &'a Handle,
    /// Options of the transfer.
    pub(crate) options: &'a Options,
}

struct State {
    tuner: Tuner,
    streams: u32,
    at: Instant,
    written: u64,
    /// Bytes transferred until the last sample, including those of unfinished objects.
    passed: u64,
    errors: u32,
    held: BottleneckFinder,
    drains_until: Option<Instant>,
    /// True if the tuner ever chose another number than the known one.
    has_moved: bool,
    /// Maximum number of streams that were open at the same time.
    live_most: u32,
}

/// Limits the number of streams in a result to the largest number that was open. The tuner may have
/// requested streams that could not be opened. A number above `granted` comes from an earlier
/// session. Such a number is not limited, because this session was not permitted to open so many
/// streams.
fn had(mut found: Remembered, granted: u16, live_most: u32) -> Remembered {
    let streams = &mut found.setting.streams;
    if *streams <= u32::from(granted) {
        *streams = (*streams).min(live_most.max(1));
    }
    found
}

/// Returns the number of stream errors that the number of streams may have caused. Returns zero if
/// all streams broke together: the cause was then something else, such as a cable or a restart of
/// the other end.
const fn of_the_number(errors: u32, live: u32) -> u32 {
    match live {
        0 => 0,
        _ => errors,
    }
}

/// Observes the streams of one session, and passes all events on to the transfer's observer.
pub(crate) struct Tuned<'a> {
    watch: &'a dyn Observer,
    session: Session<'a>,
    found: &'a TunerResults,
    state: Mutex<State>,
}

impl<'a> Tuned<'a> {
    /// Begins a session with the results of earlier sessions.
    pub(crate) fn new(
        watch: &'a dyn Observer,
        session: Session<'a>,
        found: &'a TunerResults,
    ) -> Self {
        let tuner = found.tuner(session.granted, session.options);
        let state = State {
            streams: first(&tuner),
            tuner,
            at: Instant::now(),
            written: 0,
            passed: session.handle.shared_rates().moved(),
            errors: session.growth.errors(),
            held: BottleneckFinder::new(session.machine.role()),
            drains_until: None,
            has_moved: false,
            live_most: 0,
        };
        Self {
            watch,
            session,
            found,
            state: Mutex::new(state),
        }
    }

    /// Ends the session and keeps its results.
    pub(crate) fn finish(self) {
        let state = self.state.lock_unpoisoned();
        let had = |found| had(found, self.session.granted, state.live_most);
        if state.has_moved {
            *self.found.next.lock_unpoisoned() = Some(had(state.tuner.remembered()));
        }
        if let Some(found) = state.tuner.found() {
            *self.found.kept.lock_unpoisoned() = Some(had(found));
        }
    }

    /// Returns the permitted bytes per second of the session: the lower of the handle's limit and
    /// the request's limit.
    fn rate(&self) -> Option<u64> {
        let given = self.session.handle.rate().flatten();
        given.into_iter().chain(self.session.options.rate).min()
    }

    fn look(&self, progress: &Progress) {
        let mut state = self.state.lock_unpoisoned();
        let took = state.at.elapsed();
        if took < SAMPLE {
            return;
        }
        let live = u32::try_from(self.session.growth.live()).unwrap_or(u32::MAX);
        state.live_most = state.live_most.max(live);
        let errors = self.session.growth.errors();
        let written = progress.bytes_written.saturating_sub(state.written);
        let passed = self.session.handle.shared_rates().moved();
        let seen = Interval {
            // At a low rate, objects finish rarely, and then many finish at the same time. The
            // bytes that passed the pace gate give a smoother rate.
            bytes: written.max(passed.saturating_sub(state.passed)),
            took,
            rate: self.rate(),
        };
        let bottleneck = state.held.look(progress, &seen);
        // If an earlier session found a number of streams above the default, the tuner requests
        // this number after the first sample. The samples before this request tell the tuner
        // nothing about this number.
        let known = state.tuner.setting().streams;
        let is_asked = state.streams == known;
        let sample = Sample {
            bytes: written,
            took,
            errors: Errors {
                // Streams that broke before the tuner requested this number do not count against
                // it.
                streams: match is_asked {
                    true => of_the_number(errors.wrapping_sub(state.errors), live),
                    false => 0,
                },
                ..Errors::default()
            },
            bottleneck: match state.drains_until {
                Some(until) if Instant::now() < until => Some(Bottleneck::Other),
                _ if !is_asked => Some(Bottleneck::Other),
                _ => bottleneck,
            },
        };
        state.at += took;
        state.written = progress.bytes_written;
        state.passed = passed;
        state.errors = errors;
        let wanted = state.tuner.told(&sample).streams;
        if wanted != state.streams {
            if wanted < state.streams {
                state.drains_until = Some(Instant::now() + self.drains(progress, &sample));
            }
            state.streams = wanted;
            state.has_moved |= wanted != known;
            self.session.machine.set_streams(wanted);
            self.session.growth.want(wanted);
        }
    }

    /// Returns the expected time until the data on closed streams has arrived.
    fn drains(&self, progress: &Progress, sample: &Sample) -> Duration {
        if matches!(self.session.machine, Machine::Sink(_)) {
            return DRAINS_THERE;
        }
        let on_the_way = progress.bytes_sent.saturating_sub(progress.bytes_written);
        let share = on_the_way as f64 / sample.bytes.max(1) as f64;
        Duration::from_secs_f64((share * sample.took.as_secs_f64()).min(DRAINS_MOST.as_secs_f64()))
    }
}

impl Observer for Tuned<'_> {
    fn event(&self, event: &Event) {
        self.watch.event(event);
    }

    fn progress(&self, progress: &Progress) {
        match self.session.machine {
            Machine::Source(_) => self.watch.progress(progress),
            // A sink machine does not count streams, so this observer adds the number of streams.
            Machine::Sink(_) => {
                let live = u32::try_from(self.session.growth.live()).unwrap_or(u32::MAX);
                let mut told = *progress;
                told.streams = self.state.lock_unpoisoned().streams.min(live);
                self.watch.progress(&told);
            }
        }
        self.look(progress);
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.watch.targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.watch.wants_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.watch.under_way(end, found);
    }

    fn listed(&self, entries: &[Listed]) {
        self.watch.listed(entries);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        self.watch.object(stream, head);
    }

    fn store_verdict(&self, totals: &Totals) -> Result<()> {
        self.watch.store_verdict(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::{STREAMS_FIRST, TunerResults, had, of_the_number};
    use dray_core::options::Options;
    use dray_sched::tuner::{Remembered, Setting};

    #[test]
    fn a_requested_number_of_streams_that_never_opened_is_not_a_result() {
        let of = |streams| Setting {
            streams,
            readers: 1,
            writers: 1,
            object_bytes: 7,
        };
        let found = |streams| Remembered {
            setting: of(streams),
            most: of(13),
        };
        assert_eq!(had(found(13), 64, 12), found(12), "one could not be made");
        assert_eq!(had(found(9), 64, 12), found(9));
        assert_eq!(had(found(13), 8, 8), found(13), "known from before");
        assert_eq!(had(found(4), 64, 0), found(1));
    }

    #[test]
    fn a_break_of_all_streams_tells_nothing_against_their_number() {
        assert_eq!(of_the_number(12, 0), 0);
        assert_eq!(of_the_number(3, 9), 3);
        assert_eq!(of_the_number(0, 0), 0);
    }

    #[test]
    fn a_session_begins_with_the_known_streams_up_to_the_default() {
        let options = Options::default();
        let first = |known: Option<(u32, u32)>, most| {
            let of = |streams| Setting {
                streams,
                readers: 1,
                writers: 1,
                object_bytes: 7,
            };
            let known = known.map(|(streams, most)| Remembered {
                setting: of(streams),
                most: of(most),
            });
            TunerResults::new(known).first(most, &options)
        };
        assert_eq!(first(None, 64), STREAMS_FIRST);
        assert_eq!(first(None, 3), 3);
        assert_eq!(first(None, 1), 1);
        assert_eq!(first(Some((3, u32::MAX)), 64), 3);
        assert_eq!(first(Some((20, 3)), 64), 3, "more fails");
        // A transfer of one kilobyte does not justify twenty handshakes.
        assert_eq!(first(Some((20, u32::MAX)), 64), STREAMS_FIRST);
        // A stalled stream can be detected only by comparison with a second one.
        assert_eq!(first(Some((1, 1)), 64), 2);
    }
}
