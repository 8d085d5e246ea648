//! Extended attributes in which XRootD servers store the checksums of files (`XrdCksData`, 96
//! bytes).

use dray_core::Sums;

const PREFIX: &[u8] = b"user.XrdCks.";
const NAME_BYTES: usize = 16;
const VALUE_BYTES: usize = 64;

/// Returns true if an attribute stores a checksum, of any algorithm.
pub(crate) fn is_one(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// Returns the attributes for a file with these checksums and this modification time in seconds. A
/// server trusts a checksum only while the file has that time.
pub(crate) fn attributes(sums: &Sums, modified: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let values = [("adler32", sums.adler32), ("crc32c", sums.crc32c)];
    let one = |(name, value): (&str, u32)| {
        let key = [PREFIX, name.as_bytes()].concat();
        (key, encode(name, value, modified))
    };
    values.into_iter().map(one).collect()
}

/// Encodes an attribute. The fields are the name of the algorithm, the modification time of the
/// file (8 bytes), the seconds from that time to the computation of the checksum (4 bytes), two
/// reserved fields that are zero (2 bytes and 1 byte), the length of the value (1 byte), and the
/// value. All numbers are big-endian.
fn encode(name: &str, value: u32, modified: i64) -> Vec<u8> {
    let mut bytes = vec![0; NAME_BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes.extend_from_slice(&modified.to_be_bytes());
    bytes.extend_from_slice(&0_i32.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 4]);
    bytes.extend_from_slice(&value.to_be_bytes());
    bytes.resize(NAME_BYTES + 8 + 4 + 4 + VALUE_BYTES, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{attributes, is_one};
    use dray_core::Sums;

    #[test]
    fn attributes_have_the_form_that_servers_read() {
        let made = attributes(&Sums::of(b"123456789"), 0x0102_0304);
        let (name, value) = &made[0];
        assert_eq!(name, b"user.XrdCks.adler32");
        assert!(is_one(name) && !is_one(b"user.dray.sums"));
        let mut wanted = b"adler32".to_vec();
        wanted.resize(16, 0);
        wanted.extend([0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 4]);
        wanted.extend([0x09, 0x1e, 0x01, 0xde]);
        wanted.resize(96, 0);
        assert_eq!(value, &wanted);
        assert_eq!(made[1].1.len(), 96);
    }
}
