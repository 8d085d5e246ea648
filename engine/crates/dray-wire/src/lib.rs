//! The wire protocol: the messages between two ends, and their encoding as bytes.
//!
//! Purpose: messages ([`message`]), their codec ([`codec`]), the agreement of two ends
//! ([`negotiate`]: versions, feature bits, limits) and the bounds of single fields ([`bounds`]).
//! docs/design/wire-protocol.md specifies the byte layout completely, for independent
//! implementations.
//!
//! Non-goals: files and sockets; the order of messages (in the session); cryptography (in the
//! runtime).
//!
//! Invariant owned here: no bytes from a peer can make the decoder panic or allocate more than a
//! small multiple of the frame's declared length.

pub mod bounds;
pub mod codec;
pub mod message;
pub mod negotiate;
#[cfg(feature = "testing")]
pub mod testing;
