//! Tunes the streams of a transfer that this end drives: tells the tuner what came through, and does what
//! it says. An end that writes opens streams as one that reads does, and has the other end use so many.
//!
//! Goals: what was found is there for further sessions, and for whoever keeps it.
//!
//! Non-goals: what to say ([`dray_sched::tuner`]); readers and writers, which each end's machine tunes by
//! itself ([`dray_sched::tuner::threads`]); the size of objects, which stays as it is.

mod bottleneck;

use crate::drive::Handle;
use crate::link::{SinkEvent, SourceEvent};
use crate::lock::lock;
use crate::net::Growth;
use crate::observe::Observer;
use bottleneck::{BottleneckFinder, Seen};
use crossbeam_channel::Sender;
use dray_core::options::Options;
use dray_core::{Result, StreamId};
use dray_sched::tuner::{Bottleneck, Bounds, Errors, Remembered, Sample, Setting, Tuner};
use dray_session::sink;
use dray_session::source::{self, Listed};
use dray_session::{Event, Progress};
use dray_wire::message::{BlockHead, Role, Totals};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Streams of a transfer that is tuned, when it begins: as many as one that is not has.
pub const STREAMS_FIRST: u16 = dray_core::options::STREAMS_USUAL;

/// Most streams that a tuner asks for: as many as an end grants unless it is told otherwise.
pub const STREAMS_MOST: u16 = 64;

/// Fewest: without another stream nobody can tell that one has stopped to carry.
const STREAMS_LEAST: u32 = 2;

/// Fewer streams are judged when what was handed to the others has come, or after so long.
const DRAINS_MOST: Duration = Duration::from_secs(5);

/// The same where this end writes: it does not know what was handed to the others. As long as a window of
/// the tuner, so that one is left out (guess, revisit).
const DRAINS_THERE: Duration = Duration::from_secs(1);

/// Time between two samples: what the simulator's paths were tried with.
const SAMPLE: Duration = Duration::from_millis(250);

/// What was found, over all sessions of a transfer.
pub(crate) struct Found {
    /// What the next session begins with.
    next: Mutex<Option<Remembered>>,
    /// What is worth keeping beyond the transfer.
    kept: Mutex<Option<Remembered>>,
}

impl Found {
    /// What was known before.
    pub(crate) const fn new(known: Option<Remembered>) -> Self {
        Self {
            next: Mutex::new(known),
            kept: Mutex::new(None),
        }
    }

    /// What is worth keeping.
    pub(crate) fn kept(&self) -> Option<Remembered> {
        *lock(&self.kept)
    }

    /// How many streams the next session begins with, of so many: no more than are usual. What is known
    /// beyond that is opened when it has lasted a sample.
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
        match &*lock(&self.next) {
            Some(known) => Tuner::recall(&bounds, known),
            None => Tuner::new(&bounds, setting(STREAMS_FIRST.into())),
        }
    }
}

/// How many streams a session of this tuner begins with.
fn first(tuner: &Tuner) -> u32 {
    tuner.setting().streams.min(STREAMS_FIRST.into())
}

/// The machine that is told.
pub(crate) enum Machine {
    /// This end reads.
    Source(Sender<SourceEvent>),
    /// This end writes.
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
        // One that has ended hears nothing.
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

/// The session that is tuned.
pub(crate) struct Session<'a> {
    /// Its machine at this end.
    pub(crate) machine: Machine,
    /// Its streams.
    pub(crate) growth: Growth,
    /// As many as it may have.
    pub(crate) granted: u16,
    /// Who says its rate.
    pub(crate) handle: &'a Handle,
    /// How the transfer goes.
    pub(crate) options: &'a Options,
}

struct State {
    tuner: Tuner,
    streams: u32,
    at: Instant,
    written: u64,
    /// Bytes that had passed here, those of unfinished objects included.
    passed: u64,
    errors: u32,
    held: BottleneckFinder,
    drains_until: Option<Instant>,
    /// Whether it ever said another number than what was known.
    has_moved: bool,
    /// As many streams as were alive at once.
    live_most: u32,
}

/// What was found, with no more streams than there ever were: the tuner hears once that one could not be
/// made, and a number that was said is not yet one that was had. What this session was not allowed stays.
fn had(mut found: Remembered, granted: u16, live_most: u32) -> Remembered {
    let streams = &mut found.setting.streams;
    if *streams <= u32::from(granted) {
        *streams = (*streams).min(live_most.max(1));
    }
    found
}

/// Errors of streams that say something of how many there are. When all have broken off at once, so would one
/// have: a cable, the other end's restart.
const fn of_the_number(errors: u32, live: u32) -> u32 {
    match live {
        0 => 0,
        _ => errors,
    }
}

/// Watches one session for its streams, and passes all on to whoever watches the transfer.
pub(crate) struct Tuned<'a> {
    watch: &'a dyn Observer,
    session: Session<'a>,
    found: &'a Found,
    state: Mutex<State>,
}

impl<'a> Tuned<'a> {
    /// Begins with what was found before.
    pub(crate) fn new(watch: &'a dyn Observer, session: Session<'a>, found: &'a Found) -> Self {
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

    /// The session is over: what was found stays.
    pub(crate) fn finish(self) {
        let state = lock(&self.state);
        let had = |found| had(found, self.session.granted, state.live_most);
        if state.has_moved {
            *lock(&self.found.next) = Some(had(state.tuner.remembered()));
        }
        if let Some(found) = state.tuner.found() {
            *lock(&self.found.kept) = Some(had(found));
        }
    }

    /// Bytes per second that the session may have, by whoever drives it and by the request.
    fn rate(&self) -> Option<u64> {
        let given = self.session.handle.rate().flatten();
        given.into_iter().chain(self.session.options.rate).min()
    }

    fn look(&self, progress: &Progress) {
        let mut state = lock(&self.state);
        let took = state.at.elapsed();
        if took < SAMPLE {
            return;
        }
        let live = u32::try_from(self.session.growth.live()).unwrap_or(u32::MAX);
        state.live_most = state.live_most.max(live);
        let errors = self.session.growth.errors();
        let written = progress.bytes_written.saturating_sub(state.written);
        let passed = self.session.handle.shared_rates().moved();
        let seen = Seen {
            // At a low rate the objects of all streams are complete at the same moment, once in a while.
            bytes: written.max(passed.saturating_sub(state.passed)),
            took,
            rate: self.rate(),
        };
        let bottleneck = state.held.look(progress, &seen);
        // What is known is opened for a transfer that lasts a sample, and judged from then on.
        let known = state.tuner.setting().streams;
        let is_asked = state.streams == known;
        let sample = Sample {
            bytes: written,
            took,
            errors: Errors {
                // What broke before the number was asked for tells nothing against it.
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

    /// How long what was handed to streams that are used no more may take to come.
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
            // A sink has what comes, by whatever stream; how many there are is known here.
            Machine::Sink(_) => {
                let live = u32::try_from(self.session.growth.live()).unwrap_or(u32::MAX);
                let mut told = *progress;
                told.streams = lock(&self.state).streams.min(live);
                self.watch.progress(&told);
            }
        }
        self.look(progress);
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
    use super::{Found, STREAMS_FIRST, had, of_the_number};
    use dray_core::options::Options;
    use dray_sched::tuner::{Remembered, Setting};

    #[test]
    fn a_number_that_was_said_and_never_had_is_not_found() {
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
    fn a_session_begins_with_what_is_known_and_no_more_than_usual() {
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
            Found::new(known).first(most, &options)
        };
        assert_eq!(first(None, 64), STREAMS_FIRST);
        assert_eq!(first(None, 3), 3);
        assert_eq!(first(None, 1), 1);
        assert_eq!(first(Some((3, u32::MAX)), 64), 3);
        assert_eq!(first(Some((20, 3)), 64), 3, "more fails");
        // A kilobyte needs no twenty handshakes.
        assert_eq!(first(Some((20, u32::MAX)), 64), STREAMS_FIRST);
        // Another is needed to tell that one stands still.
        assert_eq!(first(Some((1, 1)), 64), 2);
    }
}
