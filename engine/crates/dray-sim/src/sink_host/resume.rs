//! Files of earlier runs: decides by the rules of the log whether a partial file can be trusted,
//! and continues or deletes it.

use super::{Partial, SinkHost, beside, wrong};
use crate::disk::Node;
use crate::mutants::Mutant;
use dray_core::options::Durability;
use dray_core::{
    ByteRange, ContentKey, ErrorKind, FileIndex, Metadata, Name, RelPath, Result, SummedRanges,
    Sums,
};
use dray_log::trust::{FoundPartial, Verdict, judge};
use dray_log::{Ending, FileBegin, FileNumber, LoggedFile, ObjectLog, PartialFile, layout};
use dray_session::sink::{Resume, SyncItem};
use std::num::NonZeroU64;

impl SinkHost {
    pub(super) fn resume(
        &mut self,
        path: &RelPath,
        key: &ContentKey,
    ) -> Result<Option<Result<Resume>>> {
        let is_logged = self
            .log
            .as_ref()
            .is_some_and(|log| log.file(path).is_some());
        let Some((recovery, true)) = self.recovery.as_ref().map(|found| (found, is_logged)) else {
            return Ok(None);
        };
        let Some(file) = recovery.files.get(path) else {
            return Ok(None);
        };
        let place = beside(path, &file.partial.name)?;
        let mut found = self.found(&place);
        if self.mutant == Some(Mutant::TrustBlindly) && found.is_some() {
            found = Some(FoundPartial {
                device: file.partial.device,
                inode: file.partial.inode,
                born: file.partial.born,
                size: u64::MAX,
            });
        }
        let verdict = judge(recovery, path, file, &self.trusting(), found.as_ref(), key);
        match verdict {
            Verdict::Trusted(trusted) => {
                if trusted.must_sync {
                    self.must_sync.insert(path.clone());
                }
                Ok(Some(Ok(Resume {
                    done: trusted.done,
                    object_bytes: trusted.object_bytes.get(),
                })))
            }
            Verdict::StartOver(error) => {
                self.drop_logged(path)?;
                Ok(Some(Err(error)))
            }
            Verdict::Refused(error) => Err(error),
        }
    }

    fn found(&self, place: &RelPath) -> Option<FoundPartial> {
        let disk = self.disk.borrow();
        match disk.look(place) {
            Some(Node::File(inode, _)) => Some(FoundPartial {
                device: 1,
                inode: *inode,
                born: *inode,
                size: disk.bytes(*inode).len() as u64,
            }),
            _ => None,
        }
    }

    /// Ends an unfinished file in the log, and deletes its partial file.
    pub(super) fn drop_logged(&mut self, path: &RelPath) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let Some(file) = log.file(path) else {
            return Ok(());
        };
        let (number, place) = (file.number, beside(path, &file.partial.name)?);
        log.end_file(number, Ending::Dropped)?;
        log.commit()?;
        let mut disk = self.disk.borrow_mut();
        if disk.look(&place).is_some() {
            disk.remove_name(&place)?;
        }
        Ok(())
    }

    /// Opens a partial file. If an earlier partial file is resumed, returns the ranges of the file
    /// that are on the disk, and true if these ranges were copied to a new partial file.
    ///
    /// # Errors
    /// Errors of the disk and of the log.
    pub fn prepare(
        &mut self,
        index: FileIndex,
        path: &RelPath,
        key: &ContentKey,
        object_bytes: u64,
        resume: bool,
    ) -> Result<Option<(SummedRanges, bool)>> {
        self.check_lease()?;
        let name = path
            .name()
            .ok_or_else(|| wrong(ErrorKind::InvalidName, "open the partial file", path))?;
        if resume {
            return self.continue_partial(index, path, key).map(Some);
        }
        self.drop_logged(path)?;
        let name = layout::partial_name(&name)?;
        let (place, inode) = self.new_partial(path, &name, key.size)?;
        let begin = begin(path, key, object_bytes, name, inode);
        let number = self.log()?.begin_file(begin)?;
        self.note_open(index, path, (place, inode, number));
        Ok(None)
    }

    fn new_partial(&self, path: &RelPath, name: &Name, size: u64) -> Result<(RelPath, u64)> {
        let place = beside(path, name)?;
        let mut disk = self.disk.borrow_mut();
        let inode = disk.create()?;
        disk.put_name(&place, Node::File(inode, Metadata::default()))?;
        disk.truncate(inode, size)?;
        Ok((place, inode))
    }

    fn note_open(
        &mut self,
        index: FileIndex,
        path: &RelPath,
        (place, inode, number): (RelPath, u64, FileNumber),
    ) {
        let partial = Partial {
            path: path.clone(),
            place,
            inode,
            number,
            is_entry_durable: false,
        };
        self.partials.insert(index, partial);
    }

    fn continue_partial(
        &mut self,
        index: FileIndex,
        path: &RelPath,
        key: &ContentKey,
    ) -> Result<(SummedRanges, bool)> {
        let gone = || wrong(ErrorKind::NotFound, "continue the partial file", path);
        let file = self.log.as_ref().and_then(|log| log.file(path));
        let file = file.ok_or_else(gone)?.clone();
        let place = beside(path, &file.partial.name)?;
        let inode = self.found(&place).ok_or_else(gone)?.inode;
        let now = self.disk.borrow().now();
        let synced = match file.is_doubtful {
            true => Ok(()),
            false => self.disk.borrow_mut().sync(inode, now),
        };
        let believes = self.mutant == Some(Mutant::BelievesASyncAfterAFailedOne);
        let is_doubtful = !believes && (file.is_doubtful || synced.is_err());
        if !believes && synced.is_err() {
            self.mark_doubtful(&[(place.clone(), inode, file.number)])?;
        } else if !is_doubtful && self.must_sync.remove(path) {
            self.log()?.file_synced(file.number)?;
        }
        let trusts = believes
            || matches!(
                self.mutant,
                Some(Mutant::TrustsResumedRanges | Mutant::TrustBlindly)
            );
        let is_there = |(range, sums)| self.is_stored(inode, range, sums);
        if is_doubtful || !trusts && !file.done.iter().all(is_there) {
            return self.move_partial(index, path, key, &file, (&place, inode));
        }
        self.note_open(index, path, (place, inode, file.number));
        Ok((file.done, false))
    }

    /// Returns true if the disk itself, not only the cache, contains these bytes.
    pub fn is_stored(&self, inode: u64, range: ByteRange, sums: Sums) -> bool {
        let disk = self.disk.borrow();
        let span = range.offset as usize..range.end() as usize;
        let found = disk.durable_bytes(inode).get(span);
        found.is_some_and(|bytes| Sums::of(bytes) == sums)
    }

    /// Marks partial files as doubtful in the log. Removes the files if the log does not take the
    /// marks.
    ///
    /// # Errors
    /// Errors of the lease, and of a log without all marks.
    pub fn mark_doubtful(&mut self, partials: &[(RelPath, u64, FileNumber)]) -> Result<()> {
        self.check_lease()?;
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let numbers: Vec<FileNumber> = partials.iter().map(|(.., number)| *number).collect();
        let marked = log.mark_doubtful(&numbers);
        for (place, inode, _) in partials {
            let is_there = |found: FoundPartial| found.inode == *inode;
            if marked.is_err()
                && self.check_lease().is_ok()
                && self.found(place).is_some_and(is_there)
            {
                // Ignore errors, as the program does.
                let _ = self.disk.borrow_mut().remove_name(place);
            }
        }
        marked
    }

    /// Records that the sync of a group failed. Its partial files are doubtful from then on.
    pub(super) fn doubt(&mut self, items: &[SyncItem]) {
        if self.mutant == Some(Mutant::BelievesASyncAfterAFailedOne) {
            return;
        }
        let partials = items.iter().filter_map(|item| match item {
            SyncItem::Partial(index) => self.partials.get(index).map(Partial::doubtful),
            _ => None,
        });
        let partials: Vec<_> = partials.collect();
        // The session ends with the error of the sync.
        let _ = self.mark_doubtful(&partials);
    }

    /// Checks that the disk contains the ranges that this run wrote to an earlier run's partial
    /// file.
    ///
    /// # Errors
    /// `ChecksumMismatch` if the disk does not contain them.
    pub fn check_written(&mut self, index: FileIndex, ranges: &SummedRanges) -> Result<()> {
        let Some(partial) = self.partials.get(&index).cloned() else {
            return Ok(());
        };
        let believes = self.mutant == Some(Mutant::BelievesASyncAfterAFailedOne);
        if self.setup.options.durability == Durability::None {
            // A read that bypasses the cache first writes the cached data to the disk.
            let now = self.disk.borrow().now();
            self.disk.borrow_mut().sync(partial.inode, now)?;
        }
        let mut stored = ranges.iter();
        if believes || stored.all(|(range, sums)| self.is_stored(partial.inode, range, sums)) {
            return Ok(());
        }
        // The session ends with the error of the read-back.
        let _ = self.mark_doubtful(&[partial.doubtful()]);
        Err(wrong(
            ErrorKind::ChecksumMismatch,
            "read back what was written",
            &partial.path,
        ))
    }

    /// Copies the correct ranges of a partial file to a new partial file.
    fn move_partial(
        &mut self,
        index: FileIndex,
        path: &RelPath,
        key: &ContentKey,
        file: &LoggedFile,
        (old_place, old): (&RelPath, u64),
    ) -> Result<(SummedRanges, bool)> {
        let name = path
            .name()
            .ok_or_else(|| wrong(ErrorKind::InvalidName, "move the partial file", path))?;
        let first = layout::partial_name(&name)?;
        let is_first = first == file.partial.name;
        let name = match is_first {
            true => layout::partial_name_at_turn(&name, 1)?,
            false => first,
        };
        let (place, inode) = self.new_partial(path, &name, key.size)?;
        let whole = ByteRange::between(0, key.size);
        let pieces = self.log()?.pieces(file.number, whole)?;
        let mut done = SummedRanges::new();
        for (range, sums) in &pieces {
            if self.is_stored(old, *range, *sums) {
                let mut disk = self.disk.borrow_mut();
                let span = range.offset as usize..range.end() as usize;
                let bytes = disk.durable_bytes(old)[span].to_vec();
                disk.write(inode, range.offset, &bytes)?;
                done.insert(*range, *sums);
            }
        }
        let now = self.disk.borrow().now();
        self.disk.borrow_mut().sync(inode, now)?;
        self.sync_chain(&place, now)?;
        let log = self.log()?;
        log.end_file(file.number, Ending::Dropped)?;
        log.commit()?;
        let object_bytes = file.object_bytes.get();
        let number = log.begin_file(begin(path, key, object_bytes, name, inode))?;
        for (range, sums) in pieces.iter().filter(|(range, _)| done.contains(*range)) {
            log.done(number, *range, *sums)?;
        }
        log.commit()?;
        self.disk.borrow_mut().remove_name(old_place)?;
        self.note_open(index, path, (place, inode, number));
        Ok((done, true))
    }
}

fn begin(path: &RelPath, key: &ContentKey, object_bytes: u64, name: Name, inode: u64) -> FileBegin {
    FileBegin {
        path: path.clone(),
        key: key.clone(),
        object_bytes: NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
        partial: PartialFile {
            name,
            device: 1,
            inode,
            born: inode,
        },
    }
}
