//! The key that signs receipts, and the public keys of all receipts.
//!
//! If the file of the private key is missing, the endpoint makes a new key. To change the key, an
//! administrator removes the file and restarts the endpoint. The public key of the old key stays in
//! the set of public keys, so old receipts can still be verified.

use super::folder::{Folder, KEY, KEYS};
use dray_core::{End, Error, ErrorKind, Result};
use dray_receipt::{KeyRing, SigningKey};
use ring::rand::SystemRandom;

/// Reads the private key and the set of public keys, or makes them.
pub(super) fn open(folder: &Folder) -> Result<(SigningKey, KeyRing)> {
    let mut keys = match folder.read(KEYS)? {
        Some(text) => KeyRing::parse(&text).map_err(|error| {
            error.remedy(format!(
                "restore {KEYS} in the folder of the receipts from a backup"
            ))
        })?,
        None => KeyRing::default(),
    };
    let key = match folder.read(KEY)? {
        Some(pem) => SigningKey::from_pem(&pem)?,
        None => {
            let (key, pem) = SigningKey::generate(&SystemRandom::new())?;
            folder.replace(KEY, pem.as_bytes())?;
            key
        }
    };
    if keys.add(key.public()) {
        let mut text = serde_json::to_vec_pretty(&keys.jwks()).map_err(|error| {
            Error::new(ErrorKind::Internal, End::Here, "write the public keys")
                .cause(error.to_string())
        })?;
        text.push(b'\n');
        folder.replace(KEYS, &text)?;
    }
    Ok((key, keys))
}
