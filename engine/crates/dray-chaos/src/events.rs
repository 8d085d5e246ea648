//! Events of a run, for the output of the program.

use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::verdict::AttemptReport;

/// An event of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// The faults were drawn. This is the first event.
    Drawn {
        /// The plan, which has the names of the targets.
        plan: &'a Plan,
        /// The faults of the run.
        schedule: &'a Schedule,
    },
    /// The command of the copy was started.
    AttemptBegan {
        /// Number of the attempt, from 1.
        number: u32,
    },
    /// The command of the copy has ended.
    AttemptEnded(&'a AttemptReport),
    /// A fault has begun.
    Injected {
        /// Number of the fault in the schedule.
        number: u32,
        /// Kind and details of the fault, and its target.
        words: String,
        /// Seconds since the start of the first attempt.
        seconds: f64,
        /// Share of the bytes that are durable, from 0 to 1.
        share: f64,
    },
    /// A promise was broken.
    Broken(&'a str),
    /// The copy made progress. Sent at most ten times a second.
    Progress {
        /// Share of the bytes that are durable, from 0 to 1.
        share: f64,
        /// Number of faults that have begun.
        injected: u32,
        /// Number of all faults.
        faults: u32,
        /// Number of attempts so far.
        attempts: u32,
    },
}

/// Receives the events of a run, on the thread that called [`run`](crate::run()).
pub trait Observer {
    /// Called for each event.
    fn event(&self, event: &Event<'_>);
}
