//! One transfer as two state machines, [`source::Source`] and [`sink::Sink`]: the only place where
//! plan, schedule, pace, retry, checksum and log meet.
//!
//! Both have the same shape: [`handle`](source::Source::handle) takes an input and the time,
//! [`poll`](source::Source::poll) is then called until it returns `None`, and
//! [`next_wake`](source::Source::next_wake) says when a [`Input::Tick`](source::Input::Tick) is due.
//! Whoever carries out an effect hands its result back as an input.
//!
//! Non-goals: sockets, files, threads, clocks, bytes. Buffers are ids; the machine owns the list of
//! free ones, the runtime their memory.
//!
//! Invariants owned here, each with a checker of the same name in the simulator:
//! - a durable-ack never precedes durability;
//! - a sink record never follows its ack;
//! - a final name never precedes the file's last record;
//! - a verdict never precedes the final name and the verification;
//! - a log is never removed before the verdict is stored;
//! - an object has at most one live attempt;
//! - bytes in flight never exceed the pool.

mod profile;
pub mod progress;
pub mod sink;
pub mod source;

pub use progress::{Event, Failure, Found, Outcome, Progress};

/// Value of a machine's own PING, which those of the connection's keeper do not have: they count.
pub const PING_VALUE: u64 = u64::MAX;
