//! Decisions of a transfer and of an endpoint as pure functions, with the time as an argument:
//!
//! - the next object to send ([`objects`]), and congested targets to avoid ([`congestion`]);
//! - the time at which an object may be sent ([`pace`]);
//! - the number of objects in transit to each sink target ([`credit`]);
//! - the transfers to run ([`policy`]), and the sessions to end for other transfers
//!   ([`preemption`]);
//! - rates and deadlines ([`broker`]), and shares of the remaining capacity ([`shares`]);
//! - dead streams ([`streams`]);
//! - the number of streams and threads of a transfer ([`tuner`], [`blocking`]);
//! - the abandoned data to remove ([`cleanup`]);
//! - the data to keep in a burst buffer, to copy to slow storage and to delete ([`tiers`]).
//!
//! Non-goals: I/O, clocks, checksums, logs, the protocol.
//!
//! Invariants owned here: a picked object is not picked again before it is put back; the sum of the
//! shares never exceeds the capacity; no owner waits forever because of another owner.

pub mod blocking;
pub mod broker;
pub mod cleanup;
pub mod congestion;
pub mod credit;
pub mod objects;
pub mod pace;
pub mod policy;
pub mod preemption;
pub mod rng;
pub mod shares;
pub mod streams;
pub mod tiers;
pub mod tuner;
