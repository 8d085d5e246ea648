//! The wire protocol: what two ends say to each other, and how it is put into bytes.
//!
//! Purpose: messages ([`message`]), their codec, versions and feature bits, limits. The byte layout
//! is written out in docs/design/wire-protocol.md so that another team could write a peer.
//!
//! Non-goals: files, sockets, order of messages (that is the session's).
//!
//! Invariant owned here: no bytes a peer can send make the decoder panic, or hold more memory than
//! the frame's stated bound.

pub mod message;
