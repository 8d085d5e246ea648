//! Traits and events of the link between an executor and the other end ([`link`]), and the modules
//! that executors and connections both use.
//!
//! An executor reads and writes buffers of a [`pool`]. A connection fills and sends these buffers
//! at the rates of [`pace`]. Executors and connections start, bind and guard their threads with the
//! same functions.
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
