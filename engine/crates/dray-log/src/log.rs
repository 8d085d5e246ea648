//! The interface of every object log, whatever its mechanism (File, Transaction or Universal
//! logger) and its method (Char, Int, Enc, Binary, Bit8, Bit64): the names are FT-LADS's (Kasu et
//! al. 2019).

use crate::record::{Ending, FileBegin, FileNumber, LoggedFile};
use dray_core::{ByteRange, RelPath, Result, Sums};

/// A log that is being written.
///
/// Order of calls for one file: [`Self::begin_file`] once, when its partial file exists;
/// [`Self::done`] as often as needed, each range once; [`Self::end_file`] once. A call counts only
/// after the next [`Self::commit`] has returned.
///
/// Obligations of the caller (docs/design/object-log.md, invariants):
/// - the bytes of a range are as durable as the tenure's durability requires *before* `done`;
/// - a durable-ack is sent *after* `commit`;
/// - `end_file(.., Dropped)` is committed *before* the partial file is removed or created again;
/// - `end_file(.., Published)` comes *after* the final name is as durable as requested.
///
/// After an error of [`Self::commit`] the records stay pending, and a later commit retries, unless
/// the error's operation is "use the object log", which means that this instance is unusable.
pub trait ObjectLog {
    /// Announces a file and assigns a number to it.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if the path has a number that has not ended, or its end
    /// is not committed; [`dray_core::ErrorKind::AlreadyExists`] if another file uses the partial
    /// file; [`dray_core::ErrorKind::LimitExceeded`] past a bound of the format.
    fn begin_file(&mut self, file: FileBegin) -> Result<FileNumber>;

    /// Records that `range` of a file is done. One whole object costs one bit and its sums; any
    /// other range inside the file (a hole, a run of objects with one sum) a record of its own.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number, or a range that is empty, outside
    /// the file or partly recorded already; errors of [`crate::LogFile`] when a full buffer is
    /// written.
    fn done(&mut self, number: FileNumber, range: ByteRange, sums: Sums) -> Result<()>;

    /// Records that all of a file's ranges recorded so far are durable now (after the resume of a file
    /// that an earlier holder wrote without syncing).
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number.
    fn file_synced(&mut self, number: FileNumber) -> Result<()>;

    /// Records that a write or a sync of the partial file failed. Earlier ranges still count; no
    /// more ranges may be recorded under this number. A resume copies the ranges to another partial
    /// file.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number.
    fn file_doubtful(&mut self, number: FileNumber) -> Result<()>;

    /// Ends a file; its ranges no longer count.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number.
    fn end_file(&mut self, number: FileNumber, ending: Ending) -> Result<()>;

    /// Writes all pending records since the last commit in one append, and syncs unless the
    /// tenure's durability is none.
    ///
    /// # Errors
    /// Errors of [`crate::LogFile`]; [`dray_core::ErrorKind::LeaseLost`] if another process has
    /// written to the log.
    fn commit(&mut self) -> Result<()>;

    /// Rewrites the log without the records that no longer count, if that is worth it
    /// ([`crate::compact::is_worth_it`]). Returns true if it did. Commits first. If the storage has
    /// no space for the new log in addition to the old one, the old log stays in use until it has
    /// grown further.
    ///
    /// # Errors
    /// Those of [`Self::commit`]; and errors after which either of the two logs may be in place.
    fn compact_if_worth_it(&mut self) -> Result<bool>;

    /// Returns an unfinished file, with its records so far, committed or not.
    fn file(&self, path: &RelPath) -> Option<&LoggedFile>;

    /// Returns the unfinished files, in the order of their paths.
    fn files(&self) -> Box<dyn Iterator<Item = (&RelPath, &LoggedFile)> + '_>;

    /// Returns true if recovery returns sums. FT-LADS's own methods keep positions only; a sink
    /// then reads done ranges once more before it can verify.
    fn keeps_sums(&self) -> bool;

    /// Returns the bytes of the log now, including pending records.
    fn bytes(&self) -> u64;
}
