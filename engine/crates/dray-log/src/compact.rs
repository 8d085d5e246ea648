//! Compaction rewrites the log without dead records, and joins the records of a file. Recovery does
//! not use a dead record. This module also decides when to rewrite.

use crate::file::LogFile;
use crate::frame::{PRELUDE_BYTES, prelude_of, write_record};
use crate::positions;
use crate::record::{
    Checkpoint, FileNumber, Header, LoggedFile, OBJECTS_PER_RECORD_MAX, Objects, Positions, Record,
};
use crate::recover::{Files, ranges_of_record};
use crate::scan::{Step, Walk};
use dray_core::plan::Grid;
use dray_core::{LogForm, LogMethod, Result, Sums};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum number of dead bytes before a rewrite. The logs of FT-LADS, which have no checksums, need
/// at most 60 KB (Kasu et al. 2019, section VI-C).
pub const DEAD_BYTES_MIN: u64 = 32 << 10;

/// Number of dead bytes from which the log is rewritten without regard to [`SYNCS_MIN`]. Recovery
/// reads fewer bytes within milliseconds. The value is estimated, not measured.
pub const DEAD_BYTES_MAX: u64 = 1 << 20;

/// Minimum number of syncs of the log between two rewrites, if the log has less than
/// [`DEAD_BYTES_MAX`] dead bytes. A rewrite takes about three syncs of a small file. Before each
/// sync of the log, the sink also syncs the files of a group, so four syncs of the log take longer
/// than a rewrite.
const SYNCS_MIN: u32 = 4;

/// Maximum number of objects that one pass over the old log collects (6 MiB of memory). More
/// objects need further passes.
const OBJECTS_PER_PASS: usize = 1 << 19;

/// Size in bytes of each write to the replacement.
const WRITE_BYTES: usize = 256 << 10;

/// Estimated size in bytes of the records that describe an unfinished file.
const FILE_BYTES: u64 = 128;

/// Decides when a log is rewritten.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Number of syncs since the log was created, resumed or rewritten.
    syncs: u32,
    /// Length of the log in bytes after the last rewrite.
    rewritten_bytes: u64,
    /// Length of the log in bytes below which the log is not rewritten. After a failed rewrite, for
    /// example because the storage is full, the next attempt waits until the log has grown to this
    /// length.
    from: u64,
}

impl Schedule {
    pub(crate) const fn synced(&mut self) {
        self.syncs = self.syncs.saturating_add(1);
    }

    pub(crate) const fn rewritten(&mut self, log_bytes: u64) {
        *self = Self {
            syncs: 0,
            rewritten_bytes: log_bytes,
            from: 0,
        };
    }

    pub(crate) const fn failed(&mut self, log_bytes: u64) {
        self.from = log_bytes + DEAD_BYTES_MAX;
    }

    /// Returns true if the log should be rewritten. The log has `log_bytes` bytes in total, and would
    /// have about `compacted_bytes` after a rewrite. The difference is dead.
    ///
    /// The dead bytes must exceed `compacted_bytes`, and the log must have doubled since the last
    /// rewrite. So all rewrites together write at most as many bytes as the log would have without
    /// them, even if the estimate is too low.
    pub(crate) const fn is_due(&self, log_bytes: u64, compacted_bytes: u64) -> bool {
        let dead = log_bytes.saturating_sub(compacted_bytes);
        let dead_min = match self.syncs >= SYNCS_MIN {
            true => DEAD_BYTES_MIN,
            false => DEAD_BYTES_MAX,
        };
        let has_doubled = log_bytes >= self.rewritten_bytes.saturating_mul(2);
        has_doubled && log_bytes >= self.from && dead > compacted_bytes && dead >= dead_min
    }
}

/// Estimates the size in bytes of the records of a file after a rewrite. The records of a slow
/// transfer get smaller, because each group adds records with only a few objects.
pub(crate) fn compacted_bytes(file: &LoggedFile, form: &LogForm) -> u64 {
    let objects = file.done.bytes().div_ceil(file.object_bytes.get());
    let numbers = match form.method {
        LogMethod::Ranges | LogMethod::Bit8 | LogMethod::Bit64 => objects / 8,
        LogMethod::Char | LogMethod::Int | LogMethod::Enc | LogMethod::Binary => {
            objects.saturating_mul(4)
        }
    };
    let sums = if form.has_sums {
        objects.saturating_mul(8)
    } else {
        0
    };
    let estimate = FILE_BYTES.saturating_add(numbers).saturating_add(sums);
    // The records of the objects may be in a part log.
    file.log_bytes.min(estimate)
}

/// Writes records to the replacement of a log file.
struct Writer<'f, F> {
    file: &'f mut F,
    buffer: Vec<u8>,
    written: u64,
    nonce: u64,
    form: LogForm,
}

impl<F: LogFile> Writer<'_, F> {
    fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn put(&mut self, record: &Record, is_weak: bool) -> Result<u64> {
        let flags = record.flags(is_weak, &self.form);
        let (before, body) = (self.offset(), record.encode(flags));
        write_record(
            &mut self.buffer,
            before,
            self.nonce,
            record.kind(),
            flags,
            &body,
        );
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(self.offset() - before)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.append_replacement(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Begins a replacement and writes the prelude and the header.
fn begin<'f, F: LogFile>(file: &'f mut F, header: &Header) -> Result<Writer<'f, F>> {
    file.begin_replacement()?;
    let mut buffer = prelude_of(header.version()).to_vec();
    let record = Record::Header(Box::new(header.clone()));
    // The header contains the nonce, which the reader does not know yet. So the header's own
    // checksum uses the nonce 0.
    write_record(
        &mut buffer,
        PRELUDE_BYTES,
        0,
        record.kind(),
        0,
        &record.encode(0),
    );
    Ok(Writer {
        file,
        buffer,
        written: 0,
        nonce: header.nonce,
        form: header.form,
    })
}

/// Ends a replacement with a commit record. The caller must then call `commit_replacement`.
fn end<F: LogFile>(mut writer: Writer<'_, F>) -> Result<u64> {
    let durable_before = writer.offset();
    writer.put(&Record::Commit { durable_before }, false)?;
    writer.flush()?;
    Ok(writer.written)
}

/// Writes a log that contains only a header, and returns its length in bytes.
pub(crate) fn write_new<F: LogFile>(file: &mut F, header: &Header) -> Result<u64> {
    let length = end(begin(file, header)?)?;
    file.commit_replacement()?;
    Ok(length)
}

/// The old log as input of compaction.
pub(crate) struct OldLog {
    pub(crate) nonce: u64,
    pub(crate) has_sums: bool,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

/// The key of a window: the number of a file, and the index of the window in that file. A window
/// has 8192 objects, and a record of a rewritten log covers at most one window.
type WindowKey = (FileNumber, u64);

/// A new version of the log that has not replaced the old log yet.
pub(crate) struct Rewritten {
    pub(crate) length: u64,
    live_bytes: BTreeMap<FileNumber, u64>,
}

impl Rewritten {
    /// Sets the offsets in `files` to those of the new log. Call this function after the new log
    /// has replaced the old log.
    pub(crate) fn settle(self, files: &mut Files) {
        for (number, bytes) in self.live_bytes {
            if let Some(file) = files.get_mut(number) {
                file.log_bytes = bytes;
                file.counts_from = 0;
            }
        }
    }
}

/// Writes a new log to `file`, which replaces the log `old`. The new log contains `header`, and the
/// records of `old` that recovery still needs for `files`.
///
/// # Errors
/// Errors of the storage. The old log is then unchanged.
pub(crate) fn rewrite<F: LogFile>(
    file: &mut F,
    old: &OldLog,
    header: &Header,
    files: &Files,
) -> Result<Rewritten> {
    let mut writer = begin(file, header)?;
    let mut live_bytes: BTreeMap<FileNumber, u64> = BTreeMap::new();
    for (number, (path, logged)) in files.by_number() {
        let begin = Record::FileBegin(number, logged.begin(path));
        let mut bytes = writer.put(&begin, false)?;
        if logged.is_doubtful {
            bytes += writer.put(&Record::FileDoubtful(number), false)?;
        }
        live_bytes.insert(number, bytes);
    }
    let mut windows = copy_ranges(&mut writer, old, files, &mut live_bytes)?.into_iter();
    loop {
        let batch = next_batch(&mut windows, files);
        if batch.is_empty() {
            break;
        }
        let gathered = gather(writer.file, old, files, batch)?;
        for ((number, window), objects) in gathered {
            let Some(checkpoint) = checkpoint(number, window, objects) else {
                continue;
            };
            let is_weak = files.get(number).is_some_and(|(_, file)| file.is_weak);
            for record in records_of_window(header.form.method, checkpoint) {
                let bytes = writer.put(&record, is_weak)?;
                *live_bytes.entry(number).or_default() += bytes;
            }
        }
    }
    Ok(Rewritten {
        length: end(writer)?,
        live_bytes,
    })
}

/// Returns the records of the done objects of a window, in the representation of `method`.
fn records_of_window(method: LogMethod, window: Checkpoint) -> Vec<Record> {
    if method == LogMethod::Ranges {
        return vec![without_bitmap(window).map_or_else(Record::Checkpoint, Record::Objects)];
    }
    let objects = (window.first..).zip(window.objects);
    let done = objects.filter_map(|(object, sums)| Some((object, sums?)));
    positions_of(method, window.number, done).collect()
}

/// Returns a window as a run of objects, which needs no bitmap.
///
/// # Errors
/// The unchanged window, if an object between its first and last done objects is missing.
fn without_bitmap(window: Checkpoint) -> Result<Objects, Checkpoint> {
    match window.objects.iter().copied().collect() {
        Some(sums) => Ok(Objects {
            number: window.number,
            first: window.first,
            sums,
        }),
        None => Err(window),
    }
}

/// Distributes objects of one file to records of a method. For a method with an array of bits, the
/// objects ascend.
pub(crate) fn positions_of(
    method: LogMethod,
    number: FileNumber,
    objects: impl Iterator<Item = (u64, Sums)>,
) -> impl Iterator<Item = Record> {
    let mut objects = objects.peekable();
    std::iter::from_fn(move || {
        let (first, sums) = objects.next()?;
        let (mut run, mut last) = (vec![(first, sums)], first);
        while run.len() < OBJECTS_PER_RECORD_MAX
            && let Some((object, sums)) =
                objects.next_if(|(next, _)| positions::fits(method, (first, last), *next))
        {
            run.push((object, sums));
            last = object;
        }
        Some(Record::Positions(Positions {
            number,
            method,
            objects: run,
        }))
    })
}

/// Returns the ranges that a record of the old log adds to an unfinished file; `None` if the record
/// adds no range.
fn counted_ranges<'a>(
    step: &Step,
    files: &'a Files,
) -> Option<(&'a LoggedFile, Vec<(dray_core::ByteRange, Sums)>)> {
    let Step::Record { offset, record, .. } = step else {
        return None;
    };
    let (_, file) = files.get(record.file_of_ranges()?)?;
    if *offset < file.counts_from {
        return None;
    }
    let grid = Grid::new(file.key.size, file.object_bytes);
    let mut ranges = ranges_of_record(&grid, record)?;
    // Omit ranges that recovery rejected because they were doubtful or exceeded a limit.
    ranges.retain(|(range, _)| !range.is_empty() && file.done.contains(*range));
    Some((file, ranges))
}

/// Copies the records of ranges to the replacement. Returns the windows in which objects are done.
fn copy_ranges<F: LogFile>(
    writer: &mut Writer<'_, F>,
    old: &OldLog,
    files: &Files,
    live_bytes: &mut BTreeMap<FileNumber, u64>,
) -> Result<BTreeSet<WindowKey>> {
    let mut windows = BTreeSet::new();
    let mut walk = Walk::new(old.nonce, old.has_sums, old.first, old.end);
    while let Some(step) = walk.next(writer.file)? {
        let Some((file, ranges)) = counted_ranges(&step, files) else {
            continue;
        };
        let is_range = matches!(
            &step,
            Step::Record {
                record: Record::Range(..),
                ..
            }
        );
        for (range, sums) in ranges {
            if is_range {
                let record = Record::Range(file.number, range, sums);
                let bytes = writer.put(&record, file.is_weak)?;
                *live_bytes.entry(file.number).or_default() += bytes;
            } else {
                windows.insert((file.number, window_of(file, range.offset)));
            }
        }
    }
    Ok(windows)
}

fn window_of(file: &LoggedFile, offset: u64) -> u64 {
    offset / file.object_bytes.get() / OBJECTS_PER_RECORD_MAX as u64
}

/// Returns the next windows that one pass can collect, with memory for their objects.
fn next_batch(
    windows: &mut impl Iterator<Item = WindowKey>,
    files: &Files,
) -> BTreeMap<WindowKey, Vec<Option<Sums>>> {
    let mut batch = BTreeMap::new();
    let mut objects = 0;
    while objects < OBJECTS_PER_PASS {
        let Some((number, window)) = windows.next() else {
            break;
        };
        let Some((_, file)) = files.get(number) else {
            continue;
        };
        let all = Grid::new(file.key.size, file.object_bytes).count();
        let before = window.saturating_mul(OBJECTS_PER_RECORD_MAX as u64);
        let here = all
            .saturating_sub(before)
            .min(OBJECTS_PER_RECORD_MAX as u64) as usize;
        objects += here.max(1);
        batch.insert((number, window), vec![None; here]);
    }
    batch
}

fn gather<F: LogFile>(
    file: &mut F,
    old: &OldLog,
    files: &Files,
    mut batch: BTreeMap<WindowKey, Vec<Option<Sums>>>,
) -> Result<BTreeMap<WindowKey, Vec<Option<Sums>>>> {
    let mut walk = Walk::new(old.nonce, old.has_sums, old.first, old.end);
    while let Some(step) = walk.next(file)? {
        let is_objects = matches!(
            &step,
            Step::Record {
                record: Record::Objects(_) | Record::Checkpoint(_) | Record::Positions(_),
                ..
            }
        );
        let Some((file, ranges)) = counted_ranges(&step, files).filter(|_| is_objects) else {
            continue;
        };
        for (range, sums) in ranges {
            let Some(objects) = batch.get_mut(&(file.number, window_of(file, range.offset))) else {
                continue;
            };
            let index = range.offset / file.object_bytes.get() % OBJECTS_PER_RECORD_MAX as u64;
            if let Some(slot) = objects.get_mut(index as usize) {
                // If several records contain the same object, the first record counts, as in
                // recovery.
                slot.get_or_insert(sums);
            }
        }
    }
    Ok(batch)
}

/// Returns the checkpoint record of a window, from its first to its last done object; `None` if no
/// object of the window is done.
fn checkpoint(
    number: FileNumber,
    window: u64,
    mut objects: Vec<Option<Sums>>,
) -> Option<Checkpoint> {
    let start = objects.iter().position(Option::is_some)?;
    let end = objects.iter().rposition(Option::is_some)? + 1;
    objects.truncate(end);
    objects.drain(..start);
    Some(Checkpoint {
        number,
        first: window * OBJECTS_PER_RECORD_MAX as u64 + start as u64,
        objects,
    })
}
