//! Explains the log of a transfer: which ranges of an unfinished file the next run trusts, and why.
//!
//! The functions change no file and take no lease.

use super::log_file::StoredLog;
use super::log_place::own_place;
use super::probe::judge_left;
use super::request::DestinationRequest;
use dray_core::{ByteRange, End, Error, ErrorKind, LogForm, RelPath, Result};
use dray_log::trust::{Trusted, Verdict};
use dray_log::{LoggedFile, Recovery, recover};
use dray_store::{ControlMode, FileState, Store};
use std::ops::Bound;
use std::sync::Arc;

/// The next run's treatment of an unfinished file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileVerdict {
    /// The next run continues the file.
    Trusted,
    /// The next run begins the file again.
    NotTrusted,
    /// The next run leaves the file unchanged and reports it as failed.
    Refused,
}

/// The explanation of an unfinished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// The treatment of the file.
    pub verdict: FileVerdict,
    /// The reason, and the steps of the next run.
    pub why: String,
    /// Ranges that the source need not send, in ascending order.
    pub trusted: Vec<ByteRange>,
    /// All other ranges of the file.
    pub again: Vec<ByteRange>,
}

impl Outlook {
    /// Explains the record of a file in a log. `path` is the path of the file in `store`.
    ///
    /// # Errors
    /// If this host's boot id cannot be read. Errors of the store.
    pub fn of(
        store: &dyn Store,
        path: &RelPath,
        recovery: &Recovery,
        file: &LoggedFile,
    ) -> Result<Self> {
        let (verdict, why, trusted) = match judge_left(store, path, recovery, file)? {
            Verdict::Trusted(trusted) => {
                let ranges = trusted.done.iter().map(|(range, _)| range).collect();
                (FileVerdict::Trusted, reason(recovery, &trusted), ranges)
            }
            Verdict::StartOver(error) => (FileVerdict::NotTrusted, error.cause, Vec::new()),
            Verdict::Refused(error) => (FileVerdict::Refused, error.cause, Vec::new()),
        };
        Ok(Self {
            verdict,
            why,
            again: gaps(&trusted, file.key.size),
            trusted,
        })
    }
}

/// Returns the reason why ranges are trusted, and the steps of the sink before it uses them.
fn reason(recovery: &Recovery, trusted: &Trusted) -> String {
    let form: LogForm = recovery.header.form;
    if trusted.done.is_empty() {
        return "the log has no valid range of the file".to_owned();
    }
    let logged = match (trusted.must_sync, form.has_sums) {
        (true, _) => "the ranges were logged without a sync, and the host has not restarted since",
        (false, true) => {
            "the ranges were logged after a sync, and the partial file is the file that the log \
                names"
        }
        (false, false) => {
            "the ranges were logged after a sync, and the host has not restarted since"
        }
    };
    let next = match (trusted.is_doubtful, form.has_sums) {
        (true, _) => {
            "a write to the partial file has failed, so the next run copies the ranges that match \
                their checksums to a new partial file"
        }
        (false, true) => {
            "the next run reads the ranges back and compares their checksums, unless the option \
                resume is trust"
        }
        (false, false) => {
            "the log has no checksums, so the next run reads the ranges back without a comparison"
        }
    };
    format!("{logged}; {next}")
}

/// Returns the ranges of a file of `size` bytes that are not in `ranges`, which ascend.
fn gaps(ranges: &[ByteRange], size: u64) -> Vec<ByteRange> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for range in ranges {
        if at < range.offset {
            gaps.push(ByteRange::between(at, range.offset));
        }
        at = range.end();
    }
    if at < size {
        gaps.push(ByteRange::between(at, size));
    }
    gaps
}

/// The contents of a log, and the state of its file when it was read.
#[derive(Debug, Clone)]
pub struct ReadLog {
    /// The contents of the log.
    pub recovery: Arc<Recovery>,
    state: FileState,
}

impl ReadLog {
    /// Returns true if each commit changes the file whose state is known. With part logs, a commit
    /// may change a part log only.
    #[must_use]
    pub fn shows_changes(&self) -> bool {
        self.recovery.header.form.files_per_part().is_none()
    }

    /// Returns the approximate memory of the contents in bytes.
    #[must_use]
    pub fn bytes_in_memory(&self) -> usize {
        let of_file = |(path, file): (&RelPath, &LoggedFile)| {
            let words = path.as_bytes().len() + file.key.identity.len();
            words + size_of::<LoggedFile>() + file.done.run_count() * RUN_BYTES
        };
        self.recovery.files.iter().map(of_file).sum()
    }
}

/// Memory of a contiguous range of a file: offset, length and checksums, and its share of a node of
/// the tree. The value is estimated.
const RUN_BYTES: usize = 48;

/// The log of one transfer at its destination.
pub struct TransferLog {
    store: Arc<dyn Store>,
    /// Path of the log relative to the destination folder.
    pub path: RelPath,
    /// The contents of the log.
    pub read: ReadLog,
    /// True if these contents were not read now, because an earlier call has read them.
    pub is_kept: bool,
}

/// A file of [`TransferLog`], with its explanation.
pub struct ExplainedFile<'l> {
    /// Path relative to the destination folder.
    pub path: &'l RelPath,
    /// The record of the file.
    pub logged: &'l LoggedFile,
    /// The explanation.
    pub outlook: Outlook,
}

impl TransferLog {
    /// Explains at most `limit` files, in the order of their paths, beginning after `after`. The
    /// second value is true if there are more files.
    ///
    /// # Errors
    /// The errors of [`Outlook::of`].
    pub fn files(
        &self,
        after: Option<&RelPath>,
        limit: usize,
    ) -> Result<(Vec<ExplainedFile<'_>>, bool)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.read.recovery.files.range((start, Bound::Unbounded));
        let page = rest.by_ref().take(limit);
        let files = page.map(|(path, logged)| {
            Ok(ExplainedFile {
                path,
                logged,
                outlook: Outlook::of(self.store.as_ref(), path, &self.read.recovery, logged)?,
            })
        });
        let files = files.collect::<Result<_>>()?;
        Ok((files, rest.next().is_some()))
    }
}

impl DestinationRequest {
    /// Reads the own log of the transfer. Returns `None` if there is no log: the transfer has not
    /// begun, or no file is unfinished.
    ///
    /// `earlier` is the log that an earlier call has read. Its contents are used again if the file of
    /// the log still has the same inode, size and time. Each commit changes the size of a log without
    /// part logs. A log of a form with part logs is always read again.
    ///
    /// # Errors
    /// - `PermissionDenied` for the log of another owner.
    /// - `LogVersion` and `LogDamaged` for an unreadable log.
    /// - Errors of the store.
    pub fn read_log(&self, earlier: Option<&ReadLog>) -> Result<Option<TransferLog>> {
        let at = own_place(self)?;
        let path = at.folder.join(&at.log)?;
        // Opened even if the contents are known, because the caller may no longer have access.
        let file = match at.store.open_control(&path, ControlMode::ReadOnly) {
            Ok(file) => file,
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Taken before the log is read, so a later change of the log changes the state.
        let Some(state) = at.store.stat(&path)? else {
            return Ok(None);
        };
        let known = earlier.filter(|earlier| earlier.state == state && earlier.shows_changes());
        let read = match known {
            Some(known) => known.clone(),
            None => match recover(&mut StoredLog::new(file, &at.store, &path))? {
                Some(recovery) => ReadLog {
                    recovery: Arc::new(recovery),
                    state,
                },
                None => return Ok(None),
            },
        };
        if read.recovery.header.owner != self.owner {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                End::Sink,
                "read the object log",
            )
            .cause(format!("{} has a log of another owner", self.words))
            .remedy("copy to another folder"));
        }
        Ok(Some(TransferLog {
            store: at.store,
            path,
            read,
            is_kept: known.is_some(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::gaps;
    use dray_core::ByteRange;

    #[test]
    fn gaps_and_ranges_make_the_whole_file() {
        let range = ByteRange::between;
        assert_eq!(gaps(&[], 9), [range(0, 9)]);
        assert_eq!(gaps(&[range(0, 9)], 9), []);
        assert_eq!(
            gaps(&[range(2, 4), range(4, 5), range(7, 8)], 9),
            [range(0, 2), range(5, 7), range(8, 9)]
        );
        assert_eq!(gaps(&[], 0), []);
    }
}
