//! Other transfers' logs of the same tree: finds the files that are open in them, decides which
//! transfer may begin a file, and adopts an unfinished file from another log.
//!
//! Non-goal: finding the logs and their leases (the runtime does that).
//!
//! Invariants owned here: of two writers that claim one file concurrently at most one keeps it;
//! adopted ranges are durable in the new log before the old log ends the file.

use crate::file::LogFile;
use crate::log::ObjectLog;
use crate::pieces::copy_pieces;
use crate::record::{FileBegin, FileNumber, Header, LoggedFile, PartialFile, Record, Tenure};
use crate::recover::Recovery;
use crate::scan::{Step, Walk, read_header};
use dray_core::{Name, RelPath, Result};
use std::collections::BTreeMap;

/// A file that is open in another log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Final path, below that log's top folder.
    pub path: RelPath,
    /// Its partial file.
    pub partial: PartialFile,
    /// Bytes of an object.
    pub object_bytes: u64,
}

/// Reads another transfer's log as it grows. It stores no ranges and takes no lease.
#[derive(Debug)]
pub struct Follower {
    header: Header,
    tenure: Tenure,
    /// All records before this offset have been read.
    read_to: u64,
    files: BTreeMap<FileNumber, Spoken>,
    by_path: BTreeMap<RelPath, FileNumber>,
}

impl Follower {
    /// Reads a log's header; `None` for an empty file.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::LogVersion`], [`dray_core::ErrorKind::LogDamaged`], or the storage's.
    pub fn begin<F: LogFile>(file: &mut F) -> Result<Option<Self>> {
        let bytes = file.length()?;
        if bytes == 0 {
            return Ok(None);
        }
        let (header, first) = read_header(file, bytes)?;
        Ok(Some(Self {
            tenure: header.tenure.clone(),
            header,
            read_to: first,
            files: BTreeMap::new(),
            by_path: BTreeMap::new(),
        }))
    }

    /// Reads the records appended since the last call; remembers at most `files_max` unfinished
    /// files. Returns `false` if the file is now another log, which must be read from its start.
    ///
    /// # Errors
    /// Those of [`Self::begin`].
    pub fn follow<F: LogFile>(&mut self, file: &mut F, files_max: usize) -> Result<bool> {
        let end = file.length()?;
        if end < self.read_to || read_header(file, end)?.0.nonce != self.header.nonce {
            return Ok(false);
        }
        let mut walk = Walk::new(self.header.nonce, self.read_to, end);
        while let Some(step) = walk.next(file)? {
            match step {
                Step::Record {
                    offset,
                    stride,
                    record,
                    ..
                } => {
                    self.read_to = offset + stride;
                    self.take(record, files_max);
                }
                // The writer may be appending this record; intact records after it are read
                // nevertheless.
                Step::Lost { .. } => {}
            }
        }
        Ok(true)
    }

    fn take(&mut self, record: Record, files_max: usize) {
        match record {
            Record::FileBegin(number, begin) => {
                if let Some(older) = self.by_path.get(&begin.path).copied() {
                    self.forget(older);
                }
                if self.files.len() < files_max {
                    self.by_path.insert(begin.path.clone(), number);
                    let spoken = Spoken {
                        path: begin.path,
                        partial: begin.partial,
                        object_bytes: begin.object_bytes.get(),
                    };
                    self.files.insert(number, spoken);
                }
            }
            Record::FileEnd(number, _) => self.forget(number),
            Record::Tenure(tenure) => self.tenure = tenure,
            _ => {}
        }
    }

    fn forget(&mut self, number: FileNumber) {
        if let Some(spoken) = self.files.remove(&number) {
            self.by_path.remove(&spoken.path);
        }
    }

    /// Returns the log's header.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the log's last holder.
    #[must_use]
    pub const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Returns the open file at `path`, below the log's top folder.
    #[must_use]
    pub fn file(&self, path: &RelPath) -> Option<&Spoken> {
        self.files.get(self.by_path.get(path)?)
    }

    /// Returns the unfinished files.
    pub fn files(&self) -> impl Iterator<Item = &Spoken> + '_ {
        self.files.values()
    }
}

/// Action of a writer that has begun a file and finds it open in held logs of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No other log has the file open: write it.
    Ours,
    /// Another writer has begun the file concurrently and gives way to us, or it began earlier.
    /// Look again until a limit, then give way.
    Contended,
    /// The file belongs to another writer: give way.
    Theirs,
}

/// Decides a claim: `own` is our log's name, `others` the names of the held logs in which the file
/// is open. The greater name gives way. The smaller one must not write as long as it sees another.
pub fn claim<'a>(own: &Name, others: impl IntoIterator<Item = &'a Name>) -> Claim {
    let mut claim = Claim::Ours;
    for other in others {
        match own < other {
            true => claim = Claim::Contended,
            false => return Claim::Theirs,
        }
    }
    claim
}

/// Copies to `own` the records of a file in another log. `path` is the file as seen from our log's
/// top, `device` the device of the partial file in the present boot. The caller commits this before
/// the other log ends the file, and syncs a weak file first.
///
/// # Errors
/// Those of [`ObjectLog::begin_file`] and [`ObjectLog::done`].
pub fn adopt<L: ObjectLog, F: LogFile>(
    own: &mut L,
    path: &RelPath,
    log: (&mut F, &Recovery),
    theirs: &LoggedFile,
    device: u64,
) -> Result<FileNumber> {
    let number = own.begin_file(FileBegin {
        path: path.clone(),
        key: theirs.key.clone(),
        object_bytes: theirs.object_bytes,
        partial: PartialFile {
            device,
            ..theirs.partial.clone()
        },
    })?;
    if theirs.is_doubtful {
        own.file_doubtful(number)?;
    }
    // Copied piece by piece, so that a piece that later proves wrong costs no more than itself.
    copy_pieces(own, number, log, theirs)?;
    Ok(number)
}

#[cfg(test)]
mod tests;
