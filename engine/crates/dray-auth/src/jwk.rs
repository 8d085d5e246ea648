//! Public keys of an issuer: parses a JWK set (RFC 7517) and checks signatures with its keys (RFC
//! 7518, section 3).
//!
//! Only asymmetric algorithms are implemented. Tokens with the algorithm `none`, or with an HMAC
//! algorithm, are refused.

use crate::escape::misconfigured;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_core::Result;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use std::fmt;

/// Maximum size of a key set in bytes. A set of ten RSA keys with certificates has about 30 KiB, so
/// the limit leaves a wide margin.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of keys used from a set. A token without a key id is checked with every key, so
/// this limit bounds the work per token.
pub const KEYS_MAX: usize = 32;

/// Signature algorithm of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
}

impl Algorithm {
    const ALL: [Self; 5] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Es256,
        Self::Es384,
    ];

    /// Returns the algorithm's name in the header of a token.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
        }
    }

    /// Returns the algorithm with this name, or `None` if the algorithm is not accepted.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Es256 | Self::Es384 => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point: 0x04, x, y.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// One public key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    material: Material,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.material {
            Material::Rsa { modulus, .. } => format!("an RSA key of {} bits", modulus.len() * 8),
            Material::P256(_) => "P-256".to_owned(),
            Material::P384(_) => "P-384".to_owned(),
        };
        write!(f, "Key({:?}, {kind})", self.id)
    }
}

impl Key {
    /// Returns the key's id.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns true if signatures of this algorithm may be made with this key. The key decides and
    /// not the token, so that a token cannot select a weaker algorithm (RFC 8725, section 3.1).
    #[must_use]
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        let is_of_kind = match self.material {
            Material::Rsa { .. } => algorithm.rsa().is_some(),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
        };
        is_of_kind && self.algorithm.is_none_or(|own| own == algorithm)
    }

    /// Returns true if `signature` is this key's signature of `message`.
    #[must_use]
    pub fn has_signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        match &self.material {
            Material::Rsa { modulus, exponent } => algorithm.rsa().is_some_and(|parameters| {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, message, signature).is_ok()
            }),
            Material::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
                    .is_ok()
            }
            Material::P384(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature)
                    .is_ok()
            }
        }
    }
}

/// The keys of one issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<Key>,
    fetched_at: u64,
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct RawKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl KeySet {
    /// Parses a JWK set as an issuer serves it. Only RSA, P-256 and P-384 keys for signatures are
    /// used. All other keys, and keys with invalid fields, are ignored, as RFC 7517, section 5
    /// requires. `fetched_at` is the time at which the set was fetched, in seconds since 1970.
    ///
    /// # Errors
    /// [`InvalidRequest`](dray_core::ErrorKind::InvalidRequest) if `json` is not a JWK set, is too
    /// large, or has no usable key.
    pub fn parse(json: &[u8], fetched_at: u64) -> Result<Self> {
        let refuse = |cause: String| {
            const REMEDY: &str = "check the keys that the issuer's jwks_uri serves";
            misconfigured("read the issuer's keys", cause, REMEDY)
        };
        if json.len() > KEY_SET_BYTES_MAX {
            return Err(refuse(format!("over {KEY_SET_BYTES_MAX} bytes")));
        }
        let raw: RawSet = serde_json::from_slice(json).map_err(|_| {
            refuse("the answer of the issuer is not a JSON object with a list `keys`".to_owned())
        })?;
        let keys: Vec<Key> = raw
            .keys
            .into_iter()
            .filter_map(|value| serde_json::from_value::<RawKey>(value).ok())
            .filter_map(|raw| key(&raw))
            .take(KEYS_MAX)
            .collect();
        if keys.is_empty() {
            return Err(refuse(
                "the issuer has no RSA, P-256 or P-384 key for signatures".to_owned(),
            ));
        }
        Ok(Self { keys, fetched_at })
    }

    /// Returns the time at which the set was fetched, in seconds since 1970.
    #[must_use]
    pub const fn fetched_at(&self) -> u64 {
        self.fetched_at
    }

    /// Returns the keys in the order of the set.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }
}

fn key(raw: &RawKey) -> Option<Key> {
    let is_for_signatures = raw.usage.as_deref().is_none_or(|usage| usage == "sig")
        && (raw.key_ops.as_deref()).is_none_or(|all| all.iter().any(|one| one == "verify"));
    if !is_for_signatures {
        return None;
    }
    let material = match (raw.kty.as_str(), raw.crv.as_deref()) {
        ("RSA", _) => Material::Rsa {
            modulus: unsigned(raw.n.as_deref()?)?,
            exponent: unsigned(raw.e.as_deref()?)?,
        },
        ("EC", Some("P-256")) => Material::P256(point(raw, 32)?),
        ("EC", Some("P-384")) => Material::P384(point(raw, 48)?),
        _ => return None,
    };
    let algorithm = match raw.alg.as_deref() {
        None => None,
        Some(name) => Some(Algorithm::named(name)?),
    };
    Some(Key {
        id: raw.kid.clone(),
        algorithm,
        material,
    })
}

/// Decodes a big-endian number in base64. Leading zeros are accepted although RFC 7518 forbids
/// them: some issuers write a zero byte if the highest bit of the number is set.
fn unsigned(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let start = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[start..].to_vec())
}

fn point(raw: &RawKey, coordinate_bytes: usize) -> Option<Vec<u8>> {
    let mut point = vec![4];
    for coordinate in [&raw.x, &raw.y] {
        let bytes = URL_SAFE_NO_PAD.decode(coordinate.as_deref()?).ok()?;
        if bytes.len() != coordinate_bytes {
            return None;
        }
        point.extend(bytes);
    }
    Some(point)
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, KEY_SET_BYTES_MAX, KeySet};
    use proptest::prelude::*;

    /// The example set in RFC 7517, appendix A.1.
    const RFC_SET: &str = r#"{"keys":[
        {"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
         "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","use":"enc","kid":"1"},
        {"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
         "y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM","kid":"2"},
        {"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcg",
         "kid":"hmac"},
        {"kty":"RSA","n":"AQAB","e":"AQAB","alg":"HS256","kid":"confused"},
        {"kty":"EC","crv":"P-256","x":"AA","y":"AA","kid":"short"},
        {"kty":"EC","crv":"P-521","x":"AA","y":"AA","kid":"other curve"},
        7]}"#;

    #[test]
    fn only_public_keys_for_signatures_are_taken() {
        let set = KeySet::parse(RFC_SET.as_bytes(), 5).expect("a set");
        let ids: Vec<_> = set.keys().iter().map(super::Key::id).collect();
        assert_eq!(ids, [Some("2")]);
        assert_eq!(set.fetched_at(), 5);
        let key = &set.keys()[0];
        assert!(key.fits(Algorithm::Es256));
        for other in [Algorithm::Rs256, Algorithm::Es384] {
            assert!(!key.fits(other) && !key.has_signed(other, b"", b""));
        }
        assert!(!key.has_signed(Algorithm::Es256, b"", &[0; 64]));
    }

    #[test]
    fn unusable_key_sets_are_refused() {
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"keys":[]}"#,
            r#"{"keys":[{"kty":"oct"}]}"#,
        ] {
            assert!(KeySet::parse(bad.as_bytes(), 0).is_err(), "{bad}");
        }
        assert!(KeySet::parse(&vec![b' '; KEY_SET_BYTES_MAX + 1], 0).is_err());
        let deep = "[".repeat(100_000);
        assert!(KeySet::parse(deep.as_bytes(), 0).is_err());
    }

    #[test]
    fn algorithms_without_a_public_key_do_not_exist() {
        for name in [
            "none", "None", "HS256", "HS384", "HS512", "PS256", "rs256", "",
        ] {
            assert_eq!(Algorithm::named(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = KeySet::parse(&bytes, 0);
        }
    }
}
