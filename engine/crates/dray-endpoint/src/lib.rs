//! The endpoint of a data transfer node: a service that accepts requests for transfers, queues
//! them, runs them, and reports on them.
//!
//! Purpose: the control API, permissions on paths, and the sessions of queued transfers. The page
//! docs/design/endpoint.md names each module and its limits.
//!
//! Non-goals: moving bytes (dray-runtime), scheduling decisions (dray-sched), storing transfers
//! (dray-queue), verifying tokens (dray-auth).
//!
//! Invariant owned here: every answer to a caller stays true if the process crashes after the
//! answer.

pub mod accounts;
mod actor;
pub mod api;
pub mod audit;
mod certificate;
pub mod connection;
mod console;
pub mod dispatch;
pub mod janitor;
pub mod listen;
pub mod live;
pub mod metrics;
pub mod passive;
pub mod peers;
mod process;
mod queue_settings;
mod receipts;
pub mod run;
pub mod server;
pub mod session;
pub mod staging;
pub mod storage;
mod supervisor;
pub mod ticket_store;
pub mod tier;
pub mod traits;
mod trust_timer;
mod workers;

pub use dray_queue::clock;
