//! Measures how much time an end spends in each stage.
//!
//! Both machines keep such a profile. A machine changes only when it handles an input. So the time
//! between two inputs belongs entirely to the stage that the first input has set, and the profile
//! needs neither sampling nor a clock.

use dray_core::Time;
use dray_core::profile::{Stage, Times};
use std::time::Duration;

/// Interval at which an end sends its profile to the other end, so that each end can show the times
/// of both ends.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Adds up the time that one end spends in each stage.
#[derive(Debug, Default)]
pub(crate) struct StageClock {
    /// Current stage. `None` while no stage is counted.
    stage: Option<Stage>,
    since: Time,
    reported_at: Time,
}

impl StageClock {
    /// Adds the time up to `now` to the current stage.
    pub(crate) fn pass(&mut self, times: &mut Times, now: Time) {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        // An input may have an earlier time than the previous one. Moving `since` back would then
        // count time twice.
        self.since = self.since.max(now);
    }

    /// Sets the stage that applies until the next input.
    pub(crate) const fn set_stage(&mut self, stage: Option<Stage>) {
        self.stage = stage;
    }

    /// Returns the value of `times` at `now`, if no input arrives before `now`.
    pub(crate) fn at(&self, mut times: Times, now: Time) -> Times {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        times
    }

    /// Returns true at most once per [`REPORT_INTERVAL`]: the profile must then be sent to the
    /// other end. Call this with each input.
    pub(crate) fn is_report_due(&mut self, now: Time) -> bool {
        let is_due = self.stage.is_some() && now.since(self.reported_at) >= REPORT_INTERVAL;
        if is_due {
            self.reported_at = now;
        }
        is_due
    }
}
