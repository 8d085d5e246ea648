//! The interface of an object log of any mechanism (File, Transaction or Universal logger) and
//! method (Char, Int, Enc, Binary, Bit8, Bit64). The names are those of FT-LADS (Kasu et al. 2019).

use crate::record::{Ending, FileBegin, FileNumber, LoggedFile};
use dray_core::{ByteRange, RelPath, Result, Sums};

/// A log that is being written.
///
/// Order of calls for one file: [`Self::begin_file`] once, when its partial file exists;
/// [`Self::done`] once for each range; [`Self::end_file`] once. A call takes effect only when the
/// next [`Self::commit`] returns.
///
/// Obligations of the caller (docs/design/object-log.md, invariants):
/// - the bytes of a range are as durable as the tenure's durability requires *before* `done`;
/// - a durable-ack is sent *after* `commit`;
/// - `end_file(.., Dropped)` is committed *before* the partial file is removed or created again;
/// - `end_file(.., Published)` comes *after* the final name is as durable as requested.
///
/// After an error of [`Self::commit`] the records stay pending, and a later commit retries. An
/// error with the operation "use the object log" is final: the instance is unusable.
pub trait ObjectLog {
    /// Announces a file and assigns a number to it.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if the path has another number that has not ended, or
    /// whose end is not committed; [`dray_core::ErrorKind::AlreadyExists`] if another file uses the
    /// partial file; [`dray_core::ErrorKind::LimitExceeded`] if the file exceeds a bound of the
    /// format.
    fn begin_file(&mut self, file: FileBegin) -> Result<FileNumber>;

    /// Records that `range` of a file is done. A whole object takes one bit and its sums. Any other
    /// range (a hole, a run of objects with one sum) takes a separate record.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number, or a range that is empty, outside
    /// the file or partly recorded already; errors of [`crate::LogFile`] when a full buffer is
    /// written.
    fn done(&mut self, number: FileNumber, range: ByteRange, sums: Sums) -> Result<()>;

    /// Records that all ranges of a file recorded so far are durable now. Needed when a resume
    /// syncs a file that an earlier holder wrote without syncing.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number.
    fn file_synced(&mut self, number: FileNumber) -> Result<()>;

    /// Records that a write or a sync of the partial file failed. Earlier ranges still count, but
    /// no more ranges may be recorded under this number. A resume copies the ranges to another
    /// partial file.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number.
    fn file_doubtful(&mut self, number: FileNumber) -> Result<()>;

    /// Ends a file; its ranges no longer count.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number.
    fn end_file(&mut self, number: FileNumber, ending: Ending) -> Result<()>;

    /// Writes all records since the last commit in one append, and syncs unless the tenure's
    /// durability is `None`.
    ///
    /// # Errors
    /// Errors of [`crate::LogFile`]; [`dray_core::ErrorKind::LeaseLost`] if another process has
    /// written to the log.
    fn commit(&mut self) -> Result<()>;

    /// Rewrites the log without dead records if [`crate::compact::is_worth_it`] says so. Returns
    /// true if the log was rewritten. Commits first. If the storage has no space for the new log
    /// next to the old one, the old log stays in use and the next attempt waits until it has grown.
    ///
    /// # Errors
    /// Those of [`Self::commit`]; errors after which either the old or the new log may be in place.
    fn compact_if_worth_it(&mut self) -> Result<bool>;

    /// Returns the state of an unfinished file, including uncommitted records.
    fn file(&self, path: &RelPath) -> Option<&LoggedFile>;

    /// Returns the unfinished files, in the order of their paths.
    fn files(&self) -> Box<dyn Iterator<Item = (&RelPath, &LoggedFile)> + '_>;

    /// Returns true if recovery returns sums. FT-LADS's own methods record positions only, so a
    /// sink must read done ranges again before it can verify the file.
    fn keeps_sums(&self) -> bool;

    /// Returns the present length of the log, including pending records.
    fn bytes(&self) -> u64;
}
