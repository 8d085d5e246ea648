//! Shares blocks between two files. On a file system with reflinks, a copy within the file system
//! moves no bytes. The system call is `copy_file_range(2)`.
//!
//! On other local file systems the kernel would copy the bytes, which is no faster than writing
//! bytes from the processor's cache. So the store does not use the call there. The store does not
//! use it on NFS and SMB either, because the file server copies its own version of the file. If
//! this host has cached another version, the checksums may be those of the cached version.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// File systems that can share blocks (`f_type` of `statfs(2)`): XFS, btrfs, bcachefs.
const CAN_SHARE: [u64; 3] = [0x5846_5342, 0x9123_683E, 0xCA45_1A4E];

pub(super) fn may_share(kind: u64) -> bool {
    CAN_SHARE.contains(&kind)
}

/// Makes `length` bytes of the file `to` at `to_offset` share the blocks of the file `from` at
/// `from_offset`. Returns `false` if the blocks cannot be shared, because the files are on
/// different file systems, the range is not aligned to blocks, or `from` is too short.
pub(super) fn share(
    (from, mut from_offset): (BorrowedFd<'_>, u64),
    (to, mut to_offset): (BorrowedFd<'_>, u64),
    length: u64,
) -> rustix::io::Result<bool> {
    let mut rest = length;
    while rest > 0 {
        let most = usize::try_from(rest).unwrap_or(usize::MAX);
        let (at, into) = (Some(&mut from_offset), Some(&mut to_offset));
        match rustix::fs::copy_file_range(from, at, to, into, most) {
            Ok(0) => return Ok(false),
            Ok(count) => rest -= count as u64,
            Err(Errno::INTR) => {}
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => return Err(errno),
            // Ignore the cause. The caller writes the bytes instead, and a real error occurs there
            // again.
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}
