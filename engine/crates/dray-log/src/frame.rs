//! Layout of records in the log file: the file has a prelude, and each record has a head.
//!
//! ```text
//! prelude, 16 bytes: magic 8 | version u16 | zero u16 | crc32c u32 of the 12 bytes before
//! record: head 16 | body | zeros up to a multiple of 8
//! head:   body length u32 | type u8 | flags u8 | zero u16 | body crc32c u32 | head crc32c u32
//! ```
//!
//! The crc32c of the head covers the nonce of the log (u64), the offset of the record in the file
//! (u64) and the first 12 bytes of the head. Numbers are little-endian.

use dray_core::checksum::crc32c;
use dray_core::{End, Error, ErrorKind, Result};

/// First bytes of an object log of every version.
pub const MAGIC: [u8; 8] = *b"DRAYLOG\n";
/// Newest version that this build reads and writes.
pub const VERSION: u16 = 4;
/// Version of a log of the default form. Older programs also read such a log.
pub(crate) const VERSION_USUAL: u16 = 2;
/// Version of a log of another form, with sums and written synchronously.
pub(crate) const VERSION_OF_FORMS: u16 = 3;
/// Oldest version that this build reads.
pub const VERSION_OLDEST: u16 = 1;

/// Length of the prelude in bytes. The header record follows the prelude.
pub(crate) const PRELUDE_BYTES: u64 = 16;
/// Length of the head of a record in bytes.
pub(crate) const HEAD_BYTES: usize = 16;
/// Alignment of records in bytes. With an alignment, a search for records after damage has to check
/// fewer offsets.
pub(crate) const ALIGNMENT: u64 = 8;

/// Flag of a record whose ranges were written but not synced.
pub(crate) const FLAG_WEAK: u8 = 1;
/// Flag of a record of ranges without their sums.
pub(crate) const FLAG_NO_SUMS: u8 = 2;

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) body_bytes: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) body_crc: u32,
}

impl Head {
    /// Returns the number of bytes from the start of this record to the start of the next record.
    pub(crate) fn stride(&self) -> u64 {
        (HEAD_BYTES as u64 + u64::from(self.body_bytes)).next_multiple_of(ALIGNMENT)
    }

    /// Parses a head. Returns `None` if the head does not belong to this offset in a log with this
    /// nonce.
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES], nonce: u64, offset: u64) -> Option<Self> {
        let (fields, crc) = bytes.split_at(12);
        if crc != head_crc(fields, nonce, offset).to_le_bytes() {
            return None;
        }
        Some(Self {
            body_bytes: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            kind: bytes[4],
            flags: bytes[5],
            body_crc: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
        })
    }
}

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32c(&[bytes])
}

fn head_crc(fields: &[u8], nonce: u64, offset: u64) -> u32 {
    let mut bound = [0u8; 28];
    bound[..8].copy_from_slice(&nonce.to_le_bytes());
    bound[8..16].copy_from_slice(&offset.to_le_bytes());
    bound[16..].copy_from_slice(fields);
    crc(&bound)
}

/// Appends one record to `out`. `offset` is the offset that the record will have in the file.
///
/// # Panics
/// If the body is 4 GiB or longer. This cannot happen, because the codec limits bodies to 1 MiB.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    offset: u64,
    nonce: u64,
    kind: u8,
    flags: u8,
    body: &[u8],
) {
    let length = u32::try_from(body.len()).expect("invariant: bodies are bounded by the codec");
    let mut head = [0u8; HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4] = kind;
    head[5] = flags;
    head[8..12].copy_from_slice(&crc(body).to_le_bytes());
    let crc = head_crc(&head[..12], nonce, offset);
    head[12..].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(ALIGNMENT as usize), 0);
}

/// Returns the prelude of a log of this version.
pub(crate) fn prelude_of(version: u16) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let crc = crc(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks a prelude and returns the version of the log.
///
/// # Errors
/// [`ErrorKind::LogVersion`] if the file is not a log, or has a version that this build cannot
/// read; [`ErrorKind::LogDamaged`] if the prelude is damaged.
pub(crate) fn check_prelude(bytes: &[u8]) -> Result<u16> {
    let remedy = "use the version of dray that wrote the log, or remove the log to copy the \
        files from the beginning";
    if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
        return Err(
            Error::new(ErrorKind::LogVersion, End::Sink, "read the object log")
                .cause("the file is not an object log, because it does not begin like one")
                .remedy(
                    "if the file is not needed, remove it; the copy then starts from the \
                    beginning",
                ),
        );
    }
    let damaged = |why: &str| {
        Error::new(ErrorKind::LogDamaged, End::Sink, "read the object log")
            .cause(why)
            .remedy("remove the log to copy its files from the beginning")
    };
    let Some(bytes) = bytes.first_chunk::<16>() else {
        return Err(damaged("the log ends inside its first 16 bytes"));
    };
    if bytes[12..] != crc(&bytes[..12]).to_le_bytes() {
        return Err(damaged(
            "the first 16 bytes of the log do not match their checksum",
        ));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if (VERSION_OLDEST..=VERSION).contains(&version) {
        return Ok(version);
    }
    let supported = if VERSION_OLDEST == VERSION {
        format!("version {VERSION}")
    } else {
        format!("versions {VERSION_OLDEST} to {VERSION}")
    };
    Err(
        Error::new(ErrorKind::LogVersion, End::Sink, "read the object log")
            .cause(format!(
                "the log is of version {version}; this program reads {supported}"
            ))
            .remedy(remedy),
    )
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, Head, VERSION, check_prelude, prelude_of, write_record};
    use dray_core::ErrorKind;

    #[test]
    fn head_is_valid_only_at_its_offset_in_its_log() {
        let mut bytes = Vec::new();
        write_record(&mut bytes, 40, 7, 3, 1, b"twelve bytes");
        assert_eq!(bytes.len(), 32);
        let head: [u8; HEAD_BYTES] = bytes[..HEAD_BYTES].try_into().expect("sixteen bytes");
        let read = Head::read(&head, 7, 40).expect("its own place");
        assert_eq!(
            (read.body_bytes, read.kind, read.flags, read.stride()),
            (12, 3, 1, 32)
        );
        assert_eq!(Head::read(&head, 8, 40), None, "another log");
        assert_eq!(Head::read(&head, 7, 48), None, "another place");
    }

    #[test]
    fn unknown_versions_and_foreign_files_are_refused() {
        assert_eq!(check_prelude(&prelude_of(VERSION)).expect("ours"), 4);
        assert_eq!(check_prelude(&prelude_of(1)).expect("older"), 1);
        let newer = check_prelude(&prelude_of(258)).expect_err("newer");
        assert_eq!(newer.kind, ErrorKind::LogVersion);
        assert!(
            newer.to_string().contains("version 258")
                && newer.cause.contains("reads versions 1 to 4"),
            "{newer}"
        );
        let older = check_prelude(&prelude_of(0)).expect_err("older");
        assert_eq!(older.kind, ErrorKind::LogVersion);
        let other = check_prelude(b"SQLite format 3\0").expect_err("other");
        assert_eq!(other.kind, ErrorKind::LogVersion);
        let mut flipped = prelude_of(VERSION);
        flipped[9] ^= 1;
        let damaged = check_prelude(&flipped).expect_err("flipped");
        assert_eq!(damaged.kind, ErrorKind::LogDamaged);
        for cut in 1..16 {
            let short = check_prelude(&prelude_of(VERSION)[..cut]).expect_err("short");
            assert_eq!(short.kind, ErrorKind::LogDamaged);
        }
    }
}
