//! What a log still says after whatever happened to it.

use crate::file::LogFile;
use crate::record::{
    Checkpoint, FileBegin, FileNumber, Header, LoggedFile, Objects, Record, Tenure,
};
use crate::scan::{Loss, Scan, Step, Walk, scan};
use dray_core::plan::Grid;
use dray_core::{ByteRange, End, Error, ErrorKind, RelPath, Result, Sums};
use std::collections::{BTreeMap, BTreeSet};

/// Bounds of what recovery holds in memory. What goes past them is not an error: it is forgotten,
/// and so sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most unfinished files.
    pub files_max: usize,
    /// Most runs of all files together.
    pub runs_max: usize,
}

impl Default for Limits {
    /// A million unfinished files and four million gaps: about 1 GiB in the very worst case, a
    /// hundred times what any session keeps open (guess, revisit).
    fn default() -> Self {
        Self {
            files_max: 1 << 20,
            runs_max: 1 << 22,
        }
    }
}

/// Bytes of a log that are no records although they were durable once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostBytes {
    /// Where in the log.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// What damage cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first places, [`Self::PLACES_MAX`] at most.
    pub places: Vec<LostBytes>,
    /// Number of places.
    pub count: u64,
    /// Unfinished files of which nothing is trusted any more: their end may be in the lost bytes.
    pub files_forgotten: u64,
    /// Unfinished files whose other records are still good.
    pub files_kept: u64,
}

impl Damage {
    /// Most places listed.
    pub const PLACES_MAX: usize = 16;

    /// The damage in words; `log` is the log's name.
    #[must_use]
    pub fn error(&self, log: &str) -> Error {
        let places: Vec<String> = self
            .places
            .iter()
            .map(|place| format!("{} bytes at {}", place.length, place.offset))
            .collect();
        let more = if self.count > self.places.len() as u64 {
            ", ..."
        } else {
            ""
        };
        Error::new(
            ErrorKind::LogDamaged,
            End::Sink,
            "read all of the object log",
        )
        .cause(format!(
            "{log}: unreadable: {}{more}; {} unfinished files are forgotten, {} keep their other \
             records",
            places.join(", "),
            self.files_forgotten,
            self.files_kept
        ))
        .remedy("what is in doubt is sent again; check the device")
    }
}

/// Everything a log still says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The header, as it was written.
    pub header: Header,
    /// The last holder.
    pub tenure: Tenure,
    /// The unfinished files.
    pub files: BTreeMap<RelPath, LoggedFile>,
    /// Bytes at the end that were never committed; a resume cuts them off.
    pub torn_bytes: u64,
    /// What else is unreadable.
    pub damage: Option<Damage>,
    /// Records forgotten because of [`Limits`].
    pub over_limit: u64,
    /// Version of the format the log is written in.
    pub(crate) version: u16,
    pub(crate) next_file: FileNumber,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) file_bytes: u64,
    pub(crate) durable: u64,
}

impl Recovery {
    /// Bytes of the log file as it was read, torn tail included.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.file_bytes
    }
}

/// Reads a log; `None` for an empty file, which is a log that was never made. Reads it twice, in
/// pieces of 256 KiB; changes nothing.
///
/// # Errors
/// [`ErrorKind::LogVersion`] for another version or something else than a log;
/// [`ErrorKind::LogDamaged`] when the header itself is unreadable; what the storage says.
pub fn recover<F: LogFile>(file: &mut F) -> Result<Option<Recovery>> {
    recover_within(file, Limits::default())
}

/// [`recover`] with other bounds.
///
/// # Errors
/// As [`recover`].
pub fn recover_within<F: LogFile>(file: &mut F, limits: Limits) -> Result<Option<Recovery>> {
    let Some(scan) = scan(file)? else {
        return Ok(None);
    };
    let mut replay = Replay::new(&scan.header, limits);
    let mut walk = Walk::new(scan.header.nonce, scan.first, scan.end);
    while let Some(step) = walk.next(file)? {
        replay.step(step);
    }
    Ok(Some(replay.finish(scan)))
}

/// The unfinished files, found by number, by final path and by partial file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    by_number: BTreeMap<FileNumber, (RelPath, LoggedFile)>,
    by_path: BTreeMap<RelPath, FileNumber>,
    by_partial: BTreeMap<RelPath, FileNumber>,
}

impl Files {
    pub(crate) fn from_recovery(files: BTreeMap<RelPath, LoggedFile>) -> Self {
        let mut all = Self::default();
        for (path, file) in files {
            all.insert(path, file);
        }
        all
    }

    pub(crate) fn insert(&mut self, path: RelPath, file: LoggedFile) {
        self.by_path.insert(path.clone(), file.number);
        self.by_partial
            .insert(partial_place(&path, &file), file.number);
        self.by_number.insert(file.number, (path, file));
    }

    pub(crate) fn remove(&mut self, number: FileNumber) -> Option<(RelPath, LoggedFile)> {
        let (path, file) = self.by_number.remove(&number)?;
        self.by_path.remove(&path);
        self.by_partial.remove(&partial_place(&path, &file));
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

    /// A new boot: what was written and not synced is in doubt.
    pub(crate) fn forget_weak(&mut self, offset: u64) {
        for (_, file) in self.by_number.values_mut() {
            if file.is_weak {
                file.done = dray_core::SummedRanges::new();
                file.is_weak = false;
                file.counts_from = offset;
            }
        }
    }
}

/// Where the partial file of `path` lies. A place too long to be a path stands for itself.
pub(crate) fn partial_place(path: &RelPath, file: &LoggedFile) -> RelPath {
    let folder = path.parent().unwrap_or_else(RelPath::root);
    folder
        .join(&file.partial.name)
        .unwrap_or_else(|_| path.clone())
}

struct Replay {
    files: Files,
    header: Header,
    tenure: Tenure,
    /// First number that no record has named.
    next_file: u32,
    /// Last number begun. After a compaction it runs behind `next_file`: the files that go on keep
    /// their numbers, and those of files that ended are never given again.
    last_begun: Option<FileNumber>,
    /// Files whose end may be in lost bytes, until a later record of theirs shows that it is not.
    doubted: BTreeSet<FileNumber>,
    /// Whether lost bytes may hold a newer tenure than the one known.
    is_tenure_doubted: bool,
    damage: Damage,
    limits: Limits,
    run_count: usize,
    over_limit: u64,
}

impl Replay {
    fn new(header: &Header, limits: Limits) -> Self {
        Self {
            files: Files::default(),
            header: header.clone(),
            tenure: header.tenure.clone(),
            next_file: header.next_file.0,
            last_begun: None,
            doubted: BTreeSet::new(),
            is_tenure_doubted: false,
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
                    // Whole, yet impossible here: as good as lost.
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

    /// Takes one record in; false when it is impossible after what came before.
    fn record(&mut self, offset: u64, stride: u64, is_weak: bool, record: Record) -> bool {
        match record {
            Record::Header(_) => return false,
            Record::FileBegin(number, begin) => return self.begin(offset, stride, number, begin),
            Record::FileEnd(number, _) => {
                self.seen(number);
                self.remove(number);
            }
            Record::Tenure(tenure) => {
                if tenure.epoch <= self.tenure.epoch {
                    return false;
                }
                if tenure.boot_id != self.tenure.boot_id {
                    self.files.forget_weak(offset);
                    self.run_count = self.files.by_path().map(|(_, f)| f.done.run_count()).sum();
                }
                self.tenure = tenure;
                self.is_tenure_doubted = false;
            }
            Record::Objects(run) => {
                let number = run.number;
                return self.ranges(number, stride, is_weak, |grid| ranges_of_run(grid, &run));
            }
            Record::Checkpoint(window) => {
                let number = window.number;
                return self.ranges(number, stride, is_weak, |grid| {
                    ranges_of_checkpoint(grid, &window)
                });
            }
            Record::Range(number, range, sums) => {
                return self.ranges(number, stride, is_weak, |grid| {
                    (!range.is_empty() && range.end() <= grid.size()).then(|| vec![(range, sums)])
                });
            }
            Record::FileSynced(number) => {
                self.seen(number);
                if let Some(file) = self.files.get_mut(number) {
                    file.is_weak = false;
                    file.log_bytes += stride;
                    self.doubted.remove(&number);
                }
            }
            Record::FileDoubtful(number) => {
                self.seen(number);
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
        self.seen(number);
        let (path, mut file) = LoggedFile::new(number, begin, offset);
        file.log_bytes = stride;
        // A writer begins a path, or reuses a partial file, only after the older one ended; if that
        // end was lost, this is the proof of it.
        let older = [
            self.files.at_path(&path),
            self.files.at_partial(&partial_place(&path, &file)),
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
        self.seen(number);
        let Some(file) = self.files.get_mut(number) else {
            return true;
        };
        let Some(ranges) = split(&Grid::new(file.key.size, file.object_bytes)) else {
            return false;
        };
        self.doubted.remove(&number);
        file.log_bytes += stride;
        if is_weak && self.is_tenure_doubted {
            // Written without a sync, in nobody knows which boot.
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

    fn seen(&mut self, number: FileNumber) {
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
            // The last holder may be another than the one known.
            self.files.forget_weak(scan.end);
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
        }
    }
}

/// The objects of a run as ranges; `None` when one lies outside the file.
pub(crate) fn ranges_of_run(grid: &Grid, run: &Objects) -> Option<Vec<(ByteRange, Sums)>> {
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

/// The set objects of a checkpoint as ranges; `None` when its window reaches outside the file.
pub(crate) fn ranges_of_checkpoint(
    grid: &Grid,
    window: &Checkpoint,
) -> Option<Vec<(ByteRange, Sums)>> {
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
