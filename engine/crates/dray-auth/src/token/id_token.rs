//! ID tokens: the proof of a user's login at a provider (OpenID Connect Core 1.0, section 2).
//!
//! An ID token is for the client that asked for it, and grants no rights. So it is checked apart
//! from access tokens: its scopes do not count, and it must contain the nonce of the login.

use super::{
    Claims, Header, Issuers, LIST_MAX, Parts, Refusal, SUBJECT_BYTES_MAX, decoded, refused, shown,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_core::Result;
use serde_json::{Map, Value};

/// The content that the ID token of one login must have, and the claims to read from it.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedLogin<'a> {
    /// Id of this client at the provider. The token must be for this client and no other.
    pub client: &'a str,
    /// The nonce that the request of the login contained.
    pub nonce: &'a str,
    /// Name of the claim that contains the groups of the user.
    pub groups_claim: &'a str,
    /// Name of the claim that contains the name of the user.
    pub name_claim: &'a str,
}

/// A user whose login a provider has confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// URL of the provider.
    pub issuer: String,
    /// Subject of the user, unique at the provider.
    pub subject: String,
    /// Name of the user for people, if the token contains a name.
    pub name: Option<String>,
    /// Groups of the user. `None` if the token does not contain the claim.
    pub groups: Option<Vec<String>>,
}

impl Issuers {
    /// Verifies an ID token. `now` is in seconds since 1970.
    ///
    /// The rules are those of OpenID Connect Core 1.0, section 3.1.3.7. The provider must sign the
    /// token even if it was sent over TLS.
    ///
    /// # Errors
    /// The errors of [`Issuers::verify`]. They do not quote the nonce.
    pub fn verify_id_token(
        &self,
        token: &[u8],
        expected: &ExpectedLogin<'_>,
        now: u64,
    ) -> Result<LoggedIn, Refusal> {
        let parts = Parts::split(token)?;
        let header: Header = decoded(parts.header, "header")?;
        let algorithm = header.algorithm()?;
        let claims: Claims = decoded(parts.claims, "body")?;
        let all: Map<String, Value> = decoded(parts.claims, "body")?;
        let known = self.issuer(&claims)?;
        if header.kind() == "at+jwt" {
            let cause = "the provider sent an access token in the place of an ID token";
            return Err(refused(cause).into());
        }
        claims.check(&known.issuer, now)?;
        check_client(&claims, &all, expected.client)?;
        if claims.iat.is_none() {
            return Err(refused("the ID token has no time of issue (iat)").into());
        }
        if all.get("nonce").and_then(Value::as_str) != Some(expected.nonce) {
            let cause = "the ID token belongs to another login: its nonce is missing or different";
            return Err(refused(cause).into());
        }
        let subject = claims.subject()?;
        let groups = groups_in(&all, expected.groups_claim)?;
        let name = name_in(&all, expected.name_claim);
        let signature = URL_SAFE_NO_PAD
            .decode(parts.signature)
            .map_err(|_| refused("the token's signature is not base64url"))?;
        known.check_signature(&header, algorithm, parts.signed, &signature)?;
        Ok(LoggedIn {
            issuer: known.issuer.url.clone(),
            subject,
            name,
            groups,
        })
    }
}

/// Checks that the token is for the client `client` and that this client asked for the token
/// (`azp`).
fn check_client(claims: &Claims, all: &Map<String, Value>, client: &str) -> Result<()> {
    let audiences = claims.aud.as_ref().map_or(&[][..], |aud| aud.as_slice());
    if !audiences.iter().any(|audience| audience == client) {
        return Err(refused(format!(
            "the ID token is not for the client {}",
            shown(client)
        )));
    }
    match all.get("azp") {
        None if audiences.len() == 1 => Ok(()),
        None => Err(refused(
            "the ID token is for several clients, and does not name the client that asked for it",
        )),
        Some(Value::String(azp)) if azp == client => Ok(()),
        Some(_) => Err(refused("another client asked for the ID token (azp)")),
    }
}

/// Returns the groups in the claim `claim` of an ID token, or of the answer about a user. `None` if
/// the claim is missing.
///
/// # Errors
/// [`Unauthorized`](dray_core::ErrorKind::Unauthorized) if the claim is neither text nor a list of
/// texts, or if it is too long.
pub fn groups_in(claims: &Map<String, Value>, claim: &str) -> Result<Option<Vec<String>>> {
    let wrong = |cause: &str| refused(format!("the claim {} {cause}", shown(claim)));
    let groups = match claims.get(claim) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) if many.len() <= LIST_MAX => {
            let texts = many.iter().map(|each| each.as_str().map(ToOwned::to_owned));
            let texts: Option<Vec<String>> = texts.collect();
            texts.ok_or_else(|| wrong("contains a value that is not text"))?
        }
        Some(Value::Array(_)) => {
            return Err(wrong(&format!("has more than {LIST_MAX} groups")));
        }
        Some(_) => return Err(wrong("is not a list of groups")),
    };
    let is_sane = |group: &String| {
        (1..=SUBJECT_BYTES_MAX).contains(&group.len()) && !group.chars().any(char::is_control)
    };
    match groups.iter().all(is_sane) {
        true => Ok(Some(groups)),
        false => Err(wrong(
            "contains an empty or too long group, or control characters",
        )),
    }
}

/// Returns the name of a user. A name that cannot be shown is ignored, because no decision depends
/// on it.
#[must_use]
pub fn name_in(claims: &Map<String, Value>, claim: &str) -> Option<String> {
    let name = claims.get(claim)?.as_str()?.trim();
    let is_sane = (1..=SUBJECT_BYTES_MAX).contains(&name.len());
    (is_sane && !name.chars().any(char::is_control)).then(|| name.to_owned())
}
