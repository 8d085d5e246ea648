//! The control API: HTTP requests to calls, errors to codes.
//!
//! Not for: what a transfer is (`queue`), who may do what (`access`), sockets (`server`).
//!
//! Invariant owned here: every refusal has the one shape of docs/reference/api.md, whatever refused.

pub mod types;
