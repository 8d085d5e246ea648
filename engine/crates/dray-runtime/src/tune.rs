//! Tunes the streams of a transfer that this end drives: tells the tuner what came through, and does what
//! it says. An end that writes opens streams as one that reads does, and has the other end use so many.
//!
//! Non-goals: what to say ([`dray_sched::tuner`]); readers, writers and the size of objects, which stay
//! as they are.

use crate::link::{SinkEvent, SourceEvent};
use crate::lock::lock;
use crate::net::Growth;
use crate::observe::Observer;
use crossbeam_channel::Sender;
use dray_core::options::Options;
use dray_core::profile::{Stage, Times};
use dray_core::{Result, StreamId};
use dray_sched::tuner::{Bottleneck, Bounds, Errors, Remembered, Sample, Setting, Tuner};
use dray_session::sink;
use dray_session::source::{self, Listed};
use dray_session::{Event, Progress};
use dray_wire::message::{BlockHead, Totals};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Streams of a transfer that is tuned, when it begins: as many as one that is not has.
pub const STREAMS_FIRST: u16 = 4;

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
pub(crate) type Found = Mutex<Option<Remembered>>;

/// The machine that is told.
pub(crate) enum Machine {
    /// This end reads.
    Source(Sender<SourceEvent>),
    /// This end writes.
    Sink(Sender<SinkEvent>),
}

impl Machine {
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

struct State {
    tuner: Tuner,
    streams: u32,
    at: Instant,
    written: u64,
    errors: u32,
    times: Times,
    drains_until: Option<Instant>,
}

/// Watches one session for its streams, and passes all on to whoever watches the transfer.
pub(crate) struct Tuned<'a> {
    watch: &'a dyn Observer,
    machine: Machine,
    growth: Growth,
    has_rate: bool,
    found: &'a Found,
    state: Mutex<State>,
}

impl<'a> Tuned<'a> {
    /// Begins with what an earlier session found.
    pub(crate) fn new(
        watch: &'a dyn Observer,
        options: &Options,
        (machine, growth): (Machine, Growth),
        granted: u16,
        found: &'a Found,
    ) -> Self {
        let setting = |streams| Setting {
            streams,
            readers: 1,
            writers: 1,
            object_bytes: options.object_bytes,
        };
        let most = u32::from(granted);
        let bounds = Bounds {
            least: setting(STREAMS_LEAST.min(most)),
            most: setting(most),
        };
        let tuner = match &*lock(found) {
            Some(known) => Tuner::recall(&bounds, known),
            None => Tuner::new(&bounds, setting(STREAMS_FIRST.into())),
        };
        let state = State {
            streams: u32::from(STREAMS_FIRST.min(granted)),
            tuner,
            at: Instant::now(),
            written: 0,
            errors: growth.errors(),
            times: Times::default(),
            drains_until: None,
        };
        Self {
            watch,
            machine,
            growth,
            has_rate: options.rate.is_some(),
            found,
            state: Mutex::new(state),
        }
    }

    fn look(&self, progress: &Progress) {
        let mut state = lock(&self.state);
        let took = state.at.elapsed();
        if took < SAMPLE {
            return;
        }
        let errors = self.growth.errors();
        let sample = Sample {
            bytes: progress.bytes_written.saturating_sub(state.written),
            took,
            errors: Errors {
                streams: errors.wrapping_sub(state.errors),
                ..Errors::default()
            },
            bottleneck: match state.drains_until {
                Some(until) if Instant::now() < until => Some(Bottleneck::Other),
                _ => self.bottleneck(progress, &state.times),
            },
        };
        state.times = *self.times(progress);
        state.at += took;
        state.written = progress.bytes_written;
        state.errors = errors;
        let wanted = state.tuner.told(&sample).streams;
        if wanted != state.streams {
            if wanted < state.streams {
                state.drains_until = Some(Instant::now() + self.drains(progress, &sample));
            }
            state.streams = wanted;
            *lock(self.found) = Some(state.tuner.remembered());
            self.machine.set_streams(wanted);
            self.growth.want(wanted);
        }
    }

    /// How long what was handed to streams that are used no more may take to come.
    fn drains(&self, progress: &Progress, sample: &Sample) -> Duration {
        if matches!(self.machine, Machine::Sink(_)) {
            return DRAINS_THERE;
        }
        let on_the_way = progress.bytes_sent.saturating_sub(progress.bytes_written);
        let share = on_the_way as f64 / sample.bytes.max(1) as f64;
        Duration::from_secs_f64((share * sample.took.as_secs_f64()).min(DRAINS_MOST.as_secs_f64()))
    }

    /// Where this end's time went.
    const fn times<'p>(&self, progress: &'p Progress) -> &'p Times {
        match self.machine {
            Machine::Source(_) => &progress.profile.source,
            Machine::Sink(_) => &progress.profile.sink,
        }
    }

    /// What held this end up most since the last sample. Not known where a source waited for credit, for a
    /// slow sink or for answers that are long on the way; and where a sink waited for objects, for a slow
    /// source or for the network.
    fn bottleneck(&self, progress: &Progress, before: &Times) -> Option<Bottleneck> {
        let resumed = progress
            .bytes_resumed
            .saturating_add(progress.bytes_written);
        let is_at_the_end = progress.listing_done && resumed >= progress.bytes_listed;
        if self.has_rate || progress.is_held_there || is_at_the_end {
            return Some(Bottleneck::Other);
        }
        let times = self.times(progress).since(before);
        let (most, _) = times.iter().max_by_key(|(_, time)| *time)?;
        match most {
            Stage::Network => Some(Bottleneck::Network),
            Stage::Read => Some(Bottleneck::Read),
            Stage::Write | Stage::Sync => Some(Bottleneck::Write),
            Stage::Credit | Stage::Arrival => None,
            _ => Some(Bottleneck::Other),
        }
    }
}

impl Observer for Tuned<'_> {
    fn event(&self, event: &Event) {
        self.watch.event(event);
    }

    fn progress(&self, progress: &Progress) {
        match self.machine {
            Machine::Source(_) => self.watch.progress(progress),
            // A sink has what comes, by whatever stream; how many there are is known here.
            Machine::Sink(_) => {
                let live = u32::try_from(self.growth.live()).unwrap_or(u32::MAX);
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
