//! Keys of receipts: Ed25519 (RFC 8032), as JWK (RFC 8037) and PEM.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use dray_core::{End, Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;

/// Start of the DER form of an Ed25519 public key; the 32 bytes of the key follow (RFC 8410,
/// section 10.1).
const SPKI_START: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Start of the DER form of an Ed25519 private key; the 32 bytes of the key follow (RFC 8410, section
/// 7, without attributes and public key).
const PKCS8_START: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Advice for a file without usable keys.
pub(crate) const KEY_REMEDY: &str = "give the file of GET /v1/receipts/keys, the output of \
    `dray receipt key`, or an Ed25519 public key in PEM form";

/// A private key that signs receipts.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id)
    }
}

impl SigningKey {
    /// Reads a key from PKCS#8 PEM (`BEGIN PRIVATE KEY`), with or without the public key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the text is not an Ed25519 key.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|_| unusable("the file contains no PKCS#8 private key in PEM form"))?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    fn from_pkcs8(der: &[u8]) -> Result<Self> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
            .map_err(|_| unusable("the key in the file is not an Ed25519 private key"))?;
        let bytes = <[u8; 32]>::try_from(pair.public_key().as_ref())
            .map_err(|_| unusable("the public key does not have 32 bytes"))?;
        let public = PublicKey::new(bytes);
        Ok(Self { pair, public })
    }

    /// Generates a key. Returns the key, and its PKCS#8 text in PEM form. The caller must keep the
    /// text secret.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the random source fails.
    pub fn generate(random: &dyn SecureRandom) -> Result<(Self, String)> {
        let mut secret = [0; 32];
        random.fill(&mut secret).map_err(|_| {
            let operation = "get random bytes from the system";
            Error::new(ErrorKind::Internal, End::Here, operation)
        })?;
        // Not the form that ring generates: it contains the public key too, and OpenSSL does not
        // read it.
        let der: Vec<u8> = PKCS8_START.iter().chain(&secret).copied().collect();
        let key = Self::from_pkcs8(&der)?;
        Ok((key, pem("PRIVATE KEY", &der)))
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs bytes. The same bytes always get the same signature (RFC 8032, section 5.1.6).
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }
}

fn unusable(cause: &str) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        End::Here,
        "read the key of receipts",
    )
    .cause(cause)
    .remedy("restore the file of the key from a backup, or remove it: the endpoint makes a new key")
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in STANDARD.encode(der).as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// A public key of receipts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; 32],
    id: String,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: String,
}

impl PublicKey {
    fn new(bytes: [u8; 32]) -> Self {
        let x = URL_SAFE_NO_PAD.encode(bytes);
        // The required members in the order of their names, without spaces (RFC 7638, section 3;
        // RFC 8037, appendix A.3).
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes()));
        Self { bytes, id }
    }

    /// Returns the key's id, which is its thumbprint (RFC 7638).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key as a JWK.
    #[must_use]
    pub fn jwk(&self) -> Value {
        json!({
            "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(self.bytes),
            "use": "sig", "alg": "EdDSA", "kid": self.id,
        })
    }

    /// Returns the key in PEM form (`BEGIN PUBLIC KEY`).
    #[must_use]
    pub fn pem(&self) -> String {
        let der: Vec<u8> = SPKI_START.iter().chain(&self.bytes).copied().collect();
        pem("PUBLIC KEY", &der)
    }

    pub(crate) fn from_jwk(value: &Value) -> Result<Self> {
        let jwk = Jwk::deserialize(value).map_err(|_| bad_key("a key is not a JWK of RFC 8037"))?;
        if (jwk.kty.as_str(), jwk.crv.as_str()) != ("OKP", "Ed25519") {
            return Err(bad_key("a key is not an Ed25519 key"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(&jwk.x).ok();
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        bytes
            .map(Self::new)
            .ok_or_else(|| bad_key("the member x of a key is not 32 bytes in base64url"))
    }

    pub(crate) fn from_pem(text: &[u8]) -> Result<Self> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text)
            .map_err(|_| bad_key("the file contains neither a JWK, a JWK set nor a public key"))?;
        let bytes = der.strip_prefix(&SPKI_START[..]);
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        bytes
            .map(Self::new)
            .ok_or_else(|| bad_key("the public key in the file is not an Ed25519 key"))
    }

    pub(crate) fn accepts(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.bytes);
        key.verify(bytes, signature).is_ok()
    }
}

/// Returns the error for keys that cannot be parsed.
pub(crate) fn bad_key(cause: &str) -> Error {
    Error::new(ErrorKind::InvalidRequest, End::Here, "read the public key")
        .cause(cause)
        .remedy(KEY_REMEDY)
}
