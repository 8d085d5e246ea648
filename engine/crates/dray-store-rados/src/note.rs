//! Attributes of the objects of a file that dray has written.

use dray_core::{ModifiedTime, Sums};
use dray_store::FileNote;
use std::ffi::CStr;

/// Attribute of each object with a random number, which is the same for all objects of one file.
/// Readers and writers of a file compare the number in each operation, so they never mix objects of
/// two files that had the same name one after the other.
pub(crate) const GENERATION: &CStr = c"dray.generation";

/// Attribute of the first object, and of a folder, with a [`Note`].
pub(crate) const NOTE: &CStr = c"dray.note";

/// Attribute with the checksum that XrdCeph reads.
pub(crate) const XRDCKS: &CStr = c"XrdCks.adler32";

/// Prefix that XrdCeph gives to the names of users' attributes.
pub(crate) const USER_PREFIX: &[u8] = b"U.";

const FORM: &str = "1";

/// A random number that identifies a file. Its text is the value of [`GENERATION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(pub(crate) u64);

impl Generation {
    /// Draws a number that is not zero.
    pub(crate) fn random() -> Self {
        use std::hash::{BuildHasher, Hasher};
        // The state has random keys of the operating system, different for each call.
        let state = std::collections::hash_map::RandomState::new();
        let mut hasher = state.build_hasher();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        hasher.write_u128(now.map_or(0, |now| now.as_nanos()));
        hasher.write_u32(std::process::id());
        Self(hasher.finish().max(1))
    }

    pub(crate) fn text(self) -> String {
        format!("{:016x}", self.0)
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

/// Properties of a file or a folder that Ceph does not store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) file: FileNote,
    pub(crate) mode: u32,
}

impl Note {
    /// Returns the note of a folder. It has neither a size nor checksums.
    pub(crate) const fn of_folder(modified: ModifiedTime, mode: u32) -> Self {
        let file = FileNote {
            size: 0,
            modified,
            sums: None,
        };
        Self { file, mode }
    }

    pub(crate) fn text(&self) -> String {
        let [size, seconds, nanoseconds, crc32c, adler32] = self.file.words();
        let mode = self.mode;
        format!("{FORM} {size} {seconds} {nanoseconds} {mode:o} {crc32c} {adler32}")
    }

    /// Parses a note. Returns `None` if the text is not a note.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let [FORM, size, seconds, nanoseconds, mode, crc32c, adler32] = words.as_slice() else {
            return None;
        };
        Some(Self {
            file: FileNote::of_words([size, seconds, nanoseconds, crc32c, adler32])?,
            mode: u32::from_str_radix(mode, 8).ok()? & 0o7777,
        })
    }
}

/// Returns the value of [`XRDCKS`]: the structure `XrdCksData` of XRootD, big endian. XrdCeph uses
/// the checksum only as long as the first object has the modification time `time`.
pub(crate) fn xrdcks(sums: &Sums, time: i64) -> [u8; 96] {
    const LENGTH: usize = 4;
    let mut value = [0; 96];
    let mut put = |at: usize, bytes: &[u8]| value[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"adler32");
    put(16, &time.to_be_bytes());
    // The seconds from the file's time to the checksum's time, two reserved fields, the length.
    put(24, &0i32.to_be_bytes());
    put(31, &[LENGTH as u8]);
    put(32, &sums.adler32.to_be_bytes());
    value
}

/// Returns the adler32 in a value of [`XRDCKS`], if it was computed of an object with this
/// modification time.
pub(crate) fn xrdcks_of(value: &[u8], time: i64) -> Option<u32> {
    let zero = Sums {
        crc32c: 0,
        adler32: 0,
    };
    let expected = xrdcks(&zero, time);
    let adler32 = u32::from_be_bytes(value.get(32..36)?.try_into().ok()?);
    let is_named = value.get(..24)? == &expected[..24] && value.get(31) == Some(&expected[31]);
    is_named.then_some(adler32)
}

#[cfg(test)]
mod tests {
    use super::{Generation, Note, xrdcks, xrdcks_of};
    use dray_core::{ModifiedTime, Sums};
    use dray_store::FileNote;

    #[test]
    fn notes_and_generations_are_read_as_written() {
        let modified = ModifiedTime {
            seconds: -2,
            nanoseconds: 999_999_999,
        };
        let note = Note {
            file: FileNote {
                size: 9,
                modified,
                sums: Some(Sums::of(b"123456789")),
            },
            mode: 0o4711,
        };
        // Files of earlier versions have this text.
        assert_eq!(note.text(), "1 9 -2 999999999 4711 e3069283 091e01de");
        assert_eq!(Note::parse(note.text().as_bytes()), Some(note));
        let bare = Note::of_folder(modified, 0o755);
        assert_eq!(Note::parse(bare.text().as_bytes()), Some(bare));
        for bad in ["", "2 9 0 0 644 - -", "1 9 0 x 644 - -", "1 9 0 0 9 - -"] {
            assert_eq!(Note::parse(bad.as_bytes()), None, "{bad}");
        }
        let one = Generation::random();
        assert_ne!(one, Generation::random());
        assert_eq!(Generation::parse(one.text().as_bytes()), Some(one));
    }

    #[test]
    fn the_checksum_has_the_form_of_xrootd() {
        let value = xrdcks(&Sums::of(b"123456789"), 0x0102_0304);
        assert_eq!(&value[..8], b"adler32\0");
        assert_eq!(&value[16..24], &[0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(&value[24..32], &[0, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(&value[32..36], &[0x09, 0x1e, 0x01, 0xde]);
        assert_eq!(xrdcks_of(&value, 0x0102_0304), Some(0x091e_01de));
        assert_eq!(xrdcks_of(&value, 5), None);
        assert_eq!(xrdcks_of(&value[..35], 0x0102_0304), None);
    }
}
