//! The identity that a dialling end presents.

use super::{Fingerprint, Token, fingerprint_of};
use dray_core::{End, Error, ErrorKind, Result};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::SocketAddr;

/// Identity of a dialling end, presented before any request. The type does not print the token.
#[derive(Clone)]
pub struct Caller {
    token: Vec<u8>,
    /// Certificates that the caller presented under TLS, leaf first; empty if there are none. The
    /// caller has proved that it holds the leaf's key. The certificates themselves were not
    /// checked.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Address from which the caller connected.
    pub peer: SocketAddr,
}

impl Caller {
    pub(super) const fn new(
        token: Vec<u8>,
        certificates: Vec<CertificateDer<'static>>,
        peer: SocketAddr,
    ) -> Self {
        Self {
            token,
            certificates,
            peer,
        }
    }

    /// Returns the token's bytes, for comparison only; never show them.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// Returns the fingerprint of the key that the caller has proved to hold. Returns `None` if the
    /// caller presented no certificate.
    #[must_use]
    pub fn key(&self) -> Option<Fingerprint> {
        fingerprint_of(self.certificates.first()?)
    }

    /// Checks that the caller presented `token`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] if the tokens differ. The error does not say how they differ.
    pub fn must_show(&self, token: &Token) -> Result<()> {
        if token.matches(&self.token) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unauthorized,
            End::Network,
            "log in at the other host",
        )
        .cause("the other host does not accept the given token")
        .remedy("give the token that `dray serve` at the other host was started with"))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({}, token hidden)", self.peer)
    }
}
