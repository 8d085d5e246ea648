//! Facts of a caller's connection that each of its requests needs: address, certificates, and the
//! connection's slot.
//!
//! Not for: serving the connection (`server`), or the calls on the connection (`api`). Both modules
//! use this module, and this module uses neither.
//!
//! Invariant owned here: the number of connections, in all and from one address, exceeds the
//! configured limits by at most a few reserved slots.

mod limit;

pub(crate) use limit::ConnectionTable;
pub use limit::{Busy, SlotReference};

use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;

/// The remote address of the connection. The server adds this value to the extensions of each
/// request.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

/// Marks requests of a connection without TLS. The server adds this value to the extensions of each
/// request.
#[derive(Debug, Clone, Copy)]
pub struct ClearText;

/// The certificate chain that the client presented, with the client's own certificate first. The
/// server adds it to the extensions of each request.
#[derive(Debug, Clone, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);
