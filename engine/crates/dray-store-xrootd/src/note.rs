//! A note stored with each written file. The protocol can neither set the modification time of a
//! file nor identify its content. So an extended attribute of the file stores the source's time and
//! the checksums.

use dray_store::FileNote;

/// Name of the attribute in client requests.
pub(crate) const ATTRIBUTE: &str = "dray.of";

/// Name of the attribute of a partial file that holds a random number. The number distinguishes the
/// file from a later file with the same file number.
pub(crate) const BIRTH: &str = "dray.born";

/// First word of a note: the version of its format.
const FORM: &str = "1";

/// Returns the text of a note without its last word. The last word is the file's time at the server
/// in seconds.
pub(crate) fn text(note: &FileNote) -> String {
    format!("{FORM} {}", note.words().join(" "))
}

/// Parses the note of a file with this size and time. Returns `None` if the note is for another
/// size or time, or if the text is not a note.
pub(crate) fn read(text: &[u8], size: u64, at_server: i64) -> Option<FileNote> {
    let text = std::str::from_utf8(text).ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let [FORM, noted, seconds, nanoseconds, crc32c, adler32, at] = words.as_slice() else {
        return None;
    };
    let note = FileNote::of_words([noted, seconds, nanoseconds, crc32c, adler32])?;
    let is_of_it = note.size == size && at.parse::<i64>() == Ok(at_server);
    is_of_it.then_some(note)
}

#[cfg(test)]
mod tests {
    use super::{read, text};
    use dray_core::{ModifiedTime, Sums};
    use dray_store::FileNote;

    #[test]
    fn a_note_is_valid_only_for_the_size_and_time_of_its_file() {
        let note = FileNote {
            size: 9,
            modified: ModifiedTime {
                seconds: -2,
                nanoseconds: 999_999_999,
            },
            sums: Some(Sums::of(b"123456789")),
        };
        // Files of earlier versions have this text.
        let noted = format!("{} 1700000000", text(&note));
        assert_eq!(noted, "1 9 -2 999999999 e3069283 091e01de 1700000000");
        let read = |text: &str, size, at| read(text.as_bytes(), size, at);
        assert_eq!(read(&noted, 9, 1_700_000_000), Some(note));
        assert_eq!(read(&noted, 8, 1_700_000_000), None);
        assert_eq!(read(&noted, 9, 1_700_000_001), None);
        let bare = FileNote { sums: None, ..note };
        let noted = format!("{} 5", text(&bare));
        assert_eq!(read(&noted, 9, 5), Some(bare));
        for other in ["", "1", "2 9 0 0 - - 5", "1 9 x 0 - - 5"] {
            assert_eq!(read(other, 9, 5), None, "{other}");
        }
    }
}
