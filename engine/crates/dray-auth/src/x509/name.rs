//! Distinguished names, and their two common text forms: that of grid software and that of RFC
//! 2253.

use super::der;
use dray_core::path::escape;
use serde::Serialize;
use std::fmt;
use x509_parser::oid_registry::asn1_rs::Oid;

/// Maximum number of attributes of a name. Each level of proxies adds one attribute, so real names
/// stay far below the limit.
const ATTRIBUTES_MAX: usize = 64;

/// The subject of a certificate. Two subjects are equal if their texts are equal. The string types
/// in the certificates are ignored.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Subject {
    /// The form of grid software: `/DC=org/CN=Alice`.
    slash: String,
    /// The form of RFC 2253: `CN=Alice,DC=org`.
    rfc2253: String,
}

impl Subject {
    /// Returns the form of grid software, from the root to the leaf: `/DC=org/DC=example/CN=Alice`.
    /// A `/` or `+` in a value that looks like the start of another attribute (`/CN=`, `+CN=`) is
    /// written as `\x2f` or `\x2b`. Control characters and backslashes are escaped too, so that two
    /// different names never have the same text.
    #[must_use]
    pub fn slash(&self) -> &str {
        &self.slash
    }

    /// Returns the form of RFC 2253, from the leaf to the root: `CN=Alice,DC=example,DC=org`.
    #[must_use]
    pub fn rfc2253(&self) -> &str {
        &self.rfc2253
    }

    /// Reads a name from the DER of its `RDNSequence`.
    pub(crate) fn read(name: &[u8]) -> Option<Self> {
        let mut slash = String::new();
        let mut parts = Vec::new();
        let mut count = 0;
        for set in der::all(der::only(name, der::SEQUENCE)?.content)? {
            if set.tag != der::SET {
                return None;
            }
            let mut plain = Vec::new();
            let mut escaped = Vec::new();
            for pair in der::all(set.content)? {
                count += 1;
                if pair.tag != der::SEQUENCE || count > ATTRIBUTES_MAX {
                    return None;
                }
                let (kind, rest) = der::expect(pair.content, der::OBJECT_ID)?;
                let (value, rest) = der::read(rest)?;
                if !rest.is_empty() {
                    return None;
                }
                let (name, is_known) = attribute(kind.content);
                let text = text(value);
                plain.push(format!("{name}={}", unambiguous(&escape(&text))));
                escaped.push(if is_known {
                    format!("{name}={}", escaped_2253(&text))
                } else {
                    let hex: String = value.whole.iter().map(|b| format!("{b:02x}")).collect();
                    format!("{name}=#{hex}")
                });
            }
            if plain.is_empty() {
                return None;
            }
            slash.push('/');
            slash.push_str(&plain.join("+"));
            parts.push(escaped.join("+"));
        }
        if parts.is_empty() {
            return None;
        }
        parts.reverse();
        Some(Self {
            slash,
            rfc2253: parts.join(","),
        })
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.slash)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({})", self.slash)
    }
}

/// Returns the short name of an attribute type, and true. If the type has no short name, returns
/// its number in dotted form, and false.
fn attribute(oid: &[u8]) -> (String, bool) {
    let short = match oid {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 4] => "SN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 9] => "STREET",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x55, 4, 12] => "title",
        [0x55, 4, 42] => "GN",
        // OIDs 0.9.2342.19200300.100.1.25 and 0.9.2342.19200300.100.1.1.
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        // OID 1.2.840.113549.1.9.1.
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        _ => return (Oid::new(oid.into()).to_id_string(), false),
    };
    (short.to_owned(), true)
}

/// Returns the text of a string value as UTF-8 bytes. The bytes of other types and of invalid
/// strings are returned unchanged.
fn text(value: der::Value<'_>) -> Vec<u8> {
    const BMP_STRING: u8 = 0x1e;
    if value.tag == BMP_STRING && value.content.len().is_multiple_of(2) {
        let units = value
            .content
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        if let Ok(text) = text {
            return text.into_bytes();
        }
    }
    value.content.to_vec()
}

/// Escapes each separator in a value that looks like the start of another attribute.
fn unambiguous(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for (at, character) in value.char_indices() {
        let after = &value[at + character.len_utf8()..];
        let kind = after.split_once('=').map(|(kind, _)| kind);
        let begins = kind.is_some_and(|kind| {
            !kind.is_empty() && kind.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'.')
        });
        match character {
            '/' if begins => text.push_str("\\x2f"),
            '+' if begins => text.push_str("\\x2b"),
            other => text.push(other),
        }
    }
    text
}

/// Escapes a value as RFC 2253, section 2.4 requires.
fn escaped_2253(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for chunk in value.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                ',' | '+' | '"' | '\\' | '<' | '>' | ';' => {
                    text.push('\\');
                    text.push(character);
                }
                '#' | ' ' if text.is_empty() => {
                    text.push('\\');
                    text.push(character);
                }
                control if control.is_control() => {
                    let mut encoded = [0; 4];
                    for byte in control.encode_utf8(&mut encoded).bytes() {
                        text.push_str(&format!("\\{byte:02X}"));
                    }
                }
                plain => text.push(plain),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\{byte:02X}"));
        }
    }
    if text.len() > 1 && text.ends_with(' ') {
        text.pop();
        text.push_str("\\ ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Subject;
    use crate::x509::testing::{name, tlv};
    use proptest::prelude::*;

    fn subject(attributes: &[(&str, &str)]) -> Subject {
        Subject::read(&name(attributes)).expect("a name")
    }

    #[test]
    fn both_text_forms_match_common_tools() {
        let alice = subject(&[("DC", "org"), ("DC", "example"), ("CN", "Alice B")]);
        assert_eq!(alice.slash(), "/DC=org/DC=example/CN=Alice B");
        assert_eq!(alice.rfc2253(), "CN=Alice B,DC=example,DC=org");
        let host = subject(&[("O", "Grid, Inc."), ("CN", "host/dtn.example.org")]);
        assert_eq!(host.slash(), "/O=Grid, Inc./CN=host/dtn.example.org");
        assert_eq!(host.rfc2253(), "CN=host/dtn.example.org,O=Grid\\, Inc.");
        let odd = subject(&[("UID", " #a "), ("emailAddress", "a@b"), ("CN", "x\ny\\")]);
        assert_eq!(odd.slash(), "/UID= #a /emailAddress=a@b/CN=x\\x0ay\\\\");
        assert_eq!(odd.rfc2253(), "CN=x\\0Ay\\\\,emailAddress=a@b,UID=\\ #a\\ ");
    }

    #[test]
    fn value_cannot_imitate_another_attribute() {
        let one = subject(&[("O", "x/CN=Bob+UID=y/1.2=z")]);
        assert_eq!(one.slash(), "/O=x\\x2fCN=Bob\\x2bUID=y\\x2f1.2=z");
        assert_ne!(one, subject(&[("O", "x"), ("CN", "Bob+UID=y/1.2=z")]));
        assert_ne!(
            one.slash(),
            subject(&[("O", "x\\x2fCN=Bob+UID=y/1.2=z")]).slash()
        );
    }

    #[test]
    fn other_string_types_are_read_and_malformed_names_refused() {
        let cn = |value: Vec<u8>| {
            let pair = tlv(0x30, &[tlv(6, &[&[0x55, 4, 3]]), value].concat_ref());
            tlv(0x30, &[&tlv(0x31, &[&pair])])
        };
        let read = |value| Subject::read(&cn(value)).expect("a name").slash;
        assert_eq!(read(tlv(0x1e, &[&[0, b'A', 0, 0xe9]])), "/CN=A\u{e9}");
        assert_eq!(read(tlv(0x14, &[b"A\xe9"])), "/CN=A\\xe9");
        assert_eq!(read(tlv(0x1e, &[&[0xd8, 0]])), "/CN=\\xd8\\x00");
        for broken in [
            &b""[..],
            b"\x30\x00",
            b"\x30\x02\x31\x00",
            b"\x30\x02\x30\x00",
            b"\x05\x00",
        ] {
            assert_eq!(Subject::read(broken), None, "{broken:?}");
        }
    }

    trait ConcatRef {
        fn concat_ref(&self) -> Vec<&[u8]>;
    }

    impl ConcatRef for [Vec<u8>; 2] {
        fn concat_ref(&self) -> Vec<&[u8]> {
            self.iter().map(Vec::as_slice).collect()
        }
    }

    proptest! {
        #[test]
        fn different_names_have_different_texts(
            one in prop::collection::vec(("(CN|O|DC)", "[A/+=CNO\\\\ x2f]{1,6}"), 1..4),
            other in prop::collection::vec(("(CN|O|DC)", "[A/+=CNO\\\\ x2f]{1,6}"), 1..4),
        ) {
            let read = |pairs: &[(String, String)]| {
                let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                subject(&pairs)
            };
            prop_assert_eq!(one == other, read(&one).slash() == read(&other).slash());
            prop_assert_eq!(one == other, read(&one).rfc2253() == read(&other).rfc2253());
        }
    }
}
