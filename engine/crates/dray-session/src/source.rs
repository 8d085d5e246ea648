//! The source's state machine. It lists entries, schedules, paces and sends objects, and handles
//! the sink's answers.

mod api;
mod blocks;
mod files;
mod invariants;
mod layouts;
mod stage;
mod under_way;
mod verdict;

pub use api::{Config, Effect, Input, Listed, ReadOutcome, ReadPart};

use crate::mutants::Planted;
use crate::profile::StageClock;
use crate::progress::{Outcome, Progress};
use crate::under_way::{FolderRow, Folders};
use blocks::{Block, Sending};
use dray_core::maps::{HashMap, HashSet};
use dray_core::rate::BytesPerSecond;
use dray_core::retry::Verdict;
use dray_core::{
    BlockId, BufferId, ByteRange, Error, FileIndex, Layout, ModifiedTime, RangeSet, RelPath,
    StreamId, TargetId, Time,
};
use dray_sched::objects::{Dataset, Objects};
use dray_sched::pace::Pacer;
use dray_sched::rng::Rng;
use dray_sched::streams::Streams;
use dray_sched::tuner::threads::{ThreadTuner, Work};
use dray_wire::bounds::BLOCKS_MAX;
use dray_wire::message::{Message, Ready, Totals};
use layouts::limits;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Maximum number of entries in one request to the lister.
const LIST_BATCH: u32 = 512;

/// Maximum number of entries that the source announces before the sink is ready. The value is
/// estimated, not measured. The announcements of 4096 entries are small compared with the buffers
/// of a connection.
const EARLY_ENTRIES_MAX: u32 = 4096;

/// Maximum time that a cancelled session waits for the sink's last message. The session then ends
/// without it.
const FAREWELL: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct File {
    path: RelPath,
    /// Length of the entry's path at the sink in bytes.
    path_bytes: usize,
    /// Number of bytes with which the entry counts towards the limit on unclosed entries.
    live_bytes: u64,
    size: u64,
    modified: ModifiedTime,
    sparse: bool,
    is_file: bool,
    /// True for a folder whose end the source has not announced yet.
    is_open_folder: bool,
    layout: Layout,
    /// The dataset to which the file belongs. The source completes datasets one after the other.
    dataset: Option<Dataset>,
    /// Row in which the file counts. For a folder: the row in which its entries count.
    row: FolderRow,
    /// Ranges that the sink has reported as durable, before it decided about the file.
    done: RangeSet,
    is_decided: bool,
    /// Contribution of this file to [`Source::layout_bytes`].
    layout_bytes: u64,
    bytes_durable: u64,
    /// Number of bytes in blocks that were passed to a stream and have no final state yet.
    bytes_on_the_way: u64,
    aborted: bool,
}

#[derive(Debug, Default)]
struct Stream {
    /// Number of blocks that were passed to the stream and not yet reported as sent.
    queued: u32,
    /// True if the source has requested the end of the stream, and the runtime has not reported yet
    /// that the stream has ended.
    is_given_up: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// The source waits for the sink's READY message.
    Waiting,
    Moving,
    /// The source has received the verdict. The runtime is storing the verdict or has stored it.
    Closing(Totals),
    /// A user has stopped the session. The source waits until this time for the sink's last
    /// message.
    Stopping(Time),
    Ended,
}

/// The source's state machine. The documentation of the crate describes its interface.
#[derive(Debug)]
pub struct Source {
    config: Config,
    phase: Phase,
    ready: Option<Ready>,
    listing: bool,
    listed_all: bool,
    end_announced: bool,
    /// Listed entries that are not announced yet, because the number of unclosed entries is at its
    /// limit.
    listed: VecDeque<Listed>,
    files: HashMap<FileIndex, File>,
    /// Total size in bytes of the names, link targets and attributes of the unclosed entries.
    live_bytes: u64,
    /// Number of announced files about which the sink has not decided.
    undecided: usize,
    /// Number of announced folders whose end the source has not announced.
    open_folders: usize,
    objects: Objects,
    /// The dataset to which the entries being announced belong.
    dataset: Option<Dataset>,
    pacer: Pacer,
    peer_rate: Option<u64>,
    own_rate: Option<u64>,
    draw: Rng,
    free: Vec<BufferId>,
    blocks: HashMap<BlockId, Block>,
    /// Objects that were passed to a stream, until the runtime reports them as sent.
    sending: BTreeMap<BlockId, Sending>,
    next_block: u64,
    /// Number of reads in progress.
    reading: u32,
    /// Maximum number of concurrent reads per storage target.
    readers: ThreadTuner,
    /// Number of blocks that have no payload and no final state yet.
    hole_blocks: u32,
    /// Total number of separate ranges in `done`, over all files.
    runs: usize,
    /// Blocks that are read and wait for a free stream.
    to_send: VecDeque<BlockId>,
    streams: BTreeMap<StreamId, Stream>,
    /// Maximum number of streams that get new objects.
    streams_most: usize,
    /// Progress of the objects on each stream, used to detect stuck streams.
    carriers: Streams,
    /// Sink targets for which the source has requested credit, until it receives some.
    asked: BTreeSet<TargetId>,
    /// Counts of the entries that the sink has closed. The sink's verdict must match these counts.
    closed: Totals,
    tries: BTreeMap<(FileIndex, u64), u32>,
    later: BTreeMap<Time, Vec<(FileIndex, ByteRange)>>,
    sink_targets: HashSet<TargetId>,
    /// Memory in bytes of the layouts of all unclosed files. At most
    /// [`LAYOUT_BYTES_MAX`](dray_wire::bounds::LAYOUT_BYTES_MAX).
    layout_bytes: u64,
    pace_wake: Option<Time>,
    /// Time at which the source checks whether reads that did not block have begun to block.
    look_again: Option<Time>,
    progress: Progress,
    folders: Folders,
    account: StageClock,
    /// True if the source has sent its profile since it last sent an object.
    has_sent_last_profile: bool,
    out: VecDeque<Effect>,
    planted: Planted,
}

impl Source {
    /// Creates a machine that waits for the sink's READY message. If `announces_early` is set, the
    /// machine begins to list with its first input, which may be an [`Input::Tick`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let readers = ThreadTuner::new(Work::Reading, config.readers);
        let pack_bytes_max = config.options.object_bytes.min(config.buffer_bytes);
        let limits = limits(pack_bytes_max, config.segments_max, readers.count());
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
            layout_bytes: 0,
            pace_wake: None,
            look_again: None,
            progress: Progress::default(),
            folders: Folders::default(),
            account: StageClock::default(),
            has_sent_last_profile: false,
            out: VecDeque::new(),
            planted: Planted::default(),
            config,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the number of buffers in use. The simulator compares it with the pool.
    #[must_use]
    pub fn buffers_in_use(&self) -> u32 {
        self.config.buffers - u32::try_from(self.free.len()).unwrap_or(0)
    }

    /// Returns the total number of separate durable ranges that the sink has reported, over all
    /// unclosed files.
    #[must_use]
    pub const fn runs(&self) -> usize {
        self.runs
    }

    /// Returns the number of ranges for which failed attempts are counted.
    #[must_use]
    pub fn tries_counted(&self) -> usize {
        self.tries.len()
    }

    /// Returns the next effect. Call this until it returns `None` after each [`Source::handle`].
    pub fn poll(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// Returns the time at which an [`Input::Tick`] is due.
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

    /// Handles an input.
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
            Input::Stopping(error) => self.on_stopping(error),
            Input::SetRate(rate) => {
                // The sink divides its rate among the transfers that move data. So report to the
                // sink when this end's rate becomes zero or stops being zero.
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
        self.update_stage(now);
        debug_assert_eq!(self.check_if_small(), Ok(()), "an invariant of the source");
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

    /// Returns the effective rate limit in bytes per second: the lower limit of the two ends.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        match (self.own_rate, self.peer_rate) {
            (Some(own), Some(peer)) => Some(own.min(peer)),
            (own, peer) => own.or(peer),
        }
    }

    fn apply_rate(&mut self, now: Time) {
        let rate = self.rate();
        // A burst of a tenth of a second keeps low rates smooth. The burst is at least one byte,
        // because no byte could pass a token bucket of size zero.
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
        // After the verdict there is nothing left to cancel.
        if matches!(self.phase, Phase::Stopping(_) | Phase::Closing(_)) {
            return;
        }
        let attempt = self.config.attempt;
        self.send_profile();
        self.out
            .push_back(Effect::Message(Message::Cancel { attempt, purge }));
        self.phase = Phase::Stopping(now + FAREWELL);
    }

    fn on_stopping(&mut self, error: Error) {
        // After the verdict there is no unfinished work.
        if matches!(self.phase, Phase::Stopping(_) | Phase::Closing(_)) {
            return;
        }
        self.send_profile();
        self.out
            .push_back(Effect::Message(Message::GoAway(error.clone())));
        self.end(Outcome::Failed(error));
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
            self.protocol_error("the sink sent a decision before the message Ready");
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
            // Only the driver of a transfer may set the number of streams.
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
            | Message::Stripes(_)
            | Message::ListFailed(_)
            | Message::ListEnd { .. }
            | Message::FileAbort { .. }
            | Message::StreamLost { .. }
            | Message::VerdictStored => self.protocol_error(
                "the sink sent a message that only a \
                source may send",
            ),
        }
    }

    /// Handles the items of a message in order, until an item ends the session.
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
            self.send_profile();
            self.out.push_back(Effect::Message(Message::Bye));
            self.end(Outcome::Cancelled);
        }
    }

    fn on_bye(&mut self) {
        match self.phase {
            Phase::Closing(totals) => self.end(Outcome::Done(totals)),
            Phase::Stopping(_) => self.end(Outcome::Cancelled),
            _ => self.protocol_error("the sink sent BYE before its verdict"),
        }
    }

    fn on_ready(&mut self, ready: Ready, now: Time) {
        // The sink may have sent this message before it received the cancellation.
        if matches!(self.phase, Phase::Stopping(_)) {
            return;
        }
        if self.phase != Phase::Waiting {
            self.protocol_error("the sink sent a second message Ready");
            return;
        }
        self.config.live_entries_max = self
            .config
            .live_entries_max
            .min(ready.live_entries_max)
            .max(1);
        self.config.buffer_bytes = self.config.buffer_bytes.min(ready.object_bytes_max).max(1);
        let pack_bytes_max = ready.pack_bytes_max.min(self.config.buffer_bytes);
        let segments_max = self.config.segments_max;
        let limits = limits(pack_bytes_max, segments_max, self.readers.count());
        self.objects.set_limits(limits);
        self.ready = Some(ready);
        self.phase = Phase::Moving;
        self.apply_rate(now);
    }

    /// Schedules another attempt to send a range. Aborts the file if the retry policy permits no
    /// further attempt, or if `tries` is full.
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

    /// Continues all work that can proceed now.
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
            // A sink that is the driver may still be opening its destination and not read messages.
            // So limit the number of entries that wait in the connection.
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
