//! Certificates: identifies clients (RFC 5280, and proxies of RFC 3820), and checks that a server
//! is the dialled host.
//!
//! A chain has two parts. webpki, the library that rustls uses, checks the first part: from a
//! trusted authority down to the certificate of a person or host. webpki does not support proxies,
//! so this module checks the second part: the proxies from that certificate down to the key of the
//! TLS handshake.
//!
//! This module does not check that the peer holds the private key of the leaf. The TLS handshake
//! must check this. The usual function of rustls, `verify_tls13_signature`, cannot check a proxy:
//! it parses the leaf with webpki, and webpki refuses the critical extension of a proxy. Use
//! `verify_tls13_signature_with_raw_key` instead, with the key of [`public_key`] or [`Client`].

mod crl;
mod der;
mod name;
mod policy;
mod proxy;
mod signature;
mod validity;

pub use crl::{ListFacts, check_list, list_facts};
pub use name::Subject;
pub use policy::{Policy, PolicyFormat};
pub use validity::{Validity, validity};

use crate::escape::{misconfigured, seconds, shown, unauthorized};
use dray_core::{Error, Result};
use policy::Rule;
use rustls_pki_types::{
    CertificateDer, CertificateRevocationListDer, Der, ServerName, TrustAnchor, UnixTime,
};
use serde::Deserialize;
use std::time::Duration;
use webpki::{
    ALL_VERIFICATION_ALGS, CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage,
    OwnedCertRevocationList, RevocationOptionsBuilder, UnknownStatusPolicy,
    anchor_from_trusted_cert,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Maximum number of certificates in a chain. A proxy of a proxy below two authorities gives a
/// chain of five, so the limit leaves a wide margin.
pub const CHAIN_MAX: usize = 16;

/// Maximum size of a certificate in bytes. webpki has the same limit.
pub const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;

const OPERATION: &str = "accept the certificate";

/// The configured requirements for revocation lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Revocation {
    /// True if each authority in the chain must have a revocation list. Otherwise the certificates
    /// of an authority without a list count as not revoked.
    pub demanded: bool,
    /// True if a list stays valid after its `nextUpdate`. Otherwise an outdated list makes all
    /// certificates of its authority invalid, as RFC 5280 and the IGTF require.
    pub stale: bool,
}

struct Anchor {
    anchor: TrustAnchor<'static>,
    not_before: u64,
    not_after: u64,
}

/// The trusted authorities, and their revocation lists.
#[derive(Default)]
pub struct Trust {
    anchors: Vec<Anchor>,
    lists: Vec<CertRevocationList<'static>>,
    policies: Vec<Rule>,
    revocation: Revocation,
    /// Subjects of the authorities.
    subjects: Vec<Subject>,
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (anchors, lists) = (self.anchors.len(), self.lists.len());
        write!(f, "Trust({anchors} authorities, {lists} revocation lists)")
    }
}

/// A client with a valid certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Subject of the certificate that an authority signed. Proxies below that certificate do not
    /// change the subject.
    pub subject: Subject,
    /// Issuer of the certificate that an authority signed.
    pub issuer: Subject,
    /// Number of proxies between the subject's certificate and the key of the handshake.
    pub proxies: usize,
    /// True if a proxy in the chain is limited. By grid convention a limited proxy may transfer
    /// files but must not start jobs.
    pub is_limited: bool,
    /// Earliest expiry time among the subject's certificate and its proxies, in seconds since 1970.
    pub expires: u64,
    /// The leaf's public key, as the DER of its SubjectPublicKeyInfo.
    pub key: Vec<u8>,
}

fn refused(cause: impl Into<String>, remedy: &str) -> Error {
    unauthorized(OPERATION, cause, remedy)
}

impl Trust {
    /// Creates a trust store without authorities.
    #[must_use]
    pub fn new(revocation: Revocation) -> Self {
        Self {
            revocation,
            ..Self::default()
        }
    }

    /// Adds a trusted authority. `der` is its certificate.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if `der` is not the certificate of
    /// an authority.
    pub fn add_authority(&mut self, der: &[u8]) -> Result<()> {
        let refuse = |cause: String| {
            let remedy = "remove the file from the folder of trusted authorities";
            misconfigured("read the certificate of a trusted authority", cause, remedy)
        };
        let parsed = parse(der).map_err(|error| refuse(error.cause))?;
        let subject = parsed.subject()?;
        // Accept certificates of version 1 too. Some root certificates have this version, which has
        // no field to state that a certificate belongs to an authority.
        let is_old = parsed.certificate.version().0 == 0;
        if !is_old && !parsed.certificate.is_ca() {
            return Err(refuse(format!("{subject} is not a certificate authority")));
        }
        let anchor = anchor_from_trusted_cert(&CertificateDer::from(der))
            .map_err(|_| refuse(format!("the certificate of {subject} is malformed")))?
            .to_owned();
        let (not_before, not_after) = parsed.validity();
        self.subjects.push(subject);
        self.anchors.push(Anchor {
            anchor,
            not_before,
            not_after,
        });
        Ok(())
    }

    /// Adds a revocation list in DER. The signature of the list is checked each time the list is
    /// used.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if the list cannot be parsed.
    pub fn add_revocation_list(&mut self, der: &[u8]) -> Result<()> {
        let der = CertificateRevocationListDer::from(der);
        let list = OwnedCertRevocationList::from_der(der.as_ref()).map_err(|error| {
            let cause = match error {
                webpki::Error::UnsupportedCrlVersion => {
                    "the revocation list does not have \
                    version 2"
                }
                webpki::Error::UnsupportedDeltaCrl => {
                    "the file is a delta revocation list, but dray reads only complete \
                        revocation lists"
                }
                webpki::Error::UnsupportedIndirectCrl => {
                    "the file is an indirect revocation list (it covers certificates of other \
                        issuers), but dray reads only direct revocation lists"
                }
                _ => "malformed",
            };
            misconfigured(
                "read the revocation list",
                cause,
                "fetch the revocation list again",
            )
        })?;
        self.lists.push(list.into());
        Ok(())
    }

    /// Identifies a client. `chain` has the certificates that the client presented, in DER, with
    /// the leaf first. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Unauthorized`](dray_core::ErrorKind::Unauthorized), with the name of the invalid
    /// certificate and the reason.
    pub fn verify_client(&self, chain: &[&[u8]], now: u64) -> Result<Client> {
        let parsed = parse_chain(chain)?;
        let proxies = proxy::count(&parsed)?;
        let leaf = &parsed[0];
        let own = &parsed[proxies];
        own.check_validity(now)?;
        own.check_usage()?;
        let end = CertificateDer::from(own.der);
        self.verify_path(&end, &chain[proxies + 1..], now, &KeyUsage::client_auth())
            .map_err(|error| self.words(&error, own, &parsed[proxies + 1..], now))?;
        self.check_policies(&parsed[proxies..])?;
        let is_limited = proxy::check(&parsed[..=proxies], now)?;
        let expires = parsed[..=proxies].iter().map(|one| one.validity().1).min();
        Ok(Client {
            subject: own.subject()?,
            issuer: own.issuer()?,
            proxies,
            is_limited,
            expires: expires.unwrap_or(0),
            key: leaf.key().to_vec(),
        })
    }

    /// Checks that a server's chain leads to a trusted authority and is valid for `host`, a name or
    /// an address. The leaf is the first certificate of the chain. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Unauthorized`](dray_core::ErrorKind::Unauthorized), with the reason.
    pub fn verify_server(&self, chain: &[&[u8]], host: &str, now: u64) -> Result<()> {
        let parsed = parse_chain(chain)?;
        let leaf = &parsed[0];
        leaf.check_validity(now)?;
        let name = ServerName::try_from(host).map_err(|_| {
            let cause = format!("{} is not a host name", shown(host));
            misconfigured(
                "check the server's certificate",
                cause,
                "correct the host name",
            )
        })?;
        let end = CertificateDer::from(leaf.der);
        self.verify_path(&end, &chain[1..], now, &KeyUsage::server_auth())
            .and_then(|()| EndEntityCert::try_from(&end)?.verify_is_valid_for_subject_name(&name))
            .map_err(|error| match error {
                webpki::Error::CertNotValidForName(_) => refused(
                    format!("{} is not valid for the host {}", leaf.words(), shown(host)),
                    "use a host name from the host's certificate",
                ),
                error => self.words(&error, leaf, &parsed[1..], now),
            })
    }

    fn verify_path(
        &self,
        end: &CertificateDer<'_>,
        others: &[&[u8]],
        now: u64,
        usage: &KeyUsage,
    ) -> Result<(), webpki::Error> {
        let anchors: Vec<_> = self
            .anchors
            .iter()
            .filter(|anchor| (anchor.not_before..=anchor.not_after).contains(&now))
            .map(|anchor| borrowed(&anchor.anchor))
            .collect();
        let others: Vec<_> = others
            .iter()
            .map(|der| CertificateDer::from(*der))
            .collect();
        let lists: Vec<_> = self.lists.iter().collect();
        // The builder fails if there are no lists. webpki then cannot be told to require a list.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            let unknown = if self.revocation.demanded {
                UnknownStatusPolicy::Deny
            } else {
                UnknownStatusPolicy::Allow
            };
            let stale = if self.revocation.stale {
                ExpirationPolicy::Ignore
            } else {
                ExpirationPolicy::Enforce
            };
            builder
                .with_status_policy(unknown)
                .with_expiration_policy(stale)
                .build()
        });
        if revocation.is_none() && self.revocation.demanded {
            return Err(webpki::Error::UnknownRevocationStatus);
        }
        let time = UnixTime::since_unix_epoch(Duration::from_secs(now));
        EndEntityCert::try_from(end)?
            .verify_for_usage(
                ALL_VERIFICATION_ALGS,
                &anchors,
                &others,
                time,
                *usage,
                revocation,
                None,
            )
            .map(|_| ())
    }

    /// Converts an error of webpki to a message for users.
    fn words(&self, error: &webpki::Error, own: &Parsed, others: &[Parsed], now: u64) -> Error {
        use webpki::Error as E;
        const RENEW: &str = "ask the certificate authority for a new certificate";
        const LISTS: &str = "ask the endpoint's administrator to fetch the revocation lists again";
        const OTHER: &str = "ask the certificate authority for another certificate";
        let whose = own.words();
        let issuer = own.issuer_words();
        match error {
            E::CertExpired { not_after, .. } => {
                let ago = seconds(now.saturating_sub(not_after.as_secs()));
                let cause = format!(
                    "the chain of {whose} contains an authority whose certificate expired {ago} ago"
                );
                refused(cause, RENEW)
            }
            E::CertNotValidYet { .. } => refused(
                format!(
                    "the chain of {whose} contains an authority whose certificate is not yet valid"
                ),
                "wait, or correct the clocks of both hosts",
            ),
            E::CertRevoked => refused(
                format!("{whose}, or another certificate in the chain, was revoked"),
                RENEW,
            ),
            E::CrlExpired { next_update, .. } => {
                let ago = seconds(now.saturating_sub(next_update.as_secs()));
                let cause =
                    format!("the revocation list for {whose} has been out of date for {ago}");
                refused(cause, LISTS)
            }
            E::UnknownRevocationStatus => refused(
                format!("this endpoint has no revocation list that covers {whose}"),
                LISTS,
            ),
            E::CaUsedAsEndEntity => refused(
                format!("{whose} is an authority's certificate, not a client's"),
                "send the certificate chain in order: your own certificate first",
            ),
            E::UnknownIssuer => self.unknown_issuer(own, others, now),
            E::InvalidCrlSignatureForPublicKey | E::IssuerNotCrlSigner => refused(
                format!("the revocation list for {whose} is not signed by its authority"),
                LISTS,
            ),
            E::InvalidSignatureForPublicKey | E::SignatureAlgorithmMismatch => refused(
                format!("the signature of {issuer} on {whose} is wrong"),
                RENEW,
            ),
            E::RequiredEkuNotFoundContext(_) => refused(
                format!("the extended key usage of {whose} does not allow authentication"),
                RENEW,
            ),
            E::NameConstraintViolation | E::PathLenConstraintViolated | E::EndEntityUsedAsCa => {
                refused(
                    format!("{issuer}, or an authority above it, is not allowed to issue {whose}"),
                    OTHER,
                )
            }
            E::UnsupportedSignatureAlgorithmContext(_)
            | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => refused(
                format!(
                    "{whose}, or another certificate in the chain, has a key or signature of a \
                        kind that dray does not accept"
                ),
                "use RSA of 2048 bits or more with SHA-256, or P-256",
            ),
            E::UnsupportedCriticalExtension => refused(
                format!(
                    "{whose}, or another certificate in the chain, has a critical extension that \
                        dray does not support"
                ),
                OTHER,
            ),
            _ => refused(
                format!("{whose}, or another certificate in the chain, is malformed"),
                RENEW,
            ),
        }
    }

    /// Returns the error for a chain that ends at no trusted authority.
    fn unknown_issuer(&self, own: &Parsed, others: &[Parsed], now: u64) -> Error {
        let whose = own.words();
        let issuer = own.issuer_words();
        let cause = if self.is_expired_anchor(own, others, now) {
            format!("the certificate of {issuer}, the authority above {whose}, has expired")
        } else {
            format!("the issuer of {whose} is {issuer}, which this endpoint does not trust")
        };
        refused(
            cause,
            "use a certificate whose authority this endpoint trusts",
        )
    }

    /// Returns true if the issuer of a certificate in the chain is a trusted authority whose own
    /// certificate has expired.
    fn is_expired_anchor(&self, own: &Parsed, others: &[Parsed], now: u64) -> bool {
        let mut issuers = others.iter().chain([own]).map(Parsed::issuer_der);
        issuers.any(|issuer| {
            let content = der::only(issuer, der::SEQUENCE).map(|name| name.content);
            self.anchors.iter().any(|anchor| {
                now > anchor.not_after && content == Some(anchor.anchor.subject.as_ref())
            })
        })
    }
}

/// Returns the public key of a certificate as DER of its SubjectPublicKeyInfo.
///
/// # Errors
/// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) if the bytes are not a certificate.
pub fn public_key(certificate: &[u8]) -> Result<Vec<u8>> {
    parse(certificate).map(|parsed| parsed.key().to_vec())
}

fn borrowed<'a>(anchor: &'a TrustAnchor<'static>) -> TrustAnchor<'a> {
    TrustAnchor {
        subject: Der::from_slice(anchor.subject.as_ref()),
        subject_public_key_info: Der::from_slice(anchor.subject_public_key_info.as_ref()),
        name_constraints: anchor
            .name_constraints
            .as_ref()
            .map(|constraints| Der::from_slice(constraints.as_ref())),
    }
}

/// A certificate that is parsed but not yet trusted.
struct Parsed<'a> {
    der: &'a [u8],
    certificate: X509Certificate<'a>,
}

fn parse(der: &[u8]) -> Result<Parsed<'_>> {
    let malformed = || {
        refused(
            "the file or message does not hold a certificate",
            "send X.509 certificates in DER",
        )
    };
    if der.len() > CERTIFICATE_BYTES_MAX {
        return Err(malformed());
    }
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(Parsed { der, certificate }),
        _ => Err(malformed()),
    }
}

fn parse_chain<'a>(chain: &[&'a [u8]]) -> Result<Vec<Parsed<'a>>> {
    if chain.is_empty() {
        return Err(refused(
            "the caller sent no certificate",
            "show a certificate",
        ));
    }
    if chain.len() > CHAIN_MAX {
        let cause = format!("the certificate chain has more than {CHAIN_MAX} certificates");
        return Err(refused(
            cause,
            "send only the certificates of your own chain",
        ));
    }
    chain.iter().map(|der| parse(der)).collect()
}

impl Parsed<'_> {
    fn subject_der(&self) -> &[u8] {
        self.certificate.tbs_certificate.subject.as_raw()
    }

    fn issuer_der(&self) -> &[u8] {
        self.certificate.tbs_certificate.issuer.as_raw()
    }

    fn key(&self) -> &[u8] {
        self.certificate.tbs_certificate.subject_pki.raw
    }

    fn subject(&self) -> Result<Subject> {
        Subject::read(self.subject_der()).ok_or_else(|| {
            refused(
                "the certificate names no subject",
                "use a certificate with a subject",
            )
        })
    }

    fn issuer(&self) -> Result<Subject> {
        Subject::read(self.issuer_der()).ok_or_else(|| {
            refused(
                "the certificate names no issuer",
                "use the certificate of a certificate authority",
            )
        })
    }

    /// Describes the certificate for an error message.
    fn words(&self) -> String {
        match Subject::read(self.subject_der()) {
            Some(subject) => format!("the certificate of {}", shown(subject.slash())),
            None => "the certificate without a subject".to_owned(),
        }
    }

    fn issuer_words(&self) -> String {
        Subject::read(self.issuer_der()).map_or_else(
            || "an issuer whose name is empty".to_owned(),
            |issuer| shown(issuer.slash()),
        )
    }

    /// Returns the first and the last second at which the certificate is valid, in seconds since
    /// 1970.
    fn validity(&self) -> (u64, u64) {
        let validity = self.certificate.validity();
        let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
        (
            seconds(validity.not_before.timestamp()),
            seconds(validity.not_after.timestamp()),
        )
    }

    fn check_validity(&self, now: u64) -> Result<()> {
        let (not_before, not_after) = self.validity();
        if now < not_before {
            let wait = seconds(not_before - now);
            let cause = format!(
                "{} is not yet valid: it becomes valid in {wait}",
                self.words()
            );
            return Err(refused(cause, "wait, or correct the clocks of both hosts"));
        }
        if now > not_after {
            let ago = seconds(now - not_after);
            let cause = format!("{} expired {ago} ago", self.words());
            return Err(refused(cause, "get a new certificate, or make a new proxy"));
        }
        Ok(())
    }

    /// Checks that the certificate's key may make signatures, for a handshake or for a proxy (RFC
    /// 5280, 4.2.1.3; RFC 3820, 3.1). A certificate without the key usage extension permits all
    /// uses.
    fn check_usage(&self) -> Result<()> {
        let refuse = |why: &str| {
            let cause = format!("{}: {why}", self.words());
            refused(
                cause,
                "ask the certificate authority for another certificate",
            )
        };
        match self.certificate.key_usage() {
            Ok(None) => Ok(()),
            Ok(Some(usage)) if usage.value.digital_signature() => Ok(()),
            Ok(Some(_)) => Err(refuse(
                "the key usage of the certificate does not allow digital \
                signatures",
            )),
            Err(_) => Err(refuse("the key usage of the certificate is malformed")),
        }
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;
