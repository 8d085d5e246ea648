//! Functions for a store that combines several folders ([`crate::disks`]).

use super::folders::Folders;
use super::resolve::{FOLDER, Root};
use super::{ErrorContext, LinkScope, PosixStore, changed_of, device_of, place_of, state_of};
use crate::types::FileState;
use dray_core::{Error, ErrorKind, ModifiedTime, RelPath, Result};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use std::sync::Arc;

/// Number of attempts to lock a folder. An attempt fails if another program replaces the folder at
/// the same time. The value is estimated, not measured.
const LOCK_TRIES: u32 = 100;

impl PosixStore {
    /// Opens the folder at `path` as a separate store with the same options. The new store follows
    /// no links.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PathEscapes`, `PermissionDenied`.
    pub(crate) fn open_below(&self, path: &RelPath) -> Result<Self> {
        let fd = self.root.open(path.as_bytes(), FOLDER);
        let fd = fd.map_err(|errno| self.place(path).error("open the folder", errno))?;
        let opened_at = place_of(fd.as_fd());
        let root = Arc::new(Root::new(fd, LinkScope::Never, self.root.uses_openat2()));
        let layouts = Arc::clone(&self.layouts);
        Ok(Self {
            folders: Arc::new(Folders::new(Arc::clone(&root), Arc::clone(&layouts))),
            root,
            targets: Arc::clone(&self.targets),
            layouts,
            opened_at,
            stripes: self.stripes,
            ..*self
        })
    }

    /// Returns the device number and the inode number of the root.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn root_identity(&self) -> Result<(u64, u64)> {
        let stat = rustix::fs::fstat(self.root.fd());
        let stat = stat.map_err(|errno| {
            let root = RelPath::root();
            self.place(&root)
                .error("read the attributes of the folder", errno)
        })?;
        Ok((device_of(&stat), stat.st_ino))
    }

    /// Returns the state of the entry at `path` and the time of the last change of its inode
    /// (ctime). A rename changes this time, and no program can set it back. Does not follow links.
    ///
    /// # Errors
    /// The errors of [`crate::Store::stat`].
    pub(crate) fn look(&self, path: &RelPath) -> Result<Option<(FileState, ModifiedTime)>> {
        let stat = self.stat_of(path);
        let stat = stat.map_err(self.failed("read the attributes of the file", path))?;
        Ok(stat.map(|stat| (state_of(&stat), changed_of(&stat))))
    }

    /// Takes the exclusive lock of byte `offset` of the file at `path`. Waits while another thread
    /// or process holds the lock. The lock is released when the returned descriptor is closed.
    /// Returns `None` if the file is missing or must not be written by this user.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn lock_byte(&self, path: &RelPath, offset: i64) -> Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match self.root.open(path.as_bytes(), flags) {
            Err(Errno::NOENT | Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(None),
            opened => opened.map_err(self.failed("lock the file", path))?,
        };
        let lock = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: offset,
            l_len: 1,
            l_pid: 0,
        };
        let locked = rustix::io::retry_on_intr(|| {
            #[expect(
                unsafe_code,
                reason = "rustix has no locks that belong to the open file"
            )]
            // SAFETY: the descriptor stays open as long as `fd` lives. F_OFD_SETLKW only reads the
            // structure, and the structure outlives the call.
            let status =
                unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
            match status {
                0 => Ok(()),
                _ => {
                    let error = std::io::Error::last_os_error();
                    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
                }
            }
        });
        match locked {
            Ok(()) => Ok(Some(fd)),
            Err(Errno::INVAL | Errno::NOLCK) => Ok(None),
            Err(errno) => Err(self.failed("lock the file", path)(errno)),
        }
    }

    /// Takes the exclusive lock of the folder at `path`. Waits while another thread or process
    /// holds the lock. The lock is released when the returned descriptor is closed. If the file
    /// system has no such locks, the lock has no effect.
    ///
    /// # Errors
    /// `NotFound` if the folder does not exist.
    pub(crate) fn lock_folder(&self, path: &RelPath) -> Result<OwnedFd> {
        let operation = "lock the folder";
        for _ in 0..LOCK_TRIES {
            // Open a new descriptor, because threads that share a descriptor share its lock.
            let opened = self.root.open_folder(path.as_bytes());
            let fd = opened.map_err(self.failed(operation, path))?.0;
            let locked =
                rustix::io::retry_on_intr(|| rustix::fs::flock(&fd, FlockOperation::LockExclusive));
            match locked {
                // A descriptor that is open only for look-ups cannot be locked.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK | Errno::BADF) => {}
                Err(errno) => return Err(self.failed(operation, path)(errno)),
            }
            let links = rustix::fs::fstat(&fd).map(|stat| super::wide(stat.st_nlink));
            if links.map_err(self.failed(operation, path))? > 0 {
                return Ok(fd);
            }
        }
        let place: ErrorContext = self.place(path);
        Err(Error::new(ErrorKind::Busy, place.end, operation)
            .file(path)
            .cause("another program keeps removing and creating the folder")
            .remedy("stop the other program, and try again"))
    }
}
