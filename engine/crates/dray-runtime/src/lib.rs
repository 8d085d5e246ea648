//! Executes the decisions of the machines of dray-session: threads, files and buffers.
//!
//! Each machine has an executor thread ([`source::run`], [`sink::run`]). The executor passes
//! results to the machine and carries out the machine's effects. Each storage target has its own
//! readers or writers. Each stream has its own sender or receiver. The background tasks of a sink
//! run on further threads. Buffers are preallocated ([`dray_link::pool`]), and the machines refer
//! to them by id. This crate makes no decisions.

pub mod account;
pub mod assembly;
pub mod calibrate;
pub mod drive;
mod event_loop;
pub mod handle;
pub mod listing;
pub mod local;
pub mod observe;
pub mod select;
pub mod sink;
pub mod source;
mod target_pools;
pub mod tune;

pub use sink::sweep;
