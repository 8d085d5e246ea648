//! TLS 1.3 by rustls with ring. The listener proves that it holds the pinned key, or that a trusted
//! authority has certified its key for its host name. The dialler may present a key of its own.

use super::fail::internal;
use super::identity::{Identity, fingerprint_of};
use super::presented::Presented;
use super::provider::provider;
use dray_core::Fingerprint;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls13_signature, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, PeerIncompatible,
    RootCertStore, ServerConfig, SignatureScheme,
};
use std::sync::{Arc, Mutex};

/// Accepts only the pinned key, and ignores the rest of the certificate. If the server offers
/// another key, stores that key for the error message.
#[derive(Debug)]
pub struct Pinned {
    pin: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
    offered: Mutex<Option<Fingerprint>>,
}

impl Pinned {
    /// Returns the key that the server offered, if it is not the pinned key.
    #[must_use]
    pub fn other_key(&self) -> Option<Fingerprint> {
        *self.offered.lock_unpoisoned()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let offered = fingerprint_of(end_entity).ok_or(CertificateError::BadEncoding)?;
        if offered == self.pin {
            return Ok(ServerCertVerified::assertion());
        }
        *self.offered.lock_unpoisoned() = Some(offered);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // A certificate is public. Only this signature proves that the peer holds the certificate's
        // key.
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Authorities that certify host names.
#[derive(Clone)]
pub struct Authority(Arc<dyn ServerCertVerifier>);

impl Authority {
    /// Trusts certificates that one of these authorities (DER) has issued for the dialled host.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::InvalidRequest`] if `certificates` contains no certificate of an
    /// authority.
    pub fn new(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier.build().map_err(|error| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the authorities")
                .cause(error.to_string())
                .remedy("give a file with certificates of authorities in PEM form")
        })?;
        Ok(Self(verifier))
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// The proof of identity that the dialler requires from the other end.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The pinned key.
    Key(Fingerprint),
    /// A certificate of a trusted authority for the dialled host name.
    Authority(Authority),
}

impl From<Fingerprint> for Trust {
    fn from(key: Fingerprint) -> Self {
        Self::Key(key)
    }
}

/// Returns the TLS configuration of a dialler. The dialler requires from the listener the proof
/// that `trust` describes, and presents `identity` if there is one. If `trust` pins a key and the
/// listener offers another key, the second part of the result stores the offered key.
///
/// # Errors
/// [`dray_core::ErrorKind::Internal`] if rustls rejects the algorithms or the key.
pub fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<(Arc<ClientConfig>, Option<Arc<Pinned>>)> {
    let provider = provider();
    let key_provider = provider.key_provider;
    let wrong = |error: rustls::Error| internal("set up TLS", error.to_string());
    let (verifier, pinned): (Arc<dyn ServerCertVerifier>, _) = match trust {
        Trust::Key(pin) => {
            let pinned = Arc::new(Pinned {
                pin: *pin,
                algorithms: provider.signature_verification_algorithms,
                offered: Mutex::new(None),
            });
            (Arc::clone(&pinned) as _, Some(pinned))
        }
        Trust::Authority(authority) => (Arc::clone(&authority.0), None),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(identity) => {
            // Build the key here: rustls would parse the certificate, and rustls does not support
            // proxies (RFC 3820).
            let key = key_provider
                .load_private_key(identity.key())
                .map_err(wrong)?;
            let shown = CertifiedKey::new(identity.certificates().to_vec(), key);
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))
        }
        None => config.with_no_client_auth(),
    };
    // Disable resumption: connections are few and long-lived, and a resumed connection would skip
    // the check of the key.
    config.resumption = rustls::client::Resumption::disabled();
    // A pinned end is recognised by its key, so the server needs no name to select a certificate. A
    // public host name may belong to many hosts, each with its own certificate.
    config.enable_sni = matches!(trust, Trust::Authority(_));
    Ok((Arc::new(config), pinned))
}

/// Accepts any client certificate, and verifies that the dialler holds its key. The handler decides
/// on the rights of the certificate and can refuse with a message; TLS could only send an alert.
#[derive(Debug)]
struct AnyHolder(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyHolder {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // rustls rejects a certificate with an unknown critical extension, and proxies (RFC 3820)
        // have such an extension. So extract the key without rustls.
        let key = dray_auth::x509::public_key(certificate)
            .map_err(|_| rustls::Error::from(CertificateError::BadEncoding))?;
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(key.as_slice()),
            signature,
            &self.0,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Returns the TLS configuration with which a listener proves its identity. Each new connection
/// gets the identity that `presented` has at that time.
///
/// # Errors
/// [`dray_core::ErrorKind::Internal`] if rustls rejects the algorithms.
pub fn server_config(presented: &Presented) -> Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| internal("set up TLS", error.to_string()))?
        .with_client_cert_verifier(Arc::new(AnyHolder(
            provider().signature_verification_algorithms,
        )))
        .with_cert_resolver(Arc::new(presented.clone()));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
