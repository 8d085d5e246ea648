//! Which stage the source is in: what keeps it from beginning the next object, or, with none left
//! to begin, from being done.

use super::{Effect, Phase, Source};
use dray_core::Time;
use dray_core::profile::{Profile, Stage};
use dray_sched::objects::Lack;
use dray_wire::message::Message;

impl Source {
    /// The profile, with the time since the last input.
    #[must_use]
    pub fn profile(&self, now: Time) -> Profile {
        let profile = self.progress.profile;
        let source = self.account.at(profile.source, now);
        Profile { source, ..profile }
    }

    /// The stage it stands in now.
    pub(super) fn stand(&mut self, now: Time) {
        let stage = self.stage();
        // A sink that drives says the verdict and hears nothing more.
        let is_last = self.end_announced && stage == Some(Stage::Verdict);
        let is_to_be_said = is_last && !self.has_said_last;
        self.has_said_last = is_last;
        self.account.stand(stage);
        // With no object left to begin, no reader is missing.
        self.readers
            .stand(stage == Some(Stage::Read) && !self.objects.is_idle());
        if self.account.is_to_be_told(now) || is_to_be_said {
            self.tell_profile();
        }
    }

    /// The sink, and whoever watches it, hears where the time went here.
    pub(super) fn tell_profile(&mut self) {
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
            // Read, and no stream takes it; unless none is given any.
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
            // What could be read would not be taken either.
            Lack::Credit if self.is_every_stream_full() => Stage::Network,
            // Neither: all buffers are in use, or a sink that writes in order wants answers first.
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
