//! Profile of an end's time: its current stage, and the start of the stage.
//!
//! Both machines keep a profile. Only inputs change a machine, so the time between two inputs
//! belongs completely to the stage after the first: nothing is sampled, and no clock is read.

use dray_core::Time;
use dray_core::profile::{Stage, Times};
use std::time::Duration;

/// Interval at which an end sends its times to the other, so that observers of a long transfer see
/// both.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// Accounts for the time of an end, by stage.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Current stage; `None` if time is not counted.
    stage: Option<Stage>,
    since: Time,
    told: Time,
}

impl Account {
    /// Adds the time up to `now` to the current stage.
    pub(crate) fn pass(&mut self, times: &mut Times, now: Time) {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        // A late input must not cause time to be counted twice.
        self.since = self.since.max(now);
    }

    /// Sets the stage from now on.
    pub(crate) const fn stand(&mut self, stage: Option<Stage>) {
        self.stage = stage;
    }

    /// Returns the times as they will be if no input arrives until `now`.
    pub(crate) fn at(&self, mut times: Times, now: Time) -> Times {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        times
    }

    /// Returns true if the times are due to be sent to the other end; at most once per interval.
    /// Called with each input.
    pub(crate) fn is_to_be_told(&mut self, now: Time) -> bool {
        let is_due = self.stage.is_some() && now.since(self.told) >= TELL_INTERVAL;
        if is_due {
            self.told = now;
        }
        is_due
    }
}
