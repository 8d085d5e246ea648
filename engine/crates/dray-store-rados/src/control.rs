//! Object logs and leases in the state namespace.

use crate::errors::{Answer, Errno};
use crate::files::{Files, absent, folder_of};
use crate::lock::Lock;
use crate::names::State;
use crate::note::Generation;
use crate::pool::{Got, Job, Query, Step};
use dray_core::lock::LockExt;
use dray_core::{Error, ErrorKind, RelPath, Result};
use dray_store::{ControlFile, ControlMode};
use std::ffi::CString;
use std::sync::{Arc, Mutex};

const WRITE: &str = "write the control file";

/// A control file. An answered write is durable.
pub(crate) struct RadosControl {
    files: Arc<Files>,
    path: RelPath,
    object: CString,
    cookie: CString,
    lock: Mutex<Option<Lock>>,
    end: Mutex<Option<FileEnd>>,
    /// Lengths before and after an append whose result is unknown.
    doubtful: Mutex<Option<(u64, u64)>>,
    /// True if this handle may write, so that it can rely on the end that it knows.
    is_writer: bool,
}

/// The end of a control file after the last write of this handle.
#[derive(Clone, Copy)]
struct FileEnd {
    /// Length in bytes. An append writes at this offset, so a repeated append does not write twice.
    length: u64,
    /// Version of the object. An append fails if another client has changed the object since.
    version: u64,
}

impl RadosControl {
    pub(crate) fn open(files: &Arc<Files>, path: &RelPath, mode: ControlMode) -> Result<Self> {
        const OPERATION: &str = "open the control file";
        let object = State::Control.object(&files.full(path)?);
        files.check_above(path)?;
        let found = match mode {
            ControlMode::Existing | ControlMode::ReadOnly => {
                files.state.one(Job::look(object.clone()))
            }
            ControlMode::Create | ControlMode::CreateNew => {
                files.make_control_folder(&folder_of(path))?;
                let step = match mode {
                    ControlMode::Create => Step::Touch,
                    _ => Step::CreateNew,
                };
                files.state.one(Job::write(object.clone(), vec![step]))
            }
        };
        found.map_err(|errno| {
            let error = errno.at(files.end, OPERATION, path);
            match errno {
                Errno::NOT_FOUND => error.cause("the file does not exist"),
                _ => error,
            }
        })?;
        if matches!(mode, ControlMode::Create | ControlMode::CreateNew) {
            files.add_control_name(path)?;
        }
        Ok(Self {
            files: Arc::clone(files),
            path: path.clone(),
            object,
            cookie: CString::new(Generation::random().text()).unwrap_or_default(),
            lock: Mutex::default(),
            end: Mutex::default(),
            doubtful: Mutex::default(),
            is_writer: mode != ControlMode::ReadOnly,
        })
    }

    fn about<T>(&self, answer: Answer<T>, operation: &str) -> Result<T> {
        self.files.about(answer, operation, &self.path)
    }

    fn look(&self) -> Result<Got> {
        let found = self.files.state.one(Job::look(self.object.clone()));
        self.about(found, "read the control file")
    }

    fn write(&self, steps: Vec<Step<'_>>) -> Result<()> {
        *self.end.lock_unpoisoned() = None;
        let steps = [&[Step::Exists], steps.as_slice()].concat();
        let written = self.files.state.one(Job::write(self.object.clone(), steps));
        self.about(written, WRITE).map(drop)
    }

    /// Returns the end of the file. Reads it from the pool if this handle does not know it.
    fn end(&self) -> Result<FileEnd> {
        let known = *self.end.lock_unpoisoned();
        if let Some(end) = known {
            return Ok(end);
        }
        let got = self.look()?;
        let end = FileEnd {
            length: got.size,
            version: got.version,
        };
        if self.is_writer {
            *self.end.lock_unpoisoned() = Some(end);
        }
        Ok(end)
    }

    /// Changes the file if it still has the version `version`, and records its new end.
    fn change(&self, version: u64, step: Step<'_>, length: u64) -> Result<()> {
        *self.end.lock_unpoisoned() = None;
        let steps = vec![Step::AtVersion(version), step];
        let written = self.files.state.one(Job::write(self.object.clone(), steps));
        if let Err(Errno::OUT_OF_RANGE | Errno::OVERFLOW) = written {
            return Err(self.foreign());
        }
        let got = self.about(written, WRITE)?;
        *self.end.lock_unpoisoned() = Some(FileEnd {
            length,
            version: got.version,
        });
        *self.doubtful.lock_unpoisoned() = None;
        Ok(())
    }

    fn foreign(&self) -> Error {
        self.files
            .error(ErrorKind::LeaseLost, WRITE, &self.path)
            .cause("another process has written to the file")
            .remedy(
                "find and stop the other process that writes to this destination, then run the \
                 same command again",
            )
    }
}

impl ControlFile for RadosControl {
    /// Returns the length of the file. After an append through this handle, the length is known
    /// without a request. If another client has changed the file since, the next append fails.
    fn len(&self) -> Result<u64> {
        Ok(self.end()?.length)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let query = Query {
            data: Some((offset, buffer)),
            ..Query::default()
        };
        let read = self.files.state.one(Job::read(self.object.clone(), query));
        Ok(self.about(read, "read the control file")?.read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(vec![Step::Write(offset, bytes)])
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let FileEnd { length, version } = self.end()?;
        let after = length + bytes.len() as u64;
        *self.doubtful.lock_unpoisoned() = Some((length, after));
        self.change(version, Step::Write(length, bytes), after)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    /// Truncates the file. Fails if another client has written to the file after an append of this
    /// handle whose result is unknown.
    fn truncate(&self, size_bytes: u64) -> Result<()> {
        let got = self.look()?;
        let doubtful = *self.doubtful.lock_unpoisoned();
        let is_own = |(before, after)| got.size == before || got.size == after;
        if !doubtful.is_none_or(is_own) {
            return Err(self.foreign());
        }
        self.change(got.version, Step::Truncate(size_bytes), size_bytes)
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        let end = self.end()?;
        self.change(end.version, Step::WriteFull(bytes), bytes.len() as u64)
    }

    fn try_lock(&self) -> Result<bool> {
        const OPERATION: &str = "lock the control file";
        let mut lock = self.lock.lock_unpoisoned();
        if let Some(held) = &*lock
            && self.about(held.is_held(), OPERATION)?
        {
            return Ok(true);
        }
        *lock = None;
        // The former holder may have deleted the file.
        if self
            .about(
                absent(self.files.state.one(Job::look(self.object.clone()))),
                OPERATION,
            )?
            .is_none()
        {
            return Ok(false);
        }
        let taken = Lock::take(&self.files.state, &self.object, &self.cookie);
        *lock = self.about(taken, OPERATION)?;
        Ok(lock.is_some())
    }

    fn unlock(&self) -> Result<()> {
        *self.lock.lock_unpoisoned() = None;
        Ok(())
    }
}

impl Files {
    /// Creates a folder for control files, and its missing parents.
    pub(crate) fn make_control_folder(self: &Arc<Self>, folder: &RelPath) -> Result<()> {
        if folder.is_root() || self.is_folder(folder)? {
            return Ok(());
        }
        self.make_control_folder(&folder_of(folder))?;
        match self.make_dir(folder) {
            Err(error) if error.kind != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }
}
