//! The recorded pieces of a file: each range as it was recorded, with its sums.
//!
//! Recovery merges the records of adjacent objects into runs. If a run is wrong, recovery cannot
//! tell which object of the run is wrong. This module reads the single records, which are needed in
//! two cases: for a wrong run, and for a file that is inherited from another log.

use crate::file::{LogFile, PartAccess};
use crate::log::ObjectLog;
use crate::record::{FileNumber, LoggedFile};
use crate::recover::{Recovery, ranges_of_record, recover};
use crate::scan::{Step, Walk};
use crate::universal::UniversalLog;
use dray_core::plan::Grid;
use dray_core::{ByteRange, Result, SummedRanges, Sums};

/// Maximum number of objects whose records are in memory at the same time. Their records take 6
/// MiB.
const OBJECTS_PER_PART: u64 = 1 << 18;

/// Splits a file into parts. The caller reads the pieces of one part at a time, which limits
/// memory.
pub fn parts(file: &LoggedFile) -> impl Iterator<Item = ByteRange> + use<> {
    let size = file.key.size;
    let part_bytes = file.object_bytes.get().saturating_mul(OBJECTS_PER_PART);
    let next = move |at: &u64| (*at < size).then(|| at.saturating_add(part_bytes).min(size));
    std::iter::successors(Some(0), next).filter_map(move |at| {
        let end = at.saturating_add(part_bytes).min(size);
        (at < end).then(|| ByteRange::between(at, end))
    })
}

fn pieces_of<F: LogFile>(
    log: &mut F,
    mut walk: Walk,
    file: &LoggedFile,
    within: ByteRange,
) -> Result<Vec<(ByteRange, Sums)>> {
    let (number, grid) = (file.number, Grid::new(file.key.size, file.object_bytes));
    let mut pieces = Vec::new();
    // If a piece was recorded twice, the first record counts, as in recovery.
    let mut seen = SummedRanges::new();
    while let Some(step) = walk.next(log)? {
        let Step::Record { record, .. } = step else {
            continue;
        };
        if record.file_of_ranges() != Some(number) {
            continue;
        }
        for (range, sums) in ranges_of_record(&grid, &record).unwrap_or_default() {
            let is_asked = within.offset <= range.offset && range.offset < within.end();
            if is_asked && file.done.contains(range) && seen.insert(range, sums) {
                pieces.push((range, sums));
            }
        }
    }
    pieces.sort_unstable_by_key(|(range, _)| range.offset);
    Ok(pieces)
}

impl<F: LogFile> UniversalLog<F> {
    /// Returns the recorded pieces of an unfinished file, sorted by offset. Only pieces that start
    /// in the range `within` are returned.
    ///
    /// # Errors
    /// Errors of the storage.
    pub fn pieces(
        &mut self,
        number: FileNumber,
        within: ByteRange,
    ) -> Result<Vec<(ByteRange, Sums)>> {
        let Some((path, file)) = self.files.get(number) else {
            return Ok(Vec::new());
        };
        if self.header.files_per_part().is_some() {
            let path = path.clone();
            return match self.part_of(number)? {
                Some(part) => match part.file(&path).map(|file| file.number) {
                    Some(number) => {
                        let pieces = part.pieces(number, within);
                        part.file.release();
                        pieces
                    }
                    None => Ok(Vec::new()),
                },
                None => Ok(Vec::new()),
            };
        }
        let walk = Walk::new(
            self.header.nonce,
            self.header.form.has_sums,
            self.first,
            self.length,
        );
        pieces_of(&mut self.file, walk, file, within)
    }
}

/// Records the pieces of the file `theirs` in `own`, with the file number `number`. `recovery` is
/// the result of reading `log`.
///
/// # Errors
/// The errors of [`ObjectLog::done`]; errors of the storage.
pub(crate) fn copy_pieces<L: ObjectLog, F: LogFile>(
    own: &mut L,
    number: FileNumber,
    (log, recovery): (&mut F, &Recovery),
    theirs: &LoggedFile,
) -> Result<()> {
    if let Some(files) = recovery.header.files_per_part() {
        let part = theirs.number.0 / files;
        let opened = log.open_part(part, PartAccess::Read)?;
        let Some(mut opened) = opened.filter(|_| recovery.parts.contains_key(&part)) else {
            return Ok(());
        };
        let found = recover(&mut opened)?;
        let same = found.as_ref().and_then(|found| {
            let file = found.files.values().find(|file| file.is_same(theirs))?;
            Some((found, file.number))
        });
        let Some((found, in_part)) = same else {
            return Ok(());
        };
        let theirs = LoggedFile {
            number: in_part,
            ..theirs.clone()
        };
        return copy_pieces(own, number, (&mut opened, found), &theirs);
    }
    for part in parts(theirs) {
        let walk = Walk::new(
            recovery.header.nonce,
            recovery.header.form.has_sums,
            recovery.first,
            recovery.end,
        );
        for (range, sums) in pieces_of(log, walk, theirs, part)? {
            own.done(number, range, sums)?;
        }
    }
    Ok(())
}
