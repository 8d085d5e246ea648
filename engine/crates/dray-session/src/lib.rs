//! A transfer as two state machines, [`source::Source`] and [`sink::Sink`]: the only place that
//! combines plan, schedule, pace, retry, checksum and log.
//!
//! Both machines have the same interface. [`handle`](source::Source::handle) takes an input and the
//! time. The runtime then calls [`poll`](source::Source::poll) until it returns `None`, executes
//! the effects and passes their results back as inputs. [`next_wake`](source::Source::next_wake)
//! returns the time at which an [`Input::Tick`](source::Input::Tick) is due.
//!
//! Non-goals: sockets, files, threads, clocks, bytes. A machine refers to buffers by id and owns
//! the list of free buffers; the runtime owns their memory.
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
//! `check_invariants` checks the invariants that the state of a single machine shows. Debug builds
//! assert it after every input, the simulator after every event.
//! [`mutants`] contains a planted defect for each of these invariants.

mod invariants;
pub mod mutants;
mod profile;
pub mod progress;
pub mod sink;
pub mod source;

pub use progress::{Event, Failure, Found, Outcome, Progress};

/// Value of the PINGs that a machine sends. The PINGs of the connection's keepalive have values
/// from 1 on and never this value.
pub const PING_VALUE: u64 = u64::MAX;
