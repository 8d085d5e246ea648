//! The sink's state machine. It decides about files, grants credit, writes objects, syncs them in
//! groups, logs and acknowledges them, and verifies and publishes files.

mod accept;
mod announce;
mod api;
mod arrive;
mod attributes;
mod claims;
pub mod decide;
mod finish;
mod group;
mod groups;
mod invariants;
mod peers;
mod resumed;
mod stage;
mod tree;
mod under_way;

pub use api::{
    BlockKey, Config, Effect, Existing, Facts, Input, InspectItem, InspectTask, Inspected,
    LogRecord, PublishItem, Resume, SyncGroup, SyncItem, WritePart,
};

use crate::PING_VALUE;
use crate::mutants::{Mutant, Planted};
use crate::profile::StageClock;
use crate::progress::{Event, Outcome, Progress};
use crate::under_way::Folders;
use claims::Claims;
use dray_core::maps::HashMap;
use dray_core::{End, Error, ErrorKind, FileIndex, PeerId, RelPath, TargetId, Time};
use dray_sched::congestion::Congestion;
use dray_sched::credit::CreditLedger;
use dray_sched::tuner::threads::{ThreadTuner, Work};
use dray_wire::message::{Message, Ready, Totals};
use group::{Group, Syncing};
use peers::Peer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tree::Live;

#[derive(Debug)]
enum Phase {
    Moving,
    /// All entries are closed. The runtime is storing the totals.
    Storing(Totals),
    /// The sink has sent the verdict, and waits until the sources have stored it.
    Announced(Totals),
    /// The runtime is removing the log.
    Removing(Totals),
    /// The sink starts no new work. After the written data is durable, the session ends with
    /// `outcome`.
    Stopping {
        outcome: Outcome,
        purge: bool,
        purging: bool,
    },
    Ended,
}

/// A target is congested if [`Congestion::bound`] is below this value. The sink needs no finer
/// distinction, because credit limits the amount in transit.
const CONGESTED_OR_NOT: u32 = 2;

/// The sink's state machine. The documentation of the crate describes its interface.
#[derive(Debug)]
pub struct Sink {
    config: Config,
    claims: Claims,
    phase: Phase,
    peers: BTreeMap<PeerId, Peer>,
    ledger: CreditLedger,
    congestion: Congestion,
    live: HashMap<FileIndex, Live>,
    paths: HashMap<RelPath, FileIndex>,
    next_entry: u64,
    blocks: HashMap<BlockKey, arrive::Block>,
    /// Total number of separate ranges that have arrived, over all files that are not closed.
    runs: usize,
    writing: u32,
    /// Number of writes in progress on each target.
    writes: BTreeMap<TargetId, u32>,
    /// Maximum number of concurrent writes per target.
    writers: ThreadTuner,
    /// Number of blocks that wait for an earlier block of their file, because the store writes
    /// files in order.
    held: u32,
    /// Number of bytes that are written and not yet durable. Bytes of a large file count until
    /// their record is logged. Bytes of a small file count until the file is closed.
    unsafe_bytes: u64,
    /// Number of inspections and preparations that the runtime has not answered.
    deciding: u64,
    /// Files for which the runtime is opening the partial file. The value is true if the partial
    /// file has no durable ranges. Such a partial file is discarded if the file fails.
    preparing: HashMap<FileIndex, bool>,
    /// Failed files whose partial file and log records the next run can use. `None` if there are
    /// more than `KEPT_MAX` such files.
    kept: Option<BTreeSet<RelPath>>,
    /// True if the notice about a dropped attribute was sent. A session sends this notice once.
    has_left_out: bool,
    /// Number of notices sent about adopted files whose attributes could not be set.
    unset: u32,
    /// False if some entries could not be listed. [`Effect::FinishLog`] then keeps the records of
    /// files that were not listed.
    is_listed: bool,
    gathering: Group,
    /// Data of congested targets, which is synced apart from the other data.
    late: Group,
    /// True if the last synced group was the late group.
    was_late: bool,
    syncing: Syncing,
    /// Time at which the last group was passed to the runtime for its sync.
    synced_at: Option<Time>,
    /// Number of files for which bytes or a decision are missing.
    wanting: u64,
    /// Number of unanswered effects whose answer closes an entry.
    finishing: u64,
    to_inspect: Vec<InspectItem>,
    to_publish: Vec<PublishItem>,
    totals: Totals,
    progress: Progress,
    folders: Folders,
    account: StageClock,
    /// Rate limit of this end in bytes per second.
    rate: Option<u64>,
    out: VecDeque<Effect>,
    planted: Planted,
}

impl Sink {
    /// Creates a machine without a source.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            claims: Claims::new(&config.claims),
            phase: Phase::Moving,
            peers: BTreeMap::new(),
            ledger: CreditLedger::new(config.buffers),
            congestion: Congestion::new(CONGESTED_OR_NOT),
            live: HashMap::default(),
            paths: HashMap::default(),
            next_entry: 0,
            blocks: HashMap::default(),
            runs: 0,
            writing: 0,
            writes: BTreeMap::new(),
            writers: ThreadTuner::new(Work::Writing, config.writers),
            held: 0,
            unsafe_bytes: 0,
            deciding: 0,
            preparing: HashMap::default(),
            kept: Some(BTreeSet::new()),
            has_left_out: false,
            unset: 0,
            is_listed: true,
            gathering: Group::default(),
            late: Group::default(),
            was_late: false,
            syncing: Syncing::default(),
            synced_at: None,
            wanting: 0,
            finishing: 0,
            to_inspect: Vec::new(),
            to_publish: Vec::new(),
            totals: Totals::default(),
            progress: Progress::default(),
            folders: Folders::default(),
            account: StageClock::default(),
            out: VecDeque::new(),
            planted: Planted::default(),
            rate: None,
            config,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the amount of credit that the sources hold. The simulator compares it with the pool.
    #[must_use]
    pub const fn credit_out(&self) -> u32 {
        self.ledger.out()
    }

    /// Returns the total number of separate ranges that have arrived, over all unclosed files.
    #[must_use]
    pub const fn runs(&self) -> usize {
        self.runs
    }

    /// Returns true if the session has ended or will end early. The sink then publishes no further
    /// file, so the runtime may abandon work that only prepares a publication.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. } | Phase::Ended)
    }

    /// Plants a defect in this machine, for a test of the invariants.
    #[cfg(feature = "mutants")]
    pub fn plant(&mut self, mutant: Mutant) {
        self.planted = Planted::new(mutant);
    }

    /// Returns the next effect. Call this until it returns `None` after each [`Sink::handle`].
    pub fn poll(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// Returns the time at which an [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.sync_due_at()
    }

    /// Handles an input.
    pub fn handle(&mut self, input: Input, now: Time) {
        if matches!(self.phase, Phase::Ended) {
            return;
        }
        self.account.pass(&mut self.progress.profile.sink, now);
        if self.writers.pass(self.progress.bytes_written, now) {
            self.out.push_back(Effect::SetWriters(self.writers.count()));
        }
        match input {
            Input::PeerUp(peer) => self.on_peer_up(peer, now),
            Input::Message(peer, Message::Pong(PING_VALUE)) => self.on_pong(peer, now),
            Input::Message(peer, message) => self.on_message(peer, message, now),
            Input::BlockArrived {
                peer,
                head,
                buffer,
                verified,
            } => {
                let kind = verified.as_ref().err().map(|error| error.kind);
                let is_corrupt = kind == Some(ErrorKind::ChecksumMismatch);
                self.progress.objects_corrupt += u64::from(is_corrupt);
                self.on_arrived(peer, head, buffer, verified, now);
            }
            Input::Inspected(results) => self.on_inspected(results, now),
            Input::Kept {
                index,
                done,
                is_moved,
            } => self.on_kept(index, done, is_moved),
            Input::Placed(index, layout) => self.on_placed(index, layout),
            Input::Prepared(index, result) => self.on_prepared(index, result),
            Input::Written(key, results) => self.on_written(key, &results, now),
            Input::Synced(group, result) => self.on_synced(group, result),
            Input::Logged(group, result) => self.on_logged(group, result, now),
            Input::ReadBack(index, result) => self.on_read_back(index, result),
            Input::WrittenChecked(index, result) => self.on_written_checked(index, result),
            Input::Published(results) => self.on_published(results, now),
            Input::DirectorySet(index, result) => self.on_directory_set(index, result, now),
            Input::AdoptedSet(index, result) => self.on_adopted_set(index, result, now),
            Input::VerdictStored(result) => self.on_stored_here(result, now),
            Input::LogRemoved(result) => self.on_log_removed(result),
            Input::StreamLost(peer, stream) => self.on_stream_lost(peer, stream),
            Input::PeerLost(peer, error) => self.on_peer_lost(peer, error),
            Input::LeaseLost(error) => self.break_off(error),
            Input::Cancel { purge } => self.on_cancel(purge),
            Input::Stopping(error) => self.on_stopping(error),
            Input::SetRate(rate) => self.on_set_rate(rate),
            Input::SetStreams(most) => self.on_set_streams(most),
            Input::Tick => {}
        }
        self.step(now);
        self.update_stage(now);
        self.progress.writers = self.writers.count();
        debug_assert_eq!(self.check_if_small(), Ok(()), "an invariant of the sink");
    }

    fn end(&mut self, outcome: Outcome) {
        self.phase = Phase::Ended;
        self.out.push_back(Effect::End(outcome));
    }

    /// Ends the session immediately, because no more data may be written or trusted. Sends the
    /// error to the sources: a closed connection alone does not tell them the reason.
    fn break_off(&mut self, error: Error) {
        self.send_profile();
        for peer in self.peers.keys() {
            let message = Message::GoAway(error.clone());
            self.out.push_back(Effect::Message(*peer, message));
        }
        self.end(Outcome::Failed(error));
    }

    /// Ends the session as soon as the written data is durable. Call this before sending a message
    /// that ends the session at the sources, because a source may ignore messages after it.
    fn stop(&mut self, outcome: Outcome, purge: bool) {
        if matches!(self.phase, Phase::Stopping { .. } | Phase::Ended) {
            return;
        }
        self.send_profile();
        self.phase = Phase::Stopping {
            outcome,
            purge,
            purging: false,
        };
    }

    fn protocol_error(&mut self, peer: PeerId, cause: impl Into<String>) {
        self.violation(peer, ErrorKind::Protocol, cause.into());
    }

    /// Stops the session because a source violated the protocol or exceeded an agreed limit.
    fn violation(&mut self, peer: PeerId, kind: ErrorKind, cause: String) {
        let error = Error::new(kind, End::Source, "follow the messages of the source")
            .cause(cause)
            .remedy("use the same version of dray at both ends, and report this error");
        self.stop(Outcome::Failed(error.clone()), false);
        self.out
            .push_back(Effect::Message(peer, Message::GoAway(error.clone())));
        // The session ends for the other sources too, so send them the reason.
        for other in self.peers.keys().filter(|other| **other != peer) {
            let message = Message::GoAway(error.clone());
            self.out.push_back(Effect::Message(*other, message));
        }
    }

    fn on_peer_up(&mut self, peer: PeerId, now: Time) {
        self.peers.insert(peer, Peer::up(now));
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
        // A source may send data as soon as it receives READY, so send the rate first.
        if self.rate.is_some() {
            self.share_rate();
        }
        self.out
            .push_back(Effect::Message(peer, Message::Ready(ready)));
        // The source answers a PING without storage access or decisions. So the time until the PONG
        // is the round trip of the network alone.
        self.out
            .push_back(Effect::Message(peer, Message::Ping(PING_VALUE)));
    }

    fn on_message(&mut self, peer: PeerId, message: Message, now: Time) {
        let is_work = matches!(
            message,
            Message::NewFiles(_)
                | Message::Stripes(_)
                | Message::ListFailed(_)
                | Message::ListEnd { .. }
                | Message::FileAbort { .. }
                | Message::Cancel { .. }
        );
        if is_work && !matches!(self.phase, Phase::Moving) {
            // The session is stopping, or all its entries are closed, so ignore further work.
            return;
        }
        let is_listing = matches!(
            message,
            Message::NewFiles(_) | Message::ListFailed(_) | Message::ListEnd { .. }
        );
        if is_listing && self.has_ended_list(peer) {
            self.protocol_error(
                peer,
                "the source sent more entries after the end of the list",
            );
            return;
        }
        match message {
            Message::NewFiles(entries) => self.on_new_files(peer, entries),
            Message::Stripes(steps) => self.on_stripes(peer, steps),
            Message::ListFailed(errors) => {
                for error in errors {
                    self.fail_unlisted(error);
                }
            }
            Message::ListEnd { entries } => self.on_list_end(peer, entries),
            Message::FileAbort { index, error } => {
                // If the source cannot read the file at the moment, the bytes received so far
                // remain correct. They are useless only if the file has changed.
                let changed = matches!(error.kind, ErrorKind::SourceChanged | ErrorKind::ShortRead);
                self.fail(self.own_index(peer, index), error, changed);
            }
            Message::Credit(credit) => {
                for (target, count) in credit {
                    if !self.on_credit(peer, target, count) {
                        let cause = format!("the source returned too much credit for {target}");
                        return self.protocol_error(peer, cause);
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
            Message::VerdictStored => self.on_stored_there(peer),
            Message::GoAway(error) | Message::Refuse(error) => self.on_peer_lost(peer, error),
            Message::Bye => {
                let error = Error::new(ErrorKind::Cancelled, End::Source, "continue the session")
                    .cause("the source ended the session");
                self.on_peer_lost(peer, error);
            }
            Message::Rate(rate) => self.on_rate(peer, rate),
            Message::Profile(times) => self.on_profile(peer, times, now),
            Message::Pong(_) | Message::Stall { .. } => {}
            Message::Hello(_)
            | Message::Connect(_)
            | Message::Accept(_)
            | Message::Ready(_)
            | Message::Done { .. }
            | Message::FileIds(_)
            | Message::BlockSync(_)
            | Message::FileClose(_)
            | Message::Streams(_)
            | Message::Verdict(_) => self.protocol_error(
                peer,
                "the source sent a message that \
                only a sink may send",
            ),
        }
    }

    fn on_list_end(&mut self, peer: PeerId, entries: u64) {
        let Some(known) = self.peers.get_mut(&peer) else {
            return;
        };
        known.has_ended_list = true;
        let announced = known.announced;
        self.progress.listing_done = self.is_listed_to_the_end();
        if entries != announced {
            let cause =
                format!("the source announced {entries} entries, but sent {announced} entries");
            self.protocol_error(peer, cause);
        } else if let Some(index) = self.folder_without_end(peer) {
            self.protocol_error(
                peer,
                format!(
                    "the source ended the list before the end of folder \
                {index}"
                ),
            );
        }
    }

    fn on_cancel(&mut self, purge: bool) {
        match self.phase {
            Phase::Moving => {}
            // The sink has finished its work. Only the source's answer to the verdict is missing.
            Phase::Announced(totals) => {
                self.send_bye();
                self.end(Outcome::Done(totals));
                return;
            }
            _ => return,
        }
        self.stop(Outcome::Cancelled, purge);
        let attempt = self.config.attempt;
        for peer in self.peers.keys() {
            let message = Message::Cancel { attempt, purge };
            self.out.push_back(Effect::Message(*peer, message));
        }
    }

    fn on_stopping(&mut self, error: Error) {
        // After the last file, the sink only waits for a message of the other end. This wait is
        // short, so the sink does not end the session, although this end is about to stop.
        if !matches!(self.phase, Phase::Moving) {
            return;
        }
        self.stop(Outcome::Failed(error.clone()), false);
        for peer in self.peers.keys() {
            let message = Message::GoAway(error.clone());
            self.out.push_back(Effect::Message(*peer, message));
        }
    }

    fn on_stored_here(&mut self, result: Result<(), Error>, now: Time) {
        if let Phase::Storing(totals) = self.phase {
            if let Err(error) = result {
                self.break_off(error);
                return;
            }
            self.phase = Phase::Announced(totals);
            self.send_profile();
            for peer in self.peers.keys() {
                self.out
                    .push_back(Effect::Message(*peer, Message::Verdict(totals)));
            }
            if self.config.is_driver {
                self.count_waits_for_verdict(now);
                self.finish_log(totals);
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
                self.send_bye();
                self.end(Outcome::Done(totals));
            }
            Phase::Stopping { outcome, .. } => {
                let outcome = outcome.clone();
                self.send_bye();
                self.end(outcome);
            }
            _ => {}
        }
    }

    fn send_bye(&mut self) {
        for peer in self.peers.keys() {
            self.out.push_back(Effect::Message(*peer, Message::Bye));
        }
    }

    /// Continues all work that can proceed now, and sends queued decisions to the sources.
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
        self.send_queued();
        if matches!(self.phase, Phase::Moving) {
            self.congestion.look(now);
            self.grant(now);
            self.conclude_if_done();
        } else {
            self.stop_if_settled();
        }
    }

    fn conclude_if_done(&mut self) {
        let listed = self.is_listed_to_the_end();
        let has_open = !self.live.is_empty() && !self.planted.is(Mutant::SinkGivesEarlyVerdict);
        if listed && !has_open && self.has_gathered_nothing() && self.syncing.is_none() {
            self.phase = Phase::Storing(self.totals);
            self.out.push_back(Effect::StoreVerdict(self.totals));
        }
    }

    fn stop_if_settled(&mut self) {
        let settled = self.writing == 0
            && self.deciding == 0
            && self.finishing == 0
            && self.syncing.is_none()
            && self.has_gathered_nothing();
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
            self.send_bye();
            self.end(outcome);
        }
    }
}
