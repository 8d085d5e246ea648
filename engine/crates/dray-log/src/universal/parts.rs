//! The part logs of a log of the mechanisms file and transaction.
//!
//! A part log has the format of a log. It numbers its files itself. It contains a file from the
//! first completed object of the file, and it is removed when all its files have ended.
//!
//! Invariants: the begin of a file is durable in the log before a part log contains a range of the
//! file. The end of a file is durable in a part log that stays, before it is written to the log.

use super::{UniversalLog, forget_unsynced};
use crate::file::{LogFile, PartAccess};
use crate::log::ObjectLog;
use crate::record::{Ending, FileNumber, Header};
use crate::recover::{FoundPart, is_rebooted, recover};
use dray_core::options::Durability;
use dray_core::plan::Grid;
use dray_core::{ByteRange, End, Error, ErrorKind, Result, Sums};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// Maximum number of part logs whose files stay open between two calls. A sync group may contain
/// objects of more files than a process may have open files. The value is estimated, not measured.
const OPEN_FILES_MAX: usize = 64;

/// A part log that is open for writing.
type Part = UniversalLog<Box<dyn LogFile + Send>>;

/// The part logs of a log.
#[derive(Default)]
pub(super) struct Parts {
    /// Part logs of an earlier run that this run has not opened yet.
    found: BTreeSet<u32>,
    /// Lengths in bytes of the part logs in `found` that this run has synced.
    synced: BTreeMap<u32, u64>,
    /// First epoch since which all holders have had the boot id of this holder.
    boot_epoch: u64,
    open: BTreeMap<u32, Part>,
    /// Part logs whose files may be open, the one used last at the end.
    recent: VecDeque<u32>,
    /// Part logs with records that are not committed.
    uncommitted: BTreeSet<u32>,
    /// True if part logs have been committed, and the log has no commit record since then.
    is_written: bool,
    /// Part logs with a file that has ended since the last commit.
    ended: BTreeSet<u32>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("found", &self.found)
            .field("open", &self.open.keys())
            .finish_non_exhaustive()
    }
}

impl Parts {
    /// Returns the part logs that a recovery has found.
    pub(super) fn found(found: BTreeSet<u32>, boot_epoch: u64) -> Self {
        Self {
            found,
            boot_epoch,
            ..Self::default()
        }
    }

    pub(super) const fn is_written(&self) -> bool {
        self.is_written
    }

    pub(super) const fn boot_epoch(&self) -> u64 {
        self.boot_epoch
    }

    /// Returns the total length in bytes of the open part logs.
    pub(super) fn bytes(&self) -> u64 {
        self.open.values().map(ObjectLog::bytes).sum()
    }

    /// Notes that a part log was used. Closes the file of the part log whose last use is longest ago
    /// if more than [`OPEN_FILES_MAX`] files may be open.
    fn note_use(&mut self, part: u32) {
        if self.recent.back() == Some(&part) {
            return;
        }
        self.recent.retain(|other| *other != part);
        self.recent.push_back(part);
        if self.recent.len() > OPEN_FILES_MAX
            && let Some(oldest) = self.recent.pop_front()
            && let Some(log) = self.open.get_mut(&oldest)
        {
            log.file.release();
        }
    }

    /// Calls `act` for each open part log.
    pub(super) fn each(&mut self, mut act: impl FnMut(&mut Part) -> Result<()>) -> Result<()> {
        for part in self.open.values_mut() {
            let acted = act(part);
            part.file.release();
            acted?;
        }
        self.recent.clear();
        Ok(())
    }
}

impl<F: LogFile> UniversalLog<F> {
    /// Removes part logs in which no range counts.
    pub(super) fn remove_other_parts(&mut self) -> Result<()> {
        if self.header.files_per_part().is_none() {
            return Ok(());
        }
        for part in self.file.parts()? {
            if !self.parts.found.contains(&part) {
                self.file.remove_part(part)?;
            }
        }
        Ok(())
    }

    /// Syncs the part logs that a recovery has found. The writer of a part log may have been killed
    /// before its last sync.
    pub(super) fn sync_found_parts(&mut self, found: &BTreeMap<u32, FoundPart>) -> Result<()> {
        for (part, found) in found {
            let Some(mut file) = self.file.open_part(*part, PartAccess::Write)? else {
                continue;
            };
            if let Err(error) = file.sync() {
                let _ = forget_unsynced(&mut file, &self.tenure, found.durable..found.file_bytes);
                return Err(error);
            }
            self.parts.synced.insert(*part, found.file_bytes);
        }
        Ok(())
    }

    /// Returns the part log of a file; `None` if it does not exist.
    pub(crate) fn part_of(&mut self, number: FileNumber) -> Result<Option<&mut Part>> {
        let Some(files) = self.header.files_per_part() else {
            return Ok(None);
        };
        let part = number.0 / files;
        if self.parts.found.contains(&part) {
            let opened = match self.resume_part(part) {
                Ok(opened) => opened,
                Err(error) => {
                    // The part log may have lost records that this instance still counts. After
                    // `NoSpace`, the part log is certainly unchanged.
                    if error.kind != ErrorKind::NoSpace {
                        self.give_up_for_part();
                    }
                    return Err(error);
                }
            };
            self.parts.found.remove(&part);
            self.parts.open.insert(part, opened);
        }
        Ok(self.parts.open.get_mut(&part))
    }

    /// Hands the pending ranges over to the part logs.
    pub(super) fn fill_parts(&mut self) -> Result<()> {
        let is_empty = self.pending.objects.is_empty() && self.pending.ranges.is_empty();
        if self.header.files_per_part().is_none() || is_empty {
            return Ok(());
        }
        if self.has_new_files()? {
            self.write(false)?;
            if self.tenure.durability != Durability::None {
                self.sync_written()?;
            }
        }
        let mut held = self.pending.hold_back(false);
        let filled = self.hand_over(&mut held);
        self.pending.put_back(held);
        filled
    }

    /// Returns true if a pending range belongs to a file that is in no part log.
    fn has_new_files(&mut self) -> Result<bool> {
        let objects = self.pending.objects.iter().map(|(number, ..)| *number);
        let ranges = self.pending.ranges.iter().map(|(number, ..)| *number);
        for number in objects.chain(ranges).collect::<BTreeSet<_>>() {
            let Some((path, _)) = self.files.get(number) else {
                continue;
            };
            let path = path.clone();
            let part = self.part_of(number)?;
            if part.is_none_or(|part| part.file(&path).is_none()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves the ranges in `held` to the part logs. After an error, `held` contains the others.
    fn hand_over(&mut self, held: &mut super::Pending) -> Result<()> {
        let (mut objects, mut ranges) = (0, 0);
        let mut handed = Ok(());
        for of_file in held.objects.chunk_by(|one, next| one.0 == next.0) {
            let Some((number, ..)) = of_file.first() else {
                continue;
            };
            let file = self.files.get(*number);
            if let Some(grid) = file.map(|(_, file)| Grid::new(file.key.size, file.object_bytes)) {
                let found = of_file.iter();
                let found = found.map(|(_, index, sums)| (grid.range(*index), *sums));
                handed = self.record_in_part(*number, found);
            }
            if handed.is_err() {
                break;
            }
            objects += of_file.len();
        }
        for (number, range, sums) in &held.ranges {
            if handed.is_err() {
                break;
            }
            handed = self.record_in_part(*number, std::iter::once((*range, *sums)));
            ranges += usize::from(handed.is_ok());
        }
        held.objects.drain(..objects);
        held.ranges.drain(..ranges);
        handed
    }

    fn record_in_part(
        &mut self,
        number: FileNumber,
        ranges: impl Iterator<Item = (ByteRange, Sums)>,
    ) -> Result<()> {
        let (Some((path, file)), Some(files)) =
            (self.files.get(number), self.header.files_per_part())
        else {
            return Ok(());
        };
        let (begin, part) = (file.begin(path), number.0 / files);
        if self.part_of(number)?.is_none() {
            let made = self.new_part(part)?;
            self.parts.open.insert(part, made);
        }
        self.parts.uncommitted.insert(part);
        self.parts.note_use(part);
        let Some(log) = self.parts.open.get_mut(&part) else {
            return Ok(());
        };
        let number = match log.file(&begin.path) {
            Some(file) => file.number,
            None => log.begin_file(begin)?,
        };
        for (range, sums) in ranges {
            // After an error of a commit, a range may already be in the part log.
            let file = log.live(number, "record a range in the log")?;
            if !file.done.contains(range) {
                log.done(number, range, sums)?;
            }
        }
        Ok(())
    }

    /// Records in the part log that all ranges of a file are durable.
    pub(super) fn sync_in_part(&mut self, number: FileNumber) -> Result<()> {
        self.with_part(number, |part, number| part.file_synced(number))
    }

    /// Ends a file in its part log. A part log of one file only is removed instead.
    pub(super) fn end_in_part(&mut self, number: FileNumber, ending: Ending) -> Result<()> {
        let Some(files) = self.header.files_per_part() else {
            return Ok(());
        };
        self.parts.ended.insert(number.0 / files);
        if files.get() == 1 {
            return Ok(());
        }
        self.with_part(number, |part, number| part.end_file(number, ending))
    }

    /// Calls `act` with the part log of a file and the number of the file in the part log. Does
    /// nothing if no part log contains the file.
    fn with_part(
        &mut self,
        number: FileNumber,
        act: impl FnOnce(&mut Part, FileNumber) -> Result<()>,
    ) -> Result<()> {
        let (Some((path, _)), Some(files)) = (self.files.get(number), self.header.files_per_part())
        else {
            return Ok(());
        };
        let path = path.clone();
        if let Some(part) = self.part_of(number)?
            && let Some(in_part) = part.file(&path).map(|file| file.number)
        {
            act(part, in_part)?;
            self.parts.uncommitted.insert(number.0 / files);
            self.parts.note_use(number.0 / files);
        }
        Ok(())
    }

    /// Commits the part logs.
    pub(super) fn commit_parts(&mut self) -> Result<()> {
        self.fill_parts()?;
        let must_sync = self.wants_sync();
        while let Some(part) = self.parts.uncommitted.first().copied() {
            if let Some(log) = self.parts.open.get_mut(&part) {
                log.must_sync |= must_sync;
                let committed = log.commit();
                if log.is_given_up {
                    self.give_up_for_part();
                }
                self.parts.note_use(part);
                committed?;
            }
            self.parts.uncommitted.remove(&part);
            self.parts.is_written = true;
        }
        Ok(())
    }

    /// Removes the part logs whose files have all ended. Called after the commit of these ends.
    pub(super) fn remove_ended_parts(&mut self) {
        let Some(files) = self.header.files_per_part() else {
            return;
        };
        self.parts.is_written = false;
        for part in std::mem::take(&mut self.parts.ended) {
            let first = part.saturating_mul(files.get());
            let mut numbers = (0..files.get()).filter_map(|at| first.checked_add(at));
            if numbers.any(|number| self.files.get(FileNumber(number)).is_some()) {
                continue;
            }
            let was_open = self.parts.open.remove(&part).is_some();
            self.parts.recent.retain(|other| *other != part);
            if self.parts.found.remove(&part) || was_open {
                // Ignore errors: no range in the part log counts any more, and the end of the
                // transfer or the next run removes the part log.
                let _ = self.file.remove_part(part);
            }
        }
    }

    /// Opens a part log of an earlier run.
    fn resume_part(&mut self, part: u32) -> Result<Part> {
        let changed = || {
            Error::new(
                ErrorKind::LeaseLost,
                End::Sink,
                "resume from the object log",
            )
            .cause(format!(
                "part {part} of the log has changed since it was read"
            ))
            .remedy("run the same command again")
        };
        let opened = self.file.open_part(part, PartAccess::Write)?;
        let mut file = opened.ok_or_else(changed)?;
        let recovery = recover(&mut file)?.ok_or_else(changed)?;
        let synced = self.parts.synced.get(&part).copied().unwrap_or(0);
        let synced = synced.min(recovery.end);
        let is_rebooted = is_rebooted(&recovery.tenure, self.parts.boot_epoch);
        let mut log = UniversalLog::resume_synced(file, recovery, self.tenure.clone(), synced)?;
        if is_rebooted && log.files.has_unproven() {
            // Rewrite the part log, because its new tenure does not show that the host may have
            // restarted.
            log.files.forget_unproven(log.length);
            log.compact()?;
        }
        let files = self.header.files_per_part();
        let is_ours = |number: FileNumber| files.is_some_and(|files| number.0 / files == part);
        let mut others = Vec::new();
        for (path, theirs) in log.files() {
            let number = self.files.at_path(path).filter(|number| is_ours(*number));
            let ours = number.and_then(|number| self.files.get(number));
            if ours.is_none_or(|(_, ours)| !ours.is_same(theirs)) {
                others.push(theirs.number);
            }
        }
        for number in others {
            log.end_file(number, Ending::Dropped)?;
        }
        log.commit()?;
        log.file.release();
        Ok(log)
    }

    /// Creates a part log.
    fn new_part(&mut self, part: u32) -> Result<Part> {
        let opened = self.file.open_part(part, PartAccess::Write)?;
        let file = opened.ok_or_else(|| {
            Error::new(
                ErrorKind::Internal,
                End::Sink,
                "create a part of the object log",
            )
            .cause("the storage did not create the file")
        })?;
        let header = Header {
            claims: Vec::new(),
            nonce: mix(self.header.nonce ^ u64::from(part) << 32 ^ self.length),
            tenure: self.tenure.clone(),
            part: Some(part),
            boot_epoch: self.tenure.epoch,
            ..self.header.clone()
        };
        UniversalLog::create(file, header)
    }
}

/// Distributes the bits of a number (SplitMix64, Steele et al. 2014). The nonces of the part logs
/// differ from each other and from the nonce of the log.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
