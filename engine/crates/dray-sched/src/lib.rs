//! Pure decisions, the time passed in: which object goes next ([`objects`]) around targets that are
//! slow ([`congestion`]), when it may go ([`pace`]), how many objects each sink target may have on the
//! way ([`credit`]), which transfers run ([`policy`]), at which rate and by when ([`broker`]), and who
//! shares what is left ([`shares`]); which stream has stopped to carry ([`streams`]); and with how many
//! streams and threads a transfer runs ([`tuner`], [`waits`]).
//!
//! Non-goals: I/O, clocks, checksums, logs, the protocol.
//!
//! Invariants owned here: an object that was picked is not picked again until it was put back;
//! shares are never more than there is; no owner waits for ever behind another.

pub mod blocking;
pub mod broker;
pub mod congestion;
pub mod credit;
pub mod objects;
pub mod pace;
pub mod policy;
pub mod rng;
pub mod shares;
pub mod streams;
pub mod tuner;
