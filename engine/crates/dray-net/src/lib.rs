//! The network under a link: identities, TLS 1.3, control connections, data streams, the dialling
//! end and the listening end.
//!
//! Participants: the **driver** dials ([`push`], [`pull`]); the **passive** end listens
//! ([`Listener`]). Data flows from source to sink, whichever end dials.
//! docs/design/wire-protocol.md defines the bytes.
//!
//! Goals:
//!
//! - An executor sees a [`dray_link::link`] and no sockets.
//! - Input from a stranger costs limited memory and time, and affects no other session.
//! - A byte that was changed on a clear stream is detected before the object is written.
//!
//! Non-goals: the order of messages (the machines decide), the meaning of a path (the [`Handler`]
//! decides).
//!
//! Invariants owned here:
//!
//! - An end acts on no control message before the dialler has proved its identity to the handler.
//! - No stream joins without the session's key.
//! - An object is received only into a free buffer of the sink's pool.

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
mod presented;
mod provider;
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
pub use presented::Presented;
pub use serve::Serve;
pub use tls::{Authority, Trust, client_config, server_config};
pub use token::Token;

use dray_core::PeerId;
use std::time::Duration;

/// Peer id of the other end. A session has a single peer until sinks accept several replicas.
const PEER: PeerId = PeerId(0);

/// Name and version of this build, sent to peers.
const SOFTWARE: &str = concat!("dray ", env!("CARGO_PKG_VERSION"));

/// Timeouts and intervals of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Timeout of a TCP connect call, without name resolution.
    pub connect: Duration,
    /// Timeout from the first byte of a new connection until it is trusted: preamble, TLS, and
    /// greeting or join.
    pub handshake: Duration,
    /// Maximum time that the driver waits for the passive end's preparations after CONNECT.
    pub prepare: Duration,
    /// If this end has sent nothing for this time, it sends a PING.
    pub ping_after: Duration,
    /// If this end has received nothing for this time, the peer is lost. A stream is lost if sent
    /// bytes stay unacknowledged for this time.
    pub lost_after: Duration,
    /// Time that a closing link waits until the peer closes too.
    pub linger: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            // As in docs/design/wire-protocol.md, section 2.4.
            handshake: Duration::from_secs(10),
            // A passive sink may have to read a long log in this time. The value is estimated, not
            // measured.
            prepare: Duration::from_secs(60),
            ping_after: Duration::from_secs(10),
            lost_after: Duration::from_secs(60),
            linger: Duration::from_secs(2),
        }
    }
}
