//! The writer of an object log.
//!
//! With the mechanism universal, one log contains all records of a destination. With the mechanisms
//! file and transaction, this log lists the files, and part logs contain the ranges of the files.

mod doubtful;
mod group;
mod parts;

use crate::codec::{check_file_begin, check_header, check_tenure};
use crate::compact::{OldLog, Schedule, compacted_bytes, rewrite, write_new};
use crate::file::LogFile;
use crate::log::ObjectLog;
use crate::positions;
use crate::record::{Ending, FileBegin, FileNumber, Header, LoggedFile, Record, Tenure};
use crate::recover::{Files, Recovery, partial_path};
use doubtful::{forget_unsynced, holds};
use dray_core::options::Durability;
use dray_core::plan::Grid;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use group::Pending;
use parts::Parts;
use std::collections::BTreeSet;

/// Maximum number of pending ranges. If there are more, the log writes them before the commit. A
/// sync group of 64 MiB in objects of 4 KiB has this many ranges.
const PENDING_MAX: usize = 1 << 14;

/// An [`ObjectLog`] that uses one [`LogFile`], and part logs if its form requires them.
#[derive(Debug)]
pub struct UniversalLog<F> {
    pub(crate) file: F,
    pub(crate) header: Header,
    tenure: Tenure,
    pub(crate) files: Files,
    next_file: FileNumber,
    /// Offset of the first record after the header.
    pub(crate) first: u64,
    /// Length of the written part of the log in bytes.
    pub(crate) length: u64,
    /// Offset before which all bytes are certainly durable.
    durable: u64,
    /// Offset before which all bytes were synced when the log was resumed. A `Commit` does not
    /// contain this offset: `durable` grows with the commits of this holder only.
    synced: u64,
    pending: Pending,
    /// Final and partial paths of files whose end is not committed.
    ending: BTreeSet<RelPath>,
    /// True if the next commit must sync, even if the durability that the log's current holder has
    /// chosen does not require a sync.
    must_sync: bool,
    is_given_up: bool,
    /// If the log was given up, but ends with whole records so that marks can follow: the offset of
    /// the first mark. Otherwise `None`.
    marks_from: Option<u64>,
    compaction: Schedule,
    parts: Parts,
}

impl<F: LogFile> UniversalLog<F> {
    /// Creates a log in `file` and replaces the content of `file`. The new log is durable when the
    /// call returns.
    ///
    /// # Errors
    /// [`ErrorKind::LimitExceeded`] if the header exceeds a limit of the format; errors of the
    /// storage.
    pub fn create(mut file: F, mut header: Header) -> Result<Self> {
        check_header(&header)?;
        header.next_file = FileNumber(0);
        if header.files_per_part().is_some() {
            // Part logs of a log that no longer exists.
            for part in file.parts()? {
                file.remove_part(part)?;
            }
        }
        let length = write_new(&mut file, &header)?;
        let first = crate::frame::PRELUDE_BYTES + header_stride(&header);
        Ok(Self {
            file,
            tenure: header.tenure.clone(),
            parts: Parts::found(BTreeSet::new(), header.boot_epoch),
            files: Files::new(header.form.has_sums),
            header,
            next_file: FileNumber(0),
            first,
            length,
            durable: length,
            synced: 0,
            pending: Pending::default(),
            ending: BTreeSet::new(),
            must_sync: false,
            is_given_up: false,
            marks_from: None,
            compaction: Schedule::default(),
        })
    }

    /// Continues the log from which `recovery` was read. Truncates a torn tail, rewrites a damaged
    /// log, and records `tenure`, the new holder. Syncs the log unless the durability of `tenure`
    /// is `None`. The caller must first check the owner with [`crate::trust::check_owner`].
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if the epoch is not higher than all epochs in the log, or the file
    /// has changed since the recovery; errors of the storage.
    pub fn resume(file: F, recovery: Recovery, tenure: Tenure) -> Result<Self> {
        Self::resume_synced(file, recovery, tenure, 0)
    }

    /// Resumes a log like [`Self::resume`]. The caller has synced the first `synced` bytes of the
    /// log, so a failed sync does not remove the records in them.
    fn resume_synced(mut file: F, recovery: Recovery, tenure: Tenure, synced: u64) -> Result<Self> {
        check_tenure(&tenure)?;
        let lost = |why: String| {
            Err(Error::new(
                ErrorKind::LeaseLost,
                End::Sink,
                "resume from the object log",
            )
            .cause(why)
            .remedy("run the same command again"))
        };
        if tenure.epoch <= recovery.tenure.epoch {
            return lost(format!(
                "another transfer has taken over the log (epoch of the log {}, of this transfer \
                    {})",
                recovery.tenure.epoch, tenure.epoch
            ));
        }
        if file.length()? != recovery.file_bytes {
            return lost("the log has changed since it was read".to_owned());
        }
        if recovery.torn_bytes > 0 {
            // Make the truncation durable before the next append. Otherwise the old tail could
            // appear again after the new records.
            file.truncate(recovery.end)?;
            if let Err(error) = file.sync() {
                let kept = recovery.durable.max(synced);
                let _ = forget_unsynced(&mut file, &tenure, kept..recovery.end);
                return Err(error);
            }
        }
        let mut files = Files::from_recovery(recovery.header.form.has_sums, recovery.files);
        if tenure.boot_id != recovery.tenure.boot_id {
            files.forget_unproven(recovery.end);
        }
        let is_same_boot = tenure.boot_id == recovery.tenure.boot_id;
        let boot_epoch = match is_same_boot && recovery.boot_epoch < tenure.epoch {
            true => recovery.boot_epoch,
            false => tenure.epoch,
        };
        let mut log = Self {
            file,
            header: recovery.header,
            tenure: tenure.clone(),
            files,
            next_file: recovery.next_file,
            first: recovery.first,
            length: recovery.end,
            durable: if recovery.torn_bytes > 0 {
                recovery.end
            } else {
                recovery.durable
            },
            synced,
            pending: Pending::default(),
            ending: BTreeSet::new(),
            must_sync: false,
            is_given_up: false,
            marks_from: None,
            compaction: Schedule::default(),
            parts: Parts::found(recovery.parts.keys().copied().collect(), boot_epoch),
        };
        log.remove_other_parts()?;
        if log.tenure.durability != Durability::None {
            log.sync_found_parts(&recovery.parts)?;
        }
        // Rewrite a log of an older version. Otherwise an older program would find unknown records
        // in a log of its own version.
        if recovery.damage.is_some() || recovery.version < log.header.version() {
            log.rewrite()?;
        } else {
            log.pending.begins.push(Record::Tenure(tenure));
            log.commit()?;
        }
        Ok(log)
    }

    /// Returns the header of the log.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the tenure: the record of the log's current holder.
    pub const fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    /// Returns the estimated length of the log in bytes after a rewrite.
    fn compacted_bytes(&self) -> u64 {
        let (files, form) = (self.files.by_path(), &self.header.form);
        files.fold(self.first, |sum, (_, file)| {
            sum + compacted_bytes(file, form)
        })
    }

    /// Returns a reference to the log file.
    pub const fn file_ref(&self) -> &F {
        &self.file
    }

    /// Returns the log file. Records that are not committed are lost.
    pub fn into_file(self) -> F {
        self.file
    }

    /// Appends the pending records without a sync, so that other processes can read them.
    ///
    /// # Errors
    /// The errors of [`ObjectLog::commit`].
    pub fn write_pending(&mut self) -> Result<()> {
        self.usable()?;
        self.write(false)
    }

    /// Commits with a sync, even if the durability that the log's current holder has chosen does
    /// not require a sync.
    ///
    /// # Errors
    /// The errors of [`ObjectLog::commit`].
    pub fn commit_durably(&mut self) -> Result<()> {
        self.must_sync = true;
        self.commit()
    }

    fn wants_sync(&self) -> bool {
        self.must_sync || self.tenure.durability != Durability::None
    }

    /// Commits and rewrites the log, even if no rewrite is due.
    ///
    /// # Errors
    /// The errors of [`ObjectLog::commit`].
    pub fn compact(&mut self) -> Result<()> {
        self.commit()?;
        self.parts.each(UniversalLog::compact)?;
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<()> {
        let old = OldLog {
            nonce: self.header.nonce,
            has_sums: self.header.form.has_sums,
            first: self.first,
            end: self.length,
        };
        let header = Header {
            // Use a new nonce, so that recovery rejects blocks of the old log that are still on the
            // disk.
            nonce: self.header.nonce.wrapping_add(1),
            next_file: self.next_file,
            tenure: self.tenure.clone(),
            boot_epoch: self.parts.boot_epoch(),
            ..self.header.clone()
        };
        let rewritten = rewrite(&mut self.file, &old, &header, &self.files)?;
        if let Err(error) = self.file.commit_replacement() {
            // After `NoSpace` the old log is certainly still in use. After any other error the name
            // may refer to the old or the new log.
            self.is_given_up = error.kind != ErrorKind::NoSpace;
            return Err(error);
        }
        self.length = rewritten.length;
        rewritten.settle(&mut self.files);
        self.first = crate::frame::PRELUDE_BYTES + header_stride(&header);
        self.header = header;
        self.durable = self.length;
        self.synced = 0;
        self.must_sync = false;
        self.compaction.rewritten(self.length);
        Ok(())
    }

    fn sync_written(&mut self) -> Result<()> {
        if self.durable < self.length {
            if let Err(error) = self.file.sync() {
                self.give_up_after_failed_sync();
                return Err(error);
            }
            self.durable = self.length;
            self.compaction.synced();
        }
        Ok(())
    }

    fn usable(&self) -> Result<()> {
        if self.is_given_up {
            return Err(Error::new(ErrorKind::Io, End::Sink, "use the object log")
                .cause("an earlier error left the log in an unknown state")
                .remedy("run the same command again"));
        }
        Ok(())
    }

    /// Refuses a file whose objects the method cannot number.
    fn check_object_count(&self, begin: &FileBegin) -> Result<()> {
        let objects = Grid::new(begin.key.size, begin.object_bytes).count();
        let method = self.header.form.method;
        if objects == 0 || positions::can_number(method, objects - 1) {
            return Ok(());
        }
        let operation = "record a file in the log";
        let error = Error::new(ErrorKind::LimitExceeded, End::Sink, operation).file(&begin.path);
        Err(error
            .cause(format!(
                "the file has {objects} objects, and the log method {} has numbers for only 2^32",
                method.word()
            ))
            .remedy("use larger objects, or another method of the log"))
    }

    fn live(&mut self, number: FileNumber, operation: &str) -> Result<&mut LoggedFile> {
        self.files.get_mut(number).ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Sink, operation).cause(format!(
                "the log has no unfinished file with the number {number}"
            ))
        })
    }

    /// Writes the pending records. A commit record follows if `is_commit` is true. In a log with
    /// part logs, the part logs contain the ranges, and the end of a file is written only by a
    /// commit, after the commit of the part log.
    fn write(&mut self, is_commit: bool) -> Result<()> {
        let held = match self.header.files_per_part() {
            Some(_) => self.pending.hold_back(is_commit),
            None => Pending::default(),
        };
        let written = self.write_held(is_commit);
        self.pending.put_back(held);
        written
    }

    fn write_held(&mut self, is_commit: bool) -> Result<()> {
        let is_due = is_commit && self.parts.is_written();
        if self.pending.is_empty() && !is_due {
            return Ok(());
        }
        if self.file.length()? != self.length {
            self.is_given_up = true;
            return Err(
                Error::new(ErrorKind::LeaseLost, End::Sink, "write to the object log")
                    .cause("another process has written to the log")
                    .remedy(
                        "find and stop the other process that writes to this destination, then \
                            run the same command again",
                    ),
            );
        }
        let group = self.encode(is_commit);
        if let Err(error) = self.file.append(&group.bytes) {
            if error.kind == ErrorKind::LeaseLost || !holds(&mut self.file, &self.tenure) {
                // The log may have records of another process. Do not truncate them.
                self.is_given_up = true;
                return Err(error);
            }
            let undone = self.file.truncate(self.length);
            self.is_given_up = undone.and_then(|()| self.file.sync()).is_err();
            if self.is_given_up {
                self.give_up_after_failed_sync();
            }
            return Err(error);
        }
        self.length += group.bytes.len() as u64;
        for (number, bytes) in group.file_bytes {
            if let Some(file) = self.files.get_mut(number) {
                file.log_bytes += bytes;
            }
        }
        self.pending = Pending::default();
        Ok(())
    }
}

fn header_stride(header: &Header) -> u64 {
    let body = Record::Header(Box::new(header.clone())).encode(0).len();
    (crate::frame::HEAD_BYTES + body).next_multiple_of(crate::frame::ALIGNMENT as usize) as u64
}

impl<F: LogFile> ObjectLog for UniversalLog<F> {
    fn begin_file(&mut self, begin: FileBegin) -> Result<FileNumber> {
        self.usable()?;
        check_file_begin(&begin)?;
        self.check_object_count(&begin)?;
        let number = self.next_file;
        let after = number.0.checked_add(1).ok_or_else(|| {
            Error::new(
                ErrorKind::LimitExceeded,
                End::Sink,
                "record a file in the log",
            )
            .cause("the log has used all 2^32 file numbers")
            .remedy("end this transfer and start another")
        })?;
        let (path, file) = LoggedFile::new(number, begin.clone(), self.length);
        let place = partial_path(&path, &file);
        let refuse = |kind, why: &str| {
            Err(Error::new(kind, End::Sink, "record a file in the log")
                .file(&path)
                .cause(why))
        };
        if self.files.at_path(&path).is_some() {
            return refuse(
                ErrorKind::Internal,
                "the log already has a record of an unfinished copy of the file",
            );
        }
        if self.ending.contains(&path) || self.ending.contains(&place) {
            return refuse(
                ErrorKind::Internal,
                "the record that ends the previous copy of this file is not committed yet",
            );
        }
        if self.files.at_partial(&place).is_some() {
            return refuse(
                ErrorKind::AlreadyExists,
                "the log already names this partial file for another file",
            );
        }
        self.next_file = FileNumber(after);
        self.pending.begins.push(Record::FileBegin(number, begin));
        self.files.insert(path, file);
        Ok(number)
    }

    fn done(&mut self, number: FileNumber, range: ByteRange, sums: Sums) -> Result<()> {
        self.usable()?;
        let is_weak = self.tenure.durability == Durability::None;
        // A log without sums returns the same sums before and after a recovery.
        let sums = match self.header.form.has_sums {
            true => sums,
            false => Sums::EMPTY,
        };
        let file = self.live(number, "record a range in the log")?;
        let grid = Grid::new(file.key.size, file.object_bytes);
        if range.end() > grid.size() || !file.done.insert(range, sums) {
            return Err(
                Error::new(ErrorKind::Internal, End::Sink, "record a range in the log").cause(
                    format!(
                        "a range of {} bytes at offset {} of file number {number} is empty, \
                            outside the file, or already in the log",
                        range.length, range.offset
                    ),
                ),
            );
        }
        file.is_weak |= is_weak;
        let index = grid.index_of(range.offset);
        if grid.range(index) == range {
            self.pending.objects.push((number, index, sums));
        } else {
            self.pending.ranges.push((number, range, sums));
        }
        if self.pending.count() >= PENDING_MAX {
            self.fill_parts()?;
            self.write(false)?;
        }
        Ok(())
    }

    fn file_synced(&mut self, number: FileNumber) -> Result<()> {
        self.usable()?;
        self.live(number, "record a sync in the log")?;
        // The new record `FileSynced` covers all ranges that precede it in the log. So write the
        // pending ranges first.
        self.fill_parts()?;
        self.write(false)?;
        self.live(number, "record a sync in the log")?.is_weak = false;
        if self.header.files_per_part().is_some() {
            return self.sync_in_part(number);
        }
        self.pending.begins.push(Record::FileSynced(number));
        Ok(())
    }

    fn file_doubtful(&mut self, number: FileNumber) -> Result<()> {
        self.usable()?;
        let file = self.live(number, "record a failed write in the log")?;
        if !std::mem::replace(&mut file.is_doubtful, true) {
            self.pending.begins.push(Record::FileDoubtful(number));
            self.must_sync = true;
        }
        Ok(())
    }

    fn mark_doubtful(&mut self, numbers: &[FileNumber]) -> Result<()> {
        self.mark(numbers)
    }

    fn end_file(&mut self, number: FileNumber, ending: Ending) -> Result<()> {
        self.usable()?;
        self.live(number, "record the end of a file in the log")?;
        self.end_in_part(number, ending)?;
        let Some((path, file)) = self.files.remove(number) else {
            return Ok(());
        };
        // After a crash, the log must not contain ranges whose partial file was deleted. So the
        // next commit must sync.
        self.must_sync |= ending == Ending::Dropped && !file.done.is_empty();
        self.ending.insert(partial_path(&path, &file));
        self.ending.insert(path);
        self.pending.ends.push(Record::FileEnd(number, ending));
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.usable()?;
        self.commit_parts()?;
        // The log gets a commit record also if only part logs have changed. So this call detects a
        // second writer, and the time of the log shows that its holder works.
        self.write(true)?;
        if self.wants_sync() {
            self.sync_written()?;
        }
        self.must_sync = false;
        self.ending.clear();
        self.remove_ended_parts();
        Ok(())
    }

    fn compact_if_worth_it(&mut self) -> Result<bool> {
        self.commit()?;
        self.parts
            .each(|part| part.compact_if_worth_it().map(|_| ()))?;
        if !self.compaction.is_due(self.length, self.compacted_bytes()) {
            return Ok(false);
        }
        match self.rewrite() {
            Err(error) if self.is_given_up => Err(error),
            Err(_) => {
                self.compaction.failed(self.length);
                Ok(false)
            }
            Ok(()) => Ok(true),
        }
    }

    fn file(&self, path: &RelPath) -> Option<&LoggedFile> {
        let number = self.files.at_path(path)?;
        self.files.get(number).map(|(_, file)| file)
    }

    fn files(&self) -> Box<dyn Iterator<Item = (&RelPath, &LoggedFile)> + '_> {
        Box::new(self.files.by_path())
    }

    fn bytes(&self) -> u64 {
        // Estimate the length as if each pending record were written alone. A group needs fewer
        // bytes.
        self.length + self.parts.bytes() + 64 * self.pending.count() as u64
    }
}
