//! Executes the decisions of the machines of dray-session: threads, files and buffers.
//!
//! An executor thread per machine ([`source::run`], [`sink::run`]) owns the machine, passes results
//! to it and carries out its effects. Readers, writers and tasks belong to storage targets, senders
//! and receivers to streams. Buffers are preallocated ([`dray_link::pool`]) and referred to by id. This crate
//! makes no decisions.

pub mod account;
pub mod assembly;
pub mod drive;
mod event_loop;
pub mod handle;
pub mod local;
pub mod observe;
pub mod select;
pub mod sink;
pub mod source;
mod target_pools;
pub mod tune;

pub use sink::sweep;
