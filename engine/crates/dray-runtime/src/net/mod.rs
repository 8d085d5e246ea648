//! The network under a link: identities, TLS 1.3, control connections, data streams, the side that
//! dials and the side that listens.
//!
//! Participants: the **driver** dials ([`push`], [`pull`]), the **passive** end listens
//! ([`Listener`]). Data flows from source to sink whoever dialled. The bytes are those of
//! docs/design/wire-protocol.md.
//!
//! Goals: a conductor sees a [`crate::link`] and nothing of sockets; whatever a stranger sends costs
//! bounded memory and time and no other session notices; a byte changed on a clear stream is found
//! before it is written.
//!
//! Non-goals: what is sent when (the machines decide), what a path means (the [`Handler`] decides).
//!
//! Invariants owned here: nothing of a control message is believed before the dialler has proved
//! itself to the handler; no stream joins without the session's key; an object is received only into
//! a buffer that the sink's pool has free.

mod accept;
mod caller;
mod channel;
mod control;
mod data;
mod dial;
mod fail;
mod fd_exhaustion;
mod handler;
mod handshake;
mod hub;
mod identity;
mod join;
mod pending;
mod preconnect;
mod receive;
mod redial;
mod serve;
mod session;
mod sniff;
mod socket;
mod tls;
mod token;

pub use caller::Caller;
pub use dial::{Dial, Dialled, pull, push};
pub use dray_core::Fingerprint;
pub use fd_exhaustion::Lack;
pub use handler::{Handler, Prepared, Request};
pub use hub::Growth;
pub use identity::{IDENTITY_FILE, Identity, fingerprint_of};
pub use serve::{Listener, Serve, Stopper};
pub use tls::{Authority, Trust, client_config, server_config};
pub use token::Token;

use dray_core::PeerId;
use std::time::Duration;

/// The other end; a session has one until sinks take replicas.
const PEER: PeerId = PeerId(0);

/// How this build names itself to peers.
const SOFTWARE: &str = concat!("dray ", env!("CARGO_PKG_VERSION"));

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A TCP connection, name resolution aside.
    pub connect: Duration,
    /// Everything before a connection has proved itself: preamble, TLS, greeting or join.
    pub handshake: Duration,
    /// The passive end's preparations after CONNECT.
    pub prepare: Duration,
    /// A PING goes out after so long without sending.
    pub ping_after: Duration,
    /// The peer is lost after so long without receiving, and so is a stream whose bytes nobody
    /// acknowledges.
    pub lost_after: Duration,
    /// How long a closed link waits for the peer to close as well.
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
