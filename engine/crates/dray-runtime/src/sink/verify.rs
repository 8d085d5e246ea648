//! Compares bytes on the storage with the bytes that were written: whole files (`--verify`), and
//! ranges of a partial file of an earlier run.

use crate::sink::doubtful::Doubtful;
use crate::sink::files::{Space, folder_of, no_partial};
use dray_core::{ByteRange, End, Error, ErrorKind, Name, RelPath, Result, SummedRanges, Sums};
use dray_link::open_file::OpenFile;
use dray_store::{ReadHandle, ReadPurpose};
use std::sync::Arc;

impl Space {
    /// Opens a partial file for reads that bypass the page cache.
    pub(super) fn open_back(&self, path: &RelPath, name: &Name) -> Result<Box<dyn ReadHandle>> {
        let place = folder_of(path).join(name)?;
        self.store.open_read(&place, ReadPurpose::ReadBack)
    }

    pub(super) fn read_back(
        &self,
        path: &RelPath,
        size: u64,
        small: bool,
        open: Option<&Arc<OpenFile>>,
    ) -> Result<Sums> {
        let name = match (small, open) {
            (false, Some(open)) => Some(open.name.clone()),
            _ => self.small_name(path),
        };
        let name = name.ok_or_else(|| no_partial("read the file back"))?;
        let file = self.open_back(path, &name)?;
        match self
            .read_back
            .sums(file.as_ref(), ByteRange::between(0, size))
        {
            // The empty checksums do not match, so the caller reports a mismatch.
            Err(error) if error.kind == ErrorKind::ShortRead => Ok(Sums::EMPTY),
            sums => sums,
        }
    }

    /// Checks that the storage holds the ranges that this run wrote to the partial file of an
    /// earlier run. If the storage lacks a range, the file becomes doubtful: no further write to
    /// the file counts, in any run.
    ///
    /// # Errors
    /// `ChecksumMismatch` if a range differs. The errors of [`ReadBack::each`].
    pub(super) fn check_written(
        &self,
        open: Option<&Arc<OpenFile>>,
        ranges: &SummedRanges,
    ) -> Result<()> {
        let open = open.ok_or_else(|| no_partial("read back the written data"))?;
        let file = self.open_back(&open.path, &open.name)?;
        for (range, sums) in ranges.iter() {
            match self.read_back.sums(file.as_ref(), range) {
                Ok(found) if found == sums => {}
                Err(error) if error.kind != ErrorKind::ShortRead => return Err(error),
                _ => {
                    let error = lost(&open.path, range);
                    // The session ends with the error of the read-back.
                    let _ = self.mark_doubtful(&[Doubtful::of(open.as_ref())], &error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Returns the error of a range that the storage has lost after a sync.
fn lost(path: &RelPath, range: ByteRange) -> Error {
    let operation = "read back the written data";
    Error::new(ErrorKind::ChecksumMismatch, End::Sink, operation)
        .file(path)
        .cause(format!(
            "bytes {} to {} were synced, but the storage does not contain them",
            range.offset,
            range.end()
        ))
        .remedy("check the storage, then run the same command to send the missing bytes again")
}
