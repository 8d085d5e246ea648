//! Which stage the sink is in: what it works on, or that it has nothing to do.

use super::{Effect, Phase, Sink};
use dray_core::profile::{Profile, Stage, Times};
use dray_core::{PeerId, Time};
use dray_wire::message::Message;

impl Sink {
    /// The profile, with the time since the last input.
    #[must_use]
    pub fn profile(&self, now: Time) -> Profile {
        let profile = self.progress.profile;
        let sink = self.account.at(profile.sink, now);
        Profile { sink, ..profile }
    }

    /// The stage it stands in now.
    pub(super) fn stand(&mut self, now: Time) {
        self.account.stand(self.stage());
        // More than a target's writers have at hand: those of a file in turn count, too, as nobody knows
        // here which store has turns.
        let writers = self.writers.count();
        let is_short = self.writes.values().any(|writes| *writes > writers);
        self.writers.stand(is_short);
        if self.account.is_to_be_told(now) {
            self.tell_profile();
        }
    }

    /// The sources, and whoever watches them, hear where the time went here.
    pub(super) fn tell_profile(&mut self) {
        let times = self.progress.profile.sink;
        if times.is_empty() {
            return;
        }
        for peer in self.peers.keys() {
            let message = Message::Profile(times);
            self.out.push_back(Effect::Message(*peer, message));
        }
    }

    /// A source says where its time went so far. Of several the times are added up.
    pub(super) fn on_profile(&mut self, peer: PeerId, times: Times, now: Time) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.told_at = peer.has_ended_list.then_some(now);
            let new = times.since(&peer.times);
            peer.times = times;
            self.progress.profile.source.join(&new);
        }
    }

    /// A source that has nothing left to send says so with its times, and waits for the verdict from
    /// then on. What it says of itself after that may be heard or not.
    pub(super) fn count_waits_for_verdict(&mut self, now: Time) {
        for peer in self.peers.values_mut() {
            let Some(told_at) = peer.told_at else {
                continue;
            };
            let waited = now.since(told_at);
            peer.times.add(Stage::Verdict, waited);
            self.progress.profile.source.add(Stage::Verdict, waited);
        }
    }

    fn stage(&self) -> Option<Stage> {
        if !matches!(self.phase, Phase::Moving) || self.peers.is_empty() {
            return None;
        }
        // No credit is granted before some of it is safe; small files are when they have their names.
        let is_full = self.unsafe_bytes >= self.config.sync_group_bytes;
        Some(if is_full && self.syncing.is_some() {
            Stage::Sync
        } else if self.writing > 0 {
            Stage::Write
        } else if self.finishing > 0 {
            Stage::Publish
        } else if self.deciding > 0 || !self.preparing.is_empty() {
            Stage::Decide
        } else if self.syncing.is_some() && self.wanting == 0 {
            Stage::Sync
        } else {
            Stage::Arrival
        })
    }
}
