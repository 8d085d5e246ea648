//! The sink's machine: decides what it needs, grants credit, writes, syncs in groups, logs,
//! acknowledges, verifies, publishes.

mod arrive;
pub mod decide;
mod finish;
mod groups;
mod tree;

use crate::progress::{Event, Failure, Outcome, Progress};
use dray_core::options::Options;
use dray_core::{
    BlockId, BufferId, ByteRange, Checksum, ContentKey, End, Error, ErrorKind, FileIndex, Layout,
    Metadata, ModifiedTime, PeerId, RangeSet, RelPath, StreamId, SummedRanges, Sums, TargetId, Time,
};
use dray_sched::credit::CreditLedger;
use dray_wire::message::{BlockHead, BlockState, FileClosed, FileId, Message, Ready, Totals};
use groups::Group;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;
use tree::Live;

/// What a sink machine is built with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Options of the transfer.
    pub options: Options,
    /// What the caller demands of the (single) file.
    pub demanded: Option<Checksum>,
    /// The source's own name of the content's version (an object store's; a byte range's).
    pub identity: Vec<u8>,
    /// Buffers of the pool.
    pub buffers: u32,
    /// Bytes of one buffer: the largest object.
    pub buffer_bytes: u64,
    /// Entries announced and not closed at the most.
    pub live_entries_max: u32,
    /// Precision of modification times, the weaker end's.
    pub precision_nanoseconds: u32,
    /// For a store without random writes: objects of one file on the way, in order.
    pub ordered_window: Option<u32>,
    /// Whether the store keeps holes.
    pub holes: bool,
    /// Bytes written and not yet durable at the most.
    pub sync_group_bytes: u64,
    /// Longest wait before what is written is made durable.
    pub sync_interval: Duration,
    /// The driver's attempt number; a cancel of another is ignored.
    pub attempt: u32,
}

/// A block, by the source that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The source.
    pub peer: PeerId,
    /// Its number there.
    pub block: BlockId,
}

/// What to find out, or to make, at one path; done in order, folders before what lies in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectItem {
    /// Which entry.
    pub index: FileIndex,
    /// Where.
    pub path: RelPath,
    /// What.
    pub task: InspectTask,
}

/// See [`InspectItem`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InspectTask {
    /// Say what stands there and what of the content is safe already.
    File(ContentKey),
    /// Make the folder unless it is there.
    Directory,
    /// Make the link.
    Symlink {
        /// Its text.
        target: Vec<u8>,
        /// Its attributes.
        metadata: Metadata,
    },
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it is a folder.
    pub is_directory: bool,
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified: ModifiedTime,
    /// Its checksums, where they are kept beside it.
    pub sums: Option<Sums>,
}

/// What a log that can be trusted says of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// What is safe, with its checksums.
    pub done: SummedRanges,
    /// Bytes of the objects it was cut into.
    pub object_bytes: u64,
}

/// What was found at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What stands under the final name.
    pub existing: Option<Existing>,
    /// What the log says, judged by the log's own rules of trust; an error says why not.
    pub resume: Option<Result<Resume, Error>>,
    /// The file's targets here.
    pub layout: Layout,
}

/// Answer to one [`InspectItem`].
#[derive(Debug)]
pub enum Inspected {
    /// For a file.
    File(Facts),
    /// A folder or link stands.
    Made,
    /// It cannot be.
    Failed(Error),
}

/// One part of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePart {
    /// Which file.
    pub file: FileIndex,
    /// Where in the file.
    pub range: ByteRange,
    /// Whether it is a hole; else its bytes are next in the buffer. A hole may be longer than an
    /// object, and must read as zeros afterwards.
    pub hole: bool,
    /// For a small file, written whole in one step: where it will stand, and its attributes.
    pub small: Option<(RelPath, Metadata)>,
}

/// What a sync covers. Durable means that it is found again after a crash: the folder entry of a
/// partial file, and of the folders above it that this session made, belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncItem {
    /// Data of a partial file that was prepared.
    Partial(FileIndex),
    /// Data of a small file, by where it will stand.
    Small(RelPath),
    /// The folder entry of something that was published or made.
    Published(RelPath),
    /// Data and folder entry of a file that stood there already: an earlier run may have died before
    /// it was durable.
    Adopted(RelPath),
}

/// A record for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// Which file.
    pub file: FileIndex,
    /// Which bytes.
    pub range: ByteRange,
    /// Their checksums.
    pub sums: Sums,
}

/// A file to give its final name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishItem {
    /// Which.
    pub index: FileIndex,
    /// Where.
    pub path: RelPath,
    /// Whether it is a small file (else a prepared partial file).
    pub small: bool,
    /// Its size.
    pub size: u64,
    /// Its attributes.
    pub metadata: Metadata,
    /// Its checksums.
    pub sums: Sums,
    /// Whether something that stands there may be replaced.
    pub replace: bool,
}

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// A source has connected.
    PeerUp(PeerId),
    /// A control message of a source.
    Message(PeerId, Message),
    /// An object came in and its checksums were compared.
    BlockArrived {
        /// From whom.
        peer: PeerId,
        /// Its head.
        head: BlockHead,
        /// Its payload; none when it has none.
        buffer: Option<BufferId>,
        /// Whether the bytes are the ones that were read.
        verified: Result<(), Error>,
    },
    /// Answer to [`Effect::Inspect`].
    Inspected(Vec<(FileIndex, Inspected)>),
    /// Answer to [`Effect::Prepare`].
    Prepared(FileIndex, Result<(), Error>),
    /// Answer to [`Effect::Write`], one result for each part.
    Written(BlockKey, Vec<Result<(), Error>>),
    /// Answer to [`Effect::Sync`].
    Synced(Result<(), Error>),
    /// Answer to [`Effect::Log`].
    Logged(Result<(), Error>),
    /// Answer to [`Effect::ReadBack`].
    ReadBack(FileIndex, Result<Sums, Error>),
    /// Answer to [`Effect::Publish`].
    Published(Vec<(FileIndex, Result<(), Error>)>),
    /// Answer to [`Effect::SetDirectory`].
    DirectorySet(FileIndex, Result<(), Error>),
    /// The verdict has been stored (answer to [`Effect::StoreVerdict`]).
    VerdictStored,
    /// Answer to [`Effect::RemoveLog`] and [`Effect::Purge`].
    LogRemoved(Result<(), Error>),
    /// A data stream died; everything it delivered has been handed in.
    StreamLost(PeerId, StreamId),
    /// A source's control connection died.
    PeerLost(PeerId, Error),
    /// Another holds the lease now.
    LeaseLost(Error),
    /// Somebody asks to stop.
    Cancel {
        /// Whether partial data and log go too.
        purge: bool,
    },
    /// The time said by [`Sink::next_wake`] has come.
    Tick,
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a control message.
    Message(PeerId, Message),
    /// Look at, or make, entries, strictly in order, also between such effects.
    Inspect(Vec<InspectItem>),
    /// Open the partial file of a large file and begin it in the log.
    Prepare {
        /// Which.
        index: FileIndex,
        /// Where it will stand.
        path: RelPath,
        /// What its content must be.
        key: ContentKey,
        /// Bytes of an object.
        object_bytes: u64,
        /// Whether the partial file and the log's records of it are continued.
        resume: bool,
    },
    /// Write an object. A part of a file that is not small and not open (it failed meanwhile, and was
    /// closed or discarded) is passed over; what is answered for it does not matter.
    Write {
        /// Which.
        block: BlockKey,
        /// Its payload.
        buffer: Option<BufferId>,
        /// The target that is written.
        target: TargetId,
        /// Where the parts go, in payload order.
        parts: Vec<WritePart>,
    },
    /// The buffer is free for the receivers again.
    Free(BufferId),
    /// Make everything named durable.
    Sync(Vec<SyncItem>),
    /// Append to the log.
    Log {
        /// What.
        records: Vec<LogRecord>,
        /// Whether the log must be durable before the answer.
        sync: bool,
    },
    /// Read a complete file again, before it is published.
    ReadBack {
        /// Which.
        index: FileIndex,
        /// Where it will stand.
        path: RelPath,
        /// Bytes.
        size: u64,
        /// Whether it is a small file.
        small: bool,
    },
    /// Give files their final names.
    Publish(Vec<PublishItem>),
    /// Give a folder its attributes.
    SetDirectory {
        /// Which.
        index: FileIndex,
        /// Where.
        path: RelPath,
        /// Its attributes.
        metadata: Metadata,
    },
    /// Remove what was written of a file and end it in the log. Of a small file: forget it.
    Discard(FileIndex),
    /// Nothing more is written to a prepared file: it has its final name, or what is safe of it
    /// stays for the next run.
    CloseFile(FileIndex),
    /// Store the totals durably, if anyone keeps them, then answer `VerdictStored`.
    StoreVerdict(Totals),
    /// The log is no longer needed: no file of this transfer is unfinished. Partial files that only
    /// the log knows go first (their files have left the source, or stand here already).
    RemoveLog,
    /// Remove all partial data and the log.
    Purge,
    /// Tell the outside.
    Report(Event),
    /// The session is over; nothing follows.
    End(Outcome),
}

#[derive(Debug)]
enum Phase {
    Moving,
    /// Everything is closed; the totals are being stored here.
    Storing(Totals),
    /// The verdict was sent; its storing at the other side is awaited.
    Announced(Totals),
    /// The log is being removed.
    Removing(Totals),
    /// No new work; what is written becomes durable, then the session ends like this.
    Stopping {
        outcome: Outcome,
        purge: bool,
        purging: bool,
    },
    Ended,
}

#[derive(Debug, Default)]
struct Peer {
    /// Streams this end knows to be dead.
    dead_streams: HashSet<StreamId>,
    /// What the source asked of streams that this end still believes alive.
    asked: BTreeMap<StreamId, Vec<BlockId>>,
    /// Attempts that arrived or were answered as dropped, as ranges of their numbers.
    seen: RangeSet,
}

/// The sink's state machine. See the crate's head for how it is driven.
#[derive(Debug)]
pub struct Sink {
    config: Config,
    phase: Phase,
    peers: BTreeMap<PeerId, Peer>,
    ledger: CreditLedger,
    live: HashMap<FileIndex, Live>,
    paths: HashSet<RelPath>,
    next_entry: u64,
    list_end: Option<u64>,
    blocks: HashMap<BlockKey, arrive::Block>,
    writing: u32,
    /// Blocks that wait for their turn in a file that must be written in order.
    held: u32,
    /// Bytes written and not yet safe: not logged or, of small files, not closed.
    unsafe_bytes: u64,
    /// Inspections and preparations under way.
    deciding: u64,
    /// Failed files whose partial file and records stay for the next run.
    kept: u64,
    gathering: Group,
    syncing: Option<Group>,
    /// Files that still need bytes or a decision.
    wanting: u64,
    /// Effects under way that lead to a close.
    finishing: u64,
    to_inspect: Vec<InspectItem>,
    to_publish: Vec<PublishItem>,
    file_ids: Vec<FileId>,
    states: BTreeMap<PeerId, Vec<(BlockId, BlockState)>>,
    closed: Vec<FileClosed>,
    totals: Totals,
    progress: Progress,
    out: VecDeque<Effect>,
}

impl Sink {
    /// A machine without a source.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            phase: Phase::Moving,
            peers: BTreeMap::new(),
            ledger: CreditLedger::new(config.buffers),
            live: HashMap::new(),
            paths: HashSet::new(),
            next_entry: 0,
            list_end: None,
            blocks: HashMap::new(),
            writing: 0,
            held: 0,
            unsafe_bytes: 0,
            deciding: 0,
            kept: 0,
            gathering: Group::default(),
            syncing: None,
            wanting: 0,
            finishing: 0,
            to_inspect: Vec::new(),
            to_publish: Vec::new(),
            file_ids: Vec::new(),
            states: BTreeMap::new(),
            closed: Vec::new(),
            totals: Totals::default(),
            progress: Progress::default(),
            out: VecDeque::new(),
            config,
        }
    }

    /// Counters.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Credit granted and not returned (checked by the simulator against the pool).
    #[must_use]
    pub const fn credit_out(&self) -> u32 {
        self.ledger.out()
    }

    /// The next thing to do; call until `None` after each [`Sink::handle`].
    pub fn poll(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// When a [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        if self.syncing.is_some() || self.gathering.is_empty() {
            return None;
        }
        Some(self.gathering.since + self.config.sync_interval)
    }

    /// Takes what happened.
    pub fn handle(&mut self, input: Input, now: Time) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        match input {
            Input::PeerUp(peer) => self.on_peer_up(peer),
            Input::Message(peer, message) => self.on_message(peer, message),
            Input::BlockArrived {
                peer,
                head,
                buffer,
                verified,
            } => {
                self.on_arrived(peer, head, buffer, verified);
            }
            Input::Inspected(results) => self.on_inspected(results, now),
            Input::Prepared(index, result) => self.on_prepared(index, result),
            Input::Written(key, results) => self.on_written(key, &results, now),
            Input::Synced(result) => self.on_synced(result),
            Input::Logged(result) => self.on_logged(result),
            Input::ReadBack(index, result) => self.on_read_back(index, result),
            Input::Published(results) => self.on_published(results, now),
            Input::DirectorySet(index, result) => self.on_directory_set(index, result, now),
            Input::VerdictStored => self.on_stored_here(),
            Input::LogRemoved(result) => self.on_log_removed(result),
            Input::StreamLost(peer, stream) => self.on_stream_lost(peer, stream),
            Input::PeerLost(peer, error) => self.on_peer_lost(peer, error),
            Input::LeaseLost(error) => self.end(Outcome::Failed(error)),
            Input::Cancel { purge } => self.on_cancel(purge),
            Input::Tick => {}
        }
        self.step(now);
    }

    fn end(&mut self, outcome: Outcome) {
        self.phase = Phase::Ended;
        self.out.push_back(Effect::End(outcome));
    }

    /// Ends after what is written has become durable.
    fn stop(&mut self, outcome: Outcome, purge: bool) {
        if matches!(self.phase, Phase::Stopping { .. } | Phase::Ended) {
            return;
        }
        self.phase = Phase::Stopping {
            outcome,
            purge,
            purging: false,
        };
    }

    fn protocol_error(&mut self, peer: PeerId, cause: impl Into<String>) {
        let error = Error::new(ErrorKind::Protocol, End::Source, "follow the source")
            .cause(cause)
            .remedy("use the same version of dray at both ends and report this");
        self.out
            .push_back(Effect::Message(peer, Message::GoAway(error.clone())));
        self.stop(Outcome::Failed(error), false);
    }

    fn on_peer_up(&mut self, peer: PeerId) {
        self.peers.insert(peer, Peer::default());
        let pack_bytes_max = self
            .config
            .options
            .object_bytes
            .min(self.config.buffer_bytes);
        let ready = Ready {
            precision_nanoseconds: self.config.precision_nanoseconds,
            object_bytes_max: self.config.buffer_bytes,
            live_entries_max: self.config.live_entries_max,
            pack_bytes_max,
            holes: self.config.holes,
            ordered_window: self.config.ordered_window,
        };
        self.out
            .push_back(Effect::Message(peer, Message::Ready(ready)));
    }

    fn on_message(&mut self, peer: PeerId, message: Message) {
        let is_work = matches!(
            message,
            Message::NewFiles(_)
                | Message::ListFailed(_)
                | Message::ListEnd { .. }
                | Message::FileAbort { .. }
                | Message::Cancel { .. }
        );
        if is_work && !matches!(self.phase, Phase::Moving) {
            // Stopping, or past the verdict: nothing new is begun, and nothing is left to cancel.
            return;
        }
        match message {
            Message::NewFiles(entries) => self.on_new_files(peer, entries),
            Message::ListFailed(errors) => {
                for error in errors {
                    self.progress.files_failed += 1;
                    self.totals.files_failed += 1;
                    let path = error.file.clone().unwrap_or_else(RelPath::root);
                    let failure = Failure { path, error };
                    self.out.push_back(Effect::Report(Event::Failed(failure)));
                }
            }
            Message::ListEnd { entries } => {
                self.list_end = Some(entries);
                self.progress.listing_done = true;
                if entries != self.progress.entries_listed {
                    let seen = self.progress.entries_listed;
                    let cause = format!("{entries} entries announced, {seen} received");
                    self.protocol_error(peer, cause);
                }
            }
            Message::FileAbort { index, error } => {
                // Bytes of a source that can only not be read just now are still good.
                let changed = matches!(error.kind, ErrorKind::SourceChanged | ErrorKind::ShortRead);
                self.fail(index, error, changed);
            }
            Message::Credit(credit) => {
                for (target, count) in credit {
                    if !self.ledger.give_back(target, count) {
                        self.protocol_error(peer, format!("credit for {target} that it lacks"));
                        return;
                    }
                }
            }
            Message::StreamLost { stream, blocks } => self.on_asked(peer, stream, blocks),
            Message::Ping(nonce) => {
                self.out
                    .push_back(Effect::Message(peer, Message::Pong(nonce)));
            }
            Message::Cancel { attempt, purge } => {
                if attempt == self.config.attempt {
                    self.stop(Outcome::Cancelled, purge);
                }
            }
            Message::VerdictStored => {
                if let Phase::Announced(totals) = self.phase {
                    self.phase = Phase::Removing(totals);
                    if self.kept == 0 {
                        self.out.push_back(Effect::RemoveLog);
                    } else {
                        self.on_log_removed(Ok(()));
                    }
                } else {
                    self.protocol_error(peer, "a verdict stored that was not given");
                }
            }
            Message::GoAway(error) | Message::Refuse(error) => self.on_peer_lost(peer, error),
            Message::Bye => {
                let error = Error::new(ErrorKind::Cancelled, End::Source, "go on")
                    .cause("the source ended the session");
                self.on_peer_lost(peer, error);
            }
            Message::Pong(_) | Message::Stall { .. } | Message::Rate(_) => {}
            Message::Hello(_)
            | Message::Connect(_)
            | Message::Accept(_)
            | Message::Ready(_)
            | Message::Done { .. }
            | Message::FileIds(_)
            | Message::BlockSync(_)
            | Message::FileClose(_)
            | Message::Verdict(_) => self.protocol_error(peer, "a message only a sink may send"),
        }
    }

    fn on_cancel(&mut self, purge: bool) {
        match self.phase {
            Phase::Moving => {}
            // Everything is done and told; only the other side's word is missing.
            Phase::Announced(totals) => {
                self.say_bye();
                self.end(Outcome::Done(totals));
                return;
            }
            _ => return,
        }
        let attempt = self.config.attempt;
        for peer in self.peers.keys() {
            let message = Message::Cancel { attempt, purge };
            self.out.push_back(Effect::Message(*peer, message));
        }
        self.stop(Outcome::Cancelled, purge);
    }

    fn on_peer_lost(&mut self, peer: PeerId, error: Error) {
        if self.peers.remove(&peer).is_none() || !self.peers.is_empty() {
            return;
        }
        match self.phase {
            // The verdict was sent but its storing is not known: the log stays for the next run.
            Phase::Announced(totals) => self.end(Outcome::Done(totals)),
            Phase::Removing(_) => {}
            _ => self.stop(Outcome::Failed(error), false),
        }
    }

    fn on_stored_here(&mut self) {
        if let Phase::Storing(totals) = self.phase {
            self.phase = Phase::Announced(totals);
            for peer in self.peers.keys() {
                self.out
                    .push_back(Effect::Message(*peer, Message::Verdict(totals)));
            }
        }
    }

    fn on_log_removed(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.out.push_back(Effect::Report(Event::Notice(error)));
        }
        match &self.phase {
            Phase::Removing(totals) => {
                let totals = *totals;
                self.say_bye();
                self.end(Outcome::Done(totals));
            }
            Phase::Stopping { outcome, .. } => {
                let outcome = outcome.clone();
                self.say_bye();
                self.end(outcome);
            }
            _ => {}
        }
    }

    fn say_bye(&mut self) {
        for peer in self.peers.keys() {
            self.out.push_back(Effect::Message(*peer, Message::Bye));
        }
    }

    /// Whatever can go on now, goes on; what was decided is told.
    fn step(&mut self, now: Time) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        if !self.to_inspect.is_empty() {
            self.deciding += 1;
            let items = std::mem::take(&mut self.to_inspect);
            self.out.push_back(Effect::Inspect(items));
        }
        if !self.to_publish.is_empty() {
            let items = std::mem::take(&mut self.to_publish);
            self.out.push_back(Effect::Publish(items));
        }
        self.sync_if_due(now);
        self.tell();
        if matches!(self.phase, Phase::Moving) {
            self.grant();
            self.conclude_if_done();
        } else {
            self.stop_if_settled();
        }
    }

    /// The sources hear what was decided since the last time.
    fn tell(&mut self) {
        let Some(first) = self.peers.keys().next().copied() else {
            self.file_ids.clear();
            self.states.clear();
            self.closed.clear();
            return;
        };
        if !self.file_ids.is_empty() {
            let ids = std::mem::take(&mut self.file_ids);
            self.out
                .push_back(Effect::Message(first, Message::FileIds(ids)));
        }
        // Before the states: a source must not try objects of a failed file again.
        if !self.closed.is_empty() {
            let closed = std::mem::take(&mut self.closed);
            self.out
                .push_back(Effect::Message(first, Message::FileClose(closed)));
        }
        for (peer, states) in std::mem::take(&mut self.states) {
            self.out
                .push_back(Effect::Message(peer, Message::BlockSync(states)));
        }
    }

    fn grant(&mut self) {
        if self.unsafe_bytes >= self.config.sync_group_bytes {
            return;
        }
        let Some(first) = self.peers.keys().next().copied() else {
            return;
        };
        let grants = self.ledger.grants();
        if !grants.is_empty() {
            self.out
                .push_back(Effect::Message(first, Message::Credit(grants)));
        }
    }

    fn conclude_if_done(&mut self) {
        let listed = self.list_end.is_some();
        if listed && self.live.is_empty() && self.gathering.is_empty() && self.syncing.is_none() {
            self.phase = Phase::Storing(self.totals);
            self.out.push_back(Effect::StoreVerdict(self.totals));
        }
    }

    fn stop_if_settled(&mut self) {
        let settled = self.writing == 0
            && self.deciding == 0
            && self.finishing == 0
            && self.syncing.is_none()
            && self.gathering.is_empty();
        let Phase::Stopping {
            outcome,
            purge,
            purging,
        } = &mut self.phase
        else {
            return;
        };
        if !settled || *purging {
            return;
        }
        if *purge {
            *purging = true;
            self.out.push_back(Effect::Purge);
        } else {
            let outcome = outcome.clone();
            self.say_bye();
            self.end(outcome);
        }
    }
}
