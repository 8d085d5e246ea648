//! The source's machine: lists, schedules, paces, reads, sends, and hears what became of it.

mod api;
mod blocks;
mod files;
mod layouts;
mod stage;
mod verdict;

pub use api::{Config, Effect, Input, Listed, ReadOutcome, ReadPart};

use crate::profile::Account;
use crate::progress::{Event, Outcome, Progress};
use blocks::{Block, Sending};
use dray_core::maps::{HashMap, HashSet};
use dray_core::rate::BytesPerSecond;
use dray_core::retry::Verdict;
use dray_core::{
    BlockId, BufferId, ByteRange, Error, FileIndex, Layout, ModifiedTime, RangeSet, RelPath,
    StreamId, TargetId, Time,
};
use dray_sched::objects::{Dataset, Limits, Objects};
use dray_sched::pace::Pacer;
use dray_sched::rng::Rng;
use dray_sched::streams::Streams;
use dray_sched::tuner::threads::{ThreadTuner, Work};
use dray_wire::bounds::{BLOCKS_MAX, RUNS_MAX};
use dray_wire::message::{Message, Ready, Totals};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Entries asked of the listing at once.
const LIST_BATCH: u32 = 512;

/// Entries announced before the sink is ready at the most (guess, revisit): what they take is little beside
/// the buffers of a connection.
const EARLY_ENTRIES_MAX: u32 = 4096;

/// How long a cancelled session waits for the other end's last word.
const FAREWELL: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct File {
    path: RelPath,
    /// Bytes of its path as the sink knows it.
    path_bytes: usize,
    /// What it takes of the bytes that may be live.
    live_bytes: u64,
    size: u64,
    modified: ModifiedTime,
    sparse: bool,
    is_file: bool,
    /// Whether it is a folder whose end is not announced.
    is_open_folder: bool,
    layout: Layout,
    /// The folder right beneath the destination that it lies in: what is worth something together.
    dataset: Option<Dataset>,
    /// What the sink says to be safe, until it has decided.
    done: RangeSet,
    is_decided: bool,
    /// Its part of [`Source::striped`].
    striped: u64,
    bytes_durable: u64,
    /// Handed to a stream, and not answered for good.
    bytes_on_the_way: u64,
    aborted: bool,
}

#[derive(Debug, Default)]
struct Stream {
    /// Blocks handed to it and not yet reported sent.
    queued: u32,
    /// Whether its end was asked for and is awaited.
    is_given_up: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the sink's Ready.
    Waiting,
    Moving,
    /// A verdict came and is being stored, or was.
    Closing(Totals),
    /// Stopped on request, waiting for the last word until then.
    Stopping(Time),
    Ended,
}

/// The source's state machine. See the crate's head for how it is driven.
#[derive(Debug)]
pub struct Source {
    config: Config,
    phase: Phase,
    ready: Option<Ready>,
    listing: bool,
    listed_all: bool,
    end_announced: bool,
    /// Listed; announced when there is room among the live entries.
    listed: VecDeque<Listed>,
    files: HashMap<FileIndex, File>,
    /// Names, link texts and attributes of the live entries.
    live_bytes: u64,
    /// Files announced that the sink has not decided about.
    undecided: usize,
    /// Folders announced whose ends are not.
    open_folders: usize,
    objects: Objects,
    /// What is listed now belongs to.
    dataset: Option<Dataset>,
    pacer: Pacer,
    peer_rate: Option<u64>,
    own_rate: Option<u64>,
    draw: Rng,
    free: Vec<BufferId>,
    blocks: HashMap<BlockId, Block>,
    /// Handed to a stream and not yet reported sent: its stream and its buffer.
    sending: BTreeMap<BlockId, Sending>,
    next_block: u64,
    /// Reads under way.
    reading: u32,
    /// How many each target may have.
    readers: ThreadTuner,
    /// Blocks without a payload that have no final state yet.
    hole_blocks: u32,
    /// Separate runs in the `done` of all files.
    runs: usize,
    /// Read, and waiting for a stream.
    to_send: VecDeque<BlockId>,
    streams: BTreeMap<StreamId, Stream>,
    /// Objects are handed to so many of them at the most.
    streams_most: usize,
    /// Which of them carry.
    carriers: Streams,
    /// Sink targets that were asked for credit and have not been granted any since.
    asked: BTreeSet<TargetId>,
    /// What the sink has said of single entries: its verdict has to agree.
    closed: Totals,
    tries: BTreeMap<(FileIndex, u64), u32>,
    later: BTreeMap<Time, Vec<(FileIndex, ByteRange)>>,
    /// Targets that the sink has named.
    sink_targets: HashSet<TargetId>,
    /// Cost of the layouts of live files on several targets ([`STRIPED_MAX`]).
    striped: u64,
    pace_wake: Option<Time>,
    /// When to look whether a read waits of a target that made nobody wait.
    look_again: Option<Time>,
    progress: Progress,
    account: Account,
    /// Whether it has said its times since it has nothing left to send.
    has_said_last: bool,
    out: VecDeque<Effect>,
}

impl Source {
    /// A machine that waits for the sink's `Ready`. One that announces before it begins with the first
    /// input, which may be [`Input::Tick`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let readers = ThreadTuner::new(Work::Reading, config.readers);
        let limits = Limits {
            pack_bytes_max: config.options.object_bytes.min(config.buffer_bytes),
            segments_max: config.segments_max.max(1) as usize,
            reads_max: readers.count(),
            pieces_max: RUNS_MAX / 2,
        };
        Self {
            phase: Phase::Waiting,
            ready: None,
            listing: false,
            listed_all: false,
            end_announced: false,
            listed: VecDeque::new(),
            files: HashMap::default(),
            live_bytes: 0,
            undecided: 0,
            open_folders: 0,
            objects: Objects::new(config.options.order, limits),
            dataset: None,
            pacer: Pacer::unlimited(),
            peer_rate: None,
            own_rate: config.options.rate,
            draw: Rng::new(config.seed),
            free: (0..config.buffers).rev().map(BufferId).collect(),
            blocks: HashMap::default(),
            sending: BTreeMap::new(),
            next_block: 0,
            reading: 0,
            readers,
            hole_blocks: 0,
            runs: 0,
            to_send: VecDeque::new(),
            streams: BTreeMap::new(),
            streams_most: usize::MAX,
            carriers: Streams::default(),
            asked: BTreeSet::new(),
            closed: Totals::default(),
            tries: BTreeMap::new(),
            later: BTreeMap::new(),
            sink_targets: HashSet::default(),
            striped: 0,
            pace_wake: None,
            look_again: None,
            progress: Progress::default(),
            account: Account::default(),
            has_said_last: false,
            out: VecDeque::new(),
            config,
        }
    }

    /// Counters.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Buffers in use (checked by the simulator against the pool).
    #[must_use]
    pub fn buffers_in_use(&self) -> u32 {
        self.config.buffers - u32::try_from(self.free.len()).unwrap_or(0)
    }

    /// Separate runs of bytes that the sink has named, of all live files.
    #[must_use]
    pub const fn runs(&self) -> usize {
        self.runs
    }

    /// Ranges whose failed tries are counted.
    #[must_use]
    pub fn tries_counted(&self) -> usize {
        self.tries.len()
    }

    /// The next thing to do; call until `None` after each [`Source::handle`].
    pub fn poll(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// When a [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        let later = self.later.keys().next().copied();
        let (look, farewell) = match self.phase {
            Phase::Moving => (self.carriers.look_at(), None),
            Phase::Stopping(until) => (None, Some(until)),
            _ => (None, None),
        };
        [later, self.pace_wake, self.look_again, look, farewell]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input, now: Time) {
        if self.phase == Phase::Ended {
            return;
        }
        self.account.pass(&mut self.progress.profile.source, now);
        if self.readers.pass(self.progress.bytes_read, now) {
            self.objects.set_reads_max(self.readers.count());
        }
        match input {
            Input::Listed {
                entries,
                failed,
                finished,
            } => {
                self.on_listed(entries, failed, finished);
            }
            Input::Message(message) => self.on_message(message, now),
            Input::ReadDone { block, outcome } => self.on_read(block, outcome, now),
            Input::Sent { block } => self.on_sent(block, now),
            Input::StreamUp(stream) => {
                self.streams.entry(stream).or_default();
            }
            Input::StreamLost(stream) => self.on_stream_lost(stream),
            Input::PeerLost(error) => self.on_peer_lost(error),
            Input::VerdictStored(result) => self.on_stored_here(result),
            Input::Cancel { purge } => self.on_cancel(purge, now),
            Input::Leave(error) => self.on_leave(error),
            Input::SetRate(rate) => {
                // The sink's end shares among those that move: it hears of a gate that is shut.
                if (self.own_rate == Some(0)) != (rate == Some(0)) {
                    self.out.push_back(Effect::Message(Message::Rate(rate)));
                }
                self.own_rate = rate;
                self.apply_rate(now);
            }
            Input::Held(time) => self.on_held(time),
            Input::UnderWay(stream) => self.carriers.under_way(stream, now),
            Input::SetStreams(most) => self.use_streams(most),
            Input::Tick => self.on_tick(now),
        }
        self.lift_bounds(now);
        self.step(now);
        self.stand(now);
        let alive = self.streams.values().filter(|stream| !stream.is_given_up);
        let in_use = alive.take(self.streams_most).count();
        self.progress.streams = u32::try_from(in_use).unwrap_or(u32::MAX);
        self.progress.readers = self.readers.count();
    }

    fn end(&mut self, outcome: Outcome) {
        self.phase = Phase::Ended;
        self.out.push_back(Effect::End(outcome));
    }

    fn use_streams(&mut self, most: u32) {
        self.streams_most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
    }

    /// Rate in force, in bytes per second: the lower of both ends.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        match (self.own_rate, self.peer_rate) {
            (Some(own), Some(peer)) => Some(own.min(peer)),
            (own, peer) => own.or(peer),
        }
    }

    fn apply_rate(&mut self, now: Time) {
        let rate = self.rate();
        // A burst of a tenth of a second keeps small limits smooth. Of a byte at the least: a bucket that
        // holds none is never full, and lets nothing pass.
        let burst = rate.map_or(0, |rate| (rate / 10).max(1));
        self.pacer.set_rate(rate.map(BytesPerSecond), burst, now);
    }

    fn on_tick(&mut self, now: Time) {
        if matches!(self.phase, Phase::Stopping(until) if now >= until) {
            self.end(Outcome::Cancelled);
            return;
        }
        while let Some(entry) = self.later.first_entry() {
            if *entry.key() > now {
                break;
            }
            for (index, range) in entry.remove() {
                self.objects.put_back(index, range);
            }
        }
    }

    fn on_cancel(&mut self, purge: bool, now: Time) {
        // After the verdict there is nothing left to stop.
        if matches!(self.phase, Phase::Stopping(_) | Phase::Closing(_)) {
            return;
        }
        let attempt = self.config.attempt;
        self.tell_profile();
        self.out
            .push_back(Effect::Message(Message::Cancel { attempt, purge }));
        self.phase = Phase::Stopping(now + FAREWELL);
    }

    fn on_leave(&mut self, error: Error) {
        // After the verdict there is nothing left to leave undone.
        if matches!(self.phase, Phase::Stopping(_) | Phase::Closing(_)) {
            return;
        }
        self.tell_profile();
        self.out
            .push_back(Effect::Message(Message::GoAway(error.clone())));
        self.end(Outcome::Failed(error));
    }

    /// The sink removes its log on this word alone. Without it the log stays: a rerun finds
    /// everything there, and stores the verdict then.
    fn on_stored_here(&mut self, result: Result<(), Error>) {
        let Phase::Closing(totals) = self.phase else {
            return;
        };
        match result {
            Ok(()) => {
                self.tell_profile();
                self.out.push_back(Effect::Message(Message::VerdictStored));
            }
            Err(error) => {
                let event = Event::Notice(error.clone());
                self.out.push_back(Effect::Report(event));
                self.tell_profile();
                self.out.push_back(Effect::Message(Message::GoAway(error)));
                self.end(Outcome::Done(totals));
            }
        }
    }

    fn on_peer_lost(&mut self, error: Error) {
        match self.phase {
            Phase::Closing(totals) => self.end(Outcome::Done(totals)),
            Phase::Stopping(_) => self.end(Outcome::Cancelled),
            _ => self.end(Outcome::Failed(error)),
        }
    }

    fn on_message(&mut self, message: Message, now: Time) {
        let is_decided = matches!(
            message,
            Message::Done { .. }
                | Message::FileIds(_)
                | Message::Credit(_)
                | Message::BlockSync(_)
                | Message::FileClose(_)
                | Message::Verdict(_)
        );
        if self.phase == Phase::Waiting && is_decided {
            self.protocol_error("a decision before Ready");
            return;
        }
        match message {
            Message::Ready(ready) => self.on_ready(ready, now),
            Message::Refuse(error) => self.end(Outcome::Refused(error)),
            Message::Done { index, ranges } => self.on_done(index, &ranges),
            Message::FileIds(ids) => self.on_each(ids, Self::on_file_id),
            Message::Credit(grants) => self.on_credit(grants),
            Message::BlockSync(states) => {
                self.on_each(states, |source, (block, state)| {
                    source.on_block_state(block, state, now);
                });
            }
            Message::FileClose(closed) => self.on_each(closed, Self::on_file_closed),
            Message::Rate(rate) => self.on_peer_rate(rate, now),
            Message::Ping(nonce) => self.out.push_back(Effect::Message(Message::Pong(nonce))),
            Message::GoAway(error) => self.on_peer_lost(error),
            Message::Cancel { attempt, .. } => self.on_peer_cancelled(attempt),
            Message::Profile(times) => self.progress.profile.sink = times,
            // Who drives the transfer says it.
            Message::Streams(most) if !self.config.is_driver => self.use_streams(most),
            Message::Streams(_) => {}
            Message::Verdict(totals) => self.on_verdict(totals),
            Message::Bye => self.on_bye(),
            Message::Pong(_) => self.carriers.heard(now),
            Message::Stall { .. } => {}
            Message::Hello(_)
            | Message::Connect(_)
            | Message::Accept(_)
            | Message::NewFiles(_)
            | Message::ListFailed(_)
            | Message::ListEnd { .. }
            | Message::FileAbort { .. }
            | Message::StreamLost { .. }
            | Message::VerdictStored => self.protocol_error("a message only a source may send"),
        }
    }

    /// Handles the items of one message in order, until one of them ends the session.
    fn on_each<T>(&mut self, items: Vec<T>, mut handle: impl FnMut(&mut Self, T)) {
        for item in items {
            if self.phase == Phase::Ended {
                return;
            }
            handle(self, item);
        }
    }

    fn on_credit(&mut self, grants: Vec<(TargetId, u32)>) {
        for (target, count) in grants {
            if !self.knows_target(target) {
                return;
            }
            self.asked.remove(&target);
            self.objects.grant(target, count);
        }
    }

    fn on_peer_rate(&mut self, rate: Option<u64>, now: Time) {
        self.progress.is_held_there = rate == Some(0);
        self.peer_rate = rate;
        self.apply_rate(now);
    }

    fn on_peer_cancelled(&mut self, attempt: u32) {
        if attempt == self.config.attempt {
            self.tell_profile();
            self.out.push_back(Effect::Message(Message::Bye));
            self.end(Outcome::Cancelled);
        }
    }

    fn on_bye(&mut self) {
        match self.phase {
            Phase::Closing(totals) => self.end(Outcome::Done(totals)),
            Phase::Stopping(_) => self.end(Outcome::Cancelled),
            _ => self.protocol_error("the sink said good-bye before its verdict"),
        }
    }

    fn on_ready(&mut self, ready: Ready, now: Time) {
        if self.phase != Phase::Waiting {
            self.protocol_error("a second Ready");
            return;
        }
        self.config.live_entries_max = self
            .config
            .live_entries_max
            .min(ready.live_entries_max)
            .max(1);
        self.config.buffer_bytes = self.config.buffer_bytes.min(ready.object_bytes_max).max(1);
        let limits = Limits {
            pack_bytes_max: ready.pack_bytes_max.min(self.config.buffer_bytes),
            segments_max: self.config.segments_max.max(1) as usize,
            reads_max: self.readers.count(),
            pieces_max: RUNS_MAX / 2,
        };
        self.objects.set_limits(limits);
        self.ready = Some(ready);
        self.phase = Phase::Moving;
        self.apply_rate(now);
    }

    /// A failed try at a range: again later, or the file is given up.
    fn retry(&mut self, index: FileIndex, range: ByteRange, error: Error, now: Time) {
        if !self.files.contains_key(&index) {
            return;
        }
        let key = (index, range.offset);
        if self.tries.len() >= BLOCKS_MAX && !self.tries.contains_key(&key) {
            self.abort_file(index, error);
            return;
        }
        let tries = self.tries.entry(key).or_insert(0);
        *tries += 1;
        let draw = self.draw.next_u32();
        match self.config.retry.verdict(error.status, *tries, draw) {
            Verdict::RetryAfter(wait) => {
                self.later
                    .entry(now + wait)
                    .or_default()
                    .push((index, range));
            }
            Verdict::GiveUp => {
                self.tries.remove(&(index, range.offset));
                self.abort_file(index, error);
            }
        }
    }

    /// Whatever can go on now, goes on.
    fn step(&mut self, now: Time) {
        let is_moving = self.phase == Phase::Moving;
        let is_early = self.phase == Phase::Waiting && self.config.announces_early;
        if !is_moving && !is_early {
            return;
        }
        self.announce_more();
        if is_moving {
            self.give_up_stuck(now);
            self.send_ready(now);
            self.read_more(now);
        }
        self.list_more();
        if self.listed_all && self.listed.is_empty() && !self.end_announced {
            self.end_announced = true;
            let entries = self.progress.entries_listed;
            self.out
                .push_back(Effect::Message(Message::ListEnd { entries }));
        }
    }

    fn list_more(&mut self) {
        let live = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        let most = match self.phase {
            // Whoever drives may be opening its destination still, and read nothing meanwhile.
            Phase::Waiting => self.config.live_entries_max.min(EARLY_ENTRIES_MAX),
            _ => self.config.live_entries_max,
        };
        let room = most.saturating_sub(live);
        if self.listing || self.listed_all || !self.listed.is_empty() {
            return;
        }
        if room == 0 {
            if self.phase == Phase::Moving {
                self.stop_if_too_deep();
            }
        } else {
            self.listing = true;
            self.out.push_back(Effect::List {
                max: room.min(LIST_BATCH),
            });
        }
    }
}
