//! Marks of doubtful files, also in a log that was given up after a failed sync.
//!
//! A mark needs no sync. It concerns lost bytes that the page cache hides, and after a restart of
//! the host, the page cache no longer hides them.

use super::{Pending, UniversalLog};
use crate::file::LogFile;
use crate::log::ObjectLog;
use crate::record::{FileNumber, Record, Tenure};
use dray_core::Result;
use std::collections::BTreeSet;
use std::ops::Range;

impl<F: LogFile> UniversalLog<F> {
    /// See [`ObjectLog::mark_doubtful`].
    pub(super) fn mark(&mut self, numbers: &[FileNumber]) -> Result<()> {
        // A file that has ended has no records that a later run could trust.
        let is_live = |number: &&FileNumber| self.files.get(**number).is_some();
        let numbers: BTreeSet<FileNumber> = numbers.iter().filter(is_live).copied().collect();
        if !self.is_given_up {
            for number in &numbers {
                self.file_doubtful(*number)?;
            }
            let committed = self.commit();
            if committed.is_ok() || !self.is_given_up {
                return committed;
            }
        }
        self.mark_after_give_up(numbers)
    }

    /// Gives this log up, because a part log was given up. Marks can still follow.
    pub(super) const fn give_up_for_part(&mut self) {
        if !self.is_given_up {
            self.marks_from = Some(self.length);
        }
        self.is_given_up = true;
    }

    /// Marks files in a log that was given up. Also appends the marks that a failed commit has left
    /// pending. Some marks may then be in the log twice, which does no harm.
    fn mark_after_give_up(&mut self, numbers: BTreeSet<FileNumber>) -> Result<()> {
        let pending = self
            .pending
            .begins
            .iter()
            .filter_map(|record| match record {
                Record::FileDoubtful(number) => Some(*number),
                _ => None,
            });
        let marks: BTreeSet<FileNumber> = numbers.iter().copied().chain(pending).collect();
        self.append_marks(marks)?;
        // Without the record that begins a file, a later run does not know the file, and the mark
        // has no meaning.
        match numbers.into_iter().all(|number| self.is_begun(number)) {
            true => Ok(()),
            false => self.usable(),
        }
    }

    /// Returns true if a log that was given up has the record that begins this file.
    fn is_begun(&self, number: FileNumber) -> bool {
        let file = self.files.get(number);
        file.is_some_and(|(_, file)| self.marks_from.is_some_and(|from| file.counts_from < from))
    }

    /// Cuts the log back to its durable bytes, and appends the marks of doubtful files again.
    pub(super) fn give_up_after_failed_sync(&mut self) {
        self.is_given_up = true;
        let kept = self.durable.max(self.synced);
        if !forget_unsynced(&mut self.file, &self.tenure, kept..self.length) {
            return;
        }
        self.length = kept;
        self.marks_from = Some(kept);
        let doubtful = self.files.by_number();
        let doubtful = doubtful.filter(|(_, (_, file))| file.is_doubtful);
        let marks = doubtful.map(|(number, _)| number).collect();
        // Ignore errors: the writer ends in any case, and reports the error of the sync.
        let _ = self.append_marks(marks);
    }

    /// Appends marks without other records. Omits marks of files whose begin is not in the log.
    /// After an error, the log takes no more marks.
    fn append_marks(&mut self, mut marks: BTreeSet<FileNumber>) -> Result<()> {
        if self.marks_from.is_none() {
            return self.usable();
        }
        marks.retain(|number| self.is_begun(*number));
        self.pending = Pending {
            begins: marks.into_iter().map(Record::FileDoubtful).collect(),
            ..Pending::default()
        };
        if self.pending.is_empty() {
            return Ok(());
        }
        let group = self.encode(false);
        self.pending = Pending::default();
        let is_unchanged = self.file.length().is_ok_and(|length| length == self.length);
        let is_ours = is_unchanged && holds(&mut self.file, &self.tenure);
        let appended = match is_ours {
            true => self.file.append(&group.bytes),
            false => self.usable(),
        };
        if appended.is_err() {
            self.marks_from = None;
        }
        self.length += group.bytes.len() as u64;
        appended
    }
}

/// Removes the records at the offsets `unsynced` from the end of a log after a failed sync. The
/// storage may have lost these bytes although the page cache still has them, and a later sync would
/// not report the loss again. So no later run may trust them.
///
/// The sync may have taken long. If another process has taken the lease, or the log has another
/// length, the log has records of this process and stays unchanged. A process that takes the lease
/// after this check waits before it appends, as before every other write.
///
/// Returns true if the records were removed.
pub(super) fn forget_unsynced<F: LogFile>(
    file: &mut F,
    tenure: &Tenure,
    unsynced: Range<u64>,
) -> bool {
    let is_ours = !unsynced.is_empty()
        && file.length().is_ok_and(|length| length == unsynced.end)
        && holds(file, tenure);
    // Ignore errors: the writer ends in any case, and reports the error of the sync.
    is_ours && file.truncate(unsynced.start).is_ok()
}

/// Returns true if the holder with this tenure certainly holds the lease of a log.
pub(super) fn holds<F: LogFile>(file: &mut F, tenure: &Tenure) -> bool {
    file.is_held(tenure).unwrap_or(false)
}
