//! A note stored with each written file. The protocol can neither set the modification time of a
//! file nor identify its content. So an extended attribute of the file stores the source's time and
//! the checksums.

use dray_core::{ModifiedTime, Sums};

/// Name of the attribute in client requests.
pub(crate) const ATTRIBUTE: &str = "dray.of";

/// Attribute of a partial file with a random number. It distinguishes the file from a later file
/// with the same file number.
pub(crate) const BIRTH: &str = "dray.born";

/// First word of a note: the version of its format.
const FORM: &str = "1";

/// Properties of the source file. The note is valid while the file has the size and server time
/// that the note contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) size: u64,
    /// Modification time of the source file.
    pub(crate) modified: ModifiedTime,
    pub(crate) sums: Option<Sums>,
}

impl Note {
    /// Returns the text of the note without its last word. The last word is the file's time at the
    /// server in seconds.
    pub(crate) fn text(&self) -> String {
        let (crc32c, adler32) = match self.sums {
            Some(sums) => (
                format!("{:08x}", sums.crc32c),
                format!("{:08x}", sums.adler32),
            ),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let ModifiedTime {
            seconds,
            nanoseconds,
        } = self.modified;
        let size = self.size;
        format!("{FORM} {size} {seconds} {nanoseconds} {crc32c} {adler32}")
    }

    /// Parses the note of a file with this size and time. Returns `None` if the note is for another
    /// size or time, or if the text is not a note.
    pub(crate) fn read(text: &[u8], size: u64, at_server: i64) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let words: Vec<&str> = text.split(' ').collect();
        let [FORM, noted, seconds, nanoseconds, crc32c, adler32, at] = words.as_slice() else {
            return None;
        };
        let sum = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let note = Self {
            size: noted.parse().ok()?,
            modified: ModifiedTime {
                seconds: seconds.parse().ok()?,
                nanoseconds: nanoseconds
                    .parse()
                    .ok()
                    .filter(|part| *part < 1_000_000_000)?,
            },
            sums: sum(crc32c)
                .zip(sum(adler32))
                .map(|(crc32c, adler32)| Sums { crc32c, adler32 }),
        };
        let is_of_it = note.size == size && at.parse::<i64>() == Ok(at_server);
        is_of_it.then_some(note)
    }
}

#[cfg(test)]
mod tests {
    use super::Note;
    use dray_core::{ModifiedTime, Sums};

    #[test]
    fn a_note_counts_for_the_file_it_was_written_with() {
        let note = Note {
            size: 9,
            modified: ModifiedTime {
                seconds: -2,
                nanoseconds: 999_999_999,
            },
            sums: Some(Sums::of(b"123456789")),
        };
        let text = format!("{} 1700000000", note.text());
        let read = |text: &str, size, at| Note::read(text.as_bytes(), size, at);
        assert_eq!(read(&text, 9, 1_700_000_000), Some(note));
        assert_eq!(read(&text, 8, 1_700_000_000), None);
        assert_eq!(read(&text, 9, 1_700_000_001), None);
        let bare = Note { sums: None, ..note };
        let text = format!("{} 5", bare.text());
        assert_eq!(read(&text, 9, 5), Some(bare));
        for other in [
            "",
            "1",
            "2 9 0 0 - - 5",
            "1 9 0 1000000000 - - 5",
            "1 9 x 0 - - 5",
        ] {
            assert_eq!(read(other, 9, 5), None, "{other}");
        }
    }
}
