//! The sources of a session: which entry is whose, who is told what, and how credit is shared.
//!
//! Each source numbers its entries from 0; the machine gives them numbers of its own, which with one
//! source are the same.

use super::tree::Live;
use super::{BlockKey, CONGESTED_OR_NOT, Effect, Phase, Sink};
use crate::progress::{Event, Failure, Outcome};
use dray_core::maps::{HashMap, HashSet};
use dray_core::profile::Times;
use dray_core::{BlockId, Error, FileIndex, PeerId, RangeSet, RelPath, StreamId, TargetId, Time};
use dray_wire::message::{BlockState, FileClosed, FileId, Message, Segment, Totals};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// In place of an entry that is closed, or never was: nothing is done for it.
const NO_ENTRY: FileIndex = FileIndex(u64::MAX);

#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Its live entries: its number to ours.
    own: HashMap<FileIndex, FileIndex>,
    /// Entries it has announced.
    pub(super) announced: u64,
    /// Whether it has announced all.
    pub(super) has_ended_list: bool,
    /// Names, link texts and attributes of its live entries.
    pub(super) live_bytes: u64,
    /// Files of it that still need bytes or a decision.
    pub(super) wanting: u64,
    /// Streams this end knows to be dead.
    pub(super) dead_streams: HashSet<StreamId>,
    /// What the source asked of streams that this end still believes alive.
    pub(super) asked: BTreeMap<StreamId, Vec<BlockId>>,
    /// Attempts that arrived or were answered as dropped, as ranges of their numbers.
    pub(super) seen: RangeSet,
    /// Attempts it asks about in `asked`.
    pub(super) asked_blocks: usize,
    /// Its blocks without a payload that have no final state yet.
    pub(super) hole_blocks: u32,
    /// Credit it has.
    credit: BTreeMap<TargetId, u32>,
    /// Targets it asked for credit of and got none since.
    wants_credit: BTreeSet<TargetId>,
    /// When it was asked for a word that it gives at once, and how long that took.
    asked_at: Time,
    round_trip: Option<Duration>,
    /// Whether it has shut its gate.
    is_shut: bool,
    /// Where its time went, as it said last.
    pub(super) times: Times,
    /// When it said so, if it had listed everything by then.
    pub(super) told_at: Option<Time>,
    /// Whether its side has stored the verdict.
    has_stored: bool,
    file_ids: Vec<FileId>,
    closed: Vec<FileClosed>,
    pub(super) states: Vec<(BlockId, BlockState)>,
}

impl Peer {
    /// It has come.
    pub(super) fn up(now: Time) -> Self {
        Self {
            asked_at: now,
            ..Self::default()
        }
    }

    /// Live entries of it.
    pub(super) fn live_count(&self) -> usize {
        self.own.len()
    }
}

impl Sink {
    /// This end takes so many bytes per second from now on.
    pub(super) fn on_set_rate(&mut self, rate: Option<u64>) {
        if rate != self.rate {
            self.rate = rate;
            self.share_rate();
        }
    }

    /// Tells each source how many of its streams are to carry something from now on.
    pub(super) fn on_set_streams(&mut self, most: u32) {
        let most = most.max(1);
        for peer in self.peers.keys() {
            self.out
                .push_back(Effect::Message(*peer, Message::Streams(most)));
        }
    }

    /// Tells each source its part of the rate: equal parts, for nothing is known here of what each
    /// could send.
    pub(super) fn share_rate(&mut self) {
        let count = self.peers.len().max(1) as u64;
        for peer in self.peers.keys() {
            // Zero means shut, which a small rate is not.
            let part = self.rate.map(|rate| (rate / count).max(rate.min(1)));
            self.out
                .push_back(Effect::Message(*peer, Message::Rate(part)));
        }
    }

    /// A source keeps to its own rate; all that counts here is whether any moves.
    pub(super) fn on_rate(&mut self, peer: PeerId, rate: Option<u64>) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.is_shut = rate == Some(0);
        }
        self.progress.is_held_there = self.peers.values().all(|peer| peer.is_shut);
    }

    /// Our number of a source's entry; one that is nobody's if it is not live.
    pub(super) fn own_index(&self, peer: PeerId, index: FileIndex) -> FileIndex {
        let known = self.peers.get(&peer).and_then(|peer| peer.own.get(&index));
        known.copied().unwrap_or(NO_ENTRY)
    }

    /// Gives a new entry of a source its number.
    pub(super) fn number(&mut self, peer: PeerId, index: FileIndex) -> FileIndex {
        let own = FileIndex(self.next_entry);
        self.next_entry += 1;
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.announced += 1;
            peer.own.insert(index, own);
        }
        own
    }

    /// A source's entry is no longer live.
    pub(super) fn forget_entry(&mut self, live: &Live) {
        if let Some(peer) = self.peers.get_mut(&live.peer) {
            peer.own.remove(&live.index);
            peer.live_bytes = peer.live_bytes.saturating_sub(live.bytes);
        }
    }

    /// A block's segments with our numbers.
    pub(super) fn own_segments(&self, peer: PeerId, mut segments: Vec<Segment>) -> Vec<Segment> {
        for segment in &mut segments {
            segment.file = self.own_index(peer, segment.file);
        }
        segments
    }

    /// A file of it needs bytes or a decision, or does no longer.
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

    /// The decision about a live entry, for its source.
    pub(super) fn tell_decision(&mut self, peer: PeerId, decision: FileId) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.file_ids.push(decision);
        }
    }

    /// The end of an entry, for its source.
    pub(super) fn tell_closed(&mut self, peer: PeerId, closed: FileClosed) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.closed.push(closed);
        }
    }

    pub(super) fn state(&mut self, key: BlockKey, state: BlockState) {
        if let Some(peer) = self.peers.get_mut(&key.peer) {
            peer.states.push((key.block, state));
        }
    }

    /// The sources hear what was decided since the last time.
    pub(super) fn tell(&mut self) {
        for (id, peer) in &mut self.peers {
            let ids = std::mem::take(&mut peer.file_ids);
            let closed = std::mem::take(&mut peer.closed);
            let states = std::mem::take(&mut peer.states);
            // Closed before the states: a source must not try objects of a failed file again.
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

    /// A source has answered at once: what is granted to any of them takes as long as to the farthest.
    pub(super) fn on_pong(&mut self, peer: PeerId, now: Time) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.round_trip.get_or_insert(now.since(peer.asked_at));
        }
        if let Some(farthest) = self.peers.values().filter_map(|peer| peer.round_trip).max() {
            self.ledger.set_round_trip(farthest);
        }
    }

    /// A source spends a credit. Returns whether it had one.
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

    /// A source gives credit back, or asks for some. Returns whether it had so much.
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
        // What one has no use for, another may be waiting for.
        if self
            .peers
            .values()
            .any(|peer| peer.wants_credit.contains(&target))
        {
            self.ledger.add_target(target);
        }
        true
    }

    /// Grants what the pool allows: to the sources that asked, else to those that have files that
    /// want bytes, evenly.
    pub(super) fn grant(&mut self, now: Time) {
        if self.unsafe_bytes >= self.config.sync_group_bytes || self.peers.is_empty() {
            return;
        }
        let mut granted: BTreeMap<PeerId, BTreeMap<TargetId, u32>> = BTreeMap::new();
        // In order, what has arrived may wait for what has no credit yet.
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
                    // The first is for who waits, the rest is shared.
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

    /// Whether every source has announced all it has.
    pub(super) fn is_listed_to_the_end(&self) -> bool {
        !self.peers.is_empty() && self.peers.values().all(|peer| peer.has_ended_list)
    }

    /// Whether a source has announced all it has.
    pub(super) fn has_ended_list(&self, peer: PeerId) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|peer| peer.has_ended_list)
    }

    pub(super) fn on_stored_there(&mut self, peer: PeerId) {
        match self.phase {
            Phase::Announced(_) => {}
            // It was not waited for.
            Phase::Removing(_) if self.config.is_driver => return,
            _ => {
                self.protocol_error(peer, "a verdict stored that was not given");
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

    /// Who has to know that the transfer is over does: its log is not needed any more.
    pub(super) fn finish_log(&mut self, totals: Totals) {
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
            self.go_on_without(lost.own.into_values().collect(), lost.has_ended_list, error);
            return;
        }
        match self.phase {
            // The verdict was sent but its storing is not known: the log stays for the next run.
            Phase::Announced(totals) => self.end(Outcome::Done(totals)),
            Phase::Removing(_) => {}
            _ => self.stop(Outcome::Failed(error), false),
        }
    }

    /// One of several sources is lost: what it had begun fails, and stays for the next run.
    fn go_on_without(&mut self, mut entries: Vec<FileIndex>, was_listed: bool, error: Error) {
        if !matches!(self.phase, Phase::Moving) {
            self.finish_log_if_stored();
            return;
        }
        if !was_listed {
            self.fail_unlisted(error.clone());
        }
        // What lies in a folder before the folder.
        entries.sort_unstable_by(|one, other| other.cmp(one));
        for index in entries {
            if !self.end_failed_folder(index) {
                self.fail(index, error.clone(), false);
            }
        }
    }

    /// Something was not listed: what was not met may stand in the log all the same.
    pub(super) fn fail_unlisted(&mut self, error: Error) {
        self.is_listed = false;
        self.progress.files_failed += 1;
        self.totals.files_failed += 1;
        let path = error.file.clone().unwrap_or_else(RelPath::root);
        let failure = Failure { path, error };
        self.out.push_back(Effect::Report(Event::Failed(failure)));
    }
}
