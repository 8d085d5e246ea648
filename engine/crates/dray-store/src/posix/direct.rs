//! Direct I/O (`O_DIRECT` of `open(2)`) moves the bytes of large files between the storage and the
//! engine's buffers without the page cache. It is useful if the storage is faster than a copy in
//! memory, or if other programs need the page cache.
//!
//! The store opens a large file a second time with `O_DIRECT`. Unaligned parts, such as the last
//! bytes of a file, are read and written through the page cache with the first descriptor. The
//! kernel ensures that each descriptor sees the bytes written with the other one. On file systems
//! without direct I/O, all bytes pass through the page cache.

use super::{calls, size_of};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Alignment of offsets, lengths and memory addresses in bytes. No common device requires a larger
/// alignment.
pub(super) const ALIGNMENT: usize = 4096;

/// Minimum size in bytes of a file that is opened a second time, for direct I/O. Smaller files are
/// sent in packs, or are too short for direct I/O to save time.
const LARGE: u64 = 1 << 20;

/// The descriptor of a file for direct I/O.
#[derive(Debug)]
pub(super) struct Direct(OwnedFd);

impl Direct {
    /// Opens the file of `fd` again for direct I/O. Returns `None` if the open fails, if `fd` is
    /// not a regular file, or if the file is smaller than [`LARGE`].
    pub(super) fn of(fd: BorrowedFd<'_>, access: OFlags) -> Option<Self> {
        let stat = rustix::fs::fstat(fd).ok()?;
        if size_of(&stat) < LARGE {
            return None;
        }
        Self::of_any_size(fd, access)
    }

    /// Does the same as [`Self::of`] for a file of any size.
    pub(super) fn of_any_size(fd: BorrowedFd<'_>, access: OFlags) -> Option<Self> {
        let stat = rustix::fs::fstat(fd).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // Do not open a file of another kind again, because opening a pipe or a device could block.
        if !is_file {
            return None;
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::io::retry_on_intr(|| rustix::fs::open(&*path, flags, Mode::empty()));
        opened.ok().map(Self)
    }

    /// Reads the aligned part of `buffer`. Returns `None` if `buffer` has no aligned part, or if
    /// the storage requires a larger alignment.
    pub(super) fn read_at(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<rustix::io::Result<usize>> {
        let length = aligned(offset, buffer)?;
        let buffer = &mut buffer[..length];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.0, &mut *buffer, offset));
        (read != Err(Errno::INVAL)).then_some(read)
    }

    /// Writes the aligned part of `bytes` and returns the number of bytes written. Returns 0 if no
    /// part is aligned, or if the storage requires a larger alignment.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> rustix::io::Result<usize> {
        let Some(length) = aligned(offset, bytes) else {
            return Ok(0);
        };
        let mut written = 0;
        while written < length {
            let rest = &bytes[written..length];
            match calls::pwrite(self.0.as_fd(), rest, offset + written as u64, ALIGNMENT) {
                // The caller writes the remaining bytes through the page cache. If the storage has
                // a real error, that write reports it.
                Ok(0) | Err(Errno::INVAL) => return Ok(written),
                // After a write that ended inside a block, the next offset is not aligned, so
                // direct I/O cannot continue.
                Ok(count) if count % ALIGNMENT != 0 => return Ok(written + count),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(written)
    }
}

/// Returns the length of the part of `bytes`, from its start, that direct I/O can move at `offset`.
/// Returns `None` if there is no such part.
fn aligned(offset: u64, bytes: &[u8]) -> Option<usize> {
    let length = bytes.len() - bytes.len() % ALIGNMENT;
    let is_aligned =
        offset.is_multiple_of(ALIGNMENT as u64) && bytes.as_ptr().addr().is_multiple_of(ALIGNMENT);
    (is_aligned && length > 0).then_some(length)
}

#[cfg(test)]
mod tests;
