//! What a log says: the values behind its bytes.

use dray_core::options::Durability;
use dray_core::{
    ContentKey, End, Error, ErrorKind, Name, RelPath, Result, SummedRanges, Sums, TransferId,
};
use std::fmt;
use std::num::NonZeroU64;

/// Longest free text in a header or tenure in bytes (guess: a host name, a process and a few words).
pub const TEXT_BYTES_MAX: usize = 512;

/// Number of a file within one log, given in ascending order and never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Names one boot of one host: 16 to 64 bytes that no other boot has (on Linux the text of
/// `/proc/sys/kernel/random/boot_id`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BootId(Vec<u8>);

impl BootId {
    /// Fewest and most bytes.
    pub const LENGTH: std::ops::RangeInclusive<usize> = 16..=64;

    /// Accepts an id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] when it is shorter or longer than [`Self::LENGTH`].
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if Self::LENGTH.contains(&bytes.len()) {
            return Ok(Self(bytes.to_vec()));
        }
        Err(
            Error::new(ErrorKind::InvalidRequest, End::Sink, "read the boot id")
                .cause(format!("{} bytes, 16 to 64 are allowed", bytes.len())),
        )
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootId({})", dray_core::path::escape(&self.0))
    }
}

/// One holder's time with a log: who may write, since when, and what a record of theirs is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// Epoch of the lease; each holder's is higher than all before.
    pub epoch: u64,
    /// The holder in words, for messages; up to [`TEXT_BYTES_MAX`] bytes.
    pub holder: String,
    /// The transfer it works for.
    pub transfer: TransferId,
    /// The boot the holder runs in.
    pub boot_id: BootId,
    /// What "done" means in this holder's records.
    pub durability: Durability,
}

/// The log's first record: what it is about and to whom it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Destination paths below the log's own top folder that this log speaks for; empty for the
    /// whole tree.
    pub claims: Vec<RelPath>,
    /// Who may resume (the owner mapping's result), as the endpoint writes it.
    pub owner: Vec<u8>,
    /// A random number that no other log has. It is in each record's checksum, so that old blocks
    /// of another log, or a file's name made to look like a record, never pass for one.
    pub nonce: u64,
    /// Name and version of the program that made the log.
    pub software: String,
    /// First number not yet given to a file when this header was written.
    pub next_file: FileNumber,
    /// The holder at that moment.
    pub tenure: Tenure,
}

impl Header {
    /// The header of a new log.
    #[must_use]
    pub fn new(
        claims: Vec<RelPath>,
        owner: Vec<u8>,
        nonce: u64,
        software: impl Into<String>,
        tenure: Tenure,
    ) -> Self {
        Self {
            claims,
            owner,
            nonce,
            software: software.into(),
            next_file: FileNumber(0),
            tenure,
        }
    }
}

/// The partial file as its folder knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialFile {
    /// Its name in the destination file's own folder.
    pub name: Name,
    /// Number of the device; comparable within one boot only.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
    /// When it was created, in nanoseconds since 1970 modulo 2^64, as the file system keeps it; 0
    /// when it does not. Tells a new file from an old one whose inode number it took over.
    pub born: u64,
}

/// What is said of a file before anything of it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBegin {
    /// Final place, below the log's top folder.
    pub path: RelPath,
    /// What the content must be.
    pub key: ContentKey,
    /// Bytes of an object.
    pub object_bytes: NonZeroU64,
    /// Where the bytes lie until then.
    pub partial: PartialFile,
}

/// How a file ends in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It stands under its final name, as durably as asked.
    Published,
    /// Its partial file is about to be removed and nothing of it counts any more.
    Dropped,
}

/// An unfinished file as the log knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedFile {
    /// Its number.
    pub number: FileNumber,
    /// Content the partial file is made of.
    pub key: ContentKey,
    /// Bytes of an object.
    pub object_bytes: NonZeroU64,
    /// The partial file.
    pub partial: PartialFile,
    /// What is recorded as safe, with its sums.
    pub done: SummedRanges,
    /// Whether some of `done` was recorded without a sync: good only within the boot of
    /// [`crate::Recovery::tenure`].
    pub is_weak: bool,
    /// Whether a write or a sync of the partial file failed: bytes that are written to it
    /// afterwards do not count, even if a later sync succeeds.
    pub is_doubtful: bool,
    /// Records before this offset of the log no longer count.
    pub(crate) counts_from: u64,
    /// Bytes this file takes in the log.
    pub(crate) log_bytes: u64,
}

impl LoggedFile {
    pub(crate) fn new(number: FileNumber, begin: FileBegin, offset: u64) -> (RelPath, Self) {
        let file = Self {
            number,
            key: begin.key,
            object_bytes: begin.object_bytes,
            partial: begin.partial,
            done: SummedRanges::new(),
            is_weak: false,
            is_doubtful: false,
            counts_from: offset,
            log_bytes: 0,
        };
        (begin.path, file)
    }
}

/// A record's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Header(Header),
    FileBegin(FileNumber, FileBegin),
    Objects(Objects),
    Range(FileNumber, dray_core::ByteRange, Sums),
    FileEnd(FileNumber, Ending),
    Tenure(Tenure),
    Checkpoint(Checkpoint),
    Commit { durable_before: u64 },
    FileSynced(FileNumber),
    FileDoubtful(FileNumber),
}

/// A run of neighbouring objects that became safe together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) number: FileNumber,
    pub(crate) first: u64,
    pub(crate) sums: Vec<Sums>,
}

/// A window of a file's objects: one bit each, and the sums of those that are safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) number: FileNumber,
    pub(crate) first: u64,
    pub(crate) objects: Vec<Option<Sums>>,
}
