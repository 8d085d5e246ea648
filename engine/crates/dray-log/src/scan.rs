//! Finds the records and the unreadable parts of a log. This module does not interpret the records.

use crate::codec::{BODY_BYTES_MAX, kind};
use crate::file::LogFile;
use crate::frame::{
    ALIGNMENT, FLAG_NO_SUMS, FLAG_WEAK, HEAD_BYTES, Head, PRELUDE_BYTES, VERSION_USUAL,
    check_prelude, crc,
};
use crate::record::{Header, Record};
use dray_core::{End, Error, ErrorKind, Result};

/// Number of bytes per read.
const WINDOW_BYTES: usize = 256 << 10;

/// The part of the file that is in memory.
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns `length` bytes at `offset`; `None` if the range exceeds `end` or the end of the
    /// file.
    fn at<F: LogFile>(
        &mut self,
        file: &mut F,
        offset: u64,
        length: usize,
        end: u64,
    ) -> Result<Option<&[u8]>> {
        if offset.saturating_add(length as u64) > end {
            return Ok(None);
        }
        let held = offset
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|skip| skip + length <= self.bytes.len());
        let skip = match held {
            Some(skip) => skip,
            None => {
                let rest = usize::try_from(end - offset).unwrap_or(usize::MAX);
                let wanted = length.max(WINDOW_BYTES).min(rest);
                self.bytes.resize(wanted, 0);
                self.start = offset;
                let mut filled = 0;
                while filled < wanted {
                    match file.read_at(offset + filled as u64, &mut self.bytes[filled..])? {
                        0 => break,
                        count => filled += count,
                    }
                }
                self.bytes.truncate(filled);
                0
            }
        };
        Ok(self.bytes.get(skip..skip + length))
    }
}

/// Content of the log at one offset: a record, or unreadable bytes.
#[derive(Debug)]
pub(crate) enum Step {
    /// An intact record.
    Record {
        offset: u64,
        stride: u64,
        is_weak: bool,
        record: Record,
    },
    /// Unreadable bytes. `kind` is known if the head of the record is intact and only its body is
    /// damaged.
    Lost {
        offset: u64,
        length: u64,
        kind: Option<u8>,
    },
}

/// Reads the records of a log in order, up to the offset `end`.
pub(crate) struct Walk {
    window: Window,
    nonce: u64,
    /// True if the records of ranges contain sums.
    has_sums: bool,
    offset: u64,
    end: u64,
    /// Number of bytes of record bodies that a search for the next intact record may still
    /// checksum. After accidental damage, such a search checksums only a few records. Without the
    /// limit, a hostile file with overlapping false heads would need time quadratic in its size.
    search_bytes_left: u64,
}

enum Parsed {
    Record { head: Head, record: Record },
    BadBody(Head),
    BadHead,
}

impl Walk {
    /// Creates a walk that starts at `offset`. A record must start there. In a log with sums, a
    /// record of ranges without sums is not intact, and the other way round.
    pub(crate) fn new(nonce: u64, has_sums: bool, offset: u64, end: u64) -> Self {
        Self {
            window: Window {
                start: 0,
                bytes: Vec::new(),
            },
            nonce,
            has_sums,
            offset,
            end,
            search_bytes_left: end,
        }
    }

    /// Returns the next step; `None` at the end of the walk.
    pub(crate) fn next<F: LogFile>(&mut self, file: &mut F) -> Result<Option<Step>> {
        let offset = self.offset;
        if offset >= self.end {
            return Ok(None);
        }
        let step = match self.parse_at(file, offset)? {
            Parsed::Record { head, record } => {
                self.offset += head.stride();
                Step::Record {
                    offset,
                    stride: head.stride(),
                    is_weak: head.flags & FLAG_WEAK != 0,
                    record,
                }
            }
            Parsed::BadBody(head) => {
                self.offset += head.stride();
                Step::Lost {
                    offset,
                    length: head.stride(),
                    kind: Some(head.kind),
                }
            }
            Parsed::BadHead => {
                self.offset = self.search(file, offset + ALIGNMENT)?;
                Step::Lost {
                    offset,
                    length: self.offset - offset,
                    kind: None,
                }
            }
        };
        Ok(Some(step))
    }

    /// Returns the offset of the first intact record at or after `from`. Returns the end if no
    /// record is intact.
    fn search<F: LogFile>(&mut self, file: &mut F, from: u64) -> Result<u64> {
        let mut offset = from;
        while offset < self.end && self.search_bytes_left > 0 {
            match self.parse_at(file, offset)? {
                Parsed::Record { .. } => return Ok(offset),
                Parsed::BadBody(head) => {
                    self.search_bytes_left = self
                        .search_bytes_left
                        .saturating_sub(u64::from(head.body_bytes));
                }
                Parsed::BadHead => {}
            }
            offset += ALIGNMENT;
        }
        Ok(self.end)
    }

    fn parse_at<F: LogFile>(&mut self, file: &mut F, offset: u64) -> Result<Parsed> {
        let Some(bytes) = self.window.at(file, offset, HEAD_BYTES, self.end)? else {
            return Ok(Parsed::BadHead);
        };
        let Some(head) = bytes
            .first_chunk()
            .and_then(|bytes| Head::read(bytes, self.nonce, offset))
        else {
            return Ok(Parsed::BadHead);
        };
        let length = head.body_bytes as usize;
        if length > BODY_BYTES_MAX || offset + head.stride() > self.end {
            // The padding belongs to the record, so the padded record must end before `end`.
            return Ok(Parsed::BadHead);
        }
        let start = offset + HEAD_BYTES as u64;
        let body = self.window.at(file, start, length, self.end)?;
        let is_known = head.flags & !(FLAG_WEAK | FLAG_NO_SUMS) == 0;
        let has_sums = head.flags & FLAG_NO_SUMS == 0;
        let record = body
            .filter(|body| crc(body) == head.body_crc && is_known)
            .and_then(|body| Record::decode(head.kind, head.flags, body))
            .filter(|record| match record.file_of_ranges() {
                Some(_) => has_sums == self.has_sums,
                None => has_sums,
            });
        Ok(match record {
            Some(record) => Parsed::Record { head, record },
            None => Parsed::BadBody(head),
        })
    }
}

/// Structure of a whole log: its header and the offsets of its parts.
pub(crate) struct Scan {
    pub(crate) header: Header,
    /// Version of the log's format.
    pub(crate) version: u16,
    /// Offset of the first record after the header.
    pub(crate) first: u64,
    /// Offset of the torn tail. If the log has no torn tail, the length of the file.
    pub(crate) end: u64,
    /// Length of the file in bytes.
    pub(crate) file_bytes: u64,
    /// Offset before which all bytes have certainly been durable.
    pub(crate) durable: u64,
}

/// Reads a log once to find its structure. Returns `None` for an empty file.
///
/// Each commit appends a group of records that ends with a commit record. A commit record contains
/// the length of the log that was durable before this append. The scan uses the greatest of these
/// lengths. Unreadable bytes before this length were durable. The storage has lost these bytes, so
/// they count as damage. Unreadable bytes after this length may never have been durable. So the log
/// ends before these bytes, with a torn tail.
///
/// # Errors
/// [`ErrorKind::LogVersion`], [`ErrorKind::LogDamaged`] (prelude or header), or errors of the
/// storage.
pub(crate) fn scan<F: LogFile>(file: &mut F) -> Result<Option<Scan>> {
    let file_bytes = file.length()?;
    if file_bytes == 0 {
        return Ok(None);
    }
    let version = read_version(file, file_bytes)?;
    let (header, first) = read_header(file, file_bytes)?;

    let mut walk = Walk::new(header.nonce, header.form.has_sums, first, file_bytes);
    let mut durable = first;
    let mut lost = Vec::new();
    while let Some(step) = walk.next(file)? {
        match step {
            Step::Record {
                offset,
                record: Record::Commit { durable_before },
                ..
            } => durable = durable.max(durable_before.min(offset)),
            Step::Record { .. } => {}
            Step::Lost { offset, .. } => lost.push(offset),
        }
    }
    let end = lost.into_iter().find(|offset| *offset >= durable);
    Ok(Some(Scan {
        header,
        version,
        first,
        end: end.unwrap_or(file_bytes),
        file_bytes,
        durable,
    }))
}

fn read_version<F: LogFile>(file: &mut F, file_bytes: u64) -> Result<u16> {
    let mut window = Window {
        start: 0,
        bytes: Vec::new(),
    };
    let prelude_bytes = file_bytes.min(PRELUDE_BYTES) as usize;
    let prelude = window.at(file, 0, prelude_bytes, file_bytes)?;
    check_prelude(prelude.unwrap_or_default())
}

/// Checks the prelude and reads the header. Returns the header and the offset of the first record
/// after it.
pub(crate) fn read_header<F: LogFile>(file: &mut F, file_bytes: u64) -> Result<(Header, u64)> {
    let version = read_version(file, file_bytes)?;
    // The header contains the nonce, so the checksum of the header itself uses the nonce 0.
    let mut walk = Walk::new(0, true, PRELUDE_BYTES, file_bytes);
    walk.search_bytes_left = 0;
    match walk.parse_at(file, PRELUDE_BYTES)? {
        Parsed::Record {
            head,
            record: Record::Header(header),
        } if version.max(VERSION_USUAL) == header.version() => {
            Ok((*header, PRELUDE_BYTES + head.stride()))
        }
        _ => Err(
            Error::new(ErrorKind::LogDamaged, End::Sink, "read the object log")
                .cause("the header of the log does not match its checksum")
                .remedy("remove the log to copy its files from the beginning"),
        ),
    }
}

/// Possible consequences of a lost record. The record may have ended a file, or recorded a new
/// holder of the log.
pub(crate) struct Loss {
    pub(crate) may_end_files: bool,
    pub(crate) may_change_tenure: bool,
}

impl Loss {
    pub(crate) const fn of(kind: Option<u8>) -> Self {
        let harmless = matches!(
            kind,
            Some(
                kind::FILE_BEGIN
                    | kind::OBJECTS
                    | kind::RANGE
                    | kind::CHECKPOINT
                    | kind::POSITIONS
                    | kind::COMMIT
                    | kind::FILE_SYNCED
                    | kind::FILE_DOUBTFUL
            )
        );
        Self {
            may_end_files: !harmless && !matches!(kind, Some(kind::TENURE)),
            may_change_tenure: !harmless && !matches!(kind, Some(kind::FILE_END)),
        }
    }
}
