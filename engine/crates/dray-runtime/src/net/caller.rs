//! Who a dialling end says it is.

use super::{Fingerprint, Token, fingerprint_of};
use dray_core::{End, Error, ErrorKind, Result};
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::net::SocketAddr;

/// What a dialling end shows before it may ask for anything. The token has no readable form.
#[derive(Clone)]
pub struct Caller {
    token: Vec<u8>,
    /// Certificates it showed under TLS, leaf first; empty when none. It holds the leaf's key;
    /// nothing else about them was looked at.
    pub certificates: Vec<CertificateDer<'static>>,
    /// Where it connected from.
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

    /// The token's bytes, to compare and never to show.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        &self.token
    }

    /// The key it has proved to hold, if any.
    #[must_use]
    pub fn key(&self) -> Option<Fingerprint> {
        fingerprint_of(self.certificates.first()?)
    }

    /// Whether it has shown `token`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthorized`] when not, without a word on how it differs.
    pub fn must_show(&self, token: &Token) -> Result<()> {
        if token.matches(&self.token) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unauthorized, End::Network, "log in")
            .cause("the other end does not know this token")
            .remedy("give the token that end was started with"))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({}, token hidden)", self.peer)
    }
}
