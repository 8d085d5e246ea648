//! Reads ranges back from the sink's storage.
//!
//! All reads bypass the page cache, detect holes without reading them, and stop before the next
//! piece when the session ends.

use dray_core::checksum::Summer;
use dray_core::{ByteRange, End, Error, ErrorKind, Result, Sums};
use dray_store::ReadHandle;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Size of one read in bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Alignment in bytes of the memory for direct reads.
const ALIGNMENT: usize = 4096;

/// State that the reading threads share with the threads that wait for them.
#[derive(Debug, Default)]
pub(super) struct ReadBack {
    stops: AtomicBool,
    bytes: AtomicU64,
}

impl ReadBack {
    /// Stops all reads before their next piece.
    pub(super) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
    }

    /// Returns the number of bytes that were read back so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        if self.stops.load(Ordering::Acquire) {
            return Err(
                Error::new(ErrorKind::Cancelled, End::Sink, "read the file back")
                    .cause("the session is ending"),
            );
        }
        Ok(())
    }

    /// Reads a range piece by piece, and calls `each` with the data of each piece and with the
    /// length of each hole.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] after [`Self::stop`]. [`ErrorKind::ShortRead`] if the file ends
    /// before the range ends. Errors of the store and of `each`.
    pub(super) fn each(
        &self,
        file: &dyn ReadHandle,
        range: ByteRange,
        each: &mut dyn FnMut(u64, Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let size = file.state()?.size;
        if size < range.end() {
            return Err(
                Error::new(ErrorKind::ShortRead, End::Sink, "read the file back").cause(format!(
                    "the partial file has {size} bytes, but {} are needed",
                    range.end()
                )),
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
                            .cause(format!("the partial file ends at byte {at}")),
                    );
                }
                self.bytes.fetch_add(got as u64, Ordering::Relaxed);
                each(at, Piece::Data(&memory[..got]))?;
                at += got as u64;
            }
        }
        Ok(())
    }

    /// Returns the checksums of a range, computed from the bytes on the storage.
    ///
    /// # Errors
    /// The errors of [`Self::each`].
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
    /// Data bytes.
    Data(&'a [u8]),
    /// A hole of this many bytes, for which the storage has no blocks.
    Hole(u64),
}
