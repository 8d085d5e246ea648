//! Shares blocks between two files: where the file system has reflinks, a copy within it moves no
//! bytes. The request is `copy_file_range(2)`.
//!
//! Other file systems copy in the kernel instead, which is no faster than writing bytes from the
//! processor's cache; the store does not ask them. It does not ask file servers (NFS, SMB) either:
//! they copy their own version, while this host reads from its cache, so the checksums may belong
//! to another version.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// File systems that can share blocks (`statfs(2)`): XFS, btrfs, bcachefs.
const CAN_SHARE: [u64; 3] = [0x5846_5342, 0x9123_683E, 0xCA45_1A4E];

/// Returns true if this kind of file system (`f_type`) can share blocks.
pub(super) fn may_share(kind: u64) -> bool {
    CAN_SHARE.contains(&kind)
}

/// Makes `length` bytes of `to`, at `to_offset`, equal those of `from` at `from_offset`. Returns
/// `false` if sharing is impossible: another file system, unaligned blocks, a file that is too
/// short.
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
            // Ignore the cause: the caller writes the bytes instead, and that write reports its own
            // error.
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}
