//! Proxy certificates (RFC 3820): the holder of a key signs a certificate for a new key. The
//! certificate is valid for some hours.
//!
//! This module refuses proxies from before the RFC, which have no extension or the extension of
//! Globus's draft. It also refuses proxies with a policy other than "all rights" or "limited",
//! because ignoring an unknown policy would grant too many rights.

use super::signature::has_signed;
use super::{Parsed, der, refused};
use dray_core::Result;
use x509_parser::extensions::{ParsedExtension, X509Extension};

/// OID 1.3.6.1.5.5.7.1.14, id-pe-proxyCertInfo: the extension of RFC 3820.
const PROXY_CERT_INFO: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
/// OID 1.3.6.1.4.1.3536.1.222: the extension of Globus's draft.
const DRAFT_INFO: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 0x81, 0x5e];
/// OID 1.3.6.1.5.5.7.21.1, id-ppl-inheritAll: the policy "all rights".
const INHERIT_ALL: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 1];
/// OID 1.3.6.1.5.5.7.21.2, id-ppl-independent: the policy "no inherited rights".
const INDEPENDENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 21, 2];
/// OID 1.3.6.1.4.1.3536.1.1.1.9: the policy of Globus's limited proxies.
const LIMITED: &[u8] = &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9];
/// OID 2.5.4.3, commonName.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];

const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 17];
const ISSUER_ALT_NAME: &[u8] = &[0x55, 0x1d, 18];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 37];

const NEW_PROXY: &str = "make a new proxy (RFC 3820) from your certificate";
const ORDER: &str = "send the certificate chain in order: the proxy first, each certificate \
    followed by its issuer";

fn extension<'a>(one: &'a Parsed<'_>, oid: &[u8]) -> Option<&'a X509Extension<'a>> {
    let mut extensions = one.certificate.extensions().iter();
    extensions.find(|extension| extension.oid.as_bytes() == oid)
}

fn is_proxy(one: &Parsed<'_>) -> bool {
    extension(one, PROXY_CERT_INFO).is_some()
}

/// Returns the number of proxies at the start of the chain.
///
/// # Errors
/// If a proxy comes after the certificate that issued the proxy. Also if the certificate after the
/// proxies is missing, belongs to an authority, or is a proxy from before RFC 3820.
pub(super) fn count(chain: &[Parsed<'_>]) -> Result<usize> {
    let count = chain.iter().take_while(|one| is_proxy(one)).count();
    let Some(own) = chain.get(count) else {
        let cause = "the certificate that issued the proxy is missing";
        return Err(refused(
            cause,
            "send the whole certificate chain with the proxy",
        ));
    };
    if chain[count..].iter().any(is_proxy) {
        let cause = "the certificate chain is in the wrong order: a proxy comes after its issuer";
        return Err(refused(cause, ORDER));
    }
    if own.certificate.is_ca() {
        let prefix = if chain.len() > 1 {
            "the certificate chain is in the wrong order: "
        } else {
            ""
        };
        let whose = own.words();
        let cause = format!("{prefix}{whose} is an authority's certificate, not a client's");
        return Err(refused(cause, ORDER));
    }
    let is_by_name = added_name(own, own.issuer_der())
        .is_some_and(|name| matches!(name, b"proxy" | b"limited proxy"));
    if is_by_name || extension(own, DRAFT_INFO).is_some() {
        let cause = format!(
            "{} is a proxy in the old form from before RFC 3820",
            own.words()
        );
        return Err(refused(cause, NEW_PROXY));
    }
    Ok(count)
}

/// Checks the proxies of a chain. The caller has already checked that the last certificate of the
/// chain is valid and signed by an authority. Returns true if a proxy is limited.
pub(super) fn check(chain: &[Parsed<'_>], now: u64) -> Result<bool> {
    let mut is_limited = false;
    for (below, pair) in chain.windows(2).enumerate() {
        let [proxy, issuer] = pair else {
            continue;
        };
        let refuse = |why: &str| refused(format!("{}: {why}", proxy.words()), NEW_PROXY);
        if proxy.issuer_der() != issuer.subject_der() {
            // If another certificate of the chain has the issuer's name, the chain is in the wrong
            // order.
            let mut subjects = chain.iter().map(Parsed::subject_der);
            return Err(if subjects.any(|subject| subject == proxy.issuer_der()) {
                let cause = format!(
                    "the certificate chain is in the wrong order: {} is not followed by its issuer",
                    proxy.words()
                );
                refused(cause, ORDER)
            } else {
                refuse("the issuer of the proxy is not the certificate that signed it")
            });
        }
        if added_name(proxy, issuer.subject_der()).is_none() {
            return Err(refuse(
                "the subject of the proxy is not the subject of its issuer followed by one \
                    common name",
            ));
        }
        proxy.check_validity(now)?;
        check_extensions(proxy).map_err(|why| refuse(&why))?;
        let info = extension(proxy, PROXY_CERT_INFO).and_then(|one| Info::read(one.value));
        let info = info.ok_or_else(|| refuse("the proxyCertInfo of the proxy is malformed"))?;
        if info.path_length.is_some_and(|length| below > length) {
            return Err(refuse(
                "the chain has more proxies than the path length limit of one of its proxies \
                    allows",
            ));
        }
        is_limited |= info.is_limited().map_err(&refuse)?;
        if !is_signed(proxy, issuer) {
            return Err(refuse(
                "the signature of the proxy does not match the key of its issuer",
            ));
        }
    }
    Ok(is_limited)
}

/// Returns the common name that the subject of `one` adds to `issuer`, a subject in DER. `None` if
/// the two subjects differ in any other way (RFC 3820, section 3.4).
fn added_name<'a>(one: &'a Parsed<'_>, issuer: &[u8]) -> Option<&'a [u8]> {
    let issuer = der::only(issuer, der::SEQUENCE)?.content;
    let subject = der::only(one.subject_der(), der::SEQUENCE)?.content;
    let set = der::only(subject.strip_prefix(issuer)?, der::SET)?;
    let pair = der::only(set.content, der::SEQUENCE)?;
    let (kind, rest) = der::expect(pair.content, der::OBJECT_ID)?;
    let (value, rest) = der::read(rest)?;
    (kind.content == COMMON_NAME && rest.is_empty()).then_some(value.content)
}

fn is_signed(proxy: &Parsed<'_>, issuer: &Parsed<'_>) -> bool {
    der::signed(proxy.der).is_some_and(|signed| has_signed(issuer.key(), &signed))
}

/// Checks the extensions that RFC 3820 requires or forbids in a proxy (sections 3.5 to 3.8).
fn check_extensions(proxy: &Parsed<'_>) -> Result<(), String> {
    let mut seen = Vec::new();
    for one in proxy.certificate.extensions() {
        let oid = one.oid.as_bytes();
        if seen.contains(&oid) {
            return Err("the proxy certificate has the same extension twice".into());
        }
        seen.push(oid);
        match (oid, one.parsed_extension()) {
            (PROXY_CERT_INFO, _) if one.critical => {}
            (PROXY_CERT_INFO, _) => {
                return Err("the proxyCertInfo of the proxy is not marked \
                critical"
                    .into());
            }
            (BASIC_CONSTRAINTS, ParsedExtension::BasicConstraints(constraints)) => {
                never(
                    constraints.ca,
                    "the proxy is marked as a certificate authority, which a proxy must not be",
                )?;
            }
            (KEY_USAGE, ParsedExtension::KeyUsage(usage)) => {
                let is_mute = !usage.digital_signature();
                never(
                    is_mute,
                    "the key usage of the proxy does not allow digital signatures",
                )?;
                let is_more = usage.key_cert_sign() || usage.non_repudiation();
                never(
                    is_more,
                    "the key usage of the proxy allows signing of certificates or \
                        non-repudiation, which a proxy must not do",
                )?;
            }
            (EXTENDED_KEY_USAGE, ParsedExtension::ExtendedKeyUsage(usage)) => {
                let is_other = !usage.any && !usage.client_auth;
                never(
                    is_other,
                    "the extended key usage of the proxy does not allow authentication as a client",
                )?;
            }
            (SUBJECT_ALT_NAME | ISSUER_ALT_NAME, _) => {
                return Err(
                    "the proxy has a subject alternative name, which a proxy must not have".into(),
                );
            }
            (BASIC_CONSTRAINTS | KEY_USAGE | EXTENDED_KEY_USAGE, _) => {
                return Err("an extension of the proxy is malformed".into());
            }
            _ if one.critical => {
                return Err("the proxy has a critical extension that dray does not support".into());
            }
            _ => {}
        }
    }
    Ok(())
}

fn never(is_so: bool, why: &str) -> Result<(), String> {
    if is_so { Err(why.to_owned()) } else { Ok(()) }
}

/// The content of the proxyCertInfo extension (RFC 3820, section 3.8).
struct Info<'a> {
    path_length: Option<usize>,
    language: &'a [u8],
    has_policy: bool,
}

impl<'a> Info<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        const OCTET_STRING: u8 = 0x04;
        let mut rest = der::only(value, der::SEQUENCE)?.content;
        let mut path_length = None;
        if let Some((number, after)) = der::expect(rest, der::INTEGER) {
            path_length = Some(count_of(number.content)?);
            rest = after;
        }
        let policy = der::only(rest, der::SEQUENCE)?.content;
        let (language, rest) = der::expect(policy, der::OBJECT_ID)?;
        let has_policy = !rest.is_empty();
        if has_policy {
            der::only(rest, OCTET_STRING)?;
        }
        Some(Self {
            path_length,
            language: language.content,
            has_policy,
        })
    }

    fn is_limited(&self) -> Result<bool, &'static str> {
        match self.language {
            INHERIT_ALL if self.has_policy => {
                Err("the proxy inherits all rights of its issuer, so it must not have a policy")
            }
            INHERIT_ALL => Ok(false),
            LIMITED => Ok(true),
            INDEPENDENT => {
                Err("the proxy is independent, so it inherits no rights from its issuer")
            }
            _ => Err("the policy of the proxy is not supported"),
        }
    }
}

/// Decodes a non-negative number. A number that is too large becomes the maximum, because no chain
/// is that long.
fn count_of(integer: &[u8]) -> Option<usize> {
    let (&first, _) = integer.split_first()?;
    if first >= 0x80 {
        return None;
    }
    let number = integer.iter().try_fold(0usize, |sum, octet| {
        sum.checked_mul(256)?.checked_add(usize::from(*octet))
    });
    Some(number.unwrap_or(usize::MAX))
}
