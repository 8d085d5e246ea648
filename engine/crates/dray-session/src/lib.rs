//! A transfer as two state machines, [`source::Source`] and [`sink::Sink`]. No other crate combines
//! plan, schedule, pace, retry, checksum and log.
//!
//! Both machines have the same interface. The runtime calls [`handle`](source::Source::handle) with
//! an input and the time. The runtime then calls [`poll`](source::Source::poll) until `poll`
//! returns `None`, executes the effects, and passes the results of the effects back as inputs.
//! [`next_wake`](source::Source::next_wake) returns the time at which an
//! [`Input::Tick`](source::Input::Tick) is due.
//!
//! Non-goals: sockets, files, threads, clocks, bytes. A machine names buffers by id and owns the
//! list of free buffers; the runtime owns the memory of the buffers.
//!
//! Invariants owned here, each with a checker of the same name in the simulator:
//! - an acknowledgement of durability never precedes the durability;
//! - the log record of a range never follows the acknowledgement of the range;
//! - a file's final name never precedes the file's last record;
//! - a verdict never precedes the final name and the verification;
//! - a log is never removed before the verdict is stored;
//! - at most one attempt to send an object is unfinished at any time;
//! - bytes in flight never exceed the pool.
//!
//! `check_invariants` checks those invariants that the state of a single machine shows. Debug
//! builds call `check_invariants` after every input, and the simulator calls it after every event.
//! For each invariant above, [`mutants`] contains a deliberate defect.

mod invariants;
pub mod mutants;
mod profile;
pub mod progress;
pub mod sink;
pub mod source;
pub mod under_way;

pub use progress::{Event, Failure, Found, Outcome, Progress};
pub use under_way::{FileStage, FolderCounts, FolderSums, LiveFile, UnderWay};

/// Value of the PING messages that a machine sends. The keepalive of the connection uses other
/// values, from 1 on.
pub const PING_VALUE: u64 = u64::MAX;
