//! Executes the decisions of the machines of dray-session: sockets, threads, buffers and clocks.
//!
//! An executor thread per machine ([`source::run`], [`sink::run`]) owns the machine, passes results
//! to it and carries out its effects. Readers, writers and tasks belong to storage targets, senders
//! and receivers to streams. Buffers are preallocated ([`pool`]) and referred to by id. This crate
//! makes no decisions.

pub mod account;
pub mod assembly;
mod batch;
pub mod clock;
pub mod drive;
mod event_loop;
mod extent;
pub mod link;
pub mod local;
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
