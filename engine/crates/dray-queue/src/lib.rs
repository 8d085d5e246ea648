//! The queue of an endpoint: transfers, the promises to them, and the events about them.
//!
//! Purpose: the state that survives a restart, in SQLite, and the decisions about it that are one
//! transaction with it. A promise is asked for within the write that queues its transfer.
//!
//! Non-goals: HTTP, the rights of callers, sessions, configuration files. Calls block.
//!
//! Invariant owned here: an answer to a caller is on the disk, and a listener receives no event
//! that a crash undoes.

pub mod clock;
pub mod events;
pub mod promises;
mod queue;

pub use queue::{
    Actor, Asking, CandidateQuery, Command, Commands, Counters, EndKind, Ending, FAILURES_MAX,
    Holds, IsOwn, Manifest, PurgeJob, PurgeReport, Queue, QueuedTransfer, Refused, SessionInput,
    Settings, StagedRow, Staging, Standing, Step, Submission, Submitted, Ticked, TicketHolder,
    TicketRow, TicketTable, Verdict, Wish, after_break, after_turned_away, next,
};
