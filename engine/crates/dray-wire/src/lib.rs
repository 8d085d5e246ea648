//! The wire protocol: what two ends say to each other, and how it is put into bytes.
//!
//! Purpose: messages ([`message`]), their codec ([`codec`]), what two ends agree on ([`negotiate`]:
//! versions, feature bits, limits) and the bounds of single fields ([`bounds`]). The byte layout is
//! written out in docs/design/wire-protocol.md so that another team could write a peer.
//!
//! Non-goals: files, sockets, order of messages (that is the session's), keys and their arithmetic
//! (that is the runtime's).
//!
//! Invariant owned here: no bytes a peer can send make the decoder panic, or hold more memory than
//! a small multiple of the frame's stated bound.

pub mod bounds;
pub mod codec;
pub mod message;
pub mod negotiate;
#[cfg(feature = "testing")]
pub mod testing;
