//! Logs of other transfers in the same destination tree. This module finds the files that are open
//! in another log, and decides which transfer may write a file. It also moves an unfinished file
//! from another log to this transfer's log. The runtime finds the logs and their leases.
//!
//! Invariants: if two writers claim a file concurrently, at most one of them keeps it. Inherited
//! ranges are durable in the new log before the old log ends the file.

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
pub struct NeighbourFile {
    /// Final path of the file, relative to the top folder of the other log.
    pub path: RelPath,
    /// Partial file of this file.
    pub partial: PartialFile,
    /// Size of an object in bytes.
    pub object_bytes: u64,
}

/// Reads the log of another transfer while that log grows. A follower stores no ranges and takes no
/// lease.
#[derive(Debug)]
pub struct Follower {
    header: Header,
    tenure: Tenure,
    /// Offset in bytes up to which the log has been read.
    read_to: u64,
    files: BTreeMap<FileNumber, NeighbourFile>,
    by_path: BTreeMap<RelPath, FileNumber>,
}

impl Follower {
    /// Creates a follower and reads the header of the log. Returns `None` if the file is empty.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::LogVersion`], [`dray_core::ErrorKind::LogDamaged`], or errors of the
    /// storage.
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

    /// Reads the records appended since the last call. Stores at most `files_max` unfinished files,
    /// and ignores further files. Returns `false` if another log has replaced the file. The caller
    /// must then begin again.
    ///
    /// # Errors
    /// The errors of [`Self::begin`].
    pub fn follow<F: LogFile>(&mut self, file: &mut F, files_max: usize) -> Result<bool> {
        let end = file.length()?;
        if end < self.read_to || read_header(file, end)?.0.nonce != self.header.nonce {
            return Ok(false);
        }
        let mut walk = Walk::new(
            self.header.nonce,
            self.header.form.has_sums,
            self.read_to,
            end,
        );
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
                // Ignore an unreadable record: its writer may still be appending the record. The
                // follower continues with the next intact record.
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
                    let spoken = NeighbourFile {
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

    /// Returns the header of the log.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the tenure: the record of the last holder of the log.
    #[must_use]
    pub const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Returns the open file at `path`. `path` is relative to the top folder of the other log.
    #[must_use]
    pub fn file(&self, path: &RelPath) -> Option<&NeighbourFile> {
        self.files.get(self.by_path.get(path)?)
    }

    /// Returns the unfinished files.
    pub fn files(&self) -> impl Iterator<Item = &NeighbourFile> + '_ {
        self.files.values()
    }
}

/// Decision of a writer about a file that it has begun. The writer makes the decision after it has
/// checked the logs of other running transfers for the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// No other log has the file open. Write the file.
    Ours,
    /// Another writer also has the file open, and the log of that writer has the greater name. If
    /// that writer began the file at the same time as this writer, that writer gives the file up.
    /// This writer must check again a limited number of times, and then give the file up.
    Contended,
    /// The file belongs to another writer. Give the file up.
    Theirs,
}

/// Decides which writer may write a file. `own` is the name of our log. `others` are the names of
/// the logs that have a holder and have the file open. The writer whose log has the greater name
/// gives the file up. The writer whose log has the smaller name must not write while another log
/// has the file open.
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

/// Copies the records of the file `theirs` from another log, `log`, to `own`. `path` is the path of
/// the file relative to the top folder of `own`. `device` is the device number of the partial file
/// in the current boot. If `theirs` is weak ([`LoggedFile::is_weak`]), the caller must sync the
/// partial file first. The caller must commit `own` before it ends the file in the other log.
///
/// # Errors
/// The errors of [`ObjectLog::begin_file`] and [`ObjectLog::done`].
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
    // Copy each recorded piece separately. If one piece later proves wrong, the other pieces are
    // still valid.
    copy_pieces(own, number, log, theirs)?;
    Ok(number)
}

#[cfg(test)]
mod tests;
