//! Bearer tokens: JSON Web Tokens (RFC 7519, RFC 8725) of the WLCG Common JWT Profile 1.0.
//!
//! The checks run in this order: form, issuer, claims, signature. A token is refused if any check
//! fails, so the order only selects the reported reason. The signature is checked last for two
//! reasons. An expired token is reported as expired, even if its issuer has replaced the key since.
//! Only a token that is otherwise valid makes the endpoint fetch new keys.

mod id_token;

pub use id_token::{ExpectedLogin, LoggedIn, groups_in, name_in};

use crate::escape::{misconfigured, seconds, shown, unauthorized};
use crate::jwk::{Algorithm, KeySet};
use crate::scope::Scopes;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_core::{Error, RelPath, Result};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Maximum size of a token in bytes. No standard has a limit. Common web servers have this limit
/// for a header field.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Maximum length in bytes of a subject, and of a token's id (OpenID Connect Core, section 2).
pub const SUBJECT_BYTES_MAX: usize = 255;

/// Maximum number of audiences of a token, and of groups of a token. No standard has a limit.
pub const LIST_MAX: usize = 256;

/// Permitted difference between the clocks of issuer and endpoint, in seconds. RFC 7519 permits at
/// most "a few minutes". A token of the WLCG profile is valid only for minutes, so the value is one
/// minute.
pub const LEEWAY_SECONDS: u64 = 60;

/// The audience of a token that all services accept (WLCG profile, section 2.1.1).
pub const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";

const OPERATION: &str = "accept the token";
const RENEW: &str = "ask the issuer for a new token";

/// A trusted issuer, as configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issuer {
    /// The `iss` claim of the issuer's tokens, compared exactly. Begins with `https://`.
    pub url: String,
    /// Accepted audiences, usually `https://` and the host's name. A token must name one of these
    /// audiences or [`ANY_AUDIENCE`].
    pub audiences: Vec<String>,
    /// Path of the area in which the issuer may grant rights. This path is prefixed to the path of
    /// each scope. With `/`, the issuer may grant rights to all paths.
    #[serde(default = "everything")]
    pub base: String,
    /// True if a token must declare the WLCG profile (`wlcg.ver` of 1.x). The profile requires this
    /// claim, but issuers of other profiles do not write it.
    #[serde(default = "yes")]
    pub wlcg: bool,
}

fn everything() -> String {
    "/".to_owned()
}

const fn yes() -> bool {
    true
}

#[derive(Debug, Clone)]
struct Known {
    issuer: Issuer,
    base: RelPath,
    keys: Option<KeySet>,
}

/// The trusted issuers, with the keys that were fetched.
#[derive(Debug, Clone, Default)]
pub struct Issuers {
    known: BTreeMap<String, Known>,
}

/// The content of a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// URL of the issuer.
    pub issuer: String,
    /// Subject of the token, unique at the issuer.
    pub subject: String,
    /// Rights of the subject.
    pub scopes: Scopes,
    /// Time of expiry, in seconds since 1970. Checks of this time add [`LEEWAY_SECONDS`].
    pub expires: u64,
    /// Id of the token, for the audit log.
    pub id: Option<String>,
    /// Groups of the subject, in the order of the token. A member of a child group is not
    /// automatically a member of its parent.
    pub groups: Vec<String>,
}

/// The reason why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The token is signed with a key that is not known yet. The caller should fetch the issuer's
    /// keys and verify again. The caller should limit the frequency of such fetches.
    UnknownKey {
        /// URL of the issuer whose keys to fetch.
        issuer: String,
        /// Error to report if the caller has fetched the keys recently.
        error: Error,
    },
    /// The token is not valid.
    Refused(Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownKey { error, .. } | Refusal::Refused(error) => error,
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

fn refused(cause: impl Into<String>) -> Error {
    unauthorized(OPERATION, cause, RENEW)
}

impl Issuers {
    /// Creates a set of configured issuers, without keys.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) for two issuers with the same URL,
    /// a URL that is not `https://`, no audience, or a base that is not an absolute path.
    pub fn new(issuers: impl IntoIterator<Item = Issuer>) -> Result<Self> {
        let mut known = BTreeMap::new();
        for issuer in issuers {
            let refuse = |cause: &str| {
                let cause = format!("{}: {cause}", shown(&issuer.url));
                misconfigured(
                    "use an issuer from the endpoint's configuration",
                    cause,
                    "correct the settings of the issuer in the endpoint's configuration",
                )
            };
            let place = issuer.url.strip_prefix("https://").unwrap_or("");
            // An `@` in the URL would make the default owner `sub@issuer` ambiguous.
            if place.is_empty() || place.contains(['@', '?', '#']) {
                return Err(refuse(
                    "the issuer is not an https:// URL without query and fragment",
                ));
            }
            if issuer.audiences.is_empty() {
                return Err(refuse(
                    "the issuer has no audience in the endpoint's configuration",
                ));
            }
            let base = crate::Resource::parse(&issuer.base)
                .map_err(|error| {
                    refuse(&format!(
                        "the issuer's path prefix is not valid: {}",
                        error.cause
                    ))
                })?
                .path;
            let url = issuer.url.clone();
            let entry = Known {
                issuer: issuer.clone(),
                base,
                keys: None,
            };
            if known.insert(url, entry).is_some() {
                return Err(refuse(
                    "the endpoint's configuration contains the issuer twice",
                ));
            }
        }
        Ok(Self { known })
    }

    /// Returns the URLs of the issuers.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.known.keys().map(String::as_str)
    }

    /// Replaces the keys of an issuer. Returns `false` if the issuer is not configured.
    pub fn set_keys(&mut self, issuer: &str, keys: KeySet) -> bool {
        match self.known.get_mut(issuer) {
            Some(known) => {
                known.keys = Some(keys);
                true
            }
            None => false,
        }
    }

    /// Returns the known keys of an issuer.
    #[must_use]
    pub fn keys(&self, issuer: &str) -> Option<&KeySet> {
        self.known.get(issuer)?.keys.as_ref()
    }

    /// Verifies `token`, which is the text after `Bearer` in the request. `now` is in seconds since
    /// 1970.
    ///
    /// # Errors
    /// [`Refusal::UnknownKey`] if the caller should fetch the issuer's keys again.
    /// [`Refusal::Refused`] for every other fault: an
    /// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) that states it. The errors quote only
    /// the token's issuer, audience, algorithm, key id and scopes.
    pub fn verify(&self, token: &[u8], now: u64) -> Result<Verified, Refusal> {
        let parts = Parts::split(token)?;
        let header: Header = decoded(parts.header, "header")?;
        let algorithm = header.algorithm()?;
        let claims: Claims = decoded(parts.claims, "body")?;
        let known = self.issuer(&claims)?;
        let expires = claims.check(&known.issuer, now)?;
        let subject = claims.subject()?;
        let id = claims.id()?;
        let groups = claims.groups()?;
        let scopes = Scopes::parse(claims.scope.as_deref().unwrap_or(""), &known.base)?;
        let signature = URL_SAFE_NO_PAD
            .decode(parts.signature)
            .map_err(|_| refused("the token's signature is not base64url"))?;
        known.check_signature(&header, algorithm, parts.signed, &signature)?;
        Ok(Verified {
            issuer: known.issuer.url.clone(),
            subject,
            scopes,
            expires,
            id,
            groups,
        })
    }

    fn issuer(&self, claims: &Claims) -> Result<&Known> {
        let Some(issuer) = claims.iss.as_deref() else {
            return Err(refused("the token names no issuer"));
        };
        self.known.get(issuer).ok_or_else(|| {
            unauthorized(
                OPERATION,
                format!(
                    "this endpoint does not trust the token's issuer {}",
                    shown(issuer)
                ),
                "use a token of an issuer that this endpoint trusts",
            )
        })
    }
}

impl Known {
    fn check_signature(
        &self,
        header: &Header,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Refusal> {
        let unknown = |cause: String| Refusal::UnknownKey {
            issuer: self.issuer.url.clone(),
            error: refused(cause),
        };
        let issuer = &self.issuer.url;
        let Some(keys) = &self.keys else {
            return Err(unknown(format!(
                "the keys of {issuer} have not been loaded yet"
            )));
        };
        let is_named = |key: &&crate::jwk::Key| {
            (header.kid.as_deref()).is_none_or(|kid| key.id() == Some(kid))
        };
        let named: Vec<_> = keys.keys().iter().filter(is_named).collect();
        if let (true, Some(kid)) = (named.is_empty(), &header.kid) {
            return Err(unknown(format!(
                "the issuer {issuer} has no key {}",
                shown(kid)
            )));
        }
        if !named.iter().any(|key| key.fits(algorithm)) {
            let cause = format!(
                "the key of {issuer} that the token names is not for the signature algorithm {}",
                algorithm.name()
            );
            // A token without a key id may be signed with a key that the issuer added after the
            // last fetch. So the caller should fetch the keys again.
            return Err(match header.kid {
                Some(_) => refused(cause).into(),
                None => unknown(cause),
            });
        }
        if (named.iter()).any(|key| key.has_signed(algorithm, message, signature)) {
            return Ok(());
        }
        match header.kid {
            Some(_) => Err(refused(format!("the token's signature by {issuer} is wrong")).into()),
            None => Err(unknown(format!(
                "the token's signature does not match any key of {issuer}"
            ))),
        }
    }
}

/// Returns the claims of a token without verifying its signature. The caller must not trust these
/// claims.
///
/// # Errors
/// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) if the text does not have the form of a
/// signed token.
pub fn claims_unchecked(token: &[u8]) -> Result<serde_json::Value> {
    let parts = Parts::split(token)?;
    decoded(parts.claims, "body")
}

struct Parts<'a> {
    header: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
    /// The bytes that the signature covers.
    signed: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(token: &'a [u8]) -> Result<Self> {
        if token.is_empty() {
            return Err(unauthorized(
                OPERATION,
                "the token is empty",
                "send a token",
            ));
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(refused(format!(
                "the token has more than {TOKEN_BYTES_MAX} bytes"
            )));
        }
        let parts: Vec<_> = token.splitn(6, |byte| *byte == b'.').collect();
        match parts.as_slice() {
            [header, claims, signature] => Ok(Self {
                header,
                claims,
                signature,
                signed: &token[..header.len() + 1 + claims.len()],
            }),
            [_, _, _, _, _] => Err(refused(
                "the token is encrypted; only signed tokens are \
                accepted",
            )),
            _ => Err(refused(
                "the token is not a JSON Web Token: it does not have three parts with dots \
                    between them",
            )),
        }
    }
}

/// Decodes a part of a token. The messages of serde are discarded, because they may quote the
/// token.
fn decoded<T: DeserializeOwned>(part: &[u8], name: &str) -> Result<T> {
    let json = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| refused(format!("the token's {name} is not base64url")))?;
    // Refuse JSON arrays, because serde would also fill a struct from an array.
    let is_object = json.trim_ascii_start().starts_with(b"{");
    let value = serde_json::from_slice(&json).map_err(|error| error.is_data());
    match value {
        Ok(value) if is_object => Ok(value),
        Err(true) if is_object => Err(refused(format!(
            "a field of the token's {name} has the wrong type, or occurs twice"
        ))),
        _ => Err(refused(format!("the token's {name} is not a JSON object"))),
    }
}

#[derive(Deserialize)]
struct Header {
    alg: Option<String>,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

impl Header {
    /// Returns the type of the token in small letters, without the optional `application/`.
    fn kind(&self) -> String {
        let typ = self.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
        typ.strip_prefix("application/").unwrap_or(&typ).to_owned()
    }

    fn algorithm(&self) -> Result<Algorithm> {
        if self.crit.is_some() {
            // RFC 7515, section 4.1.11: a token with critical extensions must be refused if the
            // reader does not know them. This module knows no extension.
            return Err(refused(
                "the token has critical extensions that this endpoint does not support",
            ));
        }
        let typ = self.kind();
        if !matches!(&*typ, "jwt" | "at+jwt") {
            // RFC 8725, section 3.11: a token that was issued for one purpose must not be valid for
            // another.
            return Err(refused(format!(
                "the token is of type {}, not an access token",
                shown(&typ)
            )));
        }
        let name = self.alg.as_deref().unwrap_or("none");
        Algorithm::named(name).ok_or_else(|| {
            refused(format!(
                "the signature algorithm {} of the token is not accepted; use RS256 or ES256",
                shown(name)
            ))
        })
    }
}

/// The claims that the checks use. serde refuses a claim that occurs twice.
#[derive(Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iat: Option<NumericDate>,
    jti: Option<String>,
    scope: Option<String>,
    cnf: Option<IgnoredAny>,
    #[serde(rename = "wlcg.ver")]
    version: Option<String>,
    #[serde(rename = "wlcg.groups")]
    groups: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// Seconds since 1970. RFC 7519, section 2 allows fractions of a second, which are truncated here.
#[derive(Clone, Copy)]
struct NumericDate(u64);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let whole = number.as_u64().or_else(|| {
            let seconds = number.as_f64()?;
            // A float from 2^53 on cannot represent every second.
            let is_sane = (0.0..9_007_199_254_740_992.0).contains(&seconds);
            is_sane.then_some(seconds as u64)
        });
        whole
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("not a time"))
    }
}

impl Claims {
    /// Checks the times, the audience and the profile of a token. Returns its time of expiry.
    fn check(&self, issuer: &Issuer, now: u64) -> Result<u64> {
        let Some(NumericDate(expires)) = self.exp else {
            return Err(refused("the token has no expiry time"));
        };
        if now >= expires.saturating_add(LEEWAY_SECONDS) {
            return Err(refused(format!(
                "the token expired {} ago",
                seconds(now - expires)
            )));
        }
        let latest = now.saturating_add(LEEWAY_SECONDS);
        for (claim, words) in [
            (self.nbf, "the start of its validity (nbf)"),
            (self.iat, "its time of issue (iat)"),
        ] {
            if let Some(NumericDate(start)) = claim.filter(|NumericDate(at)| *at > latest) {
                let wait = seconds(start - now);
                return Err(unauthorized(
                    OPERATION,
                    format!(
                        "the token is not yet valid: {words} is {wait} ahead of the clock of this \
                            endpoint"
                    ),
                    "wait, or correct the clocks of the issuer and of this endpoint",
                ));
            }
        }
        self.check_audience(issuer)?;
        if self.cnf.is_some() {
            return Err(refused(
                "the token is bound to a key, so it is not a bearer token",
            ));
        }
        let is_profile = (self.version.as_deref()).is_some_and(|version| {
            version
                .strip_prefix("1.")
                .is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|c| c.is_ascii_digit()))
        });
        if issuer.wlcg && !is_profile {
            let cause = match &self.version {
                Some(version) => format!("its wlcg.ver is {}, not 1.x", shown(version)),
                None => {
                    "the token has no wlcg.ver, so it does not follow the WLCG profile".to_owned()
                }
            };
            return Err(refused(cause));
        }
        Ok(expires)
    }

    fn check_audience(&self, issuer: &Issuer) -> Result<()> {
        let audiences = self.aud.as_ref().map_or(&[][..], Audience::as_slice);
        let is_ours =
            |audience: &String| audience == ANY_AUDIENCE || issuer.audiences.contains(audience);
        if audiences.len() <= LIST_MAX && audiences.iter().any(is_ours) {
            return Ok(());
        }
        let ours = issuer.audiences.join(" or ");
        let cause = if audiences.is_empty() {
            format!("the token names no audience; the audience of this endpoint is {ours}")
        } else {
            let theirs = shown(&audiences.join(", "));
            format!(
                "the audience of the token is {theirs}, but the audience of this endpoint is \
                {ours}"
            )
        };
        let remedy = format!("ask the issuer for a token with the audience {ours}");
        Err(unauthorized(OPERATION, cause, &remedy))
    }

    fn subject(&self) -> Result<String> {
        match self.sub.as_deref() {
            None | Some("") => Err(refused("the token names no subject")),
            Some(subject) if subject.len() > SUBJECT_BYTES_MAX => Err(refused(format!(
                "the subject of the token has more than {SUBJECT_BYTES_MAX} bytes"
            ))),
            Some(subject) if subject.chars().any(char::is_control) => {
                Err(refused("the subject of the token has control characters"))
            }
            Some(subject) => Ok(subject.to_owned()),
        }
    }

    fn id(&self) -> Result<Option<String>> {
        match self.jti.as_deref() {
            Some(id) if id.len() > SUBJECT_BYTES_MAX => Err(refused(format!(
                "the token's id (jti) has more than {SUBJECT_BYTES_MAX} bytes"
            ))),
            id => Ok(id.map(ToOwned::to_owned)),
        }
    }

    fn groups(&self) -> Result<Vec<String>> {
        let groups = self.groups.as_deref().unwrap_or(&[]);
        if groups.len() > LIST_MAX {
            return Err(refused(format!(
                "the token has more than {LIST_MAX} groups"
            )));
        }
        if !groups.iter().all(|group| is_group(group)) {
            return Err(refused(
                "the token's wlcg.groups are not of the form /group/subgroup",
            ));
        }
        Ok(groups.to_vec())
    }
}

/// Returns true if the text is a valid group name: one or more names, each after a `/` (WLCG
/// profile, section 2.1.1).
fn is_group(text: &str) -> bool {
    let Some(names) = text.strip_prefix('/') else {
        return false;
    };
    names.split('/').all(|name| {
        name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && (name.bytes()).all(|c| c.is_ascii_alphanumeric() || b"_.-".contains(&c))
    })
}

#[cfg(test)]
mod tests;
