//! The wire protocol: the messages between two ends, and their encoding as bytes.
//!
//! Contents:
//!
//! - the messages ([`message`]) and their codec ([`codec`]);
//! - the negotiation of versions, feature bits and limits ([`negotiate`]);
//! - the limits on single fields ([`bounds`]).
//!
//! docs/design/wire-protocol.md specifies every byte, so that others can implement the protocol.
//!
//! This crate does not use files or sockets. The order of messages is in `dray-session`, and
//! cryptography is in `dray-net`.
//!
//! Invariant: no bytes from a peer make the decoder panic, or allocate more than a small multiple
//! of the declared length of the frame.

pub mod bounds;
pub mod codec;
pub mod message;
pub mod negotiate;
#[cfg(feature = "testing")]
pub mod testing;
