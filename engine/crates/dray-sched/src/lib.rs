//! Pure decisions, with the time as an argument: the next object to send ([`objects`]) around slow
//! targets ([`congestion`]), the time at which it may be sent ([`pace`]), the number of objects on
//! the way to each sink target ([`credit`]), the transfers to run ([`policy`]), the sessions that end
//! for others ([`preemption`]), rates and deadlines ([`broker`]), the shares of the remaining capacity
//! ([`shares`]), the detection of dead streams ([`streams`]), the number of streams and threads of a
//! transfer ([`tuner`], [`blocking`]), and the abandoned data to remove ([`cleanup`]).
//!
//! Non-goals: I/O, clocks, checksums, logs, the protocol.
//!
//! Invariants owned here: a picked object is not picked again before it is put back; the sum of the
//! shares never exceeds the capacity; no owner waits for ever behind another.

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
pub mod tuner;
