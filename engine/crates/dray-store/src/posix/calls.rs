//! The system calls that write and sync files. `dray chaos` can inject faults into them.

use crate::faults::installed;
use rustix::fd::{AsFd, BorrowedFd};

/// Calls `pwrite(2)`. The length of an injected short write is a multiple of `unit_bytes`.
pub(super) fn pwrite(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    offset: u64,
    unit_bytes: usize,
) -> rustix::io::Result<usize> {
    match installed() {
        None => rustix::io::pwrite(fd, bytes, offset),
        Some(injector) => injector.pwrite(fd, bytes, offset, unit_bytes),
    }
}

/// Calls `fdatasync(2)`, and repeats the call if a signal interrupts it.
pub(super) fn fdatasync(fd: impl AsFd) -> rustix::io::Result<()> {
    sync_one(fd.as_fd(), |fd| rustix::fs::fdatasync(fd))
}

/// Calls `fsync(2)`, and repeats the call if a signal interrupts it.
pub(super) fn fsync(fd: impl AsFd) -> rustix::io::Result<()> {
    sync_one(fd.as_fd(), |fd| rustix::fs::fsync(fd))
}

/// Calls `syncfs(2)`, and repeats the call if a signal interrupts it.
pub(super) fn syncfs(fd: impl AsFd) -> rustix::io::Result<()> {
    let sync = || rustix::io::retry_on_intr(|| rustix::fs::syncfs(fd.as_fd()));
    match installed() {
        None => sync(),
        Some(injector) => injector.sync_all(sync),
    }
}

fn sync_one(
    fd: BorrowedFd<'_>,
    call: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let sync = || rustix::io::retry_on_intr(|| call(fd));
    match installed() {
        None => sync(),
        Some(injector) => injector.sync_one(fd, sync),
    }
}
