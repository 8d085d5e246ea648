//! The network under a link: identities, TLS 1.3, control connections, data streams, the side that
//! dials and the side that listens.
//!
//! Participants: the **driver** dials ([`push`], [`pull`]), the **passive** end listens
//! ([`Listener`]). Data flows from source to sink, independent of the end that dialled.
//! docs/design/wire-protocol.md defines the bytes.
//!
//! Goals: an executor sees a [`dray_link::link`] and no sockets; input from a stranger costs bounded
//! memory and time and affects no other session; a byte changed on a clear stream is detected
//! before it is written.
//!
//! Non-goals: the order of messages (the machines decide), the meaning of a path (the [`Handler`]
//! decides).
//!
//! Invariants owned here: an end acts on no control message before the dialler has proved its
//! identity to the handler; no stream joins without the session's key; an object is received only
//! into a free buffer of the sink's pool.

mod accept;
mod attach;
mod caller;
mod channel;
mod connection;
mod control;
mod data;
mod dial;
mod fail;
mod fd_exhaustion;
mod growth;
mod handler;
mod handshake;
mod hub;
mod identity;
mod inbox;
mod join;
mod listener;
mod passive;
mod pending;
mod preconnect;
mod receive;
mod redial;
mod serve;
mod session;
mod sniff;
mod socket;
mod streams;
mod tls;
mod token;

pub use caller::Caller;
pub use dial::{Dial, Dialled, pull, push};
pub use dray_core::Fingerprint;
pub use fd_exhaustion::Lack;
pub use growth::Growth;
pub use handler::{Handler, Prepared, Request};
pub use identity::{IDENTITY_FILE, Identity, fingerprint_of};
pub use listener::{Listener, Stopper};
pub use serve::Serve;
pub use tls::{Authority, Trust, client_config, server_config};
pub use token::Token;

use dray_core::PeerId;
use std::time::Duration;

/// The other end; a session has a single peer until sinks accept replicas.
const PEER: PeerId = PeerId(0);

/// Name and version of this build, sent to peers.
const SOFTWARE: &str = concat!("dray ", env!("CARGO_PKG_VERSION"));

/// Timeouts and intervals of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Timeout of a TCP connection, without name resolution.
    pub connect: Duration,
    /// Timeout of all steps before a connection has proved itself: preamble, TLS, greeting or join.
    pub handshake: Duration,
    /// Timeout of the passive end's preparations after CONNECT.
    pub prepare: Duration,
    /// Time without sending after which this end sends a PING.
    pub ping_after: Duration,
    /// Time without receiving after which the peer is lost. A stream is lost if its bytes are not
    /// acknowledged for as long.
    pub lost_after: Duration,
    /// Time for which a closed link waits for the peer to close as well.
    pub linger: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            // docs/design/wire-protocol.md, section 2.4.
            handshake: Duration::from_secs(10),
            // Opening a store may recover a long log: guess, revisit.
            prepare: Duration::from_secs(60),
            ping_after: Duration::from_secs(10),
            lost_after: Duration::from_secs(60),
            linger: Duration::from_secs(2),
        }
    }
}
