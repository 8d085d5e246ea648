//! The endpoint of a data transfer node: a service that takes requests for transfers, keeps them,
//! and lets others look.
//!
//! Purpose: the configuration, the control API, the queue, what a caller may do to which path. The
//! page docs/design/endpoint.md names each module and what it must not know.
//!
//! Non-goals: moving bytes (dray-runtime), deciding what runs next (dray-sched), believing a token
//! (dray-auth).
//!
//! Invariant owned here: what a caller was told stands, whatever happens to the process.

pub mod access;
pub mod accounts;
pub mod api;
pub mod audit;
pub mod clock;
pub mod config;
pub mod connection;
pub mod dispatch;
pub mod events;
pub mod janitor;
pub mod listen;
pub mod live;
pub mod metrics;
pub mod pairs;
pub mod passive;
mod process;
pub mod promises;
pub mod queue;
pub mod roots;
pub mod run;
pub mod server;
pub mod session;
pub mod staging;
pub mod storage;
mod supervisor;
pub mod ticket_store;
pub mod tickets;
pub mod traits;
mod workers;
