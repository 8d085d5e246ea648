//! Control files: the object log and the lease, stored near the data.

use super::folders::Folders;
use super::read::{read_at, write_all_at};
use super::resolve::split;
use super::write::{create_over, unlink};
use super::{ErrorContext, PosixStore, calls, size_of};
use crate::CONTROL_NAMES_MAX;
use crate::store::ControlFile;
use crate::types::ControlMode;
use dray_core::lock::RwLockExt;
use dray_core::{Error, ErrorKind, Name, RelPath, Result};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

const PRIVATE_FILE: Mode = Mode::from_raw_mode(0o600);
const PRIVATE_FOLDER: Mode = Mode::from_raw_mode(0o700);

/// Maximum number of attempts to create the folder for a control file. An attempt fails if another
/// transfer removes the empty folder at the same time. The value is estimated, not measured.
const FOLDER_TRIES: u32 = 100;

/// Suffix of the name under which the new content of a control file is written.
const NEXT_SUFFIX: &[u8] = b".next";

impl PosixStore {
    pub(super) fn control(&self, path: &RelPath, mode: ControlMode) -> Result<PosixControl> {
        let place = self.place(path);
        let base = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = base
            | match mode {
                ControlMode::ReadOnly => OFlags::RDONLY,
                ControlMode::Existing => OFlags::RDWR,
                ControlMode::Create => OFlags::RDWR | OFlags::CREATE,
                ControlMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        let is_made = matches!(mode, ControlMode::Create | ControlMode::CreateNew);
        let open = || {
            self.folders.beside(path.as_bytes(), |folder, name| {
                rustix::fs::openat(folder.fd(), name, flags, PRIVATE_FILE)
            })
        };
        let mut opened = open();
        // Retry, because a transfer that ends removes the empty folder, perhaps immediately after
        // this call created it.
        for _ in 0..FOLDER_TRIES {
            if !is_made || !matches!(opened, Err(Errno::NOENT)) {
                break;
            }
            opened = self
                .make_control_folder(split(path.as_bytes()).0)
                .and_then(|()| open());
        }
        let file = opened.map_err(|errno| place.error("open the control file", errno))?;
        Ok(PosixControl {
            file: RwLock::new(Arc::new(file)),
            is_name_durable: AtomicBool::new(!is_made),
            folders: Arc::clone(&self.folders),
            place,
        })
    }

    fn make_control_folder(&self, path: &[u8]) -> rustix::io::Result<()> {
        self.folders.beside(path, |folder, name| {
            match rustix::fs::mkdirat(folder.fd(), name, PRIVATE_FOLDER) {
                Err(Errno::EXIST) => Ok(()),
                other => {
                    other?;
                    sync_folder(folder)
                }
            }
        })
    }

    pub(super) fn remove_control_file(&self, path: &RelPath) -> Result<()> {
        let own = path.name();
        let next = own.and_then(|own| Name::new(&[own.as_bytes(), NEXT_SUFFIX].concat()).ok());
        let removed = self.folders.beside(path.as_bytes(), |folder, name| {
            // Remove the file of a process that ended while it replaced the content.
            if let Some(next) = &next {
                unlink(folder, next)?;
            }
            rustix::fs::unlinkat(folder.fd(), name, AtFlags::empty())?;
            sync_folder(folder)
        });
        match removed {
            Err(Errno::NOENT) => Ok(()),
            other => {
                other.map_err(|errno| self.place(path).error("remove the control file", errno))
            }
        }
    }

    pub(super) fn control_names(&self, path: &RelPath) -> Result<Vec<Name>> {
        let place = self.place(path);
        let operation = "list the control folder";
        // Open a new descriptor for listing. The cached descriptor has one read position that all
        // threads share.
        let flags = super::resolve::FOLDER;
        let fd = match self.root.open(path.as_bytes(), flags) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => other.map_err(|errno| place.error(operation, errno))?,
        };
        let mut names = Vec::new();
        let mut buffer = Vec::with_capacity(16 * 1024);
        let mut entries = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| place.error(operation, errno))?;
            // "." and ".." are not valid as a `Name` and are skipped here.
            let Ok(name) = Name::new(entry.file_name().to_bytes()) else {
                continue;
            };
            if names.len() == CONTROL_NAMES_MAX {
                return Err(Error::new(ErrorKind::LimitExceeded, place.end, operation)
                    .file(path)
                    .cause(format!(
                        "the folder has more than {CONTROL_NAMES_MAX} names"
                    ))
                    .remedy("remove the files in this folder that do not belong to dray"));
            }
            names.push(name);
        }
        Ok(names)
    }
}

#[derive(Debug)]
pub(super) struct PosixControl {
    /// The open file. Replacing the content exchanges the descriptor.
    file: RwLock<Arc<OwnedFd>>,
    is_name_durable: AtomicBool,
    folders: Arc<Folders>,
    place: ErrorContext,
}

impl PosixControl {
    fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.file.read_unpoisoned())
    }

    fn named(&self, operation: &str) -> impl Fn(Errno) -> Error {
        move |errno| self.place.error(operation, errno)
    }

    fn lock(&self, kind: libc::c_int) -> rustix::io::Result<()> {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        let file = self.file();
        #[expect(
            unsafe_code,
            reason = "rustix has no locks that belong to the open file"
        )]
        // SAFETY: the descriptor stays open as long as `file` lives. F_OFD_SETLK only reads the
        // structure, and the structure outlives the call.
        let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
        if status == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl ControlFile for PosixControl {
    fn len(&self) -> Result<u64> {
        rustix::fs::fstat(self.file())
            .map(|stat| size_of(&stat))
            .map_err(self.named("read the attributes of the control file"))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        read_at(&self.file(), offset, buffer).map_err(self.named("read the control file"))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(self.file().as_fd(), offset, bytes)
            .map_err(self.named("write the control file"))
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.write_at(self.len()?, bytes)
    }

    fn sync(&self) -> Result<()> {
        let name = self.named("sync the control file");
        calls::fdatasync(self.file()).map_err(&name)?;
        if !self.is_name_durable.load(Ordering::Acquire) {
            let path = self.place.path.as_bytes();
            self.folders
                .beside(path, |folder, _| sync_folder(folder))
                .map_err(&name)?;
            self.is_name_durable.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        rustix::fs::ftruncate(self.file(), size_bytes)
            .map_err(self.named("shorten the control file"))
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        let operation = "replace the control file";
        let own = self.place.path.name();
        let next = own.and_then(|own| Name::new(&[own.as_bytes(), NEXT_SUFFIX].concat()).ok());
        let next = next.ok_or_else(|| self.place.error(operation, Errno::NAMETOOLONG))?;
        let (file, synced) = self
            .folders
            .beside(self.place.path.as_bytes(), |folder, name| {
                let file = create_over(folder, &next, PRIVATE_FILE.as_raw_mode())?;
                let written = write_all_at(file.as_fd(), 0, bytes)
                    .and_then(|()| calls::fdatasync(&file))
                    .and_then(|()| {
                        rustix::fs::renameat(folder.fd(), next.as_bytes(), folder.fd(), name)
                    });
                if let Err(errno) = written {
                    let _ = unlink(folder, &next);
                    return Err(errno);
                }
                Ok((file, sync_folder(folder)))
            })
            .map_err(self.named(operation))?;
        // The name already refers to the new file, even if the rename is not durable yet.
        *self.file.write_unpoisoned() = Arc::new(file);
        self.is_name_durable
            .store(synced.is_ok(), Ordering::Release);
        synced.map_err(|errno| match errno {
            // Report `Io` instead of `NoSpace`, because after `NoSpace` callers assume that the
            // file has its old content.
            Errno::NOSPC | Errno::DQUOT => self.named(operation)(Errno::IO),
            errno => self.named(operation)(errno),
        })
    }

    fn try_lock(&self) -> Result<bool> {
        match self.lock(libc::F_WRLCK) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
            // The file system does not support locks.
            Err(Errno::INVAL | Errno::NOLCK) => {
                Err(self.place.error("lock the control file", Errno::OPNOTSUPP))
            }
            Err(errno) => Err(self.place.error("lock the control file", errno)),
        }
    }

    fn unlock(&self) -> Result<()> {
        self.lock(libc::F_UNLCK)
            .map_err(self.named("unlock the control file"))
    }
}

fn sync_folder(folder: &super::folders::Folder) -> rustix::io::Result<()> {
    calls::fsync(folder.fd())
}
