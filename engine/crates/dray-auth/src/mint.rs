//! Mints tokens for an endpoint that is its own issuer. The endpoint signs them with ES256.
//!
//! For new keys and signatures, the caller passes a source of randomness (ring's `SecureRandom`).

use crate::escape::misconfigured;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use dray_core::{End, Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde::Serialize;
use serde_json::json;
use std::fmt;

/// The content of a new token. All times are in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// URL of the issuer, where verifiers find the issuer's public key.
    pub issuer: String,
    /// Subject of the token.
    pub subject: String,
    /// Audiences of the token. At least one is required.
    pub audiences: Vec<String>,
    /// Scopes of the token, such as `storage.read:/a storage.create:/b`.
    pub scope: String,
    /// Groups of the subject.
    pub groups: Vec<String>,
    /// Time at which the token is minted. The token is valid from this time on.
    pub issued_at: u64,
    /// Time at which the token expires.
    pub expires: u64,
    /// Id of the token, which must be unique at the issuer. A random id is recommended.
    pub id: String,
}

#[derive(Serialize)]
struct Claims<'a> {
    #[serde(rename = "wlcg.ver")]
    version: &'a str,
    iss: &'a str,
    sub: &'a str,
    aud: &'a [String],
    scope: &'a str,
    #[serde(rename = "wlcg.groups", skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: &'a str,
}

/// A private P-256 key that signs tokens.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.id)
    }
}

fn unusable(cause: &str) -> Error {
    const REMEDY: &str = "make a signing key with `openssl genpkey -algorithm EC -pkeyopt \
        ec_paramgen_curve:P-256`";
    misconfigured("read the signing key", cause, REMEDY)
}

fn no_chance() -> Error {
    Error::new(
        ErrorKind::Internal,
        End::Here,
        "get random bytes from the system",
    )
}

impl SigningKey {
    /// Reads a key from PKCS#8 PEM (`BEGIN PRIVATE KEY`).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the text is not a key, or not a P-256 key.
    pub fn from_pem(pem: &[u8], random: &dyn SecureRandom) -> Result<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|_| unusable("the file holds no PKCS#8 private key in PEM form"))?;
        Self::from_pkcs8(der.secret_pkcs8_der(), random)
    }

    fn from_pkcs8(der: &[u8], random: &dyn SecureRandom) -> Result<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random)
            .map_err(|_| {
                unusable(
                    "the key in the file is not a P-256 private key together with its public key",
                )
            })?;
        let id = thumbprint(pair.public_key().as_ref());
        Ok(Self { pair, id })
    }

    /// Generates a new key. Returns the key, and its PKCS#8 text in PEM form. The caller must keep
    /// the text secret.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the random source fails.
    pub fn generate(random: &dyn SecureRandom) -> Result<(Self, String)> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, random)
            .map_err(|_| no_chance())?;
        let key = Self::from_pkcs8(document.as_ref(), random)?;
        let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
        for line in STANDARD.encode(document.as_ref()).as_bytes().chunks(64) {
            pem.extend(line.iter().copied().map(char::from));
            pem.push('\n');
        }
        pem.push_str("-----END PRIVATE KEY-----\n");
        Ok((key, pem))
    }

    /// Returns the key's id, which is its thumbprint (RFC 7638). Every program that follows the RFC
    /// computes the same id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the public key as a JWK set, for verifiers.
    #[must_use]
    pub fn public_jwks(&self) -> String {
        let (x, y) = coordinates(self.pair.public_key().as_ref());
        let key = json!({
            "kty": "EC", "crv": "P-256", "x": x, "y": y,
            "use": "sig", "alg": "ES256", "kid": self.id,
        });
        json!({ "keys": [key] }).to_string()
    }

    /// Signs a token.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] for a grant that [`verify`](crate::Issuers::verify) would
    /// refuse: without a subject or an audience, or with an expiry before its start.
    /// [`ErrorKind::Internal`] if the random source fails.
    pub fn mint(&self, grant: &Grant, random: &dyn SecureRandom) -> Result<String> {
        let refuse =
            |cause: &str| misconfigured("mint a token", cause, "correct the token's claims");
        if grant.subject.is_empty() || grant.subject.len() > crate::token::SUBJECT_BYTES_MAX {
            return Err(refuse("the subject of a token must have 1 to 255 bytes"));
        }
        if grant.audiences.is_empty() {
            return Err(refuse("the new token would have no audience"));
        }
        if grant.expires <= grant.issued_at {
            return Err(refuse("the new token would expire before it becomes valid"));
        }
        crate::Scopes::parse(&grant.scope, &dray_core::RelPath::root())
            .map_err(|error| refuse(&error.cause))?;
        let claims = Claims {
            version: "1.0",
            iss: &grant.issuer,
            sub: &grant.subject,
            aud: &grant.audiences,
            scope: &grant.scope,
            groups: &grant.groups,
            iat: grant.issued_at,
            nbf: grant.issued_at,
            exp: grant.expires,
            jti: &grant.id,
        };
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": self.id });
        let claims = serde_json::to_vec(&claims)
            .map_err(|_| Error::new(ErrorKind::Internal, End::Here, "write a token's claims"))?;
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self
            .pair
            .sign(random, token.as_bytes())
            .map_err(|_| no_chance())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        if token.len() > crate::token::TOKEN_BYTES_MAX {
            return Err(refuse(
                "the new token would be larger than the limit for tokens",
            ));
        }
        Ok(token)
    }
}

/// Returns the coordinates x and y of an uncompressed point.
fn coordinates(point: &[u8]) -> (String, String) {
    let both = point.get(1..).unwrap_or(&[]);
    let (x, y) = both.split_at(both.len() / 2);
    (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y))
}

/// Returns the thumbprint of a key: the hash of the required members in the order of their names,
/// without spaces (RFC 7638, section 3).
fn thumbprint(point: &[u8]) -> String {
    let (x, y) = coordinates(point);
    let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{Grant, SigningKey};
    use crate::jwk::KeySet;
    use crate::token::{Issuer, Issuers};
    use crate::{Action, Resource};
    use ring::rand::SystemRandom;

    fn grant() -> Grant {
        Grant {
            issuer: "https://dtn.example.org".into(),
            subject: "alice".into(),
            audiences: vec!["https://dtn.example.org:4735".into()],
            scope: "storage.read:/a".into(),
            groups: vec!["/vo/production".into()],
            issued_at: 1_000_000,
            expires: 1_003_600,
            id: "1f".into(),
        }
    }

    #[test]
    fn minted_tokens_are_accepted() {
        let random = SystemRandom::new();
        let (key, pem) = SigningKey::generate(&random).expect("a key");
        let same = SigningKey::from_pem(pem.as_bytes(), &random).expect("the key");
        assert_eq!(key.id(), same.id());
        assert_eq!(key.public_jwks(), same.public_jwks());
        let token = same.mint(&grant(), &random).expect("a token");

        let mut issuers = Issuers::new([Issuer {
            url: grant().issuer,
            audiences: grant().audiences,
            base: "/".into(),
            wlcg: true,
        }])
        .expect("good issuers");
        let keys = KeySet::parse(key.public_jwks().as_bytes(), 0).expect("keys");
        assert!(issuers.set_keys(&grant().issuer, keys));
        let verified = issuers.verify(token.as_bytes(), 1_000_001).expect("good");
        assert_eq!(verified.subject, "alice");
        assert_eq!(verified.expires, 1_003_600);
        assert_eq!(verified.id.as_deref(), Some("1f"));
        assert_eq!(verified.groups, ["/vo/production"]);
        let resource = Resource::parse("/a/b").expect("good");
        assert!(verified.scopes.allows(Action::Read, &resource));
    }

    #[test]
    fn invalid_grants_are_not_minted() {
        let random = SystemRandom::new();
        let (key, _) = SigningKey::generate(&random).expect("a key");
        let bad = [
            Grant {
                subject: String::new(),
                ..grant()
            },
            Grant {
                audiences: vec![],
                ..grant()
            },
            Grant {
                expires: 1_000_000,
                ..grant()
            },
            Grant {
                scope: "storage.read".into(),
                ..grant()
            },
            Grant {
                subject: "x".repeat(256),
                ..grant()
            },
            Grant {
                id: "x".repeat(20_000),
                ..grant()
            },
        ];
        for grant in bad {
            assert!(key.mint(&grant, &random).is_err(), "{grant:?}");
        }
    }

    #[test]
    fn other_key_kinds_are_refused_and_no_key_is_printed() {
        let random = SystemRandom::new();
        let sec1 = b"-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
        let not_der = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for bad in [&b""[..], b"x", sec1, not_der] {
            let error = SigningKey::from_pem(bad, &random).expect_err("no key");
            assert!(error.remedy.contains("openssl genpkey"), "{error}");
        }
        let (key, pem) = SigningKey::generate(&random).expect("a key");
        let secret = pem.lines().nth(1).expect("a line");
        assert!(!format!("{key:?}").contains(secret));
    }
}
