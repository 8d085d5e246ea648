//! Checks a revocation list before it is stored: its form, its signature and its dates.

use super::signature::has_signed;
use super::{Parsed, Subject, Trust, Validity, der, misconfigured, parse, shown};
use dray_core::{Error, Result};
use x509_parser::prelude::{CertificateRevocationList, FromDer};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

const REMEDY: &str = "fetch the revocation list again, or ask the authority to publish a new list";

/// Properties of a revocation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFacts {
    /// The authority that issued the list.
    pub issuer: Subject,
    /// Time of the list (`thisUpdate`), and the time by which the authority publishes the next list
    /// (`nextUpdate`).
    pub validity: Validity,
}

/// Reads the issuer and the dates of a revocation list in DER (RFC 5280, 5.1.2). Does not check its
/// signature.
///
/// # Errors
/// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if the bytes are no complete revocation
/// list of version 2, or if the list has no `nextUpdate`.
pub fn list_facts(der: &[u8]) -> Result<ListFacts> {
    read(der).map(|(facts, _)| facts)
}

/// Checks that one of `authorities` (certificates in DER) has signed a revocation list, and that the
/// list is valid at the time `now`, in seconds since 1970. The algorithms of the signature are those
/// that the checks of certificates accept, so SHA-1 and RSA below 2048 bits are refused.
///
/// # Errors
/// Those of [`list_facts`], and [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if the list
/// is not signed by an authority of its name, or if its dates do not include `now`.
pub fn check_list<'a>(
    der: &[u8],
    authorities: impl IntoIterator<Item = &'a [u8]>,
    now: u64,
) -> Result<ListFacts> {
    let (facts, list) = read(der)?;
    let issuer = shown(facts.issuer.slash());
    let mut is_known = false;
    let mut is_signed = false;
    let mut is_weak = false;
    let signed = der::signed_list(der);
    for authority in authorities {
        let Ok(parsed) = parse(authority) else {
            continue;
        };
        if parsed.subject_der() == list.issuer().as_raw() {
            is_known = true;
            let key = &parsed.certificate.tbs_certificate.subject_pki;
            let may_sign = may_sign_lists(&parsed);
            let has_signed = |signed| has_signed(parsed.key(), signed);
            is_signed |= may_sign && signed.as_ref().is_some_and(has_signed);
            is_weak |= may_sign && (list.verify_signature(key).is_ok() || is_short(key));
        }
    }
    if !is_known {
        return Err(refused(format!(
            "the list is of {issuer}, which is none of the expected authorities"
        )));
    }
    if !is_signed && is_weak {
        // The certificate checks would refuse such a list each time that they use it.
        return Err(refused(format!(
            "the signature of {issuer} on the list is weak: dray accepts RSA of 2048 bits or more \
                and ECDSA, with SHA-256 or better"
        )));
    }
    if !is_signed {
        return Err(refused(format!(
            "the signature of {issuer} on the list is wrong"
        )));
    }
    match facts.validity.problem(now) {
        Some(problem) => Err(refused(format!("the list of {issuer} {problem}"))),
        None => Ok(facts),
    }
}

/// Returns true for an RSA key of less than 2048 bits.
fn is_short(key: &SubjectPublicKeyInfo<'_>) -> bool {
    matches!(key.parsed(), Ok(PublicKey::RSA(key)) if key.key_size() < 2048)
}

/// Returns false if the key usage of an authority excludes the signing of lists (RFC 5280, section
/// 4.2.1.3). The certificate checks refuse a list of such an authority, so the list must not replace
/// a usable one.
fn may_sign_lists(authority: &Parsed<'_>) -> bool {
    match authority.certificate.key_usage() {
        Ok(Some(usage)) => usage.value.crl_sign(),
        Ok(None) => true,
        Err(_) => false,
    }
}

fn read(der: &[u8]) -> Result<(ListFacts, CertificateRevocationList<'_>)> {
    // The parser of the certificate checks must accept the list too.
    Trust::default().add_revocation_list(der)?;
    let malformed = || refused("the list is malformed".to_owned());
    let Ok(([], list)) = CertificateRevocationList::from_der(der) else {
        return Err(malformed());
    };
    let issuer = Subject::read(list.issuer().as_raw()).ok_or_else(malformed)?;
    let next = list
        .next_update()
        .ok_or_else(|| refused("the list has no date of the next list".to_owned()))?;
    let time = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
    let validity = Validity {
        not_before: time(list.last_update().timestamp()),
        not_after: time(next.timestamp()),
    };
    Ok((ListFacts { issuer, validity }, list))
}

fn refused(cause: String) -> Error {
    misconfigured("check the revocation list", cause, REMEDY)
}

#[cfg(test)]
mod tests {
    use super::{check_list, list_facts};
    use crate::x509::testing::{Draft, Key, basic_constraints, ecdsa, name, revocation_list};

    const CA: &[(&str, &str)] = &[("DC", "org"), ("CN", "CA")];
    const OTHER: &[(&str, &str)] = &[("DC", "org"), ("CN", "Other")];
    /// Time of the lists in these tests: 2027-01-01.
    const LISTED: u64 = 1_798_761_600;
    const DAY: u64 = 86_400;

    fn authority(subject: &[(&str, &str)], key: &Key) -> Vec<u8> {
        let draft = Draft {
            serial: 1,
            issuer: name(subject),
            subject: name(subject),
            not_before: "200101000000Z",
            not_after: "400101000000Z",
            extensions: vec![basic_constraints(true)],
            algorithm: ecdsa(),
        };
        draft.signed(key, key)
    }

    #[test]
    fn a_list_needs_the_signature_of_its_authority() {
        let (own, other) = (Key::new(), Key::new());
        let authorities = [authority(CA, &own), authority(OTHER, &other)];
        let check = |list: &[u8]| check_list(list, authorities.iter().map(Vec::as_slice), LISTED);
        let good = revocation_list(&name(CA), &own, "270131000000Z", &[7]);
        let facts = check(&good).expect("good");
        assert_eq!(facts, list_facts(&good).expect("good"));
        assert_eq!(facts.issuer.slash(), "/DC=org/CN=CA");
        assert_eq!(facts.validity.not_before, LISTED);
        assert_eq!(facts.validity.not_after, LISTED + 30 * DAY);
        let refused = |list: &[u8]| check(list).expect_err("a wrong list").cause;
        let forged = revocation_list(&name(CA), &other, "270131000000Z", &[]);
        assert!(refused(&forged).contains("the signature of /DC=org/CN=CA"));
        let strange = revocation_list(&name(&[("CN", "x")]), &own, "270131000000Z", &[]);
        assert!(refused(&strange).contains("none of the expected authorities"));
        let mut changed = good.clone();
        let at = changed.len() / 2;
        changed[at] ^= 1;
        assert!(check(&changed).is_err());
        for wrong in [
            &good[..good.len() - 1],
            &[good.as_slice(), &[0]].concat(),
            b"",
        ] {
            assert!(check(wrong).is_err() && list_facts(wrong).is_err());
        }
    }

    /// Lists and their authorities, made by OpenSSL: a good list, a list whose signature uses SHA-1,
    /// and a list of an authority with a key of 1024 bits.
    #[test]
    fn a_list_with_a_weak_signature_is_refused() {
        let check = |list: &[u8], authority: &[u8]| check_list(list, [authority], LISTED);
        let strong = include_bytes!("lists/rsa2048.crt.der");
        let weak = include_bytes!("lists/rsa1024.crt.der");
        let good = check(include_bytes!("lists/sha256.crl.der"), strong).expect("good");
        assert_eq!(good.issuer.slash(), "/CN=Strong CA");
        for (list, authority) in [
            (&include_bytes!("lists/sha1.crl.der")[..], &strong[..]),
            (include_bytes!("lists/short.crl.der"), weak),
        ] {
            let error = check(list, authority).expect_err("weak");
            assert!(error.cause.contains("is weak"), "{error}");
            assert!(error.cause.contains("RSA of 2048 bits"), "{error}");
        }
    }

    #[test]
    fn a_list_is_refused_before_and_after_its_time() {
        let own = Key::new();
        let ca = authority(CA, &own);
        let list = revocation_list(&name(CA), &own, "270102000000Z", &[]);
        let check = |now| check_list(&list, [ca.as_slice()], now);
        assert!(check(LISTED).is_ok() && check(LISTED + DAY).is_ok());
        let late = check(LISTED + 4 * DAY).expect_err("expired");
        assert!(late.cause.contains("expired 3 days ago"), "{late}");
        let early = check(LISTED - 60).expect_err("early");
        assert!(
            early.cause.contains("becomes valid in 60 seconds"),
            "{early}"
        );
    }
}
