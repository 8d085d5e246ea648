//! Determines the current stage of a sink for the profile: its work, or its wait for data.

use super::{Effect, Phase, Sink};
use dray_core::profile::{Profile, Stage, Times};
use dray_core::{PeerId, Time};
use dray_sched::congestion::Load;
use dray_wire::message::Message;

impl Sink {
    /// Returns the profile, including the time since the last input.
    #[must_use]
    pub fn profile(&self, now: Time) -> Profile {
        let profile = self.progress.profile;
        let sink = self.account.at(profile.sink, now);
        Profile { sink, ..profile }
    }

    /// Returns the state of each storage target of this end that has had writes.
    #[must_use]
    pub fn loads(&self, now: Time) -> Vec<Load> {
        self.congestion.loads(now)
    }

    /// Sets the current stage, and sends the profile if it is due.
    pub(super) fn update_stage(&mut self, now: Time) {
        self.account.set_stage(self.stage());
        // `is_short` is true if a target has more unfinished writes than writers. Writes that wait
        // for an earlier write of their file count too, because the machine does not know which
        // stores write in order.
        let writers = self.writers.count();
        let is_short = self.writes.values().any(|writes| *writes > writers);
        self.writers.stand(is_short);
        if self.account.is_report_due(now) {
            self.send_profile();
        }
    }

    pub(super) fn send_profile(&mut self) {
        let times = self.progress.profile.sink;
        if times.is_empty() {
            return;
        }
        for peer in self.peers.keys() {
            let message = Message::Profile(times);
            self.out.push_back(Effect::Message(*peer, message));
        }
    }

    /// Handles the profile that a source has reported. The sink's profile contains the sum over all
    /// sources.
    pub(super) fn on_profile(&mut self, peer: PeerId, times: Times, now: Time) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.reported_at = peer.has_ended_list.then_some(now);
            let new = times.since(&peer.times);
            peer.times = times;
            self.progress.profile.source.join(&new);
        }
    }

    /// Adds the time that sources have waited for the verdict. A source with nothing left to send
    /// reports its profile and then waits. The session may end before another report arrives, so
    /// the sink computes the wait itself.
    pub(super) fn count_waits_for_verdict(&mut self, now: Time) {
        for peer in self.peers.values_mut() {
            let Some(reported_at) = peer.reported_at else {
                continue;
            };
            let waited = now.since(reported_at);
            peer.times.add(Stage::Verdict, waited);
            self.progress.profile.source.add(Stage::Verdict, waited);
        }
    }

    fn stage(&self) -> Option<Stage> {
        if !matches!(self.phase, Phase::Moving) || self.peers.is_empty() {
            return None;
        }
        // At the limit `unsafe_bytes_max`, the sink grants no credit until some bytes become
        // durable. Bytes of small files become durable when these files are published.
        let is_full = self.unsafe_bytes >= self.config.unsafe_bytes_max;
        Some(if is_full && !self.syncing.is_none() {
            Stage::Sync
        } else if self.writing > 0 {
            Stage::Write
        } else if self.finishing > 0 {
            Stage::Publish
        } else if self.deciding > 0 || !self.preparing.is_empty() {
            Stage::Decide
        } else if !self.syncing.is_none() && self.wanting == 0 {
            Stage::Sync
        } else {
            Stage::Arrival
        })
    }
}
