//! Reads parts of DER (X.690) that x509-parser does not provide: the signed bytes of a certificate,
//! and the exact bytes of names.

/// One DER value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value<'a> {
    /// The tag. Tags of more than one octet are not supported.
    pub(super) tag: u8,
    /// Content of the value.
    pub(super) content: &'a [u8],
    /// The bytes of tag, length and content.
    pub(super) whole: &'a [u8],
}

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// Reads one value. Returns the value and the remaining bytes, or `None` if the bytes are not DER.
pub(super) fn read(input: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (&tag, rest) = input.split_first()?;
    if tag & 0x1f == 0x1f {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // Only the shortest form of a length is valid in DER. Lengths of more than four octets are
        // not supported.
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let (octets, rest) = rest.split_at_checked(count)?;
        let length = octets
            .iter()
            .fold(0usize, |sum, octet| sum << 8 | usize::from(*octet));
        if octets.first() == Some(&0) || length < 0x80 {
            return None;
        }
        (length, rest)
    };
    let (content, after) = rest.split_at_checked(length)?;
    let whole = &input[..input.len() - after.len()];
    Some((
        Value {
            tag,
            content,
            whole,
        },
        after,
    ))
}

/// Reads one value with the given tag. Returns the value and the remaining bytes.
pub(super) fn expect(input: &[u8], tag: u8) -> Option<(Value<'_>, &[u8])> {
    read(input).filter(|(value, _)| value.tag == tag)
}

/// Reads one value with the given tag. Returns `None` if bytes remain after the value.
pub(super) fn only(input: &[u8], tag: u8) -> Option<Value<'_>> {
    expect(input, tag)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(value, _)| value)
}

/// Reads all consecutive values. Returns `None` if a value is not DER.
pub(super) fn all(mut input: &[u8]) -> Option<Vec<Value<'_>>> {
    let mut values = Vec::new();
    while !input.is_empty() {
        let (value, rest) = read(input)?;
        values.push(value);
        input = rest;
    }
    Some(values)
}

/// The parts of a signed certificate or revocation list.
pub(super) struct Signed<'a> {
    /// The bytes that the signature covers.
    pub(super) message: &'a [u8],
    /// Identifier of the signature algorithm, without the outer tag and length.
    pub(super) algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
}

/// Splits a certificate into its parts (RFC 5280, section 4.1).
pub(super) fn signed(certificate: &[u8]) -> Option<Signed<'_>> {
    // The version and the serial number precede the identifier in the signed part.
    split(certificate, 2)
}

/// Splits a revocation list of version 2 into its parts (RFC 5280, section 5.1).
pub(super) fn signed_list(list: &[u8]) -> Option<Signed<'_>> {
    // Only the version precedes the identifier in the signed part.
    split(list, 1)
}

/// Splits a signed value, whose signed part has the identifier of the algorithm at the position
/// `at`.
fn split(value: &[u8], at: usize) -> Option<Signed<'_>> {
    let outer = only(value, SEQUENCE)?;
    let (message, rest) = expect(outer.content, SEQUENCE)?;
    let (algorithm, rest) = expect(rest, SEQUENCE)?;
    let (&unused, signature) = only(rest, BIT_STRING)?.content.split_first()?;
    // The signed part repeats the identifier of the signature algorithm. Both identifiers must be
    // equal (sections 4.1.1.2 and 5.1.1.2).
    let inner = all(message.content)?;
    let is_same = inner.get(at).map(|value| value.whole) == Some(algorithm.whole);
    (unused == 0 && is_same).then_some(Signed {
        message: message.whole,
        algorithm: algorithm.content,
        signature,
    })
}

#[cfg(test)]
mod tests {
    use super::{SEQUENCE, all, only, read};
    use proptest::prelude::*;

    #[test]
    fn only_the_shortest_length_encoding_is_accepted() {
        assert!(
            read(&[0x30, 0x81, 0x05, 1, 2, 3, 4, 5]).is_none(),
            "too long"
        );
        assert!(read(&[0x30, 0x80, 0, 0]).is_none(), "of no length");
        assert!(read(&[0x30, 0x82, 0x00, 0x80]).is_none(), "a zero in front");
        assert!(
            read(&[0x30, 0x85, 1, 0, 0, 0, 0]).is_none(),
            "larger than all"
        );
        assert!(read(&[0x30, 0x02, 1]).is_none(), "cut off");
        assert!(read(&[0x3f, 0x01, 1]).is_none(), "a long tag");
        let mut long = vec![0x30, 0x81, 0x80];
        long.extend([7; 0x80]);
        assert_eq!(
            only(&long, SEQUENCE).map(|value| value.content.len()),
            Some(0x80)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(values) = all(&bytes) {
                let length: usize = values.iter().map(|value| value.whole.len()).sum();
                prop_assert_eq!(length, bytes.len());
            }
            let _ = super::signed(&bytes);
        }
    }
}
