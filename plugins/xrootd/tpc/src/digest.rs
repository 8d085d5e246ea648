//! Extended attributes in which XRootD servers store the checksums of files (`XrdCksData`, 96
//! bytes).

use dray_core::{Checksum, Sums};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

const PREFIX: &[u8] = b"user.XrdCks.";
const NAME_BYTES: usize = 16;
const VALUE_BYTES: usize = 64;
const ATTRIBUTE_BYTES: usize = NAME_BYTES + 8 + 4 + 4 + VALUE_BYTES;
const ADLER: &[u8] = b"adler32";

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

/// Returns the adler32 that is stored with an open file; `None` if there is none, or if it was stored
/// for another modification time.
pub(crate) fn stored(file: &File) -> Option<Checksum> {
    let name = [PREFIX, ADLER].concat();
    let mut value = [0; ATTRIBUTE_BYTES + 1];
    let length = rustix::fs::fgetxattr(file, name.as_slice(), &mut value[..]).ok()?;
    decode_adler(value.get(..length)?, file.metadata().ok()?.mtime())
}

/// Decodes an attribute of [`encode`] with an adler32.
fn decode_adler(bytes: &[u8], modified: i64) -> Option<Checksum> {
    let rest = bytes.strip_prefix(ADLER)?;
    let is_adler = bytes.len() == ATTRIBUTE_BYTES && rest.first() == Some(&0);
    let (time, rest) = bytes.get(NAME_BYTES..)?.split_first_chunk()?;
    let (length, value) = (rest.get(7)?, rest.get(8..)?.first_chunk()?);
    let is_valid = is_adler && i64::from_be_bytes(*time) == modified && *length == 4;
    is_valid.then(|| Checksum::Adler32(u32::from_be_bytes(*value)))
}

/// Encodes the value of a checksum attribute of XRootD. The fields are the name of the algorithm,
/// the modification time of the file (8 bytes), the seconds from that time to the computation of
/// the checksum (4 bytes), two reserved fields that are zero (2 bytes and 1 byte), the length of
/// the value (1 byte), and the value. All numbers are big-endian.
fn encode(name: &str, value: u32, modified: i64) -> Vec<u8> {
    let mut bytes = vec![0; NAME_BYTES];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes.extend_from_slice(&modified.to_be_bytes());
    bytes.extend_from_slice(&0_i32.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 4]);
    bytes.extend_from_slice(&value.to_be_bytes());
    bytes.resize(ATTRIBUTE_BYTES, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{attributes, decode_adler, is_one};
    use dray_core::{Checksum, Sums};

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

    #[test]
    fn a_stored_checksum_counts_only_for_its_time() {
        let made = attributes(&Sums::of(b"123456789"), 1234);
        let adler = Some(Checksum::Adler32(0x091e_01de));
        assert_eq!(decode_adler(&made[0].1, 1234), adler);
        assert_eq!(decode_adler(&made[0].1, 1235), None);
        assert_eq!(
            decode_adler(&made[1].1, 1234),
            None,
            "the checksum is a crc32c"
        );
        for cut in 0..made[0].1.len() {
            assert_eq!(decode_adler(&made[0].1[..cut], 1234), None, "{cut}");
        }
    }
}
