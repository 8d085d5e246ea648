//! Recovery reads the intact records of a log after a crash or damage.

mod parts;

use crate::file::LogFile;
use crate::record::{
    Checkpoint, FileBegin, FileNumber, Header, LoggedFile, Objects, Positions, Record, Tenure,
};
use crate::scan::{Loss, Scan, Step, Walk, scan};
use dray_core::plan::Grid;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use parts::{FoundPart, is_rebooted};

/// Limits on the memory of recovery. Recovery drops records beyond the limits without an error, and
/// the source then sends the ranges of these records again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of unfinished files.
    pub files_max: usize,
    /// Maximum number of separate ranges in all files.
    pub runs_max: usize,
}

impl Default for Limits {
    /// Returns limits of a million unfinished files and four million ranges. Recovery needs about 1
    /// GiB of memory for so many files and ranges. By default, a session has at most 32,768 files
    /// open. The two limits are estimated, not measured.
    fn default() -> Self {
        Self {
            files_max: 1 << 20,
            runs_max: 1 << 22,
        }
    }
}

/// A part of the log whose bytes were durable and are no longer readable as records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostBytes {
    /// Offset of the bytes in the log.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Extent and consequences of damage to a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first damaged parts, at most [`Self::PLACES_MAX`].
    pub places: Vec<LostBytes>,
    /// Number of all damaged parts.
    pub count: u64,
    /// Number of unfinished files whose ranges are not trusted any more, because the record of
    /// their end may be lost.
    pub files_forgotten: u64,
    /// Number of unfinished files whose remaining records are still valid.
    pub files_kept: u64,
}

impl Damage {
    /// Maximum length of [`Self::places`].
    pub const PLACES_MAX: usize = 16;

    /// Returns an error that describes the damage. `log` is the name of the log.
    #[must_use]
    pub fn error(&self, log: &str) -> Error {
        let places: Vec<String> = self
            .places
            .iter()
            .map(|place| format!("{} bytes at offset {}", place.length, place.offset))
            .collect();
        let more = if self.count > self.places.len() as u64 {
            ", ..."
        } else {
            ""
        };
        let places = match places.is_empty() {
            true => "in its part logs".to_owned(),
            false => format!("{}{more}", places.join(", ")),
        };
        Error::new(
            ErrorKind::LogDamaged,
            End::Sink,
            "read the whole object log",
        )
        .cause(format!(
            "{log} has unreadable records: {places}; the records of {} unfinished files are lost, \
                and {} files have lost some of their records",
            self.files_forgotten, self.files_kept
        ))
        .remedy("the byte ranges of unreadable records are sent again; check the storage device")
    }
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Header of the log.
    pub header: Header,
    /// Tenure of the last known holder.
    pub tenure: Tenure,
    /// Unfinished files by final path.
    pub files: BTreeMap<RelPath, LoggedFile>,
    /// Number of uncommitted bytes at the end of the log. A resume truncates them.
    pub torn_bytes: u64,
    /// Damage to bytes that were durable; `None` if the log is not damaged.
    pub damage: Option<Damage>,
    /// Number of records dropped because of [`Limits`].
    pub over_limit: u64,
    /// Version of the log's format.
    pub(crate) version: u16,
    pub(crate) next_file: FileNumber,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) file_bytes: u64,
    pub(crate) durable: u64,
    /// First epoch since which all holders have had the boot id of the last tenure; the greatest
    /// number if the last tenure is uncertain.
    pub(crate) boot_epoch: u64,
    /// Part logs whose records count, by number.
    pub(crate) parts: BTreeMap<u32, FoundPart>,
}

impl Recovery {
    /// Returns the length in bytes of the log file, including the torn tail.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.file_bytes
    }
}

/// Reads a log. Returns `None` for an empty file, in which no log was created. Reads the file
/// twice, in pieces of 256 KiB, and does not change it.
///
/// # Errors
/// [`ErrorKind::LogVersion`] if the file is not a log or has another version;
/// [`ErrorKind::LogDamaged`] if the header is unreadable; errors of the storage.
pub fn recover<F: LogFile>(file: &mut F) -> Result<Option<Recovery>> {
    recover_within(file, Limits::default())
}

/// Reads a log like [`recover`], with the given limits on memory.
///
/// # Errors
/// The errors of [`recover`].
pub fn recover_within<F: LogFile>(file: &mut F, limits: Limits) -> Result<Option<Recovery>> {
    let Some(scan) = scan(file)? else {
        return Ok(None);
    };
    let mut replay = Replay::new(&scan.header, limits);
    let mut walk = Walk::new(
        scan.header.nonce,
        scan.header.form.has_sums,
        scan.first,
        scan.end,
    );
    while let Some(step) = walk.next(file)? {
        replay.step(step);
    }
    let mut recovery = replay.finish(scan);
    if let Some(files) = recovery.header.files_per_part() {
        parts::read_parts(file, &mut recovery, files, limits)?;
    }
    Ok(Some(recovery))
}

/// Unfinished files, indexed by number, by final path and by partial file.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    has_sums: bool,
    by_number: BTreeMap<FileNumber, (RelPath, LoggedFile)>,
    by_path: BTreeMap<RelPath, FileNumber>,
    by_partial: BTreeMap<RelPath, FileNumber>,
}

impl Files {
    /// Returns the files of a new log. `has_sums` is true if the log contains sums.
    pub(crate) const fn new(has_sums: bool) -> Self {
        Self {
            has_sums,
            by_number: BTreeMap::new(),
            by_path: BTreeMap::new(),
            by_partial: BTreeMap::new(),
        }
    }

    pub(crate) fn from_recovery(has_sums: bool, files: BTreeMap<RelPath, LoggedFile>) -> Self {
        let mut all = Self::new(has_sums);
        for (path, file) in files {
            all.insert(path, file);
        }
        all
    }

    pub(crate) fn insert(&mut self, path: RelPath, file: LoggedFile) {
        self.by_path.insert(path.clone(), file.number);
        self.by_partial
            .insert(partial_path(&path, &file), file.number);
        self.by_number.insert(file.number, (path, file));
    }

    pub(crate) fn remove(&mut self, number: FileNumber) -> Option<(RelPath, LoggedFile)> {
        let (path, file) = self.by_number.remove(&number)?;
        self.by_path.remove(&path);
        self.by_partial.remove(&partial_path(&path, &file));
        Some((path, file))
    }

    pub(crate) fn get(&self, number: FileNumber) -> Option<&(RelPath, LoggedFile)> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: FileNumber) -> Option<&mut LoggedFile> {
        self.by_number.get_mut(&number).map(|(_, file)| file)
    }

    pub(crate) fn at_path(&self, path: &RelPath) -> Option<FileNumber> {
        self.by_path.get(path).copied()
    }

    pub(crate) fn at_partial(&self, place: &RelPath) -> Option<FileNumber> {
        self.by_partial.get(place).copied()
    }

    pub(crate) fn by_number(
        &self,
    ) -> impl Iterator<Item = (FileNumber, &(RelPath, LoggedFile))> + '_ {
        self.by_number.iter().map(|(number, file)| (*number, file))
    }

    pub(crate) fn by_path(&self) -> impl Iterator<Item = (&RelPath, &LoggedFile)> + '_ {
        self.by_path
            .iter()
            .filter_map(|(path, number)| Some((path, &self.by_number.get(number)?.1)))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Returns true if ranges of the file are valid only until the host restarts. A crash may have
    /// lost ranges that were written without a sync. In a log without sums, no range can be
    /// compared with the storage after a restart, or on another host.
    fn is_unproven(&self, file: &LoggedFile) -> bool {
        file.is_weak || !self.has_sums && !file.done.is_empty()
    }

    /// Returns true if a file has ranges that are valid only until the host restarts.
    pub(crate) fn has_unproven(&self) -> bool {
        let mut files = self.by_number.values();
        files.any(|(_, file)| self.is_unproven(file))
    }

    /// Drops the ranges that are valid only until the host restarts. Called after a new boot.
    pub(crate) fn forget_unproven(&mut self, offset: u64) {
        let has_sums = self.has_sums;
        for (_, file) in self.by_number.values_mut() {
            if file.is_weak || !has_sums {
                file.done = dray_core::SummedRanges::new();
                file.is_weak = false;
                file.counts_from = offset;
            }
        }
    }
}

/// Returns the path of the partial file of `path`. Returns `path` itself if the path of the partial
/// file would be too long.
pub(crate) fn partial_path(path: &RelPath, file: &LoggedFile) -> RelPath {
    let folder = path.parent().unwrap_or_else(RelPath::root);
    folder
        .join(&file.partial.name)
        .unwrap_or_else(|_| path.clone())
}

struct Replay {
    files: Files,
    header: Header,
    tenure: Tenure,
    /// First file number that is in no record so far.
    next_file: u32,
    /// Number of the file begun last. After a compaction it may be less than `next_file`, because
    /// unfinished files keep their numbers and the numbers of ended files are not used again.
    last_begun: Option<FileNumber>,
    /// Unfinished files whose end record may be among the lost records. A later record of such a
    /// file proves that the file has not ended.
    doubted: BTreeSet<FileNumber>,
    /// True if the lost bytes may contain a newer tenure (record of a holder) than the known
    /// tenure.
    is_tenure_doubted: bool,
    /// See [`Recovery::boot_epoch`].
    boot_epoch: u64,
    damage: Damage,
    limits: Limits,
    run_count: usize,
    over_limit: u64,
}

impl Replay {
    fn new(header: &Header, limits: Limits) -> Self {
        Self {
            files: Files::new(header.form.has_sums),
            header: header.clone(),
            tenure: header.tenure.clone(),
            next_file: header.next_file.0,
            last_begun: None,
            doubted: BTreeSet::new(),
            is_tenure_doubted: false,
            boot_epoch: header.boot_epoch,
            damage: Damage::default(),
            limits,
            run_count: 0,
            over_limit: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Record {
                offset,
                stride,
                is_weak,
                record,
            } => {
                let kind = record.kind();
                if !self.record(offset, stride, is_weak, record) {
                    // The record is intact but impossible at this position. Treat the record as
                    // lost.
                    self.lost(offset, stride, &Loss::of(Some(kind)));
                }
            }
            Step::Lost {
                offset,
                length,
                kind,
            } => self.lost(offset, length, &Loss::of(kind)),
        }
    }

    fn lost(&mut self, offset: u64, length: u64, loss: &Loss) {
        self.damage.count += 1;
        if self.damage.places.len() < Damage::PLACES_MAX {
            self.damage.places.push(LostBytes { offset, length });
        }
        if loss.may_end_files {
            self.doubted = self.files.by_number().map(|(number, _)| number).collect();
        }
        self.is_tenure_doubted |= loss.may_change_tenure;
    }

    /// Applies one record. Returns false if the record contradicts earlier records.
    fn record(&mut self, offset: u64, stride: u64, is_weak: bool, record: Record) -> bool {
        match record {
            Record::Header(_) => return false,
            Record::FileBegin(number, begin) => return self.begin(offset, stride, number, begin),
            Record::FileEnd(number, _) => {
                self.note_number(number);
                self.remove(number);
            }
            Record::Tenure(tenure) => {
                if tenure.epoch <= self.tenure.epoch {
                    return false;
                }
                if tenure.boot_id != self.tenure.boot_id {
                    self.boot_epoch = tenure.epoch;
                    self.files.forget_unproven(offset);
                    self.run_count = self.files.by_path().map(|(_, f)| f.done.run_count()).sum();
                }
                self.tenure = tenure;
                self.is_tenure_doubted = false;
            }
            Record::Objects(Objects { number, .. })
            | Record::Checkpoint(Checkpoint { number, .. })
            | Record::Positions(Positions { number, .. })
            | Record::Range(number, ..) => {
                return self.ranges(number, stride, is_weak, |grid| {
                    ranges_of_record(grid, &record)
                });
            }
            Record::FileSynced(number) => {
                self.note_number(number);
                if let Some(file) = self.files.get_mut(number) {
                    file.is_weak = false;
                    file.log_bytes += stride;
                    self.doubted.remove(&number);
                }
            }
            Record::FileDoubtful(number) => {
                self.note_number(number);
                if let Some(file) = self.files.get_mut(number) {
                    file.is_doubtful = true;
                    file.log_bytes += stride;
                    self.doubted.remove(&number);
                }
            }
            Record::Commit { .. } => {}
        }
        true
    }

    fn begin(&mut self, offset: u64, stride: u64, number: FileNumber, begin: FileBegin) -> bool {
        if self.last_begun.is_some_and(|last| number <= last) {
            return false;
        }
        self.last_begun = Some(number);
        self.note_number(number);
        let (path, mut file) = LoggedFile::new(number, begin, offset);
        file.log_bytes = stride;
        // A writer begins a path, or uses a partial file again, only after the older file has
        // ended. So this record proves that the older file has ended, even if the record of that
        // end is lost.
        let older = [
            self.files.at_path(&path),
            self.files.at_partial(&partial_path(&path, &file)),
        ];
        for number in older.into_iter().flatten() {
            self.remove(number);
        }
        if self.files.len() >= self.limits.files_max {
            self.over_limit += 1;
        } else {
            self.files.insert(path, file);
        }
        true
    }

    fn ranges(
        &mut self,
        number: FileNumber,
        stride: u64,
        is_weak: bool,
        split: impl FnOnce(&Grid) -> Option<Vec<(ByteRange, Sums)>>,
    ) -> bool {
        self.note_number(number);
        let Some(file) = self.files.get_mut(number) else {
            return true;
        };
        let Some(ranges) = split(&Grid::new(file.key.size, file.object_bytes)) else {
            return false;
        };
        self.doubted.remove(&number);
        file.log_bytes += stride;
        if (is_weak || !self.header.form.has_sums) && self.is_tenure_doubted {
            // The ranges were written without a sync, and it is unknown if the host has restarted
            // since. So the ranges do not count.
            return true;
        }
        let runs_before = file.done.run_count();
        let room = self.limits.runs_max.saturating_sub(self.run_count);
        for (range, sums) in ranges {
            if file.done.run_count() >= runs_before.saturating_add(room) {
                self.over_limit += 1;
                break;
            }
            file.is_weak |= file.done.insert(range, sums) && is_weak;
        }
        self.run_count = (self.run_count + file.done.run_count()).saturating_sub(runs_before);
        true
    }

    fn note_number(&mut self, number: FileNumber) {
        self.next_file = self.next_file.max(number.0.saturating_add(1));
    }

    fn remove(&mut self, number: FileNumber) {
        if let Some((_, file)) = self.files.remove(number) {
            self.run_count = self.run_count.saturating_sub(file.done.run_count());
        }
        self.doubted.remove(&number);
    }

    fn finish(mut self, scan: Scan) -> Recovery {
        for number in std::mem::take(&mut self.doubted) {
            self.damage.files_forgotten += u64::from(self.files.remove(number).is_some());
        }
        if self.is_tenure_doubted {
            // The lost bytes may contain the record of a newer holder, which wrote records without
            // a sync in another boot of the host.
            self.files.forget_unproven(scan.end);
        }
        self.damage.files_kept = self.files.len() as u64;
        Recovery {
            header: self.header,
            tenure: self.tenure,
            files: self.files.by_number.into_values().collect(),
            torn_bytes: scan.file_bytes - scan.end,
            damage: (self.damage.count > 0).then_some(self.damage),
            over_limit: self.over_limit,
            version: scan.version,
            next_file: FileNumber(self.next_file),
            first: scan.first,
            end: scan.end,
            file_bytes: scan.file_bytes,
            durable: scan.durable.min(scan.end),
            boot_epoch: match self.is_tenure_doubted {
                true => u64::MAX,
                false => self.boot_epoch,
            },
            parts: BTreeMap::new(),
        }
    }
}

/// Returns the ranges that a record contains; `None` if a range is outside the file, or the record
/// contains no ranges.
pub(crate) fn ranges_of_record(grid: &Grid, record: &Record) -> Option<Vec<(ByteRange, Sums)>> {
    match record {
        Record::Objects(run) => ranges_of_run(grid, run),
        Record::Checkpoint(window) => ranges_of_checkpoint(grid, window),
        Record::Positions(positions) => {
            let objects = positions.objects.iter();
            objects
                .map(|(object, sums)| {
                    (*object < grid.count()).then(|| (grid.range(*object), *sums))
                })
                .collect()
        }
        Record::Range(_, range, sums) => {
            (!range.is_empty() && range.end() <= grid.size()).then(|| vec![(*range, *sums)])
        }
        _ => None,
    }
}

/// Returns the objects of a run as ranges; `None` if an object is outside the file.
fn ranges_of_run(grid: &Grid, run: &Objects) -> Option<Vec<(ByteRange, Sums)>> {
    let last = run.first.checked_add(run.sums.len() as u64 - 1)?;
    if last >= grid.count() {
        return None;
    }
    let sums = run.sums.iter().zip(run.first..=last);
    Some(
        sums.map(|(sums, index)| (grid.range(index), *sums))
            .collect(),
    )
}

/// Returns the done objects of a checkpoint as ranges; `None` if its window exceeds the file.
fn ranges_of_checkpoint(grid: &Grid, window: &Checkpoint) -> Option<Vec<(ByteRange, Sums)>> {
    let last = window.first.checked_add(window.objects.len() as u64 - 1)?;
    if last >= grid.count() {
        return None;
    }
    let objects = window.objects.iter().zip(window.first..=last);
    let set = objects.filter_map(|(sums, index)| Some((grid.range(index), (*sums)?)));
    Some(set.collect())
}

#[cfg(test)]
mod tests {
    use super::{Checkpoint, FileNumber, Objects, ranges_of_checkpoint, ranges_of_run};
    use dray_core::plan::Grid;
    use dray_core::{ByteRange, Sums};
    use std::num::NonZeroU64;

    #[test]
    fn the_last_objects_of_the_largest_file_are_read() {
        let grid = Grid::new(u64::MAX, NonZeroU64::MIN);
        let number = FileNumber(0);
        for (first, is_inside) in [
            (u64::MAX - 2, true),
            (u64::MAX - 1, false),
            (u64::MAX, false),
        ] {
            let sums = vec![Sums::EMPTY; 2];
            let objects = sums.iter().copied().map(Some).collect();
            let run = ranges_of_run(
                &grid,
                &Objects {
                    number,
                    first,
                    sums,
                },
            );
            let window = Checkpoint {
                number,
                first,
                objects,
            };
            assert_eq!(run, ranges_of_checkpoint(&grid, &window));
            assert_eq!(run.is_some(), is_inside);
            let last = run.and_then(|run| run.last().copied());
            let end = ByteRange::between(u64::MAX - 1, u64::MAX);
            assert!(last.is_none_or(|(range, _)| range == end));
        }
    }
}
