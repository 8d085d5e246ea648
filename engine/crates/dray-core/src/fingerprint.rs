//! Fingerprints of public keys, and their text form.

use crate::{End, Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of a public key. The hash covers the SubjectPublicKeyInfo of the certificate, so a new
/// certificate with the same key has the same fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Creates the fingerprint that has these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    /// Parses the text `sha256:` followed by 64 hexadecimal digits, in upper or lower case.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the fingerprint")
                .cause(format!("{text:?} is not sha256: and 64 hexadecimal digits"))
                .remedy("copy the fingerprint that the other host prints when it starts")
        };
        // Accept the form that the other end prints, with or without the word `key` before the
        // fingerprint.
        let key = text.trim().trim_start_matches("key ").trim();
        let digits = key.strip_prefix("sha256:").ok_or_else(wrong)?;
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = digits.get(2 * index..2 * index + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}
