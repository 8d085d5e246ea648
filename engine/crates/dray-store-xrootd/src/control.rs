//! Object log and lease on an XRootD server.
//!
//! The lock on a control file uses a rule of the server: a file has either one writer or any number
//! of readers. A client that opens a file for writing, exclusively, has the lock until its handle
//! is closed. The handle is closed when the connection ends, and therefore also when the process
//! ends. Readers of control files do not need the lock. A handle is kept open only while it is
//! used, because an open handle prevents other clients from getting the lock.

use crate::barrier::Barriers;
use crate::client::{Alone, Mode, RemoteFile};
use crate::server::{OWN_MODE, Server, folder_of};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_store::{ControlFile, ControlMode, Publish};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum duration of the attempts to take a lock while other clients read the file. Such a read
/// is short: one request and its answer.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two attempts to take a lock.
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// State of the handle of a control file.
enum Handle {
    None,
    Reading(Arc<RemoteFile>),
    Writing(Arc<RemoteFile>),
    /// The handle is open for writing, exclusively.
    Locked(Arc<RemoteFile>),
}

/// A control file on a server.
pub(crate) struct RemoteControl {
    server: Arc<Server>,
    barriers: Arc<Barriers>,
    path: RelPath,
    handle: Mutex<Handle>,
}

impl RemoteControl {
    /// Opens a control file, and creates it if the mode permits.
    pub(crate) fn open(
        (server, barriers): (&Arc<Server>, &Arc<Barriers>),
        path: &RelPath,
        mode: ControlMode,
    ) -> Result<Self> {
        let make = || server.open_file(path, 0, Mode::New(OWN_MODE));
        match mode {
            ControlMode::CreateNew => drop(make()?),
            ControlMode::Existing | ControlMode::ReadOnly => {
                if server.look(path)?.is_none() {
                    let error = Server::error(ErrorKind::NotFound, "open the control file", path);
                    return Err(error.cause("the file does not exist"));
                }
            }
            ControlMode::Create => {
                if server.look(path)?.is_none() {
                    match make() {
                        // Another client has just created the file, so open it.
                        Err(error) if error.kind != ErrorKind::AlreadyExists => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(Self {
            server: Arc::clone(server),
            barriers: Arc::clone(barriers),
            path: path.clone(),
            handle: Mutex::new(Handle::None),
        })
    }

    fn about<T>(&self, result: Result<T>) -> Result<T> {
        Server::about(&self.path, result)
    }

    fn reader(&self) -> Result<Arc<RemoteFile>> {
        let mut handle = self.handle.lock_unpoisoned();
        if let Handle::Reading(file) | Handle::Writing(file) | Handle::Locked(file) = &*handle {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.named(Mode::ReadShared)?);
        *handle = Handle::Reading(Arc::clone(&file));
        Ok(file)
    }

    fn writer(&self) -> Result<Arc<RemoteFile>> {
        let mut handle = self.handle.lock_unpoisoned();
        if let Handle::Writing(file) | Handle::Locked(file) = &*handle {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.named(Mode::UpdateShared)?);
        *handle = Handle::Writing(Arc::clone(&file));
        Ok(file)
    }

    /// Opens the file that has the name now. If another client keeps a replaced file open, the
    /// server may open the replaced file for this name. This function then tries again.
    fn named(&self, how: Mode) -> Result<RemoteFile> {
        let until = Instant::now() + LOOK_PATIENCE;
        loop {
            let file = self.server.open_file(&self.path, 0, how)?;
            if self.has_name(&file)? {
                return Ok(file);
            }
            drop(file);
            if Instant::now() >= until {
                let error = Server::error(ErrorKind::Busy, "open the control file", &self.path);
                return Err(error
                    .cause(
                        "the server still serves the replaced file, because a client has the \
                        replaced file open",
                    )
                    .remedy("run the same command again"));
            }
            sleep(LOOK_PAUSE);
        }
    }

    fn has_name(&self, file: &RemoteFile) -> Result<bool> {
        let opened = self.about(file.state(true))?;
        let Some(found) = self.server.look(&self.path)? else {
            let error = Server::error(ErrorKind::NotFound, "open the control file", &self.path);
            return Err(error.cause("the file no longer exists"));
        };
        Ok(Server::is_that(&found, Server::id(&opened)))
    }

    /// Opens the file for writing, exclusively. Returns `None` if another client has the lock, or
    /// if the file does not exist any more.
    fn take(&self) -> Result<Option<RemoteFile>> {
        let until = Instant::now() + LOOK_PATIENCE;
        loop {
            match self.server.open_alone(&self.path) {
                Ok(Alone::Opened(file)) => return Ok(Some(file)),
                // The former holder has deleted the file.
                Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
                // A writer has the lock. Readers would close the file soon.
                Ok(Alone::Locked(who)) if !who.contains("reader") => return Ok(None),
                Ok(Alone::Locked(_)) if Instant::now() >= until => return Ok(None),
                Ok(Alone::Locked(_)) => {}
            }
            sleep(LOOK_PAUSE);
        }
    }

    /// Checks that the server enforces locks. A server can be configured to let several clients
    /// write to one file (`nolock`).
    fn check_locks(&self) -> Result<()> {
        let mut has_locks = self.server.has_locks.lock_unpoisoned();
        if *has_locks {
            return Ok(());
        }
        match self.server.open_alone(&self.path)? {
            Alone::Locked(_) => {
                *has_locks = true;
                Ok(())
            }
            Alone::Opened(_) => Err(Server::error(
                ErrorKind::Unsupported,
                "lock the control file",
                &self.path,
            )
            .cause("the server allows two clients to write to one file at the same time")
            .remedy("remove `nolock` from the export of the path in the server's configuration")),
        }
    }
}

impl ControlFile for RemoteControl {
    fn len(&self) -> Result<u64> {
        let found = self.reader()?.state(true);
        self.about(found).map(|found| found.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.reader()?.read(offset, buffer, false);
        self.about(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.writer()?.write(offset, bytes, self.server.pages);
        self.about(written)
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        let file = self.writer()?;
        let end = self.about(file.state(true))?.size;
        self.about(file.write(end, bytes, self.server.pages))
    }

    fn sync(&self) -> Result<()> {
        // Sync the handle that has written, because a server ignores a sync of another handle.
        match &*self.handle.lock_unpoisoned() {
            Handle::Writing(file) | Handle::Locked(file) => self.about(file.sync()),
            Handle::None | Handle::Reading(_) => Ok(()),
        }
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        let cut = self.writer()?.truncate(size_bytes);
        self.about(cut)
    }

    fn replace(&self, bytes: &[u8]) -> Result<()> {
        let other = beside(&self.path)?;
        let asked = self.server.asked(&other)?;
        let client = Server::client()?;
        // Delete the replacement of an earlier run, which ended before the rename.
        self.about(client.remove(&self.server.login(), &asked, false))?;
        let file = self.server.open_file(&other, 0, Mode::New(OWN_MODE))?;
        let written = file
            .write(0, bytes, self.server.pages)
            .and_then(|()| file.sync());
        self.about(written)?;
        let which = Server::id(&self.about(file.state(true))?);
        drop(file);
        let mut handle = self.handle.lock_unpoisoned();
        // Close the handle. The next call opens the new file.
        *handle = Handle::None;
        self.server
            .give_name(&self.path, &other, which, Publish::Replace)?;
        drop(handle);
        self.barriers
            .settle_names([&folder_of(&self.path)])
            .map(|_| ())
    }

    fn try_lock(&self) -> Result<bool> {
        let mut handle = self.handle.lock_unpoisoned();
        if matches!(*handle, Handle::Locked(_)) {
            return Ok(true);
        }
        *handle = Handle::None;
        let Some(file) = self.take()? else {
            return Ok(false);
        };
        // Check the name, because a lock on a replaced or deleted file does not exclude other
        // writers.
        match self.has_name(&file) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        *handle = Handle::Locked(Arc::new(file));
        if let Err(error) = self.check_locks() {
            *handle = Handle::None;
            return Err(error);
        }
        Ok(true)
    }

    fn unlock(&self) -> Result<()> {
        let mut handle = self.handle.lock_unpoisoned();
        if matches!(*handle, Handle::Locked(_)) {
            *handle = Handle::None;
        }
        Ok(())
    }
}

/// Returns the path at which the replacement of a control file is written.
fn beside(path: &RelPath) -> Result<RelPath> {
    let name = path.name().ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidName,
            End::Sink,
            "replace the control file",
        )
        .file(path)
    })?;
    let name = Name::new(&[name.as_bytes(), b".next"].concat())?;
    folder_of(path).join(&name)
}
