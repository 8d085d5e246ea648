//! The identity that a listener presents to new connections. The owner of the listener can replace
//! the identity while connections are open.
//!
//! Invariant owned here: a handshake uses the certificate and the key of one identity, never the
//! certificate of one identity and the key of another.

use super::fail::internal;
use super::identity::Identity;
use super::provider::provider;
use dray_core::lock::RwLockExt;
use dray_core::{End, Error, ErrorKind, Fingerprint, Result};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, RwLock};

/// A cloneable handle of the identity that a listener presents. All clones present the same
/// identity.
#[derive(Debug, Clone)]
pub struct Presented(Arc<RwLock<Current>>);

#[derive(Debug)]
struct Current {
    identity: Arc<Identity>,
    /// The same identity, in the form that rustls uses.
    certified: Arc<CertifiedKey>,
}

impl Current {
    fn new(identity: Identity) -> Result<Self> {
        let certificates = identity.certificates().to_vec();
        let certified = CertifiedKey::from_der(certificates, identity.key(), &provider());
        let certified = certified.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                Error::new(ErrorKind::InvalidRequest, End::Here, "set up TLS")
                    .cause("the private key does not belong to the certificate")
                    .remedy("give a certificate together with its own private key")
            }
            other => internal("set up TLS", other.to_string()),
        })?;
        Ok(Self {
            identity: Arc::new(identity),
            certified: Arc::new(certified),
        })
    }
}

impl Presented {
    /// Presents `identity`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the key does not belong to the certificate,
    /// [`ErrorKind::Internal`] if rustls does not support this kind of key.
    pub fn new(identity: Identity) -> Result<Self> {
        Ok(Self(Arc::new(RwLock::new(Current::new(identity)?))))
    }

    /// Presents `identity` to new connections from now on. Open connections do not change.
    ///
    /// # Errors
    /// The errors of [`Presented::new`]. The listener then continues to present the previous
    /// identity.
    pub fn replace(&self, identity: Identity) -> Result<()> {
        let new = Current::new(identity)?;
        *self.0.write_unpoisoned() = new;
        Ok(())
    }

    /// Returns the present identity.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.0.read_unpoisoned().identity)
    }

    /// Returns the fingerprint of the present identity's key.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.read_unpoisoned().identity.fingerprint()
    }
}

impl ResolvesServerCert for Presented {
    /// Returns the present certificate and key. A listener has one certificate, so the name that
    /// the client asks for does not matter.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read_unpoisoned().certified))
    }
}
