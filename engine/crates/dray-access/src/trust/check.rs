//! Checks a fetched file before it replaces the present file.

use crate::keys::lists_in;
use dray_auth::jwk::KeySet;
use dray_auth::x509::{ListFacts, Trust, Validity, check_list, list_facts, validity};
use dray_config::TrustKind;
use dray_core::{End, Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

/// Checks the content of a fetched file. `old` is the present file, and `authorities` are the
/// trusted authorities. Returns the time in which the content is valid, if it has such a time.
///
/// # Errors
/// If the content is malformed, expired or wrongly signed, or if it is a revocation list that is
/// older than the present one.
pub(super) fn check(
    kind: TrustKind,
    new: &[u8],
    old: Option<&[u8]>,
    authorities: &[CertificateDer<'static>],
    now: u64,
) -> Result<Option<Validity>> {
    match kind {
        TrustKind::Jwks => KeySet::parse(new, now).map(|_| None),
        TrustKind::Authorities => check_authorities(new, now).map(Some),
        TrustKind::Crl => {
            let facts = check_list(&list_in(new)?, authorities.iter().map(AsRef::as_ref), now)?;
            let old = old.and_then(|old| facts_of(old).ok());
            check_order(&facts, old.as_ref())?;
            Ok(Some(facts.validity))
        }
    }
}

/// Returns the time in which a stored file is valid. `None` if the file has no such time or cannot
/// be read.
pub(super) fn valid(kind: TrustKind, bytes: &[u8]) -> Option<Validity> {
    match kind {
        TrustKind::Jwks => None,
        TrustKind::Authorities => first_to_expire(&certificates_in(bytes).ok()?).ok(),
        TrustKind::Crl => facts_of(bytes).ok().map(|facts| facts.validity),
    }
}

fn facts_of(bytes: &[u8]) -> Result<ListFacts> {
    list_facts(&list_in(bytes)?)
}

/// Refuses a list that is older than the present list, or of another authority. Otherwise an
/// attacker on the network could bring back a list from before a revocation, or remove the list of
/// an authority.
fn check_order(new: &ListFacts, old: Option<&ListFacts>) -> Result<()> {
    let Some(old) = old else {
        return Ok(());
    };
    if new.issuer != old.issuer {
        return Err(wrong(
            "check the revocation list",
            format!(
                "the fetched list is of {}, but the present list is of {}",
                new.issuer, old.issuer
            ),
            "correct the URL, or remove the present list if the authority has a new name",
        ));
    }
    if new.validity.not_before < old.validity.not_before {
        return Err(wrong(
            "check the revocation list",
            "the fetched list is older than the present list".to_owned(),
            "ask the operator of the server whether it publishes the newest list",
        ));
    }
    Ok(())
}

fn check_authorities(bytes: &[u8], now: u64) -> Result<Validity> {
    let certificates = certificates_in(bytes)?;
    let mut trust = Trust::default();
    for certificate in &certificates {
        trust.add_authority(certificate)?;
    }
    let validity = first_to_expire(&certificates)?;
    if now > validity.not_after {
        return Err(malformed(
            "the certificate of an authority has expired".to_owned(),
        ));
    }
    Ok(validity)
}

fn certificates_in(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(bytes)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| malformed(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(malformed(
            "the file holds no certificate in PEM form".to_owned(),
        )),
        false => Ok(certificates),
    }
}

/// Returns the validity of the certificate that expires first.
fn first_to_expire(certificates: &[CertificateDer<'_>]) -> Result<Validity> {
    let mut all = Vec::with_capacity(certificates.len());
    for certificate in certificates {
        all.push(validity(certificate)?);
    }
    let first = all.into_iter().min_by_key(|one| one.not_after);
    first.ok_or_else(|| malformed("the file holds no certificate".to_owned()))
}

/// Returns the only revocation list of a file, in DER. The signature of the list does not cover the
/// rest of a PEM file. So the file must hold no certificate, because all certificates in a folder of
/// authorities are trusted.
fn list_in(bytes: &[u8]) -> Result<CertificateRevocationListDer<'_>> {
    if CertificateDer::pem_slice_iter(bytes).any(|found| found.is_ok()) {
        return Err(no_list(
            "the file holds a certificate beside the revocation list".to_owned(),
        ));
    }
    let lists = lists_in(bytes).map_err(|error| no_list(error.to_string()))?;
    let count = lists.len();
    match <[_; 1]>::try_from(lists) {
        Ok([only]) => Ok(only),
        Err(_) => Err(no_list(format!(
            "the file holds {count} revocation lists instead of one"
        ))),
    }
}

fn no_list(cause: String) -> Error {
    let remedy = "check that the URL is that of a revocation list in DER or PEM form";
    wrong("read the revocation list", cause, remedy)
}

fn malformed(cause: String) -> Error {
    let remedy = "check that the URL is that of certificates of authorities in PEM form";
    wrong("read the certificates of authorities", cause, remedy)
}

fn wrong(operation: &str, cause: String, remedy: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(cause)
        .remedy(remedy)
}
