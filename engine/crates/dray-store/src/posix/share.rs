//! Blocks that two files share: where the file system can (a reflink), a copy within it moves no bytes.
//! `copy_file_range(2)` asks for that.
//!
//! File systems that cannot copy in the kernel instead, which is no faster than to write bytes that lie in
//! the processor's cache already; they are not asked. Nor are file servers (NFS, SMB), which copy what they
//! have, while this host reads what it remembers: what was summed may be another version.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// What may share blocks (`statfs(2)`): XFS, btrfs, bcachefs.
const CAN_SHARE: [u64; 3] = [0x5846_5342, 0x9123_683E, 0xCA45_1A4E];

/// Whether files of this kind of file system (`f_type`) are worth a try.
pub(super) fn may_share(kind: u64) -> bool {
    CAN_SHARE.contains(&kind)
}

/// Makes `length` bytes of `to`, at `to_offset`, those of `from` at `from_offset`. `false` when that
/// cannot be had: another file system, other blocks, a file that is too short.
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
            // Whatever is wrong: a write is another thing, and tells what is wrong with itself.
            Err(_) => return Ok(false),
        }
    }
    Ok(true)
}
