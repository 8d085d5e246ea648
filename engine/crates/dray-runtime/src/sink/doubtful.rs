//! Partial files whose storage has lost writes.
//!
//! Invariant: after a run has seen such a loss, no run continues the file. The log marks the file as
//! doubtful. If the log does not take the mark, the partial file is removed. Decision 103 names the
//! exceptions, in which a later run relies on its own sync and read-back.

use crate::sink::destination::Destination;
use crate::sink::files::Space;
use crate::sink::probe::{self, id_of};
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result, Status};
use dray_link::open_file::OpenFile;
use dray_log::{FileNumber, LoggedFile, ObjectLog};
use dray_store::PartialId;

/// A partial file whose storage has lost writes.
pub(super) struct Doubtful<'a> {
    /// Final path of the file.
    pub(super) path: &'a RelPath,
    /// Name of the partial file.
    pub(super) name: &'a Name,
    /// Identity of the partial file.
    pub(super) id: PartialId,
}

impl<'a> Doubtful<'a> {
    /// Returns the partial file of an open file, and the number of the file in the log.
    pub(super) fn of(open: &'a OpenFile) -> (FileNumber, Self) {
        let file = Self {
            path: &open.path,
            name: &open.name,
            id: open.id,
        };
        (open.number, file)
    }
}

impl Space {
    /// Marks files with these numbers as doubtful in the log. `lost` is the error that reported the
    /// loss.
    ///
    /// The system reports a loss only once, and new writes to the lost ranges may be lost without
    /// another error. So if the log does not take the marks, the function removes the partial files.
    /// The records of a removed file do no harm: the log also contains the identity of the partial
    /// file, and a run begins the file again if it does not find this partial file.
    ///
    /// # Errors
    /// Errors of the lease, and of a log without all marks.
    pub(super) fn mark_doubtful(
        &self,
        files: &[(FileNumber, Doubtful<'_>)],
        lost: &Error,
    ) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let mut destination = self.destination()?;
        // The failed call and the wait for the log may have taken long.
        self.check_lease()?;
        let numbers: Vec<FileNumber> = files.iter().map(|(number, _)| *number).collect();
        let marked = destination.log.mark_doubtful(&numbers);
        marked.inspect_err(|error| {
            for (_, file) in files {
                self.remove_doubtful(file, lost, error);
            }
        })
    }

    /// Marks the file as doubtful if the error may concern an earlier write. Further writes to a
    /// doubtful file do not count.
    pub(super) fn noted<T>(&self, open: &OpenFile, written: Result<T>) -> Result<T> {
        if let Err(error) = &written
            && error.status == Status::Exhausted
        {
            // The file fails with the error of the write.
            let _ = self.mark_doubtful(&[Doubtful::of(open)], error);
        }
        written
    }

    /// Does the same as [`Self::mark_doubtful`] for a file that the session has not opened yet.
    ///
    /// # Errors
    /// Errors of the lease, and of a log without the mark.
    pub(super) fn mark_logged_as_doubtful(
        &self,
        destination: &mut Destination,
        path: &RelPath,
        logged: &LoggedFile,
        lost: &Error,
    ) -> Result<()> {
        // The failed sync may have taken long.
        self.check_lease()?;
        let marked = destination.log.mark_doubtful(&[logged.number]);
        marked.inspect_err(|error| {
            let is_same_boot = destination.is_same_boot();
            let found = probe::found_partial(self.store.as_ref(), path, logged).ok();
            let found = found.flatten();
            if let Some(found) = found.filter(|found| logged.partial.is(found, is_same_boot)) {
                let file = Doubtful {
                    path,
                    name: &logged.partial.name,
                    id: id_of(&found),
                };
                self.remove_doubtful(&file, lost, error);
            }
        })
    }

    /// Removes a partial file whose loss of writes is not in the log. Ignores errors of the removal:
    /// the next run then relies on its own sync and read-back.
    pub(super) fn remove_doubtful(&self, file: &Doubtful<'_>, lost: &Error, of_log: &Error) {
        // Other errors lose nothing that was written, or do not prove a loss: too few descriptors,
        // a server that does not answer. A sync of a full storage may have lost data, but without
        // this exception a full storage would cost all durable ranges (decision 103).
        let is_lost = matches!(lost.kind, ErrorKind::Io | ErrorKind::ChecksumMismatch);
        if !is_lost || self.check_lease().is_err() {
            return;
        }
        let removed = self.store.discard(file.path, file.name, Some(file.id));
        if self.noting(file.path, removed).is_ok() {
            let operation = "record that the storage has lost written data";
            let done = "the partial file was removed, so that no run continues it";
            // Not every error of a log has a cause.
            let cause = match of_log.cause.is_empty() {
                true => done.to_owned(),
                false => format!("{}; {done}", of_log.cause),
            };
            self.tell(
                Error::new(of_log.kind, End::Sink, operation)
                    .file(file.path)
                    .cause(cause)
                    .remedy("check the sink's storage; the next run sends the file from its start"),
            );
        }
    }
}
