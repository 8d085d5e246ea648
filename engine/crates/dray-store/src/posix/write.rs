//! Partial files. A partial file is written in any order and published in one atomic step.

use super::attributes::{self, Refused};
use super::direct::Direct;
use super::file_systems::kind_of;
use super::folders::{Folder, Folders};
use super::read::{read_at, write_all_at};
use super::rename::rename_new;
use super::{ErrorContext, PosixStore, birth_of, calls, resolve, share, size_of};
use crate::faults::{self, Unsynced};
use crate::store::Partial;
use crate::types::{Attributes, PartialId, PartialRequest, Publish};
use dray_core::{ByteRange, Error, ErrorKind, Layout, Metadata, Name, RelPath, Result, Status};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Mode of a partial file until it is published. Only the owner may read an incomplete file.
const PRIVATE: u32 = 0o600;

/// File systems that hold a lock on the file while they copy the bytes of a write to memory: ext2
/// to ext4, tmpfs, XFS, btrfs, overlayfs (`f_type` of `statfs(2)`). Network file systems are not in
/// this list, because a write may wait for another host, and some of them lock only ranges.
const TAKE_ONE_WRITER: [u64; 5] = [0xEF53, 0x0102_1994, 0x5846_5342, 0x9123_683E, 0x794C_7630];

/// Zeros to write if the file system cannot punch holes.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

impl PosixStore {
    pub(super) fn begin_partial(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
        stripes: Option<&[u8]>,
    ) -> Result<PosixPartial> {
        let place = self.place(path);
        let (fd, id) = match request.reuse {
            None => self.begin_new(&place, size_bytes, request, stripes)?,
            Some(id) => self.begin_again(&place, size_bytes, &request.name, id)?,
        };
        let folder = self.folders.at(resolve::split(path.as_bytes()).0).ok();
        let system = folder.as_ref().and_then(|folder| folder.system.as_ref());
        let kind = system.map_or_else(|| kind_of(fd.as_fd()), |system| system.kind());
        let direct = self
            .is_direct
            .then(|| Direct::of(fd.as_fd(), OFlags::WRONLY));
        let direct = direct.flatten();
        let takes_one = kind.is_some_and(|kind| TAKE_ONE_WRITER.contains(&kind));
        let may_share = self.shares_blocks && kind.is_some_and(share::may_share);
        Ok(PosixPartial {
            // Direct I/O does not copy bytes to memory while it holds the lock of the file, so
            // several writers are useful.
            takes_one_writer: takes_one && direct.is_none(),
            direct,
            may_share: AtomicBool::new(may_share),
            preallocates: self.preallocates,
            layout: self.layouts.of_partial(fd.as_fd(), id, size_bytes, || {
                folder.as_ref().map(|folder| folder.target)
            }),
            unsynced: faults::installed().and_then(|faults| faults.watch(fd.as_fd())),
            fd,
            id,
            name: request.name.clone(),
            folders: Arc::clone(&self.folders),
            place,
        })
    }

    fn begin_new(
        &self,
        place: &ErrorContext,
        size_bytes: u64,
        request: &PartialRequest,
        stripes: Option<&[u8]>,
    ) -> Result<(OwnedFd, PartialId)> {
        let name = &request.name;
        let stripes = self.stripes_for(stripes);
        let (fd, folder) = self
            .folders
            .beside(place.path.as_bytes(), |folder, _| {
                let fd = self.create_striped(folder, name, PRIVATE, stripes.as_ref())?;
                Ok((fd, Arc::clone(folder)))
            })
            .map_err(|errno| place.error("create the partial file", errno))?;
        let prepare = || {
            if size_bytes > 0 {
                rustix::fs::ftruncate(&fd, size_bytes)?;
            }
            id_of(&fd)
        };
        match prepare() {
            Ok(id) => Ok((fd, id)),
            Err(errno) => {
                // Ignore an error of the cleanup, because the first error is more useful.
                let _ = unlink(&folder, name);
                Err(place.error("create the partial file", errno))
            }
        }
    }

    fn begin_again(
        &self,
        place: &ErrorContext,
        size_bytes: u64,
        name: &Name,
        id: PartialId,
    ) -> Result<(OwnedFd, PartialId)> {
        let operation = "continue the partial file";
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = self.folders.beside(place.path.as_bytes(), |folder, _| {
            let open = || rustix::fs::openat(folder.fd(), name.as_bytes(), flags, Mode::empty());
            match open() {
                Err(Errno::ACCESS) => {
                    let_owner_write(folder, name, &id)?;
                    open()
                }
                opened => opened,
            }
        });
        let fd = match opened {
            // The name refers to a link, a folder or a pipe, so it is not the partial file of the
            // earlier run.
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(gone(place, operation)),
            other => other.map_err(|errno| place.error(operation, errno))?,
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| place.error(operation, errno))?;
        let found = id_of(&fd).map_err(|errno| place.error(operation, errno))?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        // Require exactly one name: with a second hard link, another user could read or keep an
        // unpublished file.
        if !is_file || stat.st_nlink != 1 || !found.is(&id) {
            return Err(gone(place, operation));
        }
        if size_of(&stat) != size_bytes {
            rustix::fs::ftruncate(&fd, size_bytes)
                .map_err(|errno| place.error(operation, errno))?;
        }
        Ok((fd, found))
    }

    pub(super) fn write_whole(
        &self,
        path: &RelPath,
        partial: &Name,
        bytes: &[u8],
        holes: &[ByteRange],
        attributes: &Attributes<'_>,
    ) -> Result<PartialId> {
        let mode = attributes.metadata.mode & 0o7777;
        let refused = Refused::default();
        let stripes = self.stripes_for(attributes::stripes_sent(attributes));
        let is_plain = attributes.metadata.xattrs.is_empty() && attributes.sums.is_none();
        self.folders
            .beside(path.as_bytes(), |folder, _| {
                // If the file system applies the mode at creation unchanged, no second call is
                // needed to set the mode.
                let mode_is_set = is_plain && self.mode_holds(folder, mode);
                let first_mode = if mode_is_set { mode } else { PRIVATE };
                let fd = self.create_striped(folder, partial, first_mode, stripes.as_ref())?;
                let written = write_around(fd.as_fd(), bytes, holes)
                    .and_then(|()| attributes::set(fd.as_fd(), attributes, mode_is_set, &refused))
                    .and_then(|()| id_of(&fd))
                    .and_then(|id| close(fd).map(|()| id));
                if written.is_err() {
                    let _ = unlink(folder, partial);
                }
                written
            })
            .map_err(|errno| refused.or(self.place(path).error("write the file", errno)))
    }

    /// Returns true if a file created with `mode` in `folder` gets exactly this mode.
    fn mode_holds(&self, folder: &Folder, mode: u32) -> bool {
        mode & !0o777 == 0 && mode & self.umask == 0 && !folder.has_default_acl()
    }

    pub(super) fn link(
        &self,
        path: &RelPath,
        partial: &Name,
        text: &[u8],
        metadata: &Metadata,
        how: Publish,
    ) -> Result<()> {
        self.folders
            .beside(path.as_bytes(), |folder, name| {
                let partial_bytes = partial.as_bytes();
                match rustix::fs::symlinkat(text, folder.fd(), partial_bytes) {
                    // Do not report `EEXIST`, because callers would take it for an error about the
                    // final name.
                    Err(Errno::EXIST) => return Err(Errno::BUSY),
                    other => other?,
                }
                let times = attributes::times(metadata.modified);
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                let made = rustix::fs::utimensat(folder.fd(), partial_bytes, &times, flags)
                    .and_then(|()| rename(folder, partial, name, how));
                if made.is_err() {
                    let _ = unlink(folder, partial);
                }
                made
            })
            .map_err(|errno| self.place(path).error("create the link", errno))
    }
}

/// Writes the content of a new file, and leaves out its holes.
fn write_around(fd: BorrowedFd<'_>, bytes: &[u8], holes: &[ByteRange]) -> rustix::io::Result<()> {
    let mut at = 0;
    for hole in holes {
        let (from, to) = (index_of(hole.offset), index_of(hole.end()));
        let data = bytes.get(at..from).ok_or(Errno::INVAL)?;
        write_all_at(fd, at as u64, data)?;
        at = to;
    }
    let data = bytes.get(at..).ok_or(Errno::INVAL)?;
    write_all_at(fd, at as u64, data)?;
    if data.is_empty() && !holes.is_empty() {
        rustix::fs::ftruncate(fd, bytes.len() as u64)?;
    }
    Ok(())
}

/// Converts an offset to an index in the content of a small file. An offset that does not fit in
/// `usize` becomes the maximum, which is also past the end.
fn index_of(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[derive(Debug)]
pub(super) struct PosixPartial {
    fd: OwnedFd,
    direct: Option<Direct>,
    id: PartialId,
    takes_one_writer: bool,
    /// True until the file system refuses to share blocks.
    may_share: AtomicBool,
    preallocates: bool,
    layout: Option<Layout>,
    name: Name,
    folders: Arc<Folders>,
    place: ErrorContext,
    /// Bytes that an injected fault of a sync loses; `None` if no faults are injected.
    unsynced: Option<Arc<Unsynced>>,
}

impl PosixPartial {
    fn named(&self, operation: &str) -> impl Fn(Errno) -> Error {
        move |errno| self.place.error(operation, errno)
    }

    /// Returns a function that makes errors for calls that change the bytes of the file.
    fn unwritten(&self, operation: &str) -> impl Fn(Errno) -> Error {
        move |errno| not_repeated(self.place.error(operation, errno), errno)
    }
}

/// Returns the error of a failed write. On file systems that write later (FUSE, network file
/// systems), the error may belong to an earlier write and is reported only once. If only this call
/// were retried, the file could look complete and have a gap.
fn not_repeated(error: Error, errno: Errno) -> Error {
    match (errno, error.status) {
        // The system rejected this call itself, so no earlier write is affected.
        (Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS, _) => error,
        (_, Status::Temporary) => error.status(Status::Exhausted),
        _ => error,
    }
}

impl Partial for PosixPartial {
    fn id(&self) -> PartialId {
        self.id
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let direct = self.direct.as_ref();
        direct
            .map_or(Ok(0), |direct| direct.write_at(offset, bytes))
            .and_then(|count| write_all_at(self.fd.as_fd(), offset + count as u64, &bytes[count..]))
            .map_err(self.unwritten("write the file"))?;
        if let Some(unsynced) = &self.unsynced {
            unsynced.written(offset, bytes.len() as u64);
        }
        Ok(())
    }

    fn share(&self, range: ByteRange, from: BorrowedFd<'_>, offset: u64) -> Result<bool> {
        if !self.may_share.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let to = (self.fd.as_fd(), range.offset);
        let shared = share::share((from, offset), to, range.length)
            .map_err(self.unwritten("let the file share the blocks of another file"))?;
        if !shared {
            self.may_share.store(false, Ordering::Relaxed);
        }
        Ok(shared)
    }

    fn take_space(&self, size_bytes: u64) -> Result<bool> {
        // A file that shares blocks with another file needs no space for the shared blocks.
        if !self.preallocates || self.may_share.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let named = self.named("reserve space for the file");
        // Check the free space first. A `fallocate` that fails may take all free space for a
        // moment, and other programs could not write during this time.
        let state = rustix::fs::fstatvfs(&self.fd).map_err(&named)?;
        if state.f_bavail.saturating_mul(state.f_frsize) < size_bytes {
            return Err(named(Errno::NOSPC));
        }
        let taken = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, size_bytes)
        });
        match taken {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(errno) => Err(named(errno)),
        }
    }

    fn takes_one_writer(&self) -> bool {
        self.takes_one_writer
    }

    fn layout(&self) -> Option<Layout> {
        self.layout.clone()
    }

    fn punch_hole(&self, range: ByteRange) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.fd, flags, range.offset, range.length)
        });
        match punched {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(range),
            other => other,
        }
        .map_err(self.unwritten("make a hole in the file"))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        read_at(&self.fd, offset, buffer).map_err(self.named("read back the file"))
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        rustix::io::retry_on_intr(|| rustix::fs::ftruncate(&self.fd, size_bytes))
            .map_err(self.named("set the size of the file"))
    }

    fn sync(&self) -> Result<()> {
        calls::fdatasync(&self.fd).map_err(self.named("sync the file"))
    }

    fn publish(&self, how: Publish, attributes: &Attributes<'_>) -> Result<()> {
        let refused = Refused::default();
        attributes::set(self.fd.as_fd(), attributes, false, &refused).map_err(|errno| {
            // A file without a name has no attributes on GlusterFS.
            if errno == Errno::STALE {
                return gone(&self.place, "publish the file");
            }
            refused.or(self.place.error("set the attributes of the file", errno))
        })?;
        publish(&self.folders, &self.place, &self.name, self.id, how)
    }

    fn abort(&self) -> Result<()> {
        discard(&self.folders, &self.place, &self.name, Some(self.id))
    }
}

impl PosixPartial {
    fn write_zeros(&self, range: ByteRange) -> rustix::io::Result<()> {
        let mut offset = range.offset;
        while offset < range.end() {
            let length = (range.end() - offset).min(ZEROS.len() as u64);
            write_all_at(self.fd.as_fd(), offset, &ZEROS[..length as usize])?;
            offset += length;
        }
        Ok(())
    }
}

/// Creates a file with additional flags. Fails if the name exists.
pub(super) fn create(
    folder: &Folder,
    name: &Name,
    mode: u32,
    more: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let flags = flags | more;
    let mode = Mode::from_raw_mode(mode);
    rustix::fs::openat(folder.fd(), name.as_bytes(), flags, mode)
}

/// Creates a file. If the name exists, the existing file is deleted first.
pub(super) fn create_over(folder: &Folder, name: &Name, mode: u32) -> rustix::io::Result<OwnedFd> {
    match create(folder, name, mode, OFlags::empty()) {
        Err(Errno::EXIST) => {
            unlink(folder, name)?;
            create(folder, name, mode, OFlags::empty())
        }
        other => other,
    }
}

/// Lets the owner write to a partial file that already has its final mode. An earlier run set the
/// mode and ended before it published the file.
fn let_owner_write(folder: &Folder, name: &Name, id: &PartialId) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = rustix::fs::openat(folder.fd(), name.as_bytes(), flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    match is_file && stat.st_nlink == 1 && id_of(&found)?.is(id) {
        true => attributes::set_mode(found.as_fd(), PRIVATE),
        false => Err(Errno::ACCESS),
    }
}

/// Returns true if `name` in `folder` refers to the file with the identity `id`.
fn is_that(folder: &Folder, name: &Name, id: PartialId) -> rustix::io::Result<bool> {
    id_at(folder.fd(), name.as_bytes()).map(|found| found.is(&id))
}

/// Gives this partial file its final name. If another writer's file has the name of the partial
/// file, or the folder was moved, the call fails and renames nothing.
pub(super) fn publish(
    folders: &Folders,
    place: &ErrorContext,
    partial: &Name,
    id: PartialId,
    how: Publish,
) -> Result<()> {
    let operation = "publish the file";
    let renamed = folders.beside(place.path.as_bytes(), |folder, name| {
        if !is_that(folder, partial, id)? {
            return Err(Errno::NOENT);
        }
        rename(folder, partial, name, how)
    });
    match renamed {
        Err(Errno::NOENT) => Err(gone(place, operation)),
        other => other.map_err(|errno| place.error(operation, errno)),
    }
}

/// Closes a file. File systems that write later (FUSE) may report lost writes here, and only once.
fn close(fd: OwnedFd) -> rustix::io::Result<()> {
    match nix::unistd::close(fd) {
        // After EINTR the descriptor is closed too.
        Ok(()) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(Errno::from_raw_os_error(errno as i32)),
    }
}

/// Renames a partial file to its final name in the same folder.
fn rename(folder: &Folder, partial: &Name, name: &[u8], how: Publish) -> rustix::io::Result<()> {
    let (fd, partial) = (folder.fd(), partial.as_bytes());
    let renamed = match how {
        Publish::Replace => rustix::fs::renameat(fd, partial, fd, name),
        Publish::IfAbsent => rename_new((fd, partial), (fd, name)),
    };
    match renamed {
        // The partial name and the final name are in the same folder, so `EXDEV` means that the
        // file system does not support this rename.
        Err(Errno::XDEV) => Err(Errno::OPNOTSUPP),
        Err(Errno::EXIST) if is_folder(folder, name) => Err(Errno::ISDIR),
        other => other,
    }
}

fn is_folder(folder: &Folder, name: &[u8]) -> bool {
    rustix::fs::statat(folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

pub(super) fn unlink(folder: &Folder, name: &Name) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder.fd(), name.as_bytes(), AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Deletes a partial file. If `only` is given, deletes the file only if it has that identity.
pub(super) fn discard(
    folders: &Folders,
    place: &ErrorContext,
    partial: &Name,
    only: Option<PartialId>,
) -> Result<()> {
    let removed = folders.beside(place.path.as_bytes(), |folder, _| match only {
        Some(id) if !is_that(folder, partial, id)? => Ok(()),
        _ => unlink(folder, partial),
    });
    match removed {
        // The file, and perhaps its folder, has already been deleted.
        Err(Errno::NOENT) => Ok(()),
        other => other.map_err(|errno| place.error("remove the partial file", errno)),
    }
}

fn gone(place: &ErrorContext, operation: &str) -> Error {
    Error::new(ErrorKind::NotFound, place.end, operation)
        .file(&place.path)
        .cause("the partial file was removed or replaced")
        .remedy("run the same command again; the file is sent from its start")
}

fn id_of(fd: &OwnedFd) -> rustix::io::Result<PartialId> {
    id_at(fd.as_fd(), b"")
}

/// Returns the identity of the file `name` in `folder`. If `name` is empty, returns the identity of
/// the open file `folder` itself.
fn id_at(folder: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<PartialId> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    match rustix::fs::statx(folder, name, flags, wanted) {
        Ok(state) => Ok(PartialId {
            inode: state.stx_ino,
            device: rustix::fs::makedev(state.stx_dev_major, state.stx_dev_minor),
            born: birth_of(&state),
        }),
        // The kernel has no `statx`, or a sandbox forbids it.
        Err(Errno::NOSYS | Errno::PERM) => {
            let stat = rustix::fs::statat(folder, name, flags)?;
            Ok(PartialId {
                inode: stat.st_ino,
                device: super::device_of(&stat),
                born: 0,
            })
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::not_repeated;
    use dray_core::{End, Error, ErrorKind, Status};
    use rustix::io::Errno;

    #[test]
    fn a_write_that_may_have_failed_for_an_earlier_one_is_not_done_again_alone() {
        for (errno, kind, status) in [
            (Errno::IO, ErrorKind::Io, Status::Exhausted),
            (Errno::NOTCONN, ErrorKind::Unreachable, Status::Exhausted),
            (Errno::TIMEDOUT, ErrorKind::TimedOut, Status::Exhausted),
            (Errno::NOMEM, ErrorKind::Busy, Status::Temporary),
            (Errno::NOSPC, ErrorKind::NoSpace, Status::Permanent),
        ] {
            let error = Error::new(kind, End::Sink, "write the file");
            assert_eq!(not_repeated(error, errno).status, status, "{errno}");
        }
    }
}
