//! Values in the records of a log.

use crate::frame::{FLAG_NO_SUMS, FLAG_WEAK, VERSION, VERSION_OF_FORMS, VERSION_USUAL};
use dray_core::options::Durability;
use dray_core::{
    ContentKey, End, Error, ErrorKind, LogForm, LogMethod, Name, RelPath, Result, SummedRanges,
    Sums, TransferId,
};
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

/// Maximum length in bytes of text in a header or in a tenure (the record of a holder of the log).
/// Such a text contains a host name, a process and a few words. The value is estimated, not
/// measured.
pub const TEXT_BYTES_MAX: usize = 512;

/// Maximum number of objects in one record. Their sums take 64 KiB.
pub(crate) const OBJECTS_PER_RECORD_MAX: usize = 8192;

/// Number of a file within one log. A log assigns the numbers in ascending order and never reuses
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifies one boot of one host by 16 to 64 bytes. On Linux, the text of
/// `/proc/sys/kernel/random/boot_id`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BootId(Vec<u8>);

impl BootId {
    /// Permitted lengths in bytes.
    pub const LENGTH: std::ops::RangeInclusive<usize> = 16..=64;

    /// Creates an id from bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidRequest`] if the length is outside [`Self::LENGTH`].
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if Self::LENGTH.contains(&bytes.len()) {
            return Ok(Self(bytes.to_vec()));
        }
        Err(
            Error::new(ErrorKind::InvalidRequest, End::Sink, "read the boot id").cause(format!(
                "the boot id has {} bytes; 16 to 64 are allowed",
                bytes.len()
            )),
        )
    }

    /// Returns the bytes of the id.
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

/// Describes the time during which one holder has the log: who the holder is, its epoch, and the
/// durability of its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// Epoch of the lease, higher than the epochs of all earlier holders.
    pub epoch: u64,
    /// Description of the holder for messages, at most [`TEXT_BYTES_MAX`] bytes.
    pub holder: String,
    /// Transfer of the holder.
    pub transfer: TransferId,
    /// Boot of the host in which the holder runs.
    pub boot_id: BootId,
    /// Durability that ranges have when this holder records them as done.
    pub durability: Durability,
}

/// First record of a log: its claims and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Destination paths that this log covers, relative to the top folder. If empty, the log covers
    /// the whole tree.
    pub claims: Vec<RelPath>,
    /// Owner, from the endpoint's owner mapping. Only this owner may resume the transfer.
    pub owner: Vec<u8>,
    /// A random number that is unique to this log. The checksum of each record covers it. So
    /// recovery does not accept foreign bytes as records. Examples are old blocks of another log on
    /// the disk, and a file name that contains the bytes of a record.
    pub nonce: u64,
    /// Name and version of the program that created the log.
    pub software: String,
    /// First file number that was free when this header was written.
    pub next_file: FileNumber,
    /// Tenure of the holder when this header was written.
    pub tenure: Tenure,
    /// Mechanism and method of the log.
    pub form: LogForm,
    /// A random number that a log and its part logs have in common. In contrast to the nonce, it
    /// stays the same when a log is rewritten. Zero in a log of the default form.
    pub(crate) id: u64,
    /// Number of the part log; `None` in a log that lists its files.
    pub(crate) part: Option<u32>,
    /// First epoch since which all holders have had the boot id of `tenure`.
    pub(crate) boot_epoch: u64,
}

impl Header {
    /// Creates the header of a new log.
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
            boot_epoch: tenure.epoch,
            tenure,
            form: LogForm::default(),
            id: 0,
            part: None,
        }
    }

    /// Returns the header of a new log of the form `form`.
    #[must_use]
    pub fn of_form(self, form: LogForm) -> Self {
        let is_usual = form == LogForm::default();
        Self {
            form,
            id: if is_usual { 0 } else { self.nonce },
            ..self
        }
    }

    /// Returns the version of the log that has this header.
    pub(crate) fn version(&self) -> u16 {
        match self.form == LogForm::default() {
            true => VERSION_USUAL,
            false if self.form.has_sums && !self.form.is_async => VERSION_OF_FORMS,
            false => VERSION,
        }
    }

    /// Returns the number of files of one part log; `None` if this log has no part logs.
    pub(crate) fn files_per_part(&self) -> Option<NonZeroU32> {
        self.form.files_per_part().filter(|_| self.part.is_none())
    }
}

/// Identity of a partial file in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialFile {
    /// Name of the partial file, in the folder of the destination file.
    pub name: Name,
    /// Device number. Device numbers can be compared only within one boot.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Creation time in nanoseconds since 1970, modulo 2^64; 0 if the file system does not store
    /// it. It distinguishes a new file from an older file with the same inode number.
    pub born: u64,
}

/// Record that announces a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBegin {
    /// Final path of the file, relative to the log's top folder.
    pub path: RelPath,
    /// Identity of the content that the file must get.
    pub key: ContentKey,
    /// Size of an object in bytes.
    pub object_bytes: NonZeroU64,
    /// Partial file that contains the bytes until the file is published.
    pub partial: PartialFile,
}

/// Reason why a file ends in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The file has its final name with the requested durability.
    Published,
    /// The partial file will be deleted, so its ranges do not count any more.
    Dropped,
}

/// State of an unfinished file in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedFile {
    /// Number of the file in the log.
    pub number: FileNumber,
    /// Identity of the content that the file must get.
    pub key: ContentKey,
    /// Size of an object in bytes.
    pub object_bytes: NonZeroU64,
    /// Partial file that contains the bytes.
    pub partial: PartialFile,
    /// Ranges that are done, with their sums.
    pub done: SummedRanges,
    /// True if a range in `done` was recorded without a sync. Such ranges are valid only until the
    /// host restarts. [`crate::Recovery::tenure`] identifies the boot in which they were written.
    pub is_weak: bool,
    /// True if a write or a sync of the partial file failed. Bytes written to the partial file
    /// after the failure do not count, even if a later sync succeeds.
    pub is_doubtful: bool,
    /// Offset in the log before which records of this file do not count.
    pub(crate) counts_from: u64,
    /// Total length in bytes of the records of this file in the log.
    pub(crate) log_bytes: u64,
}

impl LoggedFile {
    /// Returns the record that announced the file, which has the final path `path`.
    pub(crate) fn begin(&self, path: &RelPath) -> FileBegin {
        FileBegin {
            path: path.clone(),
            key: self.key.clone(),
            object_bytes: self.object_bytes,
            partial: self.partial.clone(),
        }
    }

    /// Returns true if another record announced the same content for the same partial file.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key
            && self.object_bytes == other.object_bytes
            && self.partial == other.partial
    }

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

/// Content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Header(Box<Header>),
    FileBegin(FileNumber, FileBegin),
    Objects(Objects),
    Range(FileNumber, dray_core::ByteRange, Sums),
    FileEnd(FileNumber, Ending),
    Tenure(Tenure),
    Checkpoint(Checkpoint),
    Commit { durable_before: u64 },
    FileSynced(FileNumber),
    FileDoubtful(FileNumber),
    Positions(Positions),
}

impl Record {
    /// Returns the flags of the record in a log of the form `form`.
    pub(crate) const fn flags(&self, is_weak: bool, form: &LogForm) -> u8 {
        let weak = if is_weak { FLAG_WEAK } else { 0 };
        match self.file_of_ranges() {
            Some(_) if !form.has_sums => weak | FLAG_NO_SUMS,
            Some(_) => weak,
            None => 0,
        }
    }

    /// Returns the number of the file whose ranges the record contains; `None` for another record.
    pub(crate) const fn file_of_ranges(&self) -> Option<FileNumber> {
        match self {
            Self::Objects(run) => Some(run.number),
            Self::Checkpoint(window) => Some(window.number),
            Self::Positions(positions) => Some(positions.number),
            Self::Range(number, ..) => Some(*number),
            _ => None,
        }
    }
}

/// A run of adjacent objects that were recorded together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) number: FileNumber,
    pub(crate) first: u64,
    pub(crate) sums: Vec<Sums>,
}

/// A window of a file's objects. It has one bit per object, and the sums of the objects that are
/// done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) number: FileNumber,
    pub(crate) first: u64,
    pub(crate) objects: Vec<Option<Sums>>,
}

/// Objects that were recorded together, in the representation of a method of FT-LADS. The order of
/// the objects is the order of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Positions {
    pub(crate) number: FileNumber,
    pub(crate) method: LogMethod,
    pub(crate) objects: Vec<(u64, Sums)>,
}
