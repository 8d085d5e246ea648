//! Accounts for the time of an end by stage.
//!
//! Both machines keep a profile. Only inputs change a machine, so the whole time between two inputs
//! belongs to the stage after the first input. No sampling and no clock are needed.

use dray_core::Time;
use dray_core::profile::{Stage, Times};
use std::time::Duration;

/// Interval at which an end sends its times to the other end, so that observers at each end see the
/// times of both.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Accounts for the time of one end by stage.
#[derive(Debug, Default)]
pub(crate) struct StageClock {
    /// Current stage; `None` while time is not counted.
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
        // Do not move back after a late input: that would count time twice.
        self.since = self.since.max(now);
    }

    /// Sets the stage from this input on.
    pub(crate) const fn set_stage(&mut self, stage: Option<Stage>) {
        self.stage = stage;
    }

    /// Returns `times` as they will be at `now` if no input arrives before.
    pub(crate) fn at(&self, mut times: Times, now: Time) -> Times {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        times
    }

    /// Returns true if the times must be sent to the other end now: at most once per interval. Call
    /// it with each input.
    pub(crate) fn is_report_due(&mut self, now: Time) -> bool {
        let is_due = self.stage.is_some() && now.since(self.reported_at) >= REPORT_INTERVAL;
        if is_due {
            self.reported_at = now;
        }
        is_due
    }
}
