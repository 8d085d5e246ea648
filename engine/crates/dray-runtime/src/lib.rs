//! Carries out what the machines of dray-session decide: sockets, threads, buffers and
//! clocks.
//!
//! One conductor thread per machine ([`source::run`], [`sink::run`]) owns it, hands results in and
//! effects out; readers, writers and chores belong to storage targets, senders and receivers to
//! streams. Buffers are preallocated ([`pool`]) and named by id. No decision is taken here.

pub mod account;
pub mod assembly;
mod batch;
pub mod clock;
pub mod drive;
mod event_loop;
mod extent;
pub mod link;
pub mod local;
mod lock;
pub mod net;
mod numa;
pub mod observe;
mod open_files;
mod origin;
pub mod pace;
pub mod panic_guard;
pub mod pool;
pub mod select;
pub mod sink;
pub mod source;
mod target_pools;
pub mod threads;
pub mod tune;

pub use sink::sweep;
