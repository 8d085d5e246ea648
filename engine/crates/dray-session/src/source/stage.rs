//! Determines the current stage of a source for the profile: the reason why the source cannot begin
//! the next object or, if no objects are left, the reason why it cannot finish.

use super::{Effect, Phase, Source};
use dray_core::Time;
use dray_core::profile::{Profile, Stage};
use dray_sched::congestion::Load;
use dray_sched::objects::Lack;
use dray_wire::message::Message;

impl Source {
    /// Returns the profile, including the time since the last input.
    #[must_use]
    pub fn profile(&self, now: Time) -> Profile {
        let profile = self.progress.profile;
        let source = self.account.at(profile.source, now);
        Profile { source, ..profile }
    }

    /// Returns the state of each storage target of this end that has had reads.
    #[must_use]
    pub fn loads(&self, now: Time) -> Vec<Load> {
        self.objects.loads(now)
    }

    /// Sets the current stage, and sends the profile if it is due.
    pub(super) fn update_stage(&mut self, now: Time) {
        let stage = self.stage();
        // Send the profile before the final wait, because a sink that is the driver reads no
        // messages after it has sent the verdict.
        let is_last = self.end_announced && stage == Some(Stage::Verdict);
        let is_last_due = is_last && !self.has_sent_last_profile;
        self.has_sent_last_profile = is_last;
        self.account.set_stage(stage);
        // If there are no objects to read, more readers would not help.
        self.readers
            .stand(stage == Some(Stage::Read) && !self.objects.is_idle());
        if self.account.is_report_due(now) || is_last_due {
            self.send_profile();
        }
    }

    pub(super) fn send_profile(&mut self) {
        let times = self.progress.profile.source;
        if !times.is_empty() {
            self.out.push_back(Effect::Message(Message::Profile(times)));
        }
    }

    fn stage(&self) -> Option<Stage> {
        if self.phase != Phase::Moving {
            return None;
        }
        if !self.to_send.is_empty() {
            // Blocks are read but not sent: either the rate is zero, or no stream accepts them.
            return Some(match self.pacer.is_shut() {
                true => Stage::Rate,
                false => Stage::Network,
            });
        }
        let Some(lack) = self.objects.lack() else {
            return Some(self.stage_without_objects());
        };
        Some(match lack {
            _ if self.pace_wake.is_some() => Stage::Rate,
            _ if self.streams.is_empty() => Stage::Network,
            Lack::Reader => Stage::Read,
            // The network is the bottleneck: with more credit another object could be read, but no
            // stream could send it.
            Lack::Credit if self.is_every_stream_full() => Stage::Network,
            // Readers and credit are available, but no read can start. Either all buffers are in
            // use, or the sink writes in order and needs earlier blocks first.
            Lack::Nothing if self.free.is_empty() && self.reading > 0 => Stage::Read,
            Lack::Nothing if self.free.is_empty() => Stage::Network,
            Lack::Credit | Lack::Nothing => Stage::Credit,
        })
    }

    fn stage_without_objects(&self) -> Stage {
        if self.reading > 0 {
            Stage::Read
        } else if !self.sending.is_empty() {
            Stage::Network
        } else if !self.later.is_empty() {
            Stage::Retry
        } else if self.undecided > 0 {
            Stage::Decide
        } else if self.listing {
            Stage::List
        } else {
            Stage::Verdict
        }
    }
}
