//! The wire protocol: the messages between two ends, and their encoding as bytes.
//!
//! Purpose: messages ([`message`]), their codec ([`codec`]), the agreement of two ends
//! ([`negotiate`]: versions, feature bits, limits) and the bounds of single fields ([`bounds`]).
//! The byte layout is specified in docs/design/wire-protocol.md, so that another team could write a
//! peer.
//!
//! Non-goals: files, sockets, order of messages (in the session), keys and their arithmetic (in the
//! runtime).
//!
//! Invariant owned here: no bytes from a peer can make the decoder panic, or hold more memory than
//! a small multiple of the frame's stated bound.

pub mod bounds;
pub mod codec;
pub mod message;
pub mod negotiate;
#[cfg(feature = "testing")]
pub mod testing;
