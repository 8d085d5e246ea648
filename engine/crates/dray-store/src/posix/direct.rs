//! Direct I/O (`open(2)`, `O_DIRECT`): moves the bytes of large files between the storage and the
//! engine's buffers without the page cache. It serves storage that is faster than a copy in memory,
//! and hosts whose cache other programs need.
//!
//! The store opens a large enough file a second time with `O_DIRECT`. Unaligned parts, such as a
//! file's last bytes, go through the cache and the first descriptor; the kernel keeps both
//! consistent. Where the file system has no direct I/O, all bytes go through the cache.

use super::size_of;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Offsets, lengths and memory addresses are multiples of this: no device in use requires more.
pub(super) const ALIGNMENT: usize = 4096;

/// Minimum size in bytes for a second descriptor: smaller files travel in packs, or end before
/// direct I/O pays off.
const LARGE: u64 = 1 << 20;

/// The second descriptor of a file.
#[derive(Debug)]
pub(super) struct Direct(OwnedFd);

impl Direct {
    /// Opens the file of `fd` again for direct I/O. Returns `None` if that fails, if `fd` is not a
    /// regular file, or if the file is not large.
    pub(super) fn of(fd: BorrowedFd<'_>, access: OFlags) -> Option<Self> {
        let stat = rustix::fs::fstat(fd).ok()?;
        if size_of(&stat) < LARGE {
            return None;
        }
        Self::of_any_size(fd, access)
    }

    /// As [`Self::of`], for a file of any size.
    pub(super) fn of_any_size(fd: BorrowedFd<'_>, access: OFlags) -> Option<Self> {
        let stat = rustix::fs::fstat(fd).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // Opening another kind of file might block until its peer opens it.
        if !is_file {
            return None;
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::io::retry_on_intr(|| rustix::fs::open(&*path, flags, Mode::empty()));
        opened.ok().map(Self)
    }

    /// Reads the aligned part of `buffer`. Returns `None` if no part is aligned, or if the storage
    /// requires a larger alignment.
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

    /// Writes the aligned part of `bytes` and returns its length; 0 if the storage requires a
    /// larger alignment.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> rustix::io::Result<usize> {
        let Some(length) = aligned(offset, bytes) else {
            return Ok(0);
        };
        let mut written = 0;
        while written < length {
            let rest = &bytes[written..length];
            match rustix::io::pwrite(&self.0, rest, offset + written as u64) {
                // The caller continues through the cache, which reports whether this is an error.
                Ok(0) | Err(Errno::INVAL) => return Ok(written),
                // A write that ends inside a block cannot be continued here.
                Ok(count) if count % ALIGNMENT != 0 => return Ok(written + count),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(written)
    }
}

/// Returns the length of the prefix of `bytes` that direct I/O can write at `offset`.
fn aligned(offset: u64, bytes: &[u8]) -> Option<usize> {
    let length = bytes.len() - bytes.len() % ALIGNMENT;
    let is_aligned =
        offset.is_multiple_of(ALIGNMENT as u64) && bytes.as_ptr().addr().is_multiple_of(ALIGNMENT);
    (is_aligned && length > 0).then_some(length)
}

#[cfg(test)]
mod tests;
