//! Carries out what the machines of dray-session decide: the only crate with sockets, threads and
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
pub mod export;
mod extent;
pub mod link;
pub mod local;
mod lock;
pub mod net;
pub mod null;
mod numa;
pub mod observe;
mod offered;
pub mod pace;
mod panic_guard;
pub mod place;
pub mod pool;
pub mod prepare;
pub mod select;
pub mod sink;
pub mod source;
mod target_pools;
pub mod threads;
pub mod tune;
pub mod web;
pub mod xrootd;

pub use sink::sweep;
