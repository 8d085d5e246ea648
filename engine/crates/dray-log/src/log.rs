//! What every object log can do, whatever its mechanism (File, Transaction or Universal logger) and
//! its method (Char, Int, Enc, Binary, Bit8, Bit64): the names are FT-LADS's (Kasu et al. 2019).

use crate::record::{Ending, FileBegin, FileNumber, LoggedFile};
use dray_core::{ByteRange, RelPath, Result, Sums};

/// A log that is being written.
///
/// Order of calls for one file: [`Self::begin_file`] once, when its partial file exists;
/// [`Self::done`] as often as needed, each range once; [`Self::end_file`] once. Nothing said counts
/// before the [`Self::commit`] after it has returned.
///
/// What the caller must keep (docs/design/object-log.md, invariants):
/// - the bytes of a range are as durable as the tenure's durability asks *before* `done`;
/// - a durable-ack leaves *after* `commit`;
/// - `end_file(.., Dropped)` is committed *before* the partial file is removed or made anew;
/// - `end_file(.., Published)` comes *after* the final name is as durable as asked.
///
/// An error of [`Self::commit`] leaves what was said waiting, and a later commit tries again, unless
/// the error's operation is "use the object log", which means that this instance is given up.
pub trait ObjectLog {
    /// Announces a file and gives it a number.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] when the path has a number that has not ended, or its end
    /// is not committed; [`dray_core::ErrorKind::AlreadyExists`] when another file uses the partial
    /// file; [`dray_core::ErrorKind::LimitExceeded`] past a bound of the format.
    fn begin_file(&mut self, file: FileBegin) -> Result<FileNumber>;

    /// Records that `range` of a file is safe. One whole object costs one bit and its sums; any other
    /// range inside the file (a hole, a run of objects summed as one) a record of its own.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] for an unknown number, or a range that is empty, outside the
    /// file or in part recorded already; what [`crate::LogFile`] says when a full buffer is written.
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

    /// Writes everything said since the last commit in one append, and syncs unless the tenure's
    /// durability is none.
    ///
    /// # Errors
    /// What [`crate::LogFile`] says; [`dray_core::ErrorKind::LeaseLost`] when somebody else has
    /// written to the log.
    fn commit(&mut self) -> Result<()>;

    /// Rewrites the log without what no longer counts, when that is worth it
    /// ([`crate::compact::is_worth_it`]); returns whether it did. Commits first. When the storage
    /// cannot hold the new log beside the old one, that goes on as it was until it has grown.
    ///
    /// # Errors
    /// As [`Self::commit`]; and when nobody knows which of the two logs is there.
    fn compact_if_worth_it(&mut self) -> Result<bool>;

    /// An unfinished file, with what was said of it so far, committed or not.
    fn file(&self, path: &RelPath) -> Option<&LoggedFile>;

    /// The unfinished files, in the order of their paths.
    fn files(&self) -> Box<dyn Iterator<Item = (&RelPath, &LoggedFile)> + '_>;

    /// Whether sums come back from recovery. FT-LADS's own methods keep positions only; a sink then
    /// reads done ranges once more before it can verify.
    fn keeps_sums(&self) -> bool;

    /// Bytes the log takes now, what waits for a commit included.
    fn bytes(&self) -> u64;
}
