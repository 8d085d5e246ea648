//! The sources of a session: their entries, the messages to each source, and the distribution of
//! credit.
//!
//! Each source numbers its entries from 0. The machine numbers the entries of all sources together.
//! With a single source, an entry has the same index in both numberings.

use super::tree::Live;
use super::{BlockKey, CONGESTED_OR_NOT, Effect, Phase, Sink};
use crate::progress::{Event, Failure, Outcome};
use crate::under_way::FolderRow;
use dray_core::maps::{HashMap, HashSet};
use dray_core::profile::Times;
use dray_core::{BlockId, Error, FileIndex, PeerId, RangeSet, RelPath, StreamId, TargetId, Time};
use dray_wire::message::{BlockState, FileClosed, FileId, Message, Segment, Totals};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Index for an entry that is closed or never existed. Lookups with this index find no entry.
const NO_ENTRY: FileIndex = FileIndex(u64::MAX);

#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Unclosed entries of the source, from the source's index to the machine's index.
    own: HashMap<FileIndex, FileIndex>,
    /// `Layout::step` in bytes of files that the source has not announced yet.
    pub(super) steps: HashMap<FileIndex, u64>,
    /// Number of entries that the source has announced.
    pub(super) announced: u64,
    /// True if the source has announced all its entries.
    pub(super) has_ended_list: bool,
    /// Total size in bytes of the names, link targets and attributes of the source's unclosed
    /// entries.
    pub(super) live_bytes: u64,
    /// Number of the source's files for which bytes or a decision are missing.
    pub(super) wanting: u64,
    /// Streams whose loss this end has detected.
    pub(super) dead_streams: HashSet<StreamId>,
    /// Blocks of lost streams, by stream: the source has asked which of these blocks have arrived.
    /// Contains only streams whose loss this end has not detected yet, because it answers after
    /// that.
    pub(super) asked: BTreeMap<StreamId, Vec<BlockId>>,
    /// Numbers of the blocks that have arrived or were reported as dropped.
    pub(super) seen: RangeSet,
    /// Total number of block numbers in `asked`.
    pub(super) asked_blocks: usize,
    /// Number of the source's blocks that have no payload and no final state yet.
    pub(super) hole_blocks: u32,
    /// Unused credit that the source holds, by target.
    credit: BTreeMap<TargetId, u32>,
    /// Targets for which the source has requested credit, until it receives some.
    wants_credit: BTreeSet<TargetId>,
    /// Time at which the machine sent its PING to the source.
    asked_at: Time,
    /// Time from this PING to the PONG.
    round_trip: Option<Duration>,
    /// True if the source has set its own rate to zero.
    is_shut: bool,
    /// Times by stage in the source's last report.
    pub(super) times: Times,
    /// Time of the source's last profile report. `None` if the source still had entries to announce
    /// when it sent this report.
    pub(super) reported_at: Option<Time>,
    /// True if the source has stored the verdict.
    has_stored: bool,
    file_ids: Vec<FileId>,
    closed: Vec<FileClosed>,
    pub(super) states: Vec<(BlockId, BlockState)>,
}

impl Peer {
    /// Returns the state of a source that has just connected.
    pub(super) fn up(now: Time) -> Self {
        Self {
            asked_at: now,
            ..Self::default()
        }
    }

    /// Returns the number of the source's entries that are announced and not closed.
    pub(super) fn live_count(&self) -> usize {
        self.own.len()
    }
}

impl Sink {
    /// Sets the rate limit of this end in bytes per second.
    pub(super) fn on_set_rate(&mut self, rate: Option<u64>) {
        if rate != self.rate {
            self.rate = rate;
            self.share_rate();
        }
    }

    /// Sends each source the maximum number of streams to use from now on.
    pub(super) fn on_set_streams(&mut self, most: u32) {
        let most = most.max(1);
        for peer in self.peers.keys() {
            self.out
                .push_back(Effect::Message(*peer, Message::Streams(most)));
        }
    }

    /// Sends each source its share of the rate. All shares are equal, because the sink does not
    /// know the rate that each source could reach.
    pub(super) fn share_rate(&mut self) {
        let count = self.peers.len().max(1) as u64;
        for peer in self.peers.keys() {
            // A share of zero would stop the source. So a share is zero only if the rate is zero.
            let part = self.rate.map(|rate| (rate / count).max(rate.min(1)));
            self.out
                .push_back(Effect::Message(*peer, Message::Rate(part)));
        }
    }

    /// Handles the rate that a source has set for itself. The source enforces this rate. The sink
    /// only needs to know whether any source can send.
    pub(super) fn on_rate(&mut self, peer: PeerId, rate: Option<u64>) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.is_shut = rate == Some(0);
        }
        self.progress.is_held_there = self.peers.values().all(|peer| peer.is_shut);
    }

    /// Returns the machine's index of a source's entry. Returns [`NO_ENTRY`] if the entry is closed
    /// or unknown.
    pub(super) fn own_index(&self, peer: PeerId, index: FileIndex) -> FileIndex {
        let known = self.peers.get(&peer).and_then(|peer| peer.own.get(&index));
        known.copied().unwrap_or(NO_ENTRY)
    }

    /// Assigns a machine index to a new entry of a source.
    pub(super) fn number(&mut self, peer: PeerId, index: FileIndex) -> FileIndex {
        let own = FileIndex(self.next_entry);
        self.next_entry += 1;
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.announced += 1;
            peer.own.insert(index, own);
        }
        own
    }

    /// Removes a closed entry from the state of the source that announced it.
    pub(super) fn forget_entry(&mut self, live: &Live) {
        if let Some(peer) = self.peers.get_mut(&live.peer) {
            peer.own.remove(&live.index);
            peer.live_bytes = peer.live_bytes.saturating_sub(live.bytes);
        }
    }

    /// Replaces the source's file indices in the segments of a block by the machine's indices.
    pub(super) fn own_segments(&self, peer: PeerId, mut segments: Vec<Segment>) -> Vec<Segment> {
        for segment in &mut segments {
            segment.file = self.own_index(peer, segment.file);
        }
        segments
    }

    /// Counts a file for which bytes or a decision are missing (`is_more` is true), or removes it
    /// from the count.
    pub(super) fn count_wanting(&mut self, peer: PeerId, is_more: bool) {
        let step = |count: u64| match is_more {
            true => count + 1,
            false => count.saturating_sub(1),
        };
        self.wanting = step(self.wanting);
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.wanting = step(peer.wanting);
        }
    }

    /// Queues the decision about an unclosed entry, for the source that announced it.
    pub(super) fn queue_decision(&mut self, peer: PeerId, decision: FileId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.file_ids.push(decision);
        }
    }

    /// Queues the report that an entry was closed, for its source.
    pub(super) fn queue_closed(&mut self, peer: PeerId, closed: FileClosed) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.closed.push(closed);
        }
    }

    pub(super) fn state(&mut self, key: BlockKey, state: BlockState) {
        if let Some(peer) = self.peers.get_mut(&key.peer) {
            peer.states.push((key.block, state));
        }
    }

    /// Sends each source the decisions, closed entries and block states that were queued since the
    /// last call.
    pub(super) fn send_queued(&mut self) {
        for (id, peer) in &mut self.peers {
            let ids = std::mem::take(&mut peer.file_ids);
            let closed = std::mem::take(&mut peer.closed);
            let states = std::mem::take(&mut peer.states);
            // Send closed entries before block states: a source must know that a file has failed,
            // or it would send the file's objects again.
            let messages = [
                (!ids.is_empty()).then_some(Message::FileIds(ids)),
                (!closed.is_empty()).then_some(Message::FileClose(closed)),
                (!states.is_empty()).then_some(Message::BlockSync(states)),
            ];
            let messages = messages.into_iter().flatten();
            self.out
                .extend(messages.map(|message| Effect::Message(*id, message)));
        }
    }

    /// Measures the round trip to a source from its PONG. The credit ledger uses the longest round
    /// trip of all sources.
    pub(super) fn on_pong(&mut self, peer: PeerId, now: Time) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.round_trip.get_or_insert(now.since(peer.asked_at));
        }
        if let Some(farthest) = self.peers.values().filter_map(|peer| peer.round_trip).max() {
            self.ledger.set_round_trip(farthest);
        }
    }

    /// Charges one credit of a source. Returns true if the source had credit for the target.
    pub(super) fn spend_credit(&mut self, peer: PeerId, target: TargetId) -> bool {
        let credit = self
            .peers
            .get_mut(&peer)
            .and_then(|peer| peer.credit.get_mut(&target));
        match credit {
            Some(credit) if *credit > 0 => {
                *credit -= 1;
                self.ledger.take_back(target)
            }
            _ => false,
        }
    }

    /// Handles a CREDIT message of a source. The message returns `count` unused credits, or
    /// requests credit if `count` is 0. Returns false if the source returns more credit than it
    /// has.
    pub(super) fn on_credit(&mut self, peer: PeerId, target: TargetId, count: u32) -> bool {
        let Some(known) = self.peers.get_mut(&peer) else {
            return true;
        };
        let credit = known.credit.entry(target).or_default();
        if *credit < count || !self.ledger.give_back(target, count) {
            return false;
        }
        *credit -= count;
        if count == 0 {
            known.wants_credit.insert(target);
        }
        // The returned credit may be granted to another source that waits for credit.
        if self
            .peers
            .values()
            .any(|peer| peer.wants_credit.contains(&target))
        {
            self.ledger.add_target(target);
        }
        true
    }

    /// Grants the credit that the pool permits. Each source that requested credit first gets one
    /// credit. The remaining credit is divided evenly among the sources with files that need bytes.
    pub(super) fn grant(&mut self, now: Time) {
        if self.unsafe_bytes >= self.config.unsafe_bytes_max || self.peers.is_empty() {
            return;
        }
        let mut granted: BTreeMap<PeerId, BTreeMap<TargetId, u32>> = BTreeMap::new();
        // If files are written in order, blocks that have arrived may wait for blocks that have no
        // credit yet. So grant credit for congested targets too.
        let is_ordered = self.config.ordered_window.is_some();
        let congestion = &self.congestion;
        let is_congested = |target| !is_ordered && congestion.bound(target) < CONGESTED_OR_NOT;
        for (target, count) in self.ledger.grants(now, is_congested) {
            for _ in 0..count {
                let rank = |(id, peer): (&PeerId, &Peer)| {
                    let is_waiting = peer.wants_credit.contains(&target);
                    let has = peer.credit.get(&target).copied().unwrap_or(0);
                    (!is_waiting, peer.wanting == 0, has, *id)
                };
                let Some((.., id)) = self.peers.iter().map(rank).min() else {
                    return;
                };
                if let Some(peer) = self.peers.get_mut(&id) {
                    *peer.credit.entry(target).or_default() += 1;
                    // One credit satisfies the source's request. Further credit is divided evenly.
                    peer.wants_credit.remove(&target);
                }
                *granted.entry(id).or_default().entry(target).or_default() += 1;
            }
        }
        for (id, grants) in granted {
            let message = Message::Credit(grants.into_iter().collect());
            self.out.push_back(Effect::Message(id, message));
        }
    }

    /// Returns true if every source has announced all its entries.
    pub(super) fn is_listed_to_the_end(&self) -> bool {
        !self.peers.is_empty() && self.peers.values().all(|peer| peer.has_ended_list)
    }

    pub(super) fn has_ended_list(&self, peer: PeerId) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|peer| peer.has_ended_list)
    }

    pub(super) fn on_stored_there(&mut self, peer: PeerId) {
        match self.phase {
            Phase::Announced(_) => {}
            // A sink that is the driver does not wait for the source's message VERDICT_STORED. The
            // message may arrive while the log is being removed.
            Phase::Removing(_) if self.config.is_driver => return,
            _ => {
                self.protocol_error(
                    peer,
                    "the source confirmed a verdict that the sink did not \
                    send",
                );
                return;
            }
        }
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.has_stored = true;
        }
        self.finish_log_if_stored();
    }

    fn finish_log_if_stored(&mut self) {
        if let Phase::Announced(totals) = self.phase
            && self.peers.values().all(|peer| peer.has_stored)
        {
            self.finish_log(totals);
        }
    }

    /// Finishes the log after all ends that need the verdict have stored it.
    pub(super) fn finish_log(&mut self, totals: Totals) {
        debug_assert!(
            matches!(self.phase, Phase::Announced(_)),
            "the sink removes the object log only after the source has stored the verdict"
        );
        self.phase = Phase::Removing(totals);
        self.out.push_back(Effect::FinishLog {
            keeps: self.kept.take(),
            is_listed: self.is_listed,
        });
    }

    pub(super) fn on_peer_lost(&mut self, peer: PeerId, error: Error) {
        let Some(lost) = self.peers.remove(&peer) else {
            return;
        };
        for (target, count) in lost.credit {
            for _ in 0..count {
                self.ledger.take_back(target);
            }
        }
        if !self.peers.is_empty() {
            self.progress.is_held_there = self.peers.values().all(|peer| peer.is_shut);
            self.continue_without(lost.own.into_values().collect(), lost.has_ended_list, error);
            return;
        }
        match self.phase {
            // The source may not have stored the verdict, so the log stays for the next run.
            Phase::Announced(totals) => self.end(Outcome::Done(totals)),
            Phase::Removing(_) => {}
            _ => self.stop(Outcome::Failed(error), false),
        }
    }

    /// Fails the entries of a source that was lost, and continues with the other sources. Partial
    /// data is kept for the next run.
    fn continue_without(&mut self, mut entries: Vec<FileIndex>, was_listed: bool, error: Error) {
        if !matches!(self.phase, Phase::Moving) {
            self.finish_log_if_stored();
            return;
        }
        if !was_listed {
            self.fail_unlisted(error.clone());
        }
        // Entries have higher indices than their folder. So fail the entries in descending order:
        // each entry before its folder.
        entries.sort_unstable_by(|one, other| other.cmp(one));
        for index in entries {
            if !self.end_failed_folder(index) {
                self.fail(index, error.clone(), false);
            }
        }
    }

    /// Reports a part of the listing that failed. The log may contain files of that part, so the
    /// records of files that were not listed are kept.
    pub(super) fn fail_unlisted(&mut self, error: Error) {
        self.is_listed = false;
        self.progress.files_failed += 1;
        self.totals.files_failed += 1;
        self.folders.failed(FolderRow::default(), 0);
        let path = error.file.clone().unwrap_or_else(RelPath::root);
        let failure = Failure { path, error };
        self.out.push_back(Effect::Report(Event::Failed(failure)));
    }
}
