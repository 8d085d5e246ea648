//! A signed line: a JWS in compact form (RFC 7515, section 3.1) with the algorithm EdDSA (RFC 8037,
//! section 3.1).
//!
//! The signature covers the encoded bytes of the payload, so no canonical form of JSON is necessary.

use crate::chain::{CHECKPOINT_TYPE, Checkpoint};
use crate::head::{Head, RECEIPT_TYPE};
use crate::keys::SigningKey;
use crate::ring::KeyRing;
use crate::{CHANGED, refused};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_core::{Error, ErrorKind, Result};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum length of the signed line of a receipt in bytes. The endpoint limits the URLs in the head
/// to 1 MiB, and the other fields are shorter; base64 adds a third.
pub const LINE_BYTES_MAX: usize = 8 << 20;

const ALGORITHM: &str = "EdDSA";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

/// Returns the hexadecimal form of a SHA-256 digest, with the prefix `sha256:`.
pub(crate) fn sha256_text(hash: &[u8]) -> String {
    let digits = hash.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("sha256:".to_owned())
        .chain(digits)
        .collect()
}

/// Returns the id of a signed line: the SHA-256 of its bytes without the line break.
#[must_use]
pub fn id_of(line: &str) -> String {
    sha256_text(digest(&SHA256, line.as_bytes()).as_ref())
}

/// Signs a payload. `kind` is the value of `typ` in the header. The result has no line break.
///
/// # Errors
/// [`ErrorKind::LimitExceeded`] if the line would be longer than [`LINE_BYTES_MAX`].
pub fn sign(key: &SigningKey, kind: &str, payload: &impl Serialize) -> Result<String> {
    let header = Header {
        alg: ALGORITHM.to_owned(),
        kid: key.public().id().to_owned(),
        typ: kind.to_owned(),
    };
    let mut line = URL_SAFE_NO_PAD.encode(json(&header)?);
    line.push('.');
    URL_SAFE_NO_PAD.encode_string(json(payload)?, &mut line);
    let signature = key.sign(line.as_bytes());
    line.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut line);
    if line.len() > LINE_BYTES_MAX {
        let cause = format!("the head has {} bytes", line.len());
        return Err(refused(
            ErrorKind::LimitExceeded,
            cause,
            "submit requests with fewer sources",
        ));
    }
    Ok(line)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value)
        .map_err(|error| refused(ErrorKind::Internal, error.to_string(), CHANGED))
}

fn malformed(cause: impl Into<String>) -> Error {
    refused(ErrorKind::InvalidRequest, cause, CHANGED)
}

/// Verifies the signed line of a receipt. Returns the head and the id of the key.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if the line does not have the form of a receipt's signed line.
/// [`ErrorKind::Unauthorized`] if no given key has signed the line, or if the key cannot have signed
/// a receipt with this number.
pub fn verify_receipt(line: &str, keys: &KeyRing) -> Result<(Head, String)> {
    let (head, key) = verify::<Head>(line, RECEIPT_TYPE, keys)?;
    keys.check_receipt(&key, head.sequence)?;
    Ok((head, key))
}

/// Verifies the signed line of a checkpoint. Returns the checkpoint and the id of the key.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if the line does not have the form of a checkpoint's signed line.
/// [`ErrorKind::Unauthorized`] if no given key has signed the line, or if the key is retired.
pub fn verify_checkpoint(line: &str, keys: &KeyRing) -> Result<(Checkpoint, String)> {
    let (point, key) = verify::<Checkpoint>(line, CHECKPOINT_TYPE, keys)?;
    keys.check_checkpoint(&key)?;
    Ok((point, key))
}

/// Verifies a signed line of the type `kind` and parses its payload. Returns the payload and the id
/// of the key.
fn verify<T: for<'de> Deserialize<'de>>(
    line: &str,
    kind: &str,
    keys: &KeyRing,
) -> Result<(T, String)> {
    let parts: Vec<&str> = line.split('.').collect();
    let [header, payload, signature] = parts.as_slice() else {
        return Err(malformed(
            "the head is not three parts with dots between them",
        ));
    };
    let decode = |part: &str, name: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(part);
        bytes.map_err(|_| malformed(format!("the {name} of the head is not valid base64url")))
    };
    let bytes = decode(header, "header")?;
    let header_fields: Header = serde_json::from_slice(&bytes)
        .map_err(|error| malformed(format!("the header of the head is not valid: {error}")))?;
    if header_fields.typ != kind || header_fields.alg != ALGORITHM {
        return Err(malformed(format!(
            "the header names the type {:?} and the algorithm {:?}, not {kind:?} and {ALGORITHM:?}",
            header_fields.typ, header_fields.alg
        )));
    }
    let bytes = decode(payload, "payload")?;
    let signature = decode(signature, "signature")?;
    let signed_bytes = header.len() + 1 + payload.len();
    let signed = line.get(..signed_bytes).unwrap_or_default();
    let key = keys.find(&header_fields.kid)?;
    if !key.accepts(signed.as_bytes(), &signature) {
        return Err(refused(
            ErrorKind::Unauthorized,
            format!(
                "the signature does not match the head and the key {}",
                key.id()
            ),
            CHANGED,
        ));
    }
    let payload = serde_json::from_slice(&bytes)
        .map_err(|error| malformed(format!("the signed head is not valid: {error}")))?;
    Ok((payload, header_fields.kid))
}

/// Parses the payload of a signed line without verifying the signature. Returns the JSON as it is
/// signed, and the parsed payload.
///
/// # Errors
/// [`ErrorKind::InvalidRequest`] if the line does not have the form of a signed line.
pub fn unverified<T: for<'de> Deserialize<'de>>(line: &str) -> Result<(Value, T)> {
    let payload = line.split('.').nth(1).unwrap_or_default();
    let bytes = URL_SAFE_NO_PAD
        .decode(payload)
        .map_err(|_| malformed("the payload of the head is not valid base64url"))?;
    let unreadable = |error: serde_json::Error| {
        malformed(format!("the payload of the head is not a receipt: {error}"))
    };
    let value: Value = serde_json::from_slice(&bytes).map_err(unreadable)?;
    let parsed = T::deserialize(value.clone()).map_err(unreadable)?;
    Ok((value, parsed))
}
