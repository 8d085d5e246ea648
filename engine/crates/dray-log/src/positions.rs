//! The logging methods of FT-LADS: representations of the numbers of completed objects.
//!
//! The module encodes the numbers in the body of a record, and decodes them. It does not know
//! files, checksums or the place of a record in a log.

use crate::input::Input;
use crate::record::OBJECTS_PER_RECORD_MAX;
use dray_core::LogMethod;

/// Maximum length in bytes of the numbers in one record: 8192 numbers of 20 digits, each with a
/// line feed.
pub(crate) const POSITIONS_BYTES_MAX: usize = OBJECTS_PER_RECORD_MAX * 21;

/// Maximum length in bytes of an array of bits, with the index of its first word.
const BITS_BYTES_MAX: usize = 8 + OBJECTS_PER_RECORD_MAX / 8 + 16;

/// Number of bytes of zeros in an array of bits that cost more than a second record.
const ZEROS_MAX: u64 = 48;

/// Returns the number of a method in a log; `None` for the method that has other records.
pub(crate) const fn code(method: LogMethod) -> u32 {
    match method {
        LogMethod::Ranges => 0,
        LogMethod::Char => 1,
        LogMethod::Int => 2,
        LogMethod::Enc => 3,
        LogMethod::Binary => 4,
        LogMethod::Bit8 => 5,
        LogMethod::Bit64 => 6,
    }
}

/// Returns the method with this number.
pub(crate) fn method(number: u32) -> Option<LogMethod> {
    LogMethod::ALL.into_iter().find(|one| code(*one) == number)
}

/// Returns true if a record of this method can contain the object `last` and all objects before it.
pub(crate) fn can_number(method: LogMethod, last: u64) -> bool {
    method != LogMethod::Binary || u32::try_from(last).is_ok()
}

/// Returns true if the method records its numbers in ascending order.
pub(crate) const fn is_sorted(method: LogMethod) -> bool {
    matches!(method, LogMethod::Bit8 | LogMethod::Bit64)
}

/// Returns the number of bits in a word of the array, for the methods that use an array of bits.
const fn word_bits(method: LogMethod) -> Option<u64> {
    match method {
        LogMethod::Bit8 => Some(8),
        LogMethod::Bit64 => Some(64),
        _ => None,
    }
}

/// Returns true if `next` can be in the same record as the objects `first` to `last`.
pub(crate) fn fits(method: LogMethod, (first, last): (u64, u64), next: u64) -> bool {
    match word_bits(method) {
        None => true,
        Some(_) => {
            let (eighth, window) = (next / 8, OBJECTS_PER_RECORD_MAX as u64);
            next - first < window && eighth - last / 8 <= ZEROS_MAX
        }
    }
}

/// Encodes the numbers of objects. For a method with an array of bits, the numbers ascend, and
/// [`fits`] is true for each of them.
pub(crate) fn encode(method: LogMethod, numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(bits) = word_bits(method) {
        put_bits(&mut out, bits, numbers);
        return out;
    }
    for number in numbers {
        match method {
            LogMethod::Char => {
                out.extend_from_slice(number.to_string().as_bytes());
                out.push(b'\n');
            }
            LogMethod::Enc => put_leb128(&mut out, number),
            LogMethod::Binary => {
                // The caller has refused files with more objects.
                let short = u32::try_from(number).unwrap_or(u32::MAX);
                out.extend_from_slice(&short.to_le_bytes());
            }
            _ => out.extend_from_slice(&number.to_le_bytes()),
        }
    }
    out
}

/// Decodes `count` numbers of objects; `None` if the bytes are not the encoding of `count` numbers.
pub(crate) fn decode(method: LogMethod, bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let mut input = Input(bytes);
    let numbers = match word_bits(method) {
        Some(bits) => take_bits(&mut input, bits)?,
        None => (0..count)
            .map(|_| match method {
                LogMethod::Char => take_digits(&mut input),
                LogMethod::Enc => take_leb128(&mut input),
                LogMethod::Binary => input.u32().map(u64::from),
                LogMethod::Int => input.u64(),
                _ => None,
            })
            .collect::<Option<_>>()?,
    };
    (input.0.is_empty() && numbers.len() == count).then_some(numbers)
}

/// Writes the index of the first word and the words. Bit j of word i stands for object
/// `i * bits + j` (algorithm 1 of the paper).
fn put_bits(out: &mut Vec<u8>, bits: u64, numbers: impl Iterator<Item = u64>) {
    let mut array: Vec<u8> = Vec::new();
    let mut first = None;
    for number in numbers {
        let word = *first.get_or_insert(number / bits);
        let at = number - word * bits;
        // A word has its lowest byte first, so bit j of a word is bit j mod 8 of its byte j / 8.
        let byte = (at / 8) as usize;
        let words = (at / bits + 1) * (bits / 8);
        array.resize(array.len().max(words as usize), 0);
        if let Some(byte) = array.get_mut(byte) {
            *byte |= 1 << (at % 8);
        }
    }
    out.extend_from_slice(&first.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&array);
}

fn take_bits(input: &mut Input<'_>, bits: u64) -> Option<Vec<u64>> {
    if input.0.len() > BITS_BYTES_MAX {
        return None;
    }
    let first = input.u64()?.checked_mul(bits)?;
    let array = input.take(input.0.len())?;
    if !(array.len() as u64).is_multiple_of(bits / 8) {
        return None;
    }
    let mut numbers = Vec::new();
    for (at, byte) in (0..).zip(array) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            numbers.push(first.checked_add(at * 8 + bit)?);
        }
    }
    Some(numbers)
}

/// Writes a number as unsigned LEB128 (DWARF 5, section 7.6).
fn put_leb128(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_leb128(input: &mut Input<'_>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = u64::from(*input.take(1)?.first()?);
        let low = byte & 0x7f;
        if low << shift >> shift != low {
            return None;
        }
        number |= low << shift;
        if byte < 0x80 {
            // Each number has one encoding, so the last byte is zero only for the number 0.
            return (byte > 0 || shift == 0).then_some(number);
        }
    }
    None
}

fn take_digits(input: &mut Input<'_>) -> Option<u64> {
    let length = input.0.iter().take(21).position(|byte| *byte == b'\n')?;
    let digits = input.take(length)?;
    input.take(1)?;
    let is_plain =
        digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || !digits.starts_with(b"0"));
    let text = std::str::from_utf8(digits).ok()?;
    is_plain.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::{can_number, code, decode, encode, fits, is_sorted, method};
    use dray_core::LogMethod;
    use proptest::prelude::*;

    fn list_methods() -> impl Iterator<Item = LogMethod> {
        let all = LogMethod::ALL.into_iter();
        all.filter(|one| *one != LogMethod::Ranges && !is_sorted(*one))
    }

    #[test]
    fn each_method_has_the_bytes_of_its_definition() {
        let encoded = |method| encode(method, [3, 0, 300].into_iter());
        assert_eq!(encoded(LogMethod::Char), b"3\n0\n300\n");
        assert_eq!(encoded(LogMethod::Enc), [3, 0, 0xac, 2]);
        assert_eq!(
            encoded(LogMethod::Binary),
            [3, 0, 0, 0, 0, 0, 0, 0, 44, 1, 0, 0]
        );
        assert_eq!(encoded(LogMethod::Int).len(), 24);
        // Object 137 is bit 1 of word 17 of 8 bits, and bit 9 of word 2 of 64 bits.
        let bits = |method| encode(method, [129, 137].into_iter());
        assert_eq!(bits(LogMethod::Bit8), [16, 0, 0, 0, 0, 0, 0, 0, 2, 2]);
        let wide = [2, 0, 0, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0];
        assert_eq!(bits(LogMethod::Bit64), wide);
    }

    #[test]
    fn other_encodings_of_a_number_are_refused() {
        for (method, bytes, why) in [
            (LogMethod::Char, &b"03\n"[..], "a leading zero"),
            (LogMethod::Char, b"+3\n", "a sign"),
            (LogMethod::Char, b"\n", "no digit"),
            (LogMethod::Char, b"3", "no line feed"),
            (LogMethod::Char, b"18446744073709551616\n", "2^64"),
            (LogMethod::Enc, &[0x83, 0], "a longer form of 3"),
            (LogMethod::Enc, &[0x83], "no last byte"),
            (LogMethod::Enc, &[0xff; 10], "more than 64 bits"),
            (LogMethod::Binary, &[3, 0, 0], "three bytes"),
            (LogMethod::Int, &[3, 0, 0, 0], "four bytes"),
            (LogMethod::Bit8, &[0, 0, 0, 0, 0, 0, 0, 0, 3], "two objects"),
            (
                LogMethod::Bit64,
                &[0, 0, 0, 0, 0, 0, 0, 0, 1],
                "half a word",
            ),
            (LogMethod::Bit8, &[0xff; 9], "past the last object"),
            (
                LogMethod::Ranges,
                &[1, 0, 0, 0, 0, 0, 0, 0],
                "another record",
            ),
        ] {
            assert_eq!(decode(method, bytes, 1), None, "{method:?}: {why}");
        }
        let last = [0xff; 9].into_iter().chain([1]).collect::<Vec<u8>>();
        assert_eq!(decode(LogMethod::Enc, &last, 1), Some(vec![u64::MAX]));
    }

    #[test]
    fn methods_have_numbers_and_limits() {
        for one in LogMethod::ALL {
            assert_eq!(method(code(one)), Some(one));
            assert!(can_number(one, u64::from(u32::MAX)));
            assert_eq!(can_number(one, 1 << 32), one != LogMethod::Binary);
        }
        assert_eq!(method(7), None);
        assert!(!fits(LogMethod::Bit8, (0, 4), 8192), "the window ends");
        assert!(!fits(LogMethod::Bit64, (0, 4), 4000), "too many zeros");
        assert!(fits(LogMethod::Bit64, (0, 4), 300));
    }

    proptest! {
        #[test]
        fn numbers_survive_each_method(numbers in prop::collection::vec(any::<u64>(), 1..40)) {
            for method in list_methods() {
                let numbers: Vec<u64> = match method {
                    LogMethod::Binary => numbers.iter().map(|one| one >> 32).collect(),
                    _ => numbers.clone(),
                };
                let bytes = encode(method, numbers.iter().copied());
                prop_assert_eq!(decode(method, &bytes, numbers.len()), Some(numbers));
            }
        }

        #[test]
        fn bits_survive(first in 0..u64::MAX - 9000, steps in prop::collection::vec(1..300u64, 0..20)) {
            let mut numbers = vec![first];
            numbers.extend(steps.iter().scan(first, |at, step| { *at += step; Some(*at) }));
            for method in [LogMethod::Bit8, LogMethod::Bit64] {
                let bytes = encode(method, numbers.iter().copied());
                prop_assert_eq!(decode(method, &bytes, numbers.len()), Some(numbers.clone()));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            count in 0..9usize,
        ) {
            for method in LogMethod::ALL {
                if let Some(numbers) = decode(method, &bytes, count) {
                    prop_assert_eq!(numbers.len(), count);
                }
            }
        }
    }
}
