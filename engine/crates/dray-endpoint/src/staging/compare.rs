//! Compares a file of a fast copy with its slow copy, before the file is deleted.
//!
//! If the slow root sets the times of files, an equal size and time prove that the slow copy is
//! correct: the transfer set the time after it had verified the checksum. If the server of the slow
//! root keeps no times (XRootD), an equal size is not sufficient. The server must also confirm the
//! checksum of the bytes that it stores now.

use crate::storage::{self, Given, Seen};
use dray_config::roots::Root;
use dray_core::{ErrorKind, RelPath, Result};
use dray_store::{FileKind, FileState};

/// The roots of a fast copy and of its slow copy.
pub(super) struct Comparison<'c> {
    pub(super) fast: &'c Root,
    pub(super) slow: &'c Root,
    pub(super) given: &'c Given,
}

impl Comparison<'_> {
    /// Returns the reason for which the entry at `fast_at` must stay, or `None` if the entry at
    /// `slow_at` is a copy of it.
    ///
    /// # Errors
    /// Errors of both stores. The entry must stay then.
    pub(super) fn reason(
        &self,
        fast_at: &RelPath,
        slow_at: &RelPath,
        seen: &Seen,
    ) -> Result<Option<String>> {
        let Some(copy) = self.slow.store().stat(slow_at)? else {
            return Ok(Some("the file has no slow copy".to_owned()));
        };
        let why = match (seen.kind, copy.kind == seen.kind) {
            (FileKind::Symlink, true) => {
                let text = storage::link_text(self.slow, slow_at)?;
                let is_same = seen.link.as_ref() == Some(&text);
                (!is_same)
                    .then_some("the slow copy and the fast copy are links with different targets")
            }
            (_, false) => Some("the slow copy and the fast copy are of different types"),
            (FileKind::File, true) if copy.size == seen.size => {
                self.of_file(fast_at, slow_at, seen, &copy)?
            }
            (FileKind::File, true) => {
                Some("the slow copy and the fast copy differ in size or modification time")
            }
            (_, true) => None,
        };
        Ok(why.map(str::to_owned))
    }

    /// Compares two files of the same size.
    fn of_file(
        &self,
        fast_at: &RelPath,
        slow_at: &RelPath,
        seen: &Seen,
        copy: &FileState,
    ) -> Result<Option<&'static str>> {
        let store = self.slow.store();
        let (fast_can, slow_can) = (self.fast.store().capabilities(), store.capabilities());
        let precision = fast_can.time_precision_nanoseconds;
        if slow_can.sets_times {
            let precision = precision.max(slow_can.time_precision_nanoseconds);
            let is_same = copy.modified.equal_at(&seen.modified, precision);
            return Ok((!is_same)
                .then_some("the slow copy and the fast copy differ in size or modification time"));
        }
        // If a demotion left a valid note, use it: the note has the time of the fast file and the
        // checksums that the demotion computed. Otherwise, read the fast file.
        let noted = match copy.modified.equal_at(&seen.modified, precision) {
            true => store.known_sums(slow_at)?,
            false => None,
        };
        let sums = match noted {
            Some(sums) => sums,
            None => storage::content_sums(self.fast, fast_at, self.given)?,
        };
        match store.confirms(slow_at, &sums) {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(
                "the server of the slow root returned no checksum of the file",
            )),
            Err(error) if error.kind == ErrorKind::ChecksumMismatch => Ok(Some(
                "the checksum of the slow copy differs from the checksum of the fast copy",
            )),
            Err(error) => Err(error),
        }
    }
}
