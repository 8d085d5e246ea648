//! The bytes that were written to partial files and not synced. A failed sync loses them.

use dray_core::ByteRange;
use dray_core::lock::LockExt;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// Maximum number of ranges that are remembered for a file. Bytes of further ranges are not lost. A
/// sync group with objects of 64 KiB has 1024 ranges. The value is estimated, not measured.
const RANGES_MAX: usize = 4096;

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Device and inode number of a file.
type FileNumber = (u64, u64);

/// The open partial files, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: Mutex<HashMap<FileNumber, Weak<Unsynced>>>,
}

/// The bytes of a partial file that were written and not synced.
#[derive(Debug)]
pub(crate) struct Unsynced {
    fd: OwnedFd,
    ranges: Mutex<Vec<ByteRange>>,
}

impl Files {
    pub(super) fn watch(&self, fd: BorrowedFd<'_>) -> Option<Arc<Unsynced>> {
        let number = number_of(fd).ok()?;
        let mut open = self.open.lock_unpoisoned();
        if let Some(known) = open.get(&number).and_then(Weak::upgrade) {
            return Some(known);
        }
        let new = Arc::new(Unsynced {
            fd: rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()?,
            ranges: Mutex::default(),
        });
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(number, Arc::downgrade(&new));
        Some(new)
    }

    pub(super) fn of(&self, fd: BorrowedFd<'_>) -> Option<Arc<Unsynced>> {
        let number = number_of(fd).ok()?;
        let open = self.open.lock_unpoisoned();
        open.get(&number).and_then(Weak::upgrade)
    }

    /// Forgets the ranges of all files, because a sync of all files begins.
    pub(super) fn forget_ranges(&self) {
        let open = self.open.lock_unpoisoned();
        for file in open.values().filter_map(Weak::upgrade) {
            file.take();
        }
    }
}

fn number_of(fd: BorrowedFd<'_>) -> rustix::io::Result<FileNumber> {
    rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino))
}

impl Unsynced {
    /// Records written bytes.
    pub(crate) fn written(&self, offset: u64, length: u64) {
        let mut ranges = self.ranges.lock_unpoisoned();
        let is_full = ranges.len() >= RANGES_MAX;
        match ranges.last_mut() {
            Some(last) if last.end() == offset => last.length += length,
            _ if is_full => {}
            _ => ranges.push(ByteRange { offset, length }),
        }
    }

    /// Returns the recorded bytes, and forgets them.
    pub(super) fn take(&self) -> Vec<ByteRange> {
        std::mem::take(&mut self.ranges.lock_unpoisoned())
    }

    /// Replaces these bytes by zeros. The caller reports an error in any case, so bytes that cannot
    /// be replaced remain.
    pub(super) fn lose(&self, ranges: &[ByteRange]) {
        for range in ranges {
            let mut offset = range.offset;
            while offset < range.end() {
                let length = (range.end() - offset).min(ZEROS.len() as u64) as usize;
                match rustix::io::pwrite(self.fd.as_fd(), &ZEROS[..length], offset) {
                    Ok(count) if count > 0 => offset += count as u64,
                    Err(Errno::INTR) => {}
                    Ok(_) | Err(_) => return,
                }
            }
        }
    }
}
