//! Makes names durable at an XRootD server. The protocol has no request that syncs a folder.
//!
//! The sink therefore keeps a barrier file on the same file system as the names. To make names
//! durable, the sink extends the barrier file and syncs it. File systems that journal in order
//! (ext4, XFS, ZFS) then make all earlier changes of names durable too. The barrier file must grow,
//! because a write that changes no metadata need not reach the journal. A write is also needed
//! because a server ignores a sync of a handle without writes. A sync does not cover the names of
//! another file system, so the sink keeps one barrier file for each file system.

use crate::client::{Mode, RemoteFile, client};
use crate::server::{OWN_MODE, Server, random};
use dray_core::lock::LockExt;
use dray_core::{Name, RelPath, Result};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// A barrier file. Its name is already deleted.
struct Barrier {
    file: RemoteFile,
    length: u64,
}

impl Barrier {
    fn new(server: &Server, folder: &RelPath) -> Result<Self> {
        let number = random();
        // Use the form of a partial file's name, so that the sweep of leftovers recognises the
        // file.
        let name = Name::new(format!(".dray-{number:016x}.part").as_bytes())?;
        let path = folder.join(&name)?;
        let file = server.open_file(&path, 0, Mode::New(OWN_MODE))?;
        // Delete the name now. The file then disappears when the handle is closed, even if this
        // process ends unexpectedly.
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

    /// Makes all earlier changes of names in these folders durable: created, renamed and deleted
    /// entries. Other folders on the same file systems are covered too. Returns the folders that do
    /// not exist.
    ///
    /// # Errors
    /// Errors of the server. Then none of the names counts as durable.
    pub(crate) fn settle_names<'a>(
        &self,
        folders: impl IntoIterator<Item = &'a RelPath>,
    ) -> Result<Vec<&'a RelPath>> {
        let mut settled = HashSet::new();
        let mut missing = Vec::new();
        for folder in folders {
            // Ask for the file system each time, because the folder may have been replaced.
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
        // Take the barrier out of the map. It returns to the map only after a successful sync, so a
        // barrier that has failed is not used again.
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
