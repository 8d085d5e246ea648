//! Reads back from the sink's storage: whole files (`--verify`), and ranges that must be proven.
//!
//! All reads bypass the page cache, detect holes without reading them, and stop at the next piece
//! when the session ends.

use crate::sink::files::{Space, folder_of, no_partial};
use dray_core::checksum::Summer;
use dray_core::{ByteRange, End, Error, ErrorKind, Result, SummedRanges, Sums};
use dray_link::open_file::OpenFile;
use dray_store::{ReadHandle, ReadPurpose};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of one read.
const PIECE_BYTES: usize = 1 << 20;

/// Alignment of memory for direct reads.
const ALIGNMENT: usize = 4096;

/// State that the reading threads share with the threads that wait for them.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    stops: AtomicBool,
    bytes: AtomicU64,
}

impl ReadBack {
    /// Stops all reads.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
    }

    /// Returns the bytes read back so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        if self.stops.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Cancelled, End::Sink, "read the file back")
                    .cause("the session ends"),
            );
        }
        Ok(())
    }

    /// Passes the data of a range to `each`, piece by piece, and the length of each hole before it.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] after [`Self::stop`]; [`ErrorKind::ShortRead`] if the file ends
    /// before the range; errors of the store and of `each`.
    pub(super) fn each(
        &self,
        file: &dyn ReadHandle,
        range: ByteRange,
        each: &mut dyn FnMut(u64, Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let size = file.state()?.size;
        if size < range.end() {
            return Err(
                Error::new(ErrorKind::ShortRead, End::Sink, "read the file back")
                    .cause(format!("it has {size} bytes, {} are needed", range.end())),
            );
        }
        let mut memory = vec![0; PIECE_BYTES + ALIGNMENT];
        let start = memory.as_ptr().addr().next_multiple_of(ALIGNMENT) - memory.as_ptr().addr();
        let memory = &mut memory[start..start + PIECE_BYTES];
        let mut at = range.offset;
        while at < range.end() {
            self.check()?;
            let data = file.next_data(at)?;
            let data_at = data.map_or(range.end(), |data| data.offset.clamp(at, range.end()));
            if data_at > at {
                each(at, Piece::Hole(data_at - at))?;
                at = data_at;
                continue;
            }
            let end = data.map_or(range.end(), |data| data.end().min(range.end()));
            while at < end {
                self.check()?;
                let want =
                    usize::try_from(end - at).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES));
                let got = file.read_at(at, &mut memory[..want])?;
                if got == 0 {
                    return Err(
                        Error::new(ErrorKind::ShortRead, End::Sink, "read the file back")
                            .cause(format!("it ends at {at}")),
                    );
                }
                self.bytes.fetch_add(got as u64, Ordering::Relaxed);
                each(at, Piece::Data(&memory[..got]))?;
                at += got as u64;
            }
        }
        Ok(())
    }

    /// Returns the checksums of a range on the storage.
    ///
    /// # Errors
    /// As [`Self::each`].
    pub(super) fn sums(&self, file: &dyn ReadHandle, range: ByteRange) -> Result<Sums> {
        let mut sums = Sums::EMPTY;
        let mut run = Summer::new();
        let mut run_bytes = 0;
        self.each(file, range, &mut |_, piece| {
            match piece {
                Piece::Data(bytes) => {
                    run.update(bytes);
                    run_bytes += bytes.len() as u64;
                }
                Piece::Hole(length) => {
                    sums = sums.then(run.finish(), run_bytes);
                    sums = sums.then(Sums::of_zeros(length), length);
                    (run, run_bytes) = (Summer::new(), 0);
                }
            }
            Ok(())
        })?;
        Ok(sums.then(run.finish(), run_bytes))
    }
}

/// A part of a range.
pub(super) enum Piece<'a> {
    /// Bytes.
    Data(&'a [u8]),
    /// A number of zeros that the storage does not store.
    Hole(u64),
}

impl Space {
    /// Opens a partial file for reads that bypass the page cache.
    pub(super) fn open_back(
        &self,
        path: &dray_core::RelPath,
        name: &dray_core::Name,
    ) -> Result<Box<dyn ReadHandle>> {
        let place = folder_of(path).join(name)?;
        self.store.open_read(&place, ReadPurpose::ReadBack)
    }

    pub(super) fn read_back(
        &self,
        path: &dray_core::RelPath,
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
            // The caller compares the sums and finds a mismatch.
            Err(error) if error.kind == ErrorKind::ShortRead => Ok(Sums::EMPTY),
            sums => sums,
        }
    }

    /// Checks that the storage holds the ranges that this run wrote to an earlier run's partial
    /// file. If it does not, further writes to that file do not count, in any run.
    ///
    /// # Errors
    /// `ChecksumMismatch` if it does not; as [`ReadBack::each`].
    pub(super) fn check_written(
        &self,
        open: Option<&Arc<OpenFile>>,
        ranges: &SummedRanges,
    ) -> Result<()> {
        let open = open.ok_or_else(|| no_partial("read back what was written"))?;
        let file = self.open_back(&open.path, &open.name)?;
        for (range, sums) in ranges.iter() {
            match self.read_back.sums(file.as_ref(), range) {
                Ok(found) if found == sums => {}
                Err(error) if error.kind != ErrorKind::ShortRead => return Err(error),
                _ => {
                    self.note_doubtful(open.number);
                    return Err(Error::new(
                        ErrorKind::ChecksumMismatch,
                        End::Sink,
                        "read back what was written",
                    )
                    .file(&open.path)
                    .cause(format!(
                        "bytes {} to {} were synced but are not on the storage",
                        range.offset,
                        range.end()
                    ))
                    .remedy("check the storage; run the same command to send them again"));
                }
            }
        }
        Ok(())
    }
}
