//! Makes names durable at a server whose protocol has no such request: none of its requests syncs a
//! folder.
//!
//! The sink extends a barrier file beside the names and syncs it. File systems that journal in
//! order (ext4, XFS, ZFS) have then made durable every earlier change of names. The file must grow:
//! a write that changes no metadata of the file need not reach the journal. There must also be a
//! write: a server ignores a sync of a handle without writes. A file system does not sync the names
//! of another one, so the sink keeps one barrier file for each.

use crate::client::{Mode, RemoteFile, client};
use crate::server::{OWN_MODE, Server, random};
use dray_core::lock::LockExt;
use dray_core::{Name, RelPath, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// The barrier file; it is already unlinked.
struct Barrier {
    file: RemoteFile,
    length: u64,
}

impl Barrier {
    fn new(server: &Server, folder: &RelPath) -> Result<Self> {
        let number = random();
        // A partial file's name, so that the cleanup of leftovers recognises it.
        let name = Name::new(format!(".dray-{number:016x}.part").as_bytes())?;
        let path = folder.join(&name)?;
        let file = server.open_file(&path, 0, Mode::New(OWN_MODE))?;
        // Unlinked now, so that it disappears with the handle, also if this process dies.
        let removed = server
            .asked(&path)
            .and_then(|asked| client()?.remove(&server.login(), &asked, false));
        Server::about(&path, removed)?;
        Ok(Self { file, length: 0 })
    }
}

/// The barrier files of a server, by the number of their file system.
pub(crate) struct Barriers {
    server: Arc<Server>,
    by_device: Mutex<HashMap<u32, Barrier>>,
}

impl Barriers {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            by_device: Mutex::default(),
        }
    }

    /// Makes durable all names given, taken and removed before in these folders, and in others of
    /// their file systems. Returns the folders that do not exist.
    ///
    /// # Errors
    /// Errors of the server; then none of the names counts as durable.
    pub(crate) fn settle_names<'a>(
        &self,
        folders: impl IntoIterator<Item = &'a RelPath>,
    ) -> Result<Vec<&'a RelPath>> {
        let mut settled = HashSet::new();
        let mut missing = Vec::new();
        for folder in folders {
            // Query each time: a folder may have been replaced since.
            let Some(found) = self.server.look(folder)? else {
                missing.push(folder);
                continue;
            };
            let device = Server::device(&found);
            if settled.insert(device) {
                self.settle_device(device, folder)?;
            }
        }
        Ok(missing)
    }

    fn settle_device(&self, device: u32, folder: &RelPath) -> Result<()> {
        let mut barriers = self.by_device.lock_unpoisoned();
        // A failed barrier is not used again.
        let mut made = match barriers.remove(&device) {
            Some(made) => made,
            None => Barrier::new(&self.server, folder)?,
        };
        let mark = made.length.to_le_bytes();
        let settled = made
            .file
            .write(made.length, &mark, false)
            .and_then(|()| made.file.sync());
        Server::about(folder, settled)?;
        made.length += mark.len() as u64;
        barriers.insert(device, made);
        Ok(())
    }
}
