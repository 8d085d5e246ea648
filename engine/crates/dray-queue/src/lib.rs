//! The queue of an endpoint: transfers, their promises, and their events.
//!
//! Purpose: stores in SQLite the state that survives a restart. A decision that must agree with
//! this state is made in the same transaction. For example, the write that queues a transfer also
//! asks for its promise.
//!
//! Non-goals: HTTP, the rights of callers, sessions, configuration files. Calls block.
//!
//! Invariant of this crate: when a caller gets an answer, its change is on the disk. A listener
//! receives no event of a change that a crash can still undo.

pub mod clock;
pub mod events;
pub mod promises;
mod queue;

pub use queue::{
    Actor, Asking, BrokenSession, ByKind, CandidateQuery, ClaimRow, Command, Commands, Counters,
    DuePage, DueReceipt, EndKind, Ending, FAILURES_MAX, FailedAtStart, Holds, IsOwn, Manifest,
    PurgeJob, PurgeReport, Queue, QueuedTransfer, RECEIPTS_MAX, ReceiptState, Refused, Restarts,
    SessionInput, Settings, SpaceClaim, StagedIn, StagedRow, Staging, Standing, Step, Submission,
    Submitted, Tally, Tape, TapeFile, TapeJob, TapeRequest, Ticked, TicketClaim, TicketHolder,
    TicketRow, TicketTable, TierChange, TierReplica, TierVersion, TierWrite, Tiers, Verdict,
    WaitReason, Wish, WrittenReceipt, after_break, after_turned_away, next,
};
