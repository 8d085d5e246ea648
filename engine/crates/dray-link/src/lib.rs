//! The link between an executor and the other end: its traits and events ([`link`]), and the parts
//! that executors and connections both use.
//!
//! An executor reads and writes buffers of a [`pool`], a connection fills and sends them, at the
//! rates of [`pace`]. The threads of both are started, placed and guarded in the same way.
//!
//! Non-goals: sockets (`dray-net`), effects of the machines (`dray-runtime`).
//!
//! Invariant owned here: a buffer of a pool has one owner at a time.

pub mod batch;
pub mod clock;
pub mod extent;
pub mod link;
pub mod numa;
pub mod open_file;
pub mod origin;
pub mod pace;
pub mod panic_guard;
pub mod pool;
pub mod threads;
