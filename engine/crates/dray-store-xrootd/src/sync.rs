//! Makes a group of files and folders durable.

use crate::barrier::Barriers;
use crate::client::{Mode, RemoteState};
use crate::partial::{self, Open, Partials};
use crate::server::{Server, folder_of, is_lost};
use crate::small::beside;
use dray_core::lock::LockExt;
use dray_core::{ErrorKind, RelPath, Result};
use dray_store::SyncItem;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// Cause of the error for an item that another program has deleted.
const REMOVED: &str = "the file no longer exists";

/// Maximum number of concurrent queries. The limit leaves threads of the server to other clients.
const QUERIES_MAX: usize = 64;

/// The parts of a sink that a sync needs.
pub(crate) struct SyncGroup<'a> {
    pub(crate) server: &'a Arc<Server>,
    pub(crate) partials: &'a Arc<Partials>,
    pub(crate) barriers: &'a Barriers,
}

impl SyncGroup<'_> {
    /// Implements [`dray_store::Store::sync_each`].
    pub(crate) fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut answers = Vec::with_capacity(items.len());
        let mut written: Vec<Arc<Open>> = Vec::new();
        let mut changed = BTreeSet::new();
        for item in items {
            answers.push(match item {
                SyncItem::Partial { path, name } => {
                    self.add_unsynced(path, &beside(path, name)?, &mut written)?
                }
                // The content was made durable before the file was published, so only the name must
                // be made durable here.
                SyncItem::File(path) => {
                    changed.insert(folder_of(path));
                    Ok(())
                }
                SyncItem::Folder(folder) => {
                    changed.insert((*folder).clone());
                    Ok(())
                }
            });
        }
        partial::sync_all(&written)?;
        // Ask for the files before the barrier is synced, so that the barrier covers the names
        // found.
        let mut found = self.look_at_files(items)?.into_iter();
        let missing = self.barriers.settle_names(&changed)?;
        let absent = |path| Server::error(ErrorKind::NotFound, "sync", path).cause(REMOVED);
        for (item, answer) in items.iter().zip(&mut answers) {
            match item {
                SyncItem::File(path) => match found.next() {
                    Some(Ok(_)) => {}
                    Some(Err(error)) if error.kind == ErrorKind::NotFound => {
                        *answer = Err(absent(path));
                    }
                    Some(Err(error)) => return Server::about(path, Err(error)),
                    None => *answer = Err(Server::unanswered()),
                },
                SyncItem::Folder(folder) if missing.contains(folder) => {
                    *answer = Err(absent(folder));
                }
                SyncItem::Folder(_) | SyncItem::Partial { .. } => {}
            }
        }
        Ok(answers)
    }

    /// Adds the partial file at `at` to `written`, unless its data is already durable. If the inner
    /// result is an error, it concerns only this file.
    ///
    /// # Errors
    /// An error if the connection was lost. Then no file of the group counts as durable.
    fn add_unsynced(
        &self,
        path: &RelPath,
        at: &RelPath,
        written: &mut Vec<Arc<Open>>,
    ) -> Result<Result<()>> {
        let (open, is_clean) = {
            let dirty = self.partials.dirty.lock_unpoisoned();
            let is_clean = self.partials.clean.lock_unpoisoned().contains(at);
            (dirty.get(at).cloned(), is_clean)
        };
        let open = match open {
            None if !is_clean => self.adopted(path, at).map(Some),
            open => Ok(open),
        };
        match open {
            Err(error) if is_lost(&error) => Err(error),
            Err(error) => Ok(Err(error)),
            Ok(open) => {
                // Sync a partial file only once, even if several items name it.
                let is_new =
                    |open: &Arc<Open>| !written.iter().any(|other| Arc::ptr_eq(other, open));
                written.extend(open.filter(is_new));
                Ok(Ok(()))
            }
        }
    }

    /// Opens a partial file that another process has written, so that it can be made durable.
    fn adopted(&self, path: &RelPath, partial: &RelPath) -> Result<Arc<Open>> {
        let known = self
            .partials
            .begun
            .lock_unpoisoned()
            .get(partial)
            .and_then(Weak::upgrade);
        let open = match known {
            Some(open) => open,
            None => {
                let file = self
                    .server
                    .open_file(partial, 0, Mode::UpdateShared)
                    .map_err(|error| error.file(path))?;
                let found = Server::about(path, file.state(false))?;
                let which = (Server::id(&found), found.size);
                Open::new((self.server, self.partials), (path, partial), which, file)
            }
        };
        open.soil();
        Ok(open)
    }

    /// Asks for the states of the published files in `items`. Returns one result for each file, in
    /// the same order.
    fn look_at_files(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<RemoteState>>> {
        let files = items.iter().filter_map(|item| match item {
            SyncItem::File(path) => Some(self.server.asked(path)),
            SyncItem::Folder(_) | SyncItem::Partial { .. } => None,
        });
        let files: Vec<Vec<u8>> = files.collect::<Result<_>>()?;
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let (login, client) = (self.server.login(), Server::client()?);
        let mut states = Vec::with_capacity(files.len());
        for some in files.chunks(QUERIES_MAX) {
            let asked = some.iter().map(|path| (login.as_str(), path.clone()));
            states.extend(client.look_each(asked, 0)?);
        }
        Ok(states)
    }
}
