//! Marks of doubtful files, also in a log that was given up after a failed sync.
//!
//! A mark needs no sync. It concerns lost bytes that the page cache hides, and after a restart of
//! the host, the page cache no longer hides them.

use super::{Pending, UniversalLog};
use crate::file::LogFile;
use crate::log::ObjectLog;
use crate::record::{FileNumber, Record, Tenure};
use dray_core::Result;
use std::ops::Range;

impl<F: LogFile> UniversalLog<F> {
    /// See [`ObjectLog::mark_doubtful`].
    pub(super) fn mark(&mut self, numbers: &[FileNumber]) -> Result<()> {
        // A file that has ended has no records that a later run could trust.
        let is_live = |number: &&FileNumber| self.files.get(**number).is_some();
        let numbers: Vec<FileNumber> = numbers.iter().filter(is_live).copied().collect();
        if self.is_given_up {
            return self.append_marks(&numbers);
        }
        for number in numbers {
            self.file_doubtful(number)?;
        }
        match self.commit() {
            Err(_) if self.is_given_up => {
                // If a sync of this log failed, the log already has the marks. If a sync of a part
                // log failed, the marks are still pending.
                let mut marks = std::mem::take(&mut self.pending.begins);
                marks.retain(|record| matches!(record, Record::FileDoubtful(_)));
                self.append_alone(marks)
            }
            committed => committed,
        }
    }

    /// Gives this log up, because a part log was given up. Marks can still follow.
    pub(super) const fn give_up_for_part(&mut self) {
        self.takes_marks |= !self.is_given_up;
        self.is_given_up = true;
    }

    /// Appends marks to a log that was given up.
    fn append_marks(&mut self, numbers: &[FileNumber]) -> Result<()> {
        let mut marks = Vec::new();
        for number in numbers {
            let file = self.live(*number, "record a failed write in the log")?;
            // The log already has the marks of files that were doubtful before.
            if !std::mem::replace(&mut file.is_doubtful, true) {
                marks.push(Record::FileDoubtful(*number));
            }
        }
        self.append_alone(marks)
    }

    /// Cuts the log back to its durable bytes, and appends the marks of doubtful files again.
    pub(super) fn give_up_after_failed_sync(&mut self) {
        self.is_given_up = true;
        let kept = self.durable.max(self.synced);
        if !forget_unsynced(&mut self.file, &self.tenure, kept..self.length) {
            return;
        }
        self.length = kept;
        self.takes_marks = true;
        let doubtful = self.files.by_number();
        let doubtful = doubtful.filter(|(_, (_, file))| file.is_doubtful);
        let marks = doubtful.map(|(number, _)| Record::FileDoubtful(number));
        // Ignore errors: the writer ends in any case, and reports the error of the sync.
        let _ = self.append_alone(marks.collect());
    }

    /// Appends marks without other records. After an error, the log takes no more marks.
    fn append_alone(&mut self, marks: Vec<Record>) -> Result<()> {
        if !self.takes_marks {
            return self.usable();
        }
        if marks.is_empty() {
            return Ok(());
        }
        self.pending = Pending {
            begins: marks,
            ..Pending::default()
        };
        let group = self.encode(false);
        self.pending = Pending::default();
        let is_ours = self.file.length()? == self.length && holds(&mut self.file, &self.tenure);
        let appended = match is_ours {
            true => self.file.append(&group.bytes),
            false => self.usable(),
        };
        self.takes_marks = appended.is_ok();
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
