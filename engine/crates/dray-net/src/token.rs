//! The shared token that a caller must present to a passive end.

use dray_core::{End, Error, ErrorKind, Result};
use dray_wire::bounds::TOKEN_BYTES_MAX;
use ring::hmac;
use ring::rand::SystemRandom;
use std::fmt;

/// A shared secret. The type has no readable form, so no log can contain the secret.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Creates a token from the bytes of a file or a variable. White space around the token, such
    /// as the last newline of a file, is removed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the token is empty or longer than the wire format allows.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let bytes = bytes.trim_ascii();
        let cause = match bytes.len() {
            0 => "the token is empty".to_owned(),
            length if length > TOKEN_BYTES_MAX => {
                format!("the token has {length} bytes; at most {TOKEN_BYTES_MAX} are allowed")
            }
            _ => return Ok(Self(bytes.to_vec())),
        };
        Err(
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the token")
                .cause(cause)
                .remedy("give a file with one line of random characters"),
        )
    }

    /// Returns the token as text, for use in an `Authorization` header only.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the token contains characters that a header may not
    /// contain.
    pub fn text(&self) -> Result<String> {
        let text = str::from_utf8(&self.0).ok();
        let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
        text.map(str::to_owned).ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, End::Here, "read the token")
                .cause("the token contains blanks or characters outside ASCII")
                .remedy("give a file with one bearer token")
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares the tokens in a time that depends only on the length of `offered`. Both tokens are
    /// hashed with a key made for this call, and the hashes are compared in constant time.
    pub(super) fn matches(&self, offered: &[u8]) -> bool {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).is_ok_and(|key| {
            hmac::verify(&key, offered, hmac::sign(&key, &self.0).as_ref()).is_ok()
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn only_the_same_token_matches_and_it_is_never_shown() {
        let token = Token::new(b" s3cret-value\n").expect("a token");
        assert!(token.matches(b"s3cret-value"));
        for wrong in [&b""[..], b"s3cret-valu", b"s3cret-value ", b"S3cret-value"] {
            assert!(!token.matches(wrong));
        }
        assert!(!format!("{token:?}").contains("s3cret"));
        assert!(Token::new(b" \n").is_err());
    }
}
