//! Makes names durable at a server that cannot be asked to: no request of the protocol is about a folder.
//!
//! A file beside the names is made longer and made durable. File systems that journal in order (ext4, XFS,
//! ZFS) have then made durable every change of names before. It has to become longer: a write that
//! changes nothing of the file itself need not reach the journal. And something has to be written: a
//! server passes over a sync of a handle that nothing was written by. One file system knows nothing of the
//! names of another, so there is such a file for each that was met.

use crate::client::{Mode, RemoteFile, client};
use crate::server::{OWN_MODE, Server, lock, random};
use dray_core::{Name, RelPath, Result};
use std::collections::HashSet;

/// The file; it has no name any more.
pub(crate) struct Barrier {
    file: RemoteFile,
    length: u64,
}

impl Barrier {
    fn new(server: &Server, folder: &RelPath) -> Result<Self> {
        let number = random();
        // As a partial file's: whoever clears away what was left behind knows it.
        let name = Name::new(format!(".dray-{number:016x}.part").as_bytes())?;
        let path = folder.join(&name)?;
        let file = server.open_file(&path, 0, Mode::New(OWN_MODE))?;
        // So it goes with the handle, whatever becomes of this process.
        let removed = server
            .asked(&path)
            .and_then(|asked| client()?.remove(&server.login(), &asked, false));
        Server::about(&path, removed)?;
        Ok(Self { file, length: 0 })
    }
}

impl Server {
    /// Makes durable the names that were given, taken and removed before in these folders, and in others of
    /// their file systems.
    ///
    /// # Errors
    /// Of the server; then none of them may be taken to be durable.
    pub(crate) fn settle_names<'a>(
        &self,
        folders: impl IntoIterator<Item = &'a RelPath>,
    ) -> Result<()> {
        let mut settled = HashSet::new();
        for folder in folders {
            // Asked each time: a folder may have become another since. One that is gone has no names.
            let Some(found) = self.look(folder)? else {
                continue;
            };
            let device = Self::device(&found);
            if settled.insert(device) {
                self.settle_device(device, folder)?;
            }
        }
        Ok(())
    }

    fn settle_device(&self, device: u32, folder: &RelPath) -> Result<()> {
        let mut barriers = lock(&self.barriers);
        // One that fails is not used again.
        let mut made = match barriers.remove(&device) {
            Some(made) => made,
            None => Barrier::new(self, folder)?,
        };
        let mark = made.length.to_le_bytes();
        let settled = made
            .file
            .write(made.length, &mark, false)
            .and_then(|()| made.file.sync());
        Self::about(folder, settled)?;
        made.length += mark.len() as u64;
        barriers.insert(device, made);
        Ok(())
    }
}
