//! The interface of an object log. It is the same for every form of the log.

use crate::record::{Ending, FileBegin, FileNumber, LoggedFile};
use dray_core::{ByteRange, RelPath, Result, Sums};

/// An object log that is open for writing.
///
/// Order of calls for one file: [`Self::begin_file`] once, when its partial file exists;
/// [`Self::done`] once for each range; [`Self::end_file`] once. A call takes effect only when the
/// next [`Self::commit`] returns.
///
/// The caller must keep these rules (docs/design/object-log.md, invariants):
/// - The bytes of a range have the durability that the tenure (the record of the log's current
///   holder) requires, *before* the call of `done`.
/// - The sink reports an object as durable *after* `commit`.
/// - `end_file(.., Dropped)` is committed *before* the partial file is deleted or created again.
/// - `end_file(.., Published)` is called *after* the final name has the requested durability.
///
/// After an error of [`Self::commit`] the records stay pending, and a later commit writes them. An
/// error with the operation "use the object log" is final: the instance cannot be used any more.
pub trait ObjectLog {
    /// Announces a file and assigns a number to it.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if a file with this path has not ended, or its end is not
    /// committed; [`dray_core::ErrorKind::AlreadyExists`] if another file uses the partial file;
    /// [`dray_core::ErrorKind::LimitExceeded`] if the file exceeds a limit of the format.
    fn begin_file(&mut self, file: FileBegin) -> Result<FileNumber>;

    /// Records that `range` of a file is done. If the range is one whole object, the log stores the
    /// object in the representation of its method, with the sums of the object. For any other range,
    /// such as a hole or a run of objects with one sum, the log stores a separate record.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if the number is unknown, or the range is empty, outside
    /// the file or partly recorded already. Errors of [`crate::LogFile`] if a full buffer must be
    /// written.
    fn done(&mut self, number: FileNumber, range: ByteRange, sums: Sums) -> Result<()>;

    /// Records that all recorded ranges of a file are durable now. Needed when a resume syncs a
    /// file that an earlier holder wrote without a sync.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if the number is unknown.
    fn file_synced(&mut self, number: FileNumber) -> Result<()>;

    /// Records that a write or a sync of the partial file failed. Earlier ranges still count, but
    /// no more ranges may be recorded with this number. A resume copies the earlier ranges to
    /// another partial file. The next commit writes this mark. After a loss, use
    /// [`ObjectLog::mark_doubtful`] instead, which writes the marks immediately.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if the number is unknown.
    fn file_doubtful(&mut self, number: FileNumber) -> Result<()>;

    /// Marks files as doubtful, and appends the marks to the log now. Also succeeds after a failed
    /// sync of the log, if the marks can be appended. Ignores numbers of ended files.
    ///
    /// # Errors
    /// If the log does not have all marks: the errors of [`ObjectLog::commit`].
    fn mark_doubtful(&mut self, numbers: &[FileNumber]) -> Result<()>;

    /// Ends a file. Its recorded ranges do not count any more.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::Internal`] if the number is unknown.
    fn end_file(&mut self, number: FileNumber, ending: Ending) -> Result<()>;

    /// Writes all records since the last commit in one append. Syncs the log unless the log's
    /// current holder has chosen the durability `None`.
    ///
    /// # Errors
    /// Errors of [`crate::LogFile`]; [`dray_core::ErrorKind::LeaseLost`] if another process has
    /// written to the log.
    fn commit(&mut self) -> Result<()>;

    /// Commits, and then rewrites the log without dead records if a rewrite is due
    /// ([`crate::compact`]). Returns true if the log was rewritten. If the storage has no space for a
    /// second log, the old log stays in use, and the next attempt waits until the log has grown.
    ///
    /// # Errors
    /// The errors of [`Self::commit`], and errors after which the name of the log may refer to the
    /// old or the new log.
    fn compact_if_worth_it(&mut self) -> Result<bool>;

    /// Returns the state of an unfinished file. The state includes records that are not committed.
    fn file(&self, path: &RelPath) -> Option<&LoggedFile>;

    /// Returns the unfinished files, in the order of their paths.
    fn files(&self) -> Box<dyn Iterator<Item = (&RelPath, &LoggedFile)> + '_>;

    /// Returns the current length of the log in bytes, including pending records.
    fn bytes(&self) -> u64;
}
