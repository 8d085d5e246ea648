//! The key that signs receipts, and the public keys of all receipts.
//!
//! If the file of the private key is missing, the endpoint makes a new key. To change the key, an
//! administrator removes the file and restarts the endpoint. The public key of the old key stays in
//! the set of public keys with the number of the newest receipt, so the old key still verifies old
//! receipts, and verifies no later ones.

use super::folder::{Folder, KEY, KEYS};
use dray_core::{End, Error, ErrorKind, Result};
use dray_receipt::{CHECKPOINT_TYPE, Checkpoint, KeyRing, SigningKey, sign, verify_checkpoint};
use ring::rand::SystemRandom;

/// Reads the private key and the set of public keys, or makes them. `recorded` is the number of the
/// newest recorded receipt, if there is one.
pub(super) fn open(folder: &Folder, recorded: Option<u64>) -> Result<(SigningKey, KeyRing)> {
    let mut keys = match folder.read(KEYS)? {
        Some(text) => KeyRing::parse(&text).map_err(|error| {
            error.remedy(format!(
                "restore {KEYS} in the folder of the receipts from a backup"
            ))
        })?,
        None => KeyRing::default(),
    };
    let key = match folder.read_key()? {
        Some(pem) => SigningKey::from_pem(&pem)?,
        None => {
            let (key, pem) = SigningKey::generate(&SystemRandom::new())?;
            folder.replace(KEY, pem.as_bytes())?;
            key
        }
    };
    let point = checkpoint(folder, &keys, &key)?;
    let mut last = recorded.unwrap_or(point.as_ref().map_or(0, |point| point.sequence));
    // The receipts that a crash left unrecorded belong to the old key too.
    while folder.has(last.saturating_add(1)) {
        last = last.saturating_add(1);
    }
    let changed = keys.change(key.public(), last).map_err(|error| {
        error.remedy(format!(
            "restore the present {KEY} in the folder of the receipts, or remove {KEY}: the \
                endpoint then makes a new key"
        ))
    })?;
    if changed {
        // The verifiers of the new file refuse a checkpoint with the signature of an old key.
        if let Some(point) = point {
            folder.write_checkpoint(&sign(&key, CHECKPOINT_TYPE, &point)?)?;
        }
        let mut text = serde_json::to_vec_pretty(&keys.jwks()).map_err(|error| {
            Error::new(ErrorKind::Internal, End::Here, "write the public keys")
                .cause(error.to_string())
        })?;
        text.push(b'\n');
        folder.replace(KEYS, &text)?;
    }
    Ok((key, keys))
}

/// Reads the checkpoint. It can have the signature of the present key although the file of the
/// public keys does not contain the key yet, because a crash interrupted the change of the key.
fn checkpoint(folder: &Folder, keys: &KeyRing, key: &SigningKey) -> Result<Option<Checkpoint>> {
    let Some(line) = folder.checkpoint()? else {
        return Ok(None);
    };
    let present = KeyRing::of(key.public().clone());
    let read = verify_checkpoint(&line, keys)
        .or_else(|error| verify_checkpoint(&line, &present).map_err(|_| error));
    read.map(|(point, _)| Some(point))
}
