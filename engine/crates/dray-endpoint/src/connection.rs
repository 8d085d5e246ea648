//! What a caller's connection brings to each of its requests: an address, certificates, a place among
//! the connections.
//!
//! Not for: serving it (`server`), what is asked over it (`api`); both know this module, which knows
//! neither.
//!
//! Invariant owned here: connections are never more than the configured number, in all and from one
//! address.

mod limit;

pub(crate) use limit::Room;
pub use limit::{Busy, Sitting};

use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where the connection comes from; stands among the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

/// The client certificates of the connection, the client's own first; stands among the extensions
/// of each request.
#[derive(Debug, Clone, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);
