//! The universal log of FT-LADS: one log file for all files of a destination, with one bit and two
//! sums per object.

use crate::codec::{OBJECTS_PER_RECORD_MAX, check_file_begin, check_header, check_tenure};
use crate::compact::{DEAD_BYTES_MIN, OldLog, is_worth_it, rewrite, write_new};
use crate::file::LogFile;
use crate::frame::{FLAG_WEAK, VERSION, write_record};
use crate::log::ObjectLog;
use crate::record::{Ending, FileBegin, FileNumber, Header, LoggedFile, Objects, Record, Tenure};
use crate::recover::{Files, Recovery, partial_path};
use dray_core::options::Durability;
use dray_core::plan::Grid;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use std::collections::BTreeSet;

/// Maximum number of pending ranges. If there are more, the log writes them before the commit. A
/// sync group of 64 MiB in objects of 4 KiB has this many ranges.
const PENDING_MAX: usize = 1 << 14;

/// Records that are not written yet. They are written in this order: begins of files, then ranges
/// sorted by file and offset, then ends of files. Sorting joins the objects of a group into few
/// runs.
#[derive(Debug, Default)]
struct Pending {
    begins: Vec<Record>,
    objects: Vec<(FileNumber, u64, Sums)>,
    ranges: Vec<(FileNumber, ByteRange, Sums)>,
    ends: Vec<Record>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn count(&self) -> usize {
        self.begins.len() + self.objects.len() + self.ranges.len() + self.ends.len()
    }
}

/// An [`ObjectLog`] that uses one [`LogFile`].
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
    pending: Pending,
    /// Final and partial paths of files whose end is not committed.
    ending: BTreeSet<RelPath>,
    /// True if the next commit must sync, even if the durability that the log's current holder has
    /// chosen does not require a sync.
    must_sync: bool,
    is_given_up: bool,
    /// Length in bytes below which the log is not rewritten. After a failed rewrite, for example
    /// because the storage is full, the next attempt waits until the log has grown to this length.
    compact_from: u64,
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
        let length = write_new(&mut file, &header)?;
        let first = crate::frame::PRELUDE_BYTES + header_stride(&header);
        Ok(Self {
            file,
            tenure: header.tenure.clone(),
            header,
            files: Files::default(),
            next_file: FileNumber(0),
            first,
            length,
            durable: length,
            pending: Pending::default(),
            ending: BTreeSet::new(),
            must_sync: false,
            is_given_up: false,
            compact_from: 0,
        })
    }

    /// Continues the log from which `recovery` was read. Truncates a torn tail, rewrites a damaged
    /// log, and records `tenure`, the new holder. Syncs the log unless the durability of `tenure`
    /// is `None`. The caller must first check the owner with [`crate::trust::check_owner`].
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if the epoch is not higher than all epochs in the log, or the file
    /// has changed since the recovery; errors of the storage.
    pub fn resume(mut file: F, recovery: Recovery, tenure: Tenure) -> Result<Self> {
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
            file.sync()?;
        }
        let mut files = Files::from_recovery(recovery.files);
        if tenure.boot_id != recovery.tenure.boot_id {
            files.forget_weak(recovery.end);
        }
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
            pending: Pending::default(),
            ending: BTreeSet::new(),
            must_sync: false,
            is_given_up: false,
            compact_from: 0,
        };
        // Rewrite a log of an older version. Otherwise an older program would find unknown records
        // in a log of its own version.
        if recovery.damage.is_some() || recovery.version < VERSION {
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

    /// Returns the total length in bytes of the header and of the records of unfinished files.
    pub fn live_bytes(&self) -> u64 {
        self.files
            .by_path()
            .fold(self.first, |sum, (_, file)| sum + file.log_bytes)
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

    /// Commits and rewrites the log, even if [`crate::compact::is_worth_it`] returns false.
    ///
    /// # Errors
    /// The errors of [`ObjectLog::commit`].
    pub fn compact(&mut self) -> Result<()> {
        self.commit()?;
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<()> {
        let old = OldLog {
            nonce: self.header.nonce,
            first: self.first,
            end: self.length,
        };
        let header = Header {
            // Use a new nonce, so that recovery rejects blocks of the old log that are still on the
            // disk.
            nonce: self.header.nonce.wrapping_add(1),
            next_file: self.next_file,
            tenure: self.tenure.clone(),
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
        self.must_sync = false;
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

    fn live(&mut self, number: FileNumber, operation: &str) -> Result<&mut LoggedFile> {
        self.files.get_mut(number).ok_or_else(|| {
            Error::new(ErrorKind::Internal, End::Sink, operation).cause(format!(
                "the log has no unfinished file with the number {number}"
            ))
        })
    }

    /// Writes the pending records. A commit record follows if `is_commit` is true.
    fn write(&mut self, is_commit: bool) -> Result<()> {
        if self.pending.is_empty() {
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
            if error.kind == ErrorKind::LeaseLost {
                // The log has records of another process. Do not truncate them.
                self.is_given_up = true;
                return Err(error);
            }
            let undone = self.file.truncate(self.length);
            self.is_given_up = undone.and_then(|()| self.file.sync()).is_err();
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

    /// Encodes the pending records, but not the ranges of files that have ended.
    fn encode(&mut self, is_commit: bool) -> Group {
        let mut group = Group {
            bytes: Vec::new(),
            file_bytes: Vec::new(),
            start: self.length,
            nonce: self.header.nonce,
            flags: if self.tenure.durability == Durability::None {
                FLAG_WEAK
            } else {
                0
            },
        };
        for record in &self.pending.begins {
            let number = match record {
                Record::FileBegin(number, _)
                | Record::FileSynced(number)
                | Record::FileDoubtful(number) => Some(*number),
                _ => None,
            };
            group.put(number, 0, record);
        }
        let files = &self.files;
        let objects = &mut self.pending.objects;
        objects.retain(|(number, ..)| files.get(*number).is_some());
        objects.sort_unstable_by_key(|(number, index, _)| (*number, *index));
        let mut run: Option<Objects> = None;
        for (number, index, sums) in objects.iter() {
            match &mut run {
                Some(open)
                    if open.number == *number
                        && open.first + open.sums.len() as u64 == *index
                        && open.sums.len() < OBJECTS_PER_RECORD_MAX =>
                {
                    open.sums.push(*sums);
                }
                _ => {
                    let next = Objects {
                        number: *number,
                        first: *index,
                        sums: vec![*sums],
                    };
                    group.put_run(run.replace(next));
                }
            }
        }
        group.put_run(run);
        let ranges = self.pending.ranges.iter();
        for (number, range, sums) in ranges.filter(|(number, ..)| files.get(*number).is_some()) {
            let record = Record::Range(*number, *range, *sums);
            group.put(Some(*number), group.flags, &record);
        }
        for record in &self.pending.ends {
            group.put(None, 0, record);
        }
        if is_commit {
            let durable_before = self.durable;
            group.put(None, 0, &Record::Commit { durable_before });
        }
        group
    }
}

/// Encoded records that are written in one append.
struct Group {
    bytes: Vec<u8>,
    file_bytes: Vec<(FileNumber, u64)>,
    start: u64,
    nonce: u64,
    flags: u8,
}

impl Group {
    fn put(&mut self, number: Option<FileNumber>, flags: u8, record: &Record) {
        let before = self.bytes.len() as u64;
        let offset = self.start + before;
        write_record(
            &mut self.bytes,
            offset,
            self.nonce,
            record.kind(),
            flags,
            &record.encode(),
        );
        if let Some(number) = number {
            self.file_bytes
                .push((number, self.bytes.len() as u64 - before));
        }
    }

    fn put_run(&mut self, run: Option<Objects>) {
        if let Some(run) = run {
            self.put(Some(run.number), self.flags, &Record::Objects(run));
        }
    }
}

fn header_stride(header: &Header) -> u64 {
    let body = Record::Header(header.clone()).encode().len();
    (crate::frame::HEAD_BYTES + body).next_multiple_of(crate::frame::ALIGNMENT as usize) as u64
}

impl<F: LogFile> ObjectLog for UniversalLog<F> {
    fn begin_file(&mut self, begin: FileBegin) -> Result<FileNumber> {
        self.usable()?;
        check_file_begin(&begin)?;
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
            self.write(false)?;
        }
        Ok(())
    }

    fn file_synced(&mut self, number: FileNumber) -> Result<()> {
        self.usable()?;
        self.live(number, "record a sync in the log")?;
        // The new record `FileSynced` covers all ranges that precede it in the log. So write the
        // pending ranges first.
        self.write(false)?;
        self.live(number, "record a sync in the log")?.is_weak = false;
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

    fn end_file(&mut self, number: FileNumber, ending: Ending) -> Result<()> {
        self.usable()?;
        self.live(number, "record the end of a file in the log")?;
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
        self.write(true)?;
        let wants_sync = self.must_sync || self.tenure.durability != Durability::None;
        if wants_sync && self.durable < self.length {
            if let Err(error) = self.file.sync() {
                self.is_given_up = true;
                return Err(error);
            }
            self.durable = self.length;
        }
        self.must_sync = false;
        self.ending.clear();
        Ok(())
    }

    fn compact_if_worth_it(&mut self) -> Result<bool> {
        self.commit()?;
        let is_due = self.length >= self.compact_from;
        let is_worth_it = is_due && is_worth_it(self.length, self.live_bytes());
        if is_worth_it {
            match self.rewrite() {
                Err(error) if self.is_given_up => return Err(error),
                Err(_) => {
                    self.compact_from = self.length + DEAD_BYTES_MIN;
                    return Ok(false);
                }
                Ok(()) => self.compact_from = 0,
            }
        }
        Ok(is_worth_it)
    }

    fn file(&self, path: &RelPath) -> Option<&LoggedFile> {
        let number = self.files.at_path(path)?;
        self.files.get(number).map(|(_, file)| file)
    }

    fn files(&self) -> Box<dyn Iterator<Item = (&RelPath, &LoggedFile)> + '_> {
        Box::new(self.files.by_path())
    }

    fn keeps_sums(&self) -> bool {
        true
    }

    fn bytes(&self) -> u64 {
        // Estimate the length as if each pending record were written alone. A group needs fewer
        // bytes.
        self.length + 64 * self.pending.count() as u64
    }
}
