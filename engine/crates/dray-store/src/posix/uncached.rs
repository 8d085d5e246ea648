//! Reads bytes from the storage and not from this host's page cache.
//!
//! After a failed write-back, the page cache still contains bytes that the disk never received, and
//! a later sync succeeds (ext4 keeps such blocks marked as unwritten). So a read through the page
//! cache does not prove that the bytes are on the disk.
//!
//! Invariant: each byte returned by this module was read from below the page cache, except on file
//! systems in memory. The module first drops the cached pages of the range, because some file
//! systems silently use the page cache for direct reads (ext4 with journalled data). Then it uses
//! direct reads if the file system supports them. Otherwise it requests the page with a read that
//! does not wait. If this read returns bytes, the page is still in the cache. The module then syncs
//! the file and drops the pages again. If the page stays in the cache, the module reports an error.

use super::ErrorContext;
use super::direct::{ALIGNMENT, Direct};
use dray_core::{Error, Status};
use rustix::fd::BorrowedFd;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::num::NonZeroU64;

/// Size in bytes of the aligned buffer, which is used if the caller's memory is not aligned.
const BOUNCE_BYTES: usize = 256 << 10;

/// Maximum number of attempts to write back and drop cached pages, before the read fails. A retry
/// can succeed, because another process that has just read a page holds it only briefly.
const TRIES: u32 = 3;

/// File systems in memory: tmpfs, ramfs, hugetlbfs (linux/magic.h).
const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Error number for pages that stay in the page cache.
const HELD: Errno = Errno::BUSY;

/// Reads at `offset` without the page cache. Returns 0 at the end of the file, like `pread`.
pub(super) fn read_at(
    fd: BorrowedFd<'_>,
    direct: Option<&Direct>,
    offset: u64,
    buffer: &mut [u8],
) -> rustix::io::Result<usize> {
    if buffer.is_empty() {
        return Ok(0);
    }
    drop_cached(fd, offset, buffer.len() as u64);
    if let Some(direct) = direct {
        if let Some(read) = direct.read_at(offset, buffer) {
            return read;
        }
        if let Some(read) = bounce(direct, offset, buffer) {
            return read;
        }
    }
    read_dropped(fd, offset, buffer)
}

/// Drops the cached pages of a range. The range is extended to whole pages, because the kernel
/// keeps pages that are only partly in the range.
fn drop_cached(fd: BorrowedFd<'_>, offset: u64, length: u64) {
    let start = offset - offset % ALIGNMENT as u64;
    let length = NonZeroU64::new((offset - start + length).next_multiple_of(ALIGNMENT as u64));
    let _ = rustix::fs::fadvise(fd, start, length, Advice::DontNeed);
}

/// Reads into aligned memory and copies the bytes to `buffer`. Returns `None` if the storage
/// requires a larger alignment.
fn bounce(direct: &Direct, offset: u64, buffer: &mut [u8]) -> Option<rustix::io::Result<usize>> {
    let skip = (offset % ALIGNMENT as u64) as usize;
    let wanted = (skip + buffer.len().min(BOUNCE_BYTES)).next_multiple_of(ALIGNMENT);
    let mut memory = vec![0; wanted + ALIGNMENT];
    let address = memory.as_ptr().addr();
    let start = address.next_multiple_of(ALIGNMENT) - address;
    let aligned = &mut memory[start..start + wanted];
    let read = direct.read_at(offset - skip as u64, aligned)?;
    Some(read.map(|count| {
        let got = count.saturating_sub(skip).min(buffer.len());
        buffer[..got].copy_from_slice(&aligned[skip..skip + got]);
        got
    }))
}

/// Reads through the page cache after checking that the page is not cached.
fn read_dropped(fd: BorrowedFd<'_>, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    let is_in_memory = rustix::fs::fstatfs(fd)
        .is_ok_and(|kind| IN_MEMORY.contains(&u64::try_from(kind.f_type).unwrap_or(0)));
    let mut tries = 0;
    while !is_in_memory && is_cached(fd, offset) {
        tries += 1;
        if tries > TRIES {
            return Err(HELD);
        }
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(fd))?;
        drop_cached(fd, offset, buffer.len() as u64);
    }
    rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *buffer, offset))
}

/// Returns true if the page at `offset` is in the page cache. Returns false if the file system
/// cannot report this.
fn is_cached(fd: BorrowedFd<'_>, offset: u64) -> bool {
    let mut byte = [0; 1];
    let mut slices = [IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(fd, &mut slices, offset, ReadWriteFlags::NOWAIT).is_ok_and(|got| got > 0)
}

/// Returns the error for a failed read from the storage.
pub(super) fn error(place: &ErrorContext, errno: Errno) -> Error {
    let error = place.error("read the file back", errno);
    if errno == HELD {
        return error
            .status(Status::Temporary)
            .cause("the page cache did not drop the pages of the partial file")
            .remedy(
                "stop the program that maps the partial file into memory; run the same \
                command again",
            );
    }
    error
}

#[cfg(test)]
mod tests {
    use crate::posix::{PosixOptions, PosixStore};
    use crate::store::Store;
    use crate::types::ReadPurpose;
    use dray_core::{End, RelPath};

    #[test]
    fn any_part_of_any_file_is_read_past_the_cache() {
        // Use the source folder, because the temporary folder of the host is more often in memory.
        let on_disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let in_memory = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let content: Vec<u8> = (0..1_000_077_u32).map(|at| (at % 251) as u8).collect();
        for folder in [on_disk.path(), in_memory.path()] {
            std::fs::write(folder.join("file"), &content).expect("written");
            let store =
                PosixStore::open(folder, End::Sink, PosixOptions::default()).expect("opened");
            let path = RelPath::parse(b"file").expect("good");
            let file = store
                .open_read(&path, ReadPurpose::ReadBack)
                .expect("opened");
            for (offset, length) in [
                (0, content.len()),
                (4096, 8192),
                (4095, 2),
                (1_000_000, 77),
                (1_000_000, 500),
                (3, 400_000),
                (content.len(), 5),
            ] {
                let mut read = vec![0; length];
                let mut filled = 0;
                while filled < length {
                    let at = (offset + filled) as u64;
                    match file.read_at(at, &mut read[filled..]).expect("read") {
                        0 => break,
                        count => filled += count,
                    }
                }
                let end = content.len().min(offset + length);
                assert!(
                    read[..filled] == content[offset..end],
                    "{length} at {offset}"
                );
            }
        }
    }
}
