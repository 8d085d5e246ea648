//! URLs of the form `dray://HOST[:PORT]/ROOT/PATH`, and the text form of paths in URLs, in the API
//! and in messages (docs/reference/urls.md). The grammar is the same for input and output, so every
//! command accepts the output of every other command.
//!
//! Invariant: [`decode`] returns the bytes that were passed to [`encode`], for any name.

use std::fmt;

/// Scheme of dray's URLs.
pub const SCHEME: &str = "dray://";

/// Default port of `dray serve` and of an endpoint. IANA's list leaves 4734 to 4736 unassigned,
/// between 4733 (resorcs) and 4737 (ipdr-sp). The port must be registered when other programs use
/// the protocol.
pub const PORT: u16 = 4735;

/// Reason why a text is not a URL or a path. A message shows the text and then this reason.
pub type Malformed = &'static str;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// `HOST:PORT`.
    pub address: String,
    /// The path as bytes, without the slash after the host. A slash at the end of the path is kept.
    pub path: Vec<u8>,
}

impl Url {
    /// Returns true if the text starts with the scheme `dray://`.
    #[must_use]
    pub fn is_meant(text: &[u8]) -> bool {
        text.starts_with(SCHEME.as_bytes())
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// The reason why the URL is malformed.
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        let (address, path) = split(text)?;
        Ok(Self {
            address,
            path: decode(path.get(1..).unwrap_or_default())?,
        })
    }

    /// Returns the path in the text form of the control API.
    #[must_use]
    pub fn api_path(&self) -> String {
        format!("/{}", encode(&self.path))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.address, self.api_path())
    }
}

/// Splits a URL into `HOST:PORT` and its path. The path is not decoded. It begins with a slash, or is
/// empty.
///
/// # Errors
/// The reason why the URL is malformed.
pub fn split(text: &[u8]) -> Result<(String, &[u8]), Malformed> {
    let rest = text
        .strip_prefix(SCHEME.as_bytes())
        .ok_or("the URL does not begin with dray://")?;
    let slash = rest.iter().position(|byte| *byte == b'/');
    let (authority, path) = rest.split_at(slash.unwrap_or(rest.len()));
    let address = address(authority).ok_or("the URL has no host, or its port is not a number")?;
    Ok((address, path))
}

fn address(authority: &[u8]) -> Option<String> {
    let is_host = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(byte);
    let is_plain = authority.iter().all(is_host);
    let text = std::str::from_utf8(authority).ok()?;
    is_plain.then(|| with_port(text))?
}

/// Returns the address with a port. The default port of dray is added if the address has none. An
/// IPv6 address must be in brackets.
#[must_use]
pub fn with_port(host: &str) -> Option<String> {
    with_default_port(host, PORT)
}

/// Returns the address with a port. The port `usual` is added if the address has none. An IPv6
/// address must be in brackets.
#[must_use]
pub fn with_default_port(host: &str, usual: u16) -> Option<String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, after) = rest.split_once(']')?;
            let port = match after {
                "" => None,
                after => Some(after.strip_prefix(':')?),
            };
            (format!("[{name}]"), port)
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name.to_owned(), Some(port)),
            None => (host.to_owned(), None),
        },
    };
    let port = match port {
        Some(port) => port.parse::<u16>().ok()?,
        None => usual,
    };
    (!name.is_empty() && name != "[]").then(|| format!("{name}:{port}"))
}

/// Returns the bytes of a path as text. Printable valid UTF-8 is unchanged. All other bytes become
/// `%HH`. `%`, `?` and `#` become `%HH` too, because `%` starts an escape, and `?` and `#` end the
/// path of a URL.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if !is_escaped(character) {
                text.push(character);
                continue;
            }
            let mut encoded = [0; 4];
            for byte in character.encode_utf8(&mut encoded).bytes() {
                push_escaped(&mut text, byte);
            }
        }
        for byte in chunk.invalid() {
            push_escaped(&mut text, *byte);
        }
    }
    text
}

fn push_escaped(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    for digit in [byte >> 4, byte & 15] {
        text.push(char::from(DIGITS[usize::from(digit)]));
    }
}

/// Returns true if the character must be escaped: control characters, characters that end a line or
/// change the direction of text (Unicode `Bidi_Control`), and characters with a meaning in URLs.
fn is_escaped(character: char) -> bool {
    matches!(character, '%' | '?' | '#') || drives_terminal(character)
}

/// Returns true if a terminal interprets the character instead of printing it.
#[must_use]
pub fn drives_terminal(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Returns a URL or a path that is safe to print. Characters that a terminal interprets become
/// `%HH`.
#[must_use]
pub fn shown(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match drives_terminal(character) {
                true => shown.push_str(&encode(character.encode_utf8(&mut [0; 4]).as_bytes())),
                false => shown.push(character),
            }
        }
        shown.push_str(&encode(chunk.invalid()));
    }
    shown
}

/// Decodes the text form of a path. `%HH` becomes one byte, and every other byte is unchanged.
///
/// # Errors
/// A `%` without two hexadecimal digits; a `?` or `#`; a slash or a zero byte inside a name.
pub fn decode(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => escaped(rest.next(), rest.next())?,
            b'?' => return Err("write a question mark as %3F"),
            b'#' => return Err("write a number sign as %23"),
            0 => return Err("a name cannot contain a zero byte"),
            other => other,
        });
    }
    Ok(bytes)
}

fn escaped(high: Option<u8>, low: Option<u8>) -> Result<u8, Malformed> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let byte = match (digit(high), digit(low)) {
        (Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
        _ => None,
    };
    match byte.ok_or("write a percent sign as %25")? {
        b'/' => Err("%2F is a slash, which a name cannot contain"),
        0 => Err("%00 is a zero byte, which a name cannot contain"),
        byte => Ok(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::{Url, decode, drives_terminal, encode, shown, with_port};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_path_comes_back_and_drives_no_terminal(
            bytes in prop::collection::vec(1_u8.., 0..80),
        ) {
            let text = encode(&bytes);
            prop_assert!(!text.chars().any(|c| drives_terminal(c) || "?#".contains(c)));
            prop_assert_eq!(decode(text.as_bytes()), Ok(bytes.clone()));
            let url = Url { address: "h:1".to_owned(), path: bytes };
            prop_assert_eq!(Url::parse(url.to_string().as_bytes()), Ok(url));
        }

        #[test]
        fn no_text_breaks_it(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let _ = Url::parse(&bytes);
        }
    }

    #[test]
    fn every_byte_has_one_spelling_and_may_have_two() {
        for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
            let spelled = format!("%{byte:02x}");
            assert_eq!(decode(spelled.as_bytes()), Ok(vec![byte]), "{spelled}");
            if !b"%?#".contains(&byte) {
                assert_eq!(decode(&[byte]), Ok(vec![byte]), "as it is");
            }
        }
        assert_eq!(
            encode(b"a b\\c'%41?#\n\xff\xc3\xa9"),
            "a b\\c'%2541%3F%23%0A%FFé"
        );
    }

    #[test]
    fn what_no_name_can_hold_is_refused() {
        for (text, words) in [
            ("a%2Fb", "slash"),
            ("a%00", "zero"),
            ("a\0", "zero"),
            ("a%", "%25"),
            ("a%4", "%25"),
            ("a%zz", "%25"),
            ("a%+1", "%25"),
            ("a?b", "%3F"),
            ("a#b", "%23"),
        ] {
            let why = decode(text.as_bytes()).expect_err(text);
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn what_was_typed_is_shown_as_it_was_typed() {
        assert_eq!(shown(b"dray://h/a%20b?\xff\n"), "dray://h/a%20b?%FF%0A");
    }

    #[test]
    fn urls_are_taken_apart() {
        let parsed = |text: &str| Url::parse(text.as_bytes());
        let path = |text: &str| parsed(text).map(|url| url.path);
        assert_eq!(path("dray://h/a/b%20c/"), Ok(b"a/b c/".to_vec()));
        assert_eq!(path("dray://h"), Ok(Vec::new()));
        assert_eq!(path("dray://h//a"), Ok(b"/a".to_vec()));
        assert_eq!(
            parsed("dray://[::1]/x").map(|url| url.address),
            Ok("[::1]:4735".to_owned())
        );
        for wrong in [
            "dray:///x",
            "dray://u:p@h/x",
            "dray://h h/x",
            "dray://h:x/y",
            "h/x",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses() {
        for (given, wanted) in [
            ("h", Some("h:4735")),
            ("h:1", Some("h:1")),
            ("[::1]", Some("[::1]:4735")),
            ("[::1]:9", Some("[::1]:9")),
            ("", None),
            (":9", None),
            ("[]:9", None),
            ("h:x", None),
            ("[::1]x", None),
        ] {
            assert_eq!(with_port(given).as_deref(), wanted, "{given}");
        }
    }
}
