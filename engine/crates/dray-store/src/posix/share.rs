//! Blocks that two files share: where the file system can (a reflink, or a copy that a file server makes
//! by itself), a copy within it moves no bytes. `copy_file_range(2)` asks for both.
//!
//! File systems that can do neither copy in the kernel instead, which is no faster than to write bytes
//! that lie in the processor's cache already; they are not asked.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// What may share blocks, or copies at its server (`statfs(2)`): XFS, btrfs, bcachefs, OCFS2, NFS, SMB.
const CAN_SHARE: [u64; 7] = [
    0x5846_5342,
    0x9123_683E,
    0xCA45_1A4E,
    0x7461_636F,
    0x6969,
    0xFE53_4D42,
    0xFF53_4D42,
];

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
            Err(errno) if is_no(errno) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
    Ok(true)
}

/// Whether it says that it cannot, and not that it failed.
fn is_no(errno: Errno) -> bool {
    [
        Errno::XDEV,
        Errno::OPNOTSUPP,
        Errno::NOSYS,
        Errno::INVAL,
        Errno::NOTTY,
        Errno::PERM,
        Errno::BADF,
        Errno::TXTBSY,
    ]
    .contains(&errno)
}
