//! Tunes the streams of a transfer that this end reads and drives: tells the tuner what came through, and
//! does what it says.
//!
//! Non-goals: what to say ([`dray_sched::tuner`]); readers, writers and the size of objects, which stay
//! as they are; a transfer that this end writes, whose streams the other end uses.

use crate::link::SourceEvent;
use crate::lock::lock;
use crate::net::Growth;
use crate::observe::Observer;
use crossbeam_channel::Sender;
use dray_core::options::Options;
use dray_core::profile::{Stage, Times};
use dray_core::{Result, StreamId};
use dray_sched::tuner::{Bottleneck, Bounds, Errors, Remembered, Sample, Setting, Tuner};
use dray_session::source::{Input, Listed};
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

/// Time between two samples: what the simulator's paths were tried with.
const SAMPLE: Duration = Duration::from_millis(250);

/// What was found, over all sessions of a transfer.
pub(crate) type Found = Mutex<Option<Remembered>>;

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
    events: Sender<SourceEvent>,
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
        (events, growth): (Sender<SourceEvent>, Growth),
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
            events,
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
        state.times = progress.profile.source;
        state.at += took;
        state.written = progress.bytes_written;
        state.errors = errors;
        let wanted = state.tuner.told(&sample).streams;
        if wanted != state.streams {
            if wanted < state.streams {
                let on_the_way = progress.bytes_sent.saturating_sub(progress.bytes_written);
                let seconds = on_the_way as f64 / sample.bytes.max(1) as f64 * took.as_secs_f64();
                let drains = Duration::from_secs_f64(seconds.min(DRAINS_MOST.as_secs_f64()));
                state.drains_until = Some(Instant::now() + drains);
            }
            state.streams = wanted;
            *lock(self.found) = Some(state.tuner.remembered());
            let _ = self
                .events
                .send(SourceEvent::Input(Input::SetStreams(wanted)));
            self.growth.want(wanted);
        }
    }

    /// What held the source up most since the last sample. Not known where it waited for credit: for a
    /// slow sink, or for answers that are long on the way.
    fn bottleneck(&self, progress: &Progress, before: &Times) -> Option<Bottleneck> {
        let resumed = progress
            .bytes_resumed
            .saturating_add(progress.bytes_written);
        let is_at_the_end = progress.listing_done && resumed >= progress.bytes_listed;
        if self.has_rate || progress.is_held_there || is_at_the_end {
            return Some(Bottleneck::Other);
        }
        let times = progress.profile.source.since(before);
        let (most, _) = times.iter().max_by_key(|(_, time)| *time)?;
        match most {
            Stage::Network => Some(Bottleneck::Network),
            Stage::Read => Some(Bottleneck::Read),
            Stage::Credit => None,
            _ => Some(Bottleneck::Other),
        }
    }
}

impl Observer for Tuned<'_> {
    fn event(&self, event: &Event) {
        self.watch.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.watch.progress(progress);
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
