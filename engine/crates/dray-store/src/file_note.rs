//! The properties of a source file that a storage system cannot keep, as words of a note. A store
//! keeps the note as an attribute of the written file.
//!
//! Not for: the form of the whole note. Each store has its own form, with further words and a
//! version.

use dray_core::{ModifiedTime, Sums};

/// Text in place of a checksum that is not known.
const UNKNOWN: &str = "-";

/// Size, modification time and checksums of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNote {
    /// Size in bytes.
    pub size: u64,
    /// Modification time of the source file.
    pub modified: ModifiedTime,
    /// Checksums of the whole file, if they are known.
    pub sums: Option<Sums>,
}

impl FileNote {
    /// Returns the words of the note: size, seconds and nanoseconds of the time in decimal, crc32c
    /// and adler32 in hexadecimal.
    #[must_use]
    pub fn words(&self) -> [String; 5] {
        let ModifiedTime {
            seconds,
            nanoseconds,
        } = self.modified;
        let sum = |of: fn(Sums) -> u32| {
            self.sums
                .map_or_else(|| UNKNOWN.to_owned(), |sums| format!("{:08x}", of(sums)))
        };
        [
            self.size.to_string(),
            seconds.to_string(),
            nanoseconds.to_string(),
            sum(|sums| sums.crc32c),
            sum(|sums| sums.adler32),
        ]
    }

    /// Parses the words of [`Self::words`]. Returns `None` if a word is not valid. A note without
    /// two valid checksums has no checksums.
    #[must_use]
    pub fn of_words(words: [&str; 5]) -> Option<Self> {
        let [size, seconds, nanoseconds, crc32c, adler32] = words;
        let sum = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let nanoseconds = nanoseconds.parse().ok();
        Some(Self {
            size: size.parse().ok()?,
            modified: ModifiedTime {
                seconds: seconds.parse().ok()?,
                nanoseconds: nanoseconds.filter(|part| *part < 1_000_000_000)?,
            },
            sums: sum(crc32c)
                .zip(sum(adler32))
                .map(|(crc32c, adler32)| Sums { crc32c, adler32 }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::FileNote;
    use dray_core::{ModifiedTime, Sums};

    #[test]
    fn words_are_parsed_as_they_were_written() {
        let note = FileNote {
            size: 9,
            modified: ModifiedTime {
                seconds: -2,
                nanoseconds: 999_999_999,
            },
            sums: Some(Sums::of(b"123456789")),
        };
        let words = note.words();
        assert_eq!(words, ["9", "-2", "999999999", "e3069283", "091e01de"]);
        assert_eq!(
            FileNote::of_words(words.each_ref().map(String::as_str)),
            Some(note)
        );
        let bare = FileNote { sums: None, ..note };
        let words = bare.words();
        assert_eq!(words, ["9", "-2", "999999999", "-", "-"]);
        assert_eq!(
            FileNote::of_words(words.each_ref().map(String::as_str)),
            Some(bare)
        );
    }

    #[test]
    fn a_note_with_an_invalid_size_or_time_is_refused() {
        for bad in [
            ["", "0", "0", "-", "-"],
            ["-1", "0", "0", "-", "-"],
            ["9", "x", "0", "-", "-"],
            ["9", "0", "1000000000", "-", "-"],
        ] {
            assert_eq!(FileNote::of_words(bad), None, "{bad:?}");
        }
        let half = FileNote::of_words(["9", "0", "0", "e3069283", "-"]).expect("a note");
        assert_eq!(half.sums, None);
    }
}
