//! The sink's stage: its current work, or that it is idle.

use super::{Effect, Phase, Sink};
use dray_core::profile::{Profile, Stage, Times};
use dray_core::{PeerId, Time};
use dray_wire::message::Message;

impl Sink {
    /// Returns the profile, including the time since the last input.
    #[must_use]
    pub fn profile(&self, now: Time) -> Profile {
        let profile = self.progress.profile;
        let sink = self.account.at(profile.sink, now);
        Profile { sink, ..profile }
    }

    /// Sets the current stage.
    pub(super) fn stand(&mut self, now: Time) {
        self.account.stand(self.stage());
        // True if a target has more writes than writers. Writes that wait for their turn in a file
        // count too, because the machine does not know the stores with turns.
        let writers = self.writers.count();
        let is_short = self.writes.values().any(|writes| *writes > writers);
        self.writers.stand(is_short);
        if self.account.is_to_be_told(now) {
            self.tell_profile();
        }
    }

    /// Sends the sink's times to the sources and their observers.
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

    /// Takes the times that a source has reported. The times of several sources are added.
    pub(super) fn on_profile(&mut self, peer: PeerId, times: Times, now: Time) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.told_at = peer.has_ended_list.then_some(now);
            let new = times.since(&peer.times);
            peer.times = times;
            self.progress.profile.source.join(&new);
        }
    }

    /// Counts the sources' wait for the verdict. A source with no object left reports its times,
    /// and then waits for the verdict. Its later reports may not arrive, so they are not used.
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
        // No credit is granted before some bytes become durable; small files are durable when they
        // have their names.
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
