//! A transfer as two state machines, [`source::Source`] and [`sink::Sink`]: the only place that
//! combines plan, schedule, pace, retry, checksum and log.
//!
//! Both have the same interface: [`handle`](source::Source::handle) takes an input and the time,
//! [`poll`](source::Source::poll) is then called until it returns `None`, and
//! [`next_wake`](source::Source::next_wake) returns the time at which a
//! [`Input::Tick`](source::Input::Tick) is due. The runtime executes the effects and passes their
//! results back as inputs.
//!
//! Non-goals: sockets, files, threads, clocks, bytes. Buffers are ids; the machine owns the list of
//! free buffers, the runtime owns their memory.
//!
//! Invariants owned here, each with a checker of the same name in the simulator:
//! - a durable-ack never precedes durability;
//! - a sink record never follows its ack;
//! - a final name never precedes the file's last record;
//! - a verdict never precedes the final name and the verification;
//! - a log is never removed before the verdict is stored;
//! - an object has at most one live attempt;
//! - bytes in flight never exceed the pool.
//!
//! Those that a machine's own state shows are also stated in its `check_invariants`, which debug
//! builds assert after every input and the simulator after every event. [`mutants`] has a defect for
//! each of these.

mod invariants;
pub mod mutants;
mod profile;
pub mod progress;
pub mod sink;
pub mod source;

pub use progress::{Event, Failure, Found, Outcome, Progress};

/// Value of a machine's own PING. The connection's keeper never sends it: its values count from 1.
pub const PING_VALUE: u64 = u64::MAX;
