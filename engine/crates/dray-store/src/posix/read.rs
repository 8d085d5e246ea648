//! Reads files.

use super::direct::Direct;
use super::share::may_share;
use super::uncached;
use super::{ErrorContext, PosixStore, attributes, calls, inode_of, size_of, time_of};
use crate::store::ReadHandle;
use crate::types::{InodeState, Noted, ReadPurpose, ReadState};
use dray_core::{ByteRange, End, RelPath, Result, Sums};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// Flags to open a file. With these flags, opening a pipe does not wait for a writer.
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Maximum number of attempts to open a file that other programs replace, before the call fails.
/// The value is estimated, not measured.
const STALE_OPENS_MAX: u32 = 4;

impl PosixStore {
    pub(super) fn open_file(&self, path: &RelPath, purpose: ReadPurpose) -> Result<PosixRead> {
        let place = self.place(path);
        let opened = self.folders.beside(path.as_bytes(), |folder, name| {
            let flags = FILE | OFlags::NOFOLLOW;
            let open = || {
                rustix::io::retry_on_intr(|| {
                    rustix::fs::openat(folder.fd(), name, flags, Mode::empty())
                })
            };
            // Network file systems give `ESTALE` if the file is replaced during the call.
            let opened = (1..STALE_OPENS_MAX).map(|_| open());
            let mut opened = opened.filter(|opened| !matches!(opened, Err(Errno::STALE)));
            opened.next().unwrap_or_else(open)
        });
        let fd = match opened {
            // The last name is a link, and the options permit links. Open it again, and let the
            // kernel check the target.
            Err(Errno::LOOP) if *self.root.scope() != super::LinkScope::Never => {
                self.root.open(path.as_bytes(), FILE)
            }
            other => other,
        }
        .map_err(|errno| place.error("open the file", errno))?;
        let is_uncached = purpose == ReadPurpose::ReadBack;
        let wants_direct = self.is_direct || is_uncached;
        let direct = wants_direct.then(|| match is_uncached {
            true => Direct::of_any_size(fd.as_fd(), OFlags::RDONLY),
            false => Direct::of(fd.as_fd(), OFlags::RDONLY),
        });
        Ok(PosixRead {
            direct: direct.flatten(),
            is_uncached,
            shares_blocks: self.shares_blocks
                && rustix::fs::fstatfs(&fd).is_ok_and(|kind| may_share(kind.f_type as u64)),
            fd,
            place,
        })
    }
}

#[derive(Debug)]
pub(super) struct PosixRead {
    fd: OwnedFd,
    direct: Option<Direct>,
    /// True if reads bypass all caches of this host.
    is_uncached: bool,
    shares_blocks: bool,
    place: ErrorContext,
}

impl ReadHandle for PosixRead {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let direct = self.direct.as_ref();
        if self.is_uncached {
            return uncached::read_at(self.fd.as_fd(), direct, offset, buffer)
                .map_err(|errno| uncached::error(&self.place, errno));
        }
        direct
            .and_then(|direct| direct.read_at(offset, buffer))
            .unwrap_or_else(|| read_at(&self.fd, offset, buffer))
            .map_err(|errno| self.place.error("read the file", errno))
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn shareable(&self) -> Option<BorrowedFd<'_>> {
        self.shares_blocks.then(|| self.fd.as_fd())
    }

    fn settle(&self) -> Result<()> {
        if !self.shares_blocks {
            return Ok(());
        }
        // Write back the dirty pages of memory mappings before the first read. A write to a dirty
        // page does not change the modification time, so it would go unnoticed, but the first write
        // after the write-back changes the time. Sharing the blocks also writes the pages back, but
        // too late.
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.fd))
            .map_err(|errno| self.place.error("read the file", errno))
    }

    fn state(&self) -> Result<ReadState> {
        Ok(self.full_state()?.0)
    }

    fn full_state(&self) -> Result<(ReadState, Option<InodeState>)> {
        let stat = rustix::fs::fstat(&self.fd)
            .map_err(|errno| self.place.error("read the attributes of the file", errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let state = ReadState {
                    size: size_of(&stat),
                    modified: time_of(&stat),
                };
                Ok((state, Some(inode_of(&stat))))
            }
            FileType::Directory => Err(self.place.error("read the file", Errno::ISDIR)),
            other => Err(special(self.place.end, &self.place.path, other)),
        }
    }

    fn noted(&self) -> Result<Option<Noted>> {
        // Hash the attributes before reading the ctime. An attribute may be set between the two
        // calls. The record then has the new ctime and the old hash, and a later comparison shows
        // the change of the hash.
        let attributes = attributes::fingerprint(self.fd.as_fd());
        let inode = self.full_state()?.1;
        Ok(inode.map(|inode| Noted { inode, attributes }))
    }

    fn next_data(&self, offset: u64) -> Result<Option<ByteRange>> {
        let found = match rustix::fs::seek(&self.fd, SeekFrom::Data(offset)) {
            Ok(start) => rustix::fs::seek(&self.fd, SeekFrom::Hole(start))
                .map(|end| Some(ByteRange::between(start, end))),
            // Only a hole follows `offset`, or the file has ended.
            Err(Errno::NXIO) => Ok(None),
            // The file system cannot search for holes, so report the rest of the file as data.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => rustix::fs::fstat(&self.fd)
                .map(|stat| ByteRange::between(offset, size_of(&stat)))
                .map(|rest| (!rest.is_empty()).then_some(rest)),
            Err(errno) => Err(errno),
        };
        found.map_err(|errno| self.place.error("look for holes in the file", errno))
    }

    fn known_sums(&self) -> Result<Option<Sums>> {
        attributes::known_sums(self.fd.as_fd())
            .map_err(|errno| self.place.error("read the checksums of the file", errno))
    }
}

/// Returns the error for an entry that is not a file, folder or link.
pub(super) fn special(end: End, path: &RelPath, kind: FileType) -> dray_core::Error {
    let what = match kind {
        FileType::Fifo => "the entry is a named pipe",
        FileType::Socket => "the entry is a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "the entry is a device",
        _ => "the entry is neither a file, a folder nor a link",
    };
    crate::store::unsupported(end, "copy", path, what).remedy("exclude the entry with --exclude")
}

pub(super) fn read_at(fd: &OwnedFd, offset: u64, buffer: &mut [u8]) -> rustix::io::Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut *buffer, offset))
}

/// Maximum number of bytes that one call writes to the page cache.
///
/// On file systems with large folios (ext4 from Linux 6.16, XFS), a long write allocates page cache
/// in large pieces. In a virtual machine whose free memory the host reclaims, pieces of 512 KiB and
/// more come from memory that was never touched, and the host handles a fault for each piece. One
/// write of 1 MiB took twice as long as four writes of 256 KiB (docs/design/throughput.md, "What
/// bounds a transfer on one host").
const PIECE: u64 = 256 << 10;

/// Writes all of `bytes`. Each system call writes at most one piece, which ends at a multiple of
/// [`PIECE`].
pub(super) fn write_all_at(
    fd: BorrowedFd<'_>,
    mut offset: u64,
    mut bytes: &[u8],
) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let piece = (PIECE - offset % PIECE).min(bytes.len() as u64) as usize;
        match calls::pwrite(fd, &bytes[..piece], offset, 1) {
            // The device accepted no bytes and reported no error.
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
