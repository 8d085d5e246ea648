//! Computes crc32c and adler32 of the same bytes in one pass, and combines checksums of parts.
//!
//! crc32c is CRC-32/ISCSI (RFC 3720, appendix B.4). adler32 is defined in RFC 1950, section 8.2.
//! Both checksums of a concatenation can be computed from the checksums of the two parts and the
//! length of the second part. So each object is summed once, in any order, and the results are
//! combined to the checksum of the whole file.

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of bytes that both algorithms sum before the next bytes are read. The second algorithm
/// then finds the bytes in the second-level cache. A stride longer than 16 KiB does not change the
/// speed (`examples/sums.rs`).
const STRIDE: usize = 64 * 1024;

/// Modulus of adler32 (RFC 1950).
const ADLER_MODULUS: u64 = 65_521;

/// The crc32c and the adler32 of the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sums {
    /// crc32c of the bytes.
    pub crc32c: u32,
    /// adler32 of the bytes.
    pub adler32: u32,
}

impl Sums {
    /// The checksums of zero bytes of input.
    pub const EMPTY: Self = Self {
        crc32c: 0,
        adler32: 1,
    };

    /// Returns the checksums of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut summer = Summer::new();
        summer.update(bytes);
        summer.finish()
    }

    /// Returns the checksums of `length` zero bytes. Holes of sparse files are summed in this way,
    /// without reading.
    #[must_use]
    pub fn of_zeros(length: u64) -> Self {
        let low = 1u64;
        let high = length % ADLER_MODULUS;
        Self {
            crc32c: crc_of_zeros(length),
            adler32: ((high << 16) | low) as u32,
        }
    }

    /// Returns the checksums of the concatenation of two byte strings. `self` belongs to the first
    /// string. `next` belongs to the second string, which has `next_length` bytes.
    #[must_use]
    pub fn then(self, next: Self, next_length: u64) -> Self {
        Self {
            crc32c: crc_combine(self.crc32c, next.crc32c, next_length),
            adler32: adler_combine(self.adler32, next.adler32, next_length),
        }
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Checksums of a stream of bytes.
#[derive(Clone)]
pub struct Summer {
    crc32c: Digest,
    adler32: simd_adler32::Adler32,
}

impl Summer {
    /// Creates a summer that has seen no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            crc32c: Digest::new(CrcAlgorithm::Crc32Iscsi),
            adler32: simd_adler32::Adler32::new(),
        }
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        for stride in bytes.chunks(STRIDE) {
            self.crc32c.update(stride);
            self.adler32.write(stride);
        }
    }

    /// Returns the checksums of all bytes added so far.
    #[must_use]
    pub fn finish(&self) -> Sums {
        Sums {
            crc32c: crc_of(&self.crc32c),
            adler32: self.adler32.finish(),
        }
    }
}

impl fmt::Debug for Summer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Summer({:?})", self.finish())
    }
}

impl Default for Summer {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the crc32c of the concatenated pieces.
#[must_use]
pub fn crc32c(pieces: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    crc_of(&digest)
}

/// Returns the crc32c of a digest. The library returns checksums of every width as 64-bit numbers.
fn crc_of(digest: &Digest) -> u32 {
    digest.finalize() as u32
}

/// Polynomial of crc32c without its highest term. The bits are reversed, as in the checksum: the
/// highest bit is the term 1, and the lowest bit is x^31.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The polynomial 1 in the notation of [`POLYNOMIAL`].
const ONE: u32 = 1 << 31;

/// crc32c inverts its register at the start and at the end by XOR with this value.
const INVERTED: u32 = u32::MAX;

/// Remainders of x^(2^n). 67 entries suffice for every length in bytes that fits in 64 bits.
const SQUARES: [u32; 67] = {
    let mut squares = [ONE >> 1; 67];
    let mut n = 1;
    while n < squares.len() {
        squares[n] = multiply(squares[n - 1], squares[n - 1]);
        n += 1;
    }
    squares
};

/// Returns the product of two polynomials over GF(2), modulo the polynomial of crc32c.
const fn multiply(mut left: u32, mut right: u32) -> u32 {
    let mut product = 0;
    while left != 0 {
        if left & ONE != 0 {
            product ^= right;
        }
        left <<= 1;
        right = (right >> 1) ^ if right & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

/// Returns the remainder of x^(8 * `length`) modulo the polynomial of the crc. A crc is a
/// remainder, and `length` more bytes multiply it by this factor.
fn shift(mut length: u64) -> u32 {
    let mut power = ONE;
    let mut squares = SQUARES.iter().skip(3);
    while length != 0 {
        let square = squares.next().copied().unwrap_or(ONE);
        if length & 1 == 1 {
            power = multiply(square, power);
        }
        length >>= 1;
    }
    power
}

/// Returns the crc32c of a concatenation. The inversions of the two parts cancel out.
fn crc_combine(first: u32, second: u32, second_length: u64) -> u32 {
    multiply(shift(second_length), first) ^ second
}

fn crc_of_zeros(length: u64) -> u32 {
    multiply(shift(length), INVERTED) ^ INVERTED
}

/// Returns the adler32 of a concatenation. The arithmetic follows from the definition in RFC 1950.
fn adler_combine(first: u32, second: u32, second_length: u64) -> u32 {
    let (first_low, first_high) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (second_low, second_high) = (u64::from(second & 0xffff), u64::from(second >> 16));
    let length = second_length % ADLER_MODULUS;
    // low = first_low + second_low - 1; high = first_high + second_high + length * (first_low - 1)
    let low = (first_low + second_low + ADLER_MODULUS - 1) % ADLER_MODULUS;
    let high =
        (first_high + second_high + length * ((first_low + ADLER_MODULUS - 1) % ADLER_MODULUS))
            % ADLER_MODULUS;
    ((high << 16) | low) as u32
}

/// A checksum of a whole file by one named algorithm. A caller demands this checksum, or a
/// catalogue stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksum {
    /// crc32c of the whole file.
    Crc32c(u32),
    /// adler32 of the whole file. Most catalogues in scientific computing store adler32.
    Adler32(u32),
}

impl Checksum {
    /// Parses `adler32:HHHHHHHH` or `crc32c:HHHHHHHH` (hexadecimal, upper or lower case).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (algorithm, digits) = text.split_once(':')?;
        if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let value = u32::from_str_radix(digits, 16).ok()?;
        match algorithm.to_ascii_lowercase().as_str() {
            "adler32" => Some(Self::Adler32(value)),
            "crc32c" => Some(Self::Crc32c(value)),
            _ => None,
        }
    }

    /// Returns true if `sums` contains this checksum.
    #[must_use]
    pub fn matches(&self, sums: &Sums) -> bool {
        match self {
            Self::Crc32c(value) => *value == sums.crc32c,
            Self::Adler32(value) => *value == sums.adler32,
        }
    }

    /// Returns the checksum in `sums` that has the same algorithm as `self`.
    #[must_use]
    pub const fn same_algorithm(&self, sums: &Sums) -> Self {
        match self {
            Self::Crc32c(_) => Self::Crc32c(sums.crc32c),
            Self::Adler32(_) => Self::Adler32(sums.adler32),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc32c(value) => write!(f, "crc32c:{value:08x}"),
            Self::Adler32(value) => write!(f, "adler32:{value:08x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Checksum, Sums};
    use proptest::prelude::*;

    #[test]
    fn known_vectors() {
        // Expected values for the check strings of RFC 3720, appendix B.4, and RFC 1950.
        let digits = Sums::of(b"123456789");
        assert_eq!(digits.crc32c, 0xe306_9283);
        assert_eq!(digits.adler32, 0x091e_01de);
        assert_eq!(Sums::of(&[0; 32]).crc32c, 0x8a91_36aa);
        assert_eq!(Sums::of(b""), Sums::EMPTY);
    }

    proptest! {
        #[test]
        fn parts_combine_to_the_whole(
            data in prop::collection::vec(any::<u8>(), 0..70_000),
            cut in any::<prop::sample::Index>(),
        ) {
            let cut = cut.index(data.len() + 1);
            let (first, second) = data.split_at(cut);
            prop_assert_eq!(
                Sums::of(first).then(Sums::of(second), second.len() as u64),
                Sums::of(&data)
            );
        }

        /// Compares with another library: the bytes in one piece, and the bytes in pieces of a
        /// random length.
        #[test]
        fn crcs_are_those_of_another_crate(
            data in prop::collection::vec(any::<u8>(), 0..200_000),
            piece in 1..5000usize,
        ) {
            let wanted = ::crc32c::crc32c(&data);
            prop_assert_eq!(Sums::of(&data).crc32c, wanted);
            let pieces: Vec<&[u8]> = data.chunks(piece).collect();
            prop_assert_eq!(super::crc32c(&pieces), wanted);
        }

        #[test]
        fn crcs_combine_as_those_of_another_crate(
            first: u32,
            second: u32,
            length in 1..=usize::MAX,
            less in 0..64u32,
        ) {
            let length = (length >> less).max(1);
            prop_assert_eq!(
                super::crc_combine(first, second, length as u64),
                ::crc32c::crc32c_combine(first, second, length)
            );
        }

        #[test]
        fn zeros_are_summed_without_reading_them(length in 0..200_000usize) {
            prop_assert_eq!(Sums::of_zeros(length as u64), Sums::of(&vec![0; length]));
        }
    }

    #[test]
    fn demanded_values_are_read_as_catalogues_write_them() {
        assert_eq!(
            Checksum::parse("adler32:091E01de"),
            Some(Checksum::Adler32(0x091e_01de))
        );
        assert_eq!(Checksum::parse("ADLER32:1"), Some(Checksum::Adler32(1)));
        for bad in [
            "",
            "adler32",
            "adler32:",
            "md5:00",
            "crc32c:123456789",
            "crc32c:+1",
        ] {
            assert_eq!(Checksum::parse(bad), None, "{bad}");
        }
        assert_eq!(Checksum::Adler32(0xde).to_string(), "adler32:000000de");
    }
}
