//! TLS 1.3 by rustls with ring: the listener proves that it holds the pinned key, or a certificate
//! of an authority for its name; the dialler may present its own key.

use super::fail::internal;
use super::identity::{Identity, fingerprint_of};
use dray_core::Fingerprint;
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::cipher_suite;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
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

/// Prefers AES-128: DTNs have instructions for it, and it is the cheapest per byte (ten rounds, not
/// fourteen) and sufficiently strong.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// Accepts only the pinned key, and ignores the rest of the certificate. Stores the key last
/// offered instead, so that a refusal can name it.
#[derive(Debug)]
pub struct Pinned {
    pin: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
    offered: Mutex<Option<Fingerprint>>,
}

impl Pinned {
    /// Returns the key that the server offered, if it is not the pinned one.
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
        // A certificate is public: only this signature proves that the peer holds its key.
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
    /// Trusts certificates of these authorities (DER), for the host that was dialled.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::InvalidRequest`] if none of them is an authority's certificate.
    pub fn new(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = verifier.build().map_err(|error| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the authorities")
                .cause(error.to_string())
                .remedy("name a file with certificates of authorities in PEM form")
        })?;
        Ok(Self(verifier))
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

/// Means by which the other end is recognised.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Its key.
    Key(Fingerprint),
    /// A certificate for the host name that was dialled.
    Authority(Authority),
}

impl From<Fingerprint> for Trust {
    fn from(key: Fingerprint) -> Self {
        Self::Key(key)
    }
}

/// Returns the configuration with which a dialler reaches the trusted end and presents its own key,
/// if it has one. The second part stores the key that was offered instead of a pinned one.
///
/// # Errors
/// [`dray_core::ErrorKind::Internal`] if rustls rejects our choice of algorithms or the key.
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
            // Built here, because rustls would parse the certificate, and does not know proxies
            // (RFC 3820).
            let key = key_provider
                .load_private_key(identity.key())
                .map_err(wrong)?;
            let shown = CertifiedKey::new(identity.certificates().to_vec(), key);
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(shown)))
        }
        None => config.with_no_client_auth(),
    };
    // Connections are few and long-lived; a resumed one would skip the check of the key.
    config.resumption = rustls::client::Resumption::disabled();
    // A pinned end is recognised by its key and needs no name to select a certificate; behind a
    // public name there may be many hosts, each with its own certificate.
    config.enable_sni = matches!(trust, Trust::Authority(_));
    Ok((Arc::new(config), pinned))
}

/// Accepts any client certificate, and verifies that the dialler holds its key. The handler decides
/// what the certificate permits, and refuses with a message, not with a TLS alert.
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
        // rustls rejects a certificate with a critical extension that it does not know, and a proxy
        // (RFC 3820) has one: so the key is extracted here.
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

/// Returns the configuration with which a listener proves that it is `identity`.
///
/// # Errors
/// [`dray_core::ErrorKind::InvalidRequest`] if the key belongs to another certificate,
/// [`dray_core::ErrorKind::Internal`] if rustls cannot use its kind.
pub fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>> {
    let wrong = |error: rustls::Error| internal("set up TLS", error.to_string());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(wrong)?
        .with_client_cert_verifier(Arc::new(AnyHolder(
            provider().signature_verification_algorithms,
        )))
        .with_single_cert(identity.certificates().to_vec(), identity.key())
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                Error::new(ErrorKind::InvalidRequest, End::Here, "set up TLS")
                    .cause("the key is not the certificate's")
                    .remedy("name a certificate and the key that it was made for")
            }
            other => wrong(other),
        })?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
