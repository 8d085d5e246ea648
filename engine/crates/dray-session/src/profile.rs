//! The account of an end's time: which stage it stands in, and since when.
//!
//! Both machines keep one. A machine changes by its inputs alone, so the time between two of them
//! belongs whole to the stage that stood after the first: nothing is sampled, no clock is asked.

use dray_core::Time;
use dray_core::profile::{Stage, Times};
use std::time::Duration;

/// How often an end tells the other its times, so that whoever watches a long transfer sees both.
const TELL_INTERVAL: Duration = Duration::from_secs(10);

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// None: the time is not counted.
    stage: Option<Stage>,
    since: Time,
    told: Time,
}

impl Account {
    /// Adds the time up to `now` to the stage that stood.
    pub(crate) fn pass(&mut self, times: &mut Times, now: Time) {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        // An input that comes late must not let time be counted twice.
        self.since = self.since.max(now);
    }

    /// From now on the end stands in this stage.
    pub(crate) const fn stand(&mut self, stage: Option<Stage>) {
        self.stage = stage;
    }

    /// What the times will be if nothing happens until `now`.
    pub(crate) fn at(&self, mut times: Times, now: Time) -> Times {
        if let Some(stage) = self.stage {
            times.add(stage, now.since(self.since));
        }
        times
    }

    /// Whether the other end is to be told. Asked with each input, it says so once in an interval.
    pub(crate) fn is_to_be_told(&mut self, now: Time) -> bool {
        let is_due = self.stage.is_some() && now.since(self.told) >= TELL_INTERVAL;
        if is_due {
            self.told = now;
        }
        is_due
    }
}
