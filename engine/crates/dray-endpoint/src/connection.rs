//! Facts of a caller's connection that each of its requests needs: address, certificates, and a
//! slot among the connections.
//!
//! Not for: serving the connection (`server`), or the calls on it (`api`). Both know this module;
//! this module knows neither.
//!
//! Invariant owned here: the number of connections never exceeds the configured limits, in all and
//! from one address, by more than a few reserved slots.

mod limit;

pub(crate) use limit::Room;
pub use limit::{Busy, Sitting};

use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;

/// The remote address of the connection; among the extensions of each request.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub SocketAddr);

/// The client certificates of the connection, the client's own first; among the extensions of each
/// request.
#[derive(Debug, Clone, Default)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);
