//! Runs a copy of a user between real programs, injects faults, and judges the result.
//!
//! Purpose: `dray chaos`. A [`Plan`] names the programs of the user, the copy, and the faults. The
//! seed determines the [`Schedule`]. [`run()`] starts the programs, injects the faults, and repeats the
//! copy until it succeeds. The [`Verdict`] says whether each promise held.
//!
//! Non-goals: this crate does not link the code that it tests. It starts the programs as a user
//! does, and reads files, outputs and exit codes. It shares no code with the sink, so a defect of
//! the sink cannot hide itself.
//!
//! Invariant of this crate: it sends signals only to processes that it has started.

mod agent;
mod attempt;
mod children;
mod clock;
mod draws;
mod endpoints;
mod events;
mod hub;
mod plan;
mod proxy;
mod run;
mod schedule;
mod tree;
mod verdict;
mod watch;

pub use agent::{Agent, SOCKET_VARIABLE, StorageFault};
pub use children::Children;
pub use events::{Event, Observer};
pub use plan::{At, EXAMPLE, Fault, Injections, Plan, Target};
pub use run::{RunOptions, run};
pub use schedule::{Planned, Schedule};
pub use verdict::{AttemptReport, FaultReport, SentAgain, State, Verdict};
