//! The public keys of an endpoint, and the receipts that each key can have signed.
//!
//! When an endpoint changes its key, it notes the number of the last receipt before the change in
//! the old key. The numbers of receipts, and not times, bound the use of a key: a number has one
//! place in the chain, and a time is a claim of the signer.

use crate::keys::{KEY_REMEDY, PublicKey, bad_key};
use crate::refused;
use dray_core::{ErrorKind, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum number of keys of a key ring. An endpoint that changes its key every day needs years to
/// reach the limit.
const KEYS_MAX: usize = 4_096;

/// Member of a JWK: number of the first receipt that the key can have signed.
const FIRST: &str = "dray_sequence_first";

/// Member of a JWK: number of the last receipt that the key can have signed. A key with this member
/// is retired.
const LAST: &str = "dray_sequence_last";

const RETIRED_REMEDY: &str = "do not trust this file: somebody may have signed it with an old key \
    of the endpoint; get the file and the keys again from the endpoint";

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RingKey {
    key: PublicKey,
    first: Option<u64>,
    last: Option<u64>,
}

impl RingKey {
    fn from_jwk(value: &Value) -> Result<Self> {
        let number = |name: &str| match value.get(name) {
            None => Ok(None),
            Some(number) => number.as_u64().map(Some).ok_or_else(|| {
                bad_key(&format!(
                    "the member {name} of a key is not the number of a receipt"
                ))
            }),
        };
        Ok(Self {
            key: PublicKey::from_jwk(value)?,
            first: number(FIRST)?,
            last: number(LAST)?,
        })
    }

    fn jwk(&self) -> Value {
        let mut jwk = self.key.jwk();
        for (name, number) in [(FIRST, self.first), (LAST, self.last)] {
            if let Some(number) = number {
                jwk[name] = number.into();
            }
        }
        jwk
    }
}

/// The public keys of an endpoint: the present one, and the retired ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRing(Vec<RingKey>);

impl KeyRing {
    /// Parses a JWK, a JWK set (RFC 7517), or a public key in PEM form.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the text is none of these, contains another kind of key, or
    /// contains too many keys or none.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let Ok(value) = serde_json::from_slice::<Value>(text) else {
            return Ok(Self::of(PublicKey::from_pem(text)?));
        };
        let keys = match JwkSet::deserialize(&value) {
            Ok(set) => set.keys,
            Err(_) => vec![value],
        };
        if keys.is_empty() || keys.len() > KEYS_MAX {
            let cause = format!("the file contains {} keys, not 1 to {KEYS_MAX}", keys.len());
            return Err(bad_key(&cause));
        }
        let keys = keys.iter().map(RingKey::from_jwk);
        keys.collect::<Result<_>>().map(Self)
    }

    /// Returns a ring with one key, which can have signed every receipt.
    #[must_use]
    pub fn of(key: PublicKey) -> Self {
        Self(vec![RingKey {
            key,
            first: None,
            last: None,
        }])
    }

    /// Returns true if the ring contains the key.
    #[must_use]
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.0.iter().any(|other| other.key == *key)
    }

    /// Makes `key` the present key, and retires all other keys. `last` is the number of the newest
    /// receipt, or 0. A new key can only sign later receipts. Returns true if the ring has changed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the key is already retired.
    pub fn change(&mut self, key: &PublicKey, last: u64) -> Result<bool> {
        let before = self.clone();
        if let Some(retired) = self.0.iter().find(|other| other.key == *key)
            && let Some(last) = retired.last
        {
            let cause = format!(
                "the key {} was retired after the receipt {last}, so no verifier accepts a later \
                    receipt with its signature",
                key.id()
            );
            return Err(bad_key(&cause));
        }
        for other in self.0.iter_mut().filter(|other| other.key != *key) {
            other.last.get_or_insert(last);
        }
        if !self.contains(key) {
            // If the file of the public keys was lost, the key may have signed earlier receipts.
            let first = (!self.0.is_empty()).then(|| last.saturating_add(1));
            self.0.push(RingKey {
                key: key.clone(),
                first,
                last: None,
            });
        }
        Ok(*self != before)
    }

    /// Returns the keys as a JWK set.
    #[must_use]
    pub fn jwks(&self) -> Value {
        let keys: Vec<Value> = self.0.iter().map(RingKey::jwk).collect();
        json!({ "keys": keys })
    }

    pub(crate) fn find(&self, id: &str) -> Result<&PublicKey> {
        self.entry(id).map(|entry| &entry.key)
    }

    fn entry(&self, id: &str) -> Result<&RingKey> {
        self.0
            .iter()
            .find(|entry| entry.key.id() == id)
            .ok_or_else(|| {
                let cause = format!("the given keys do not contain the key {id:?} that signed it");
                refused(ErrorKind::Unauthorized, cause, KEY_REMEDY)
            })
    }

    /// Checks that a key can have signed the receipt with this number.
    pub(crate) fn check_receipt(&self, id: &str, sequence: u64) -> Result<()> {
        let entry = self.entry(id)?;
        let bound = match (entry.first, entry.last) {
            (Some(first), _) if sequence < first => format!("signs receipts from {first} on"),
            (_, Some(last)) if sequence > last => format!("was retired after the receipt {last}"),
            _ => return Ok(()),
        };
        let cause = format!("the key {id} {bound}, and this receipt has the number {sequence}");
        Err(refused(ErrorKind::Unauthorized, cause, RETIRED_REMEDY))
    }

    /// Checks that a key is not retired. The endpoint signs its checkpoint again when it changes its
    /// key. So the holder of an old key cannot hide the removal of receipts.
    pub(crate) fn check_checkpoint(&self, id: &str) -> Result<()> {
        match self.entry(id)?.last {
            None => Ok(()),
            Some(last) => {
                let cause =
                    format!("the key {id} of the checkpoint was retired after the receipt {last}");
                Err(refused(ErrorKind::Unauthorized, cause, RETIRED_REMEDY))
            }
        }
    }
}
