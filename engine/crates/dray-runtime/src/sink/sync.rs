//! Makes a sync group durable: maps the machine's items to the files and folders to sync.

use crate::sink::files::{Space, folder_of};
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use dray_core::{Error, ErrorKind, RelPath, Result};
use dray_link::open_file::OpenFile;
use dray_store::SyncItem;
use std::sync::Arc;

/// An item to sync. Small and published files are named by path, because their handles may already
/// be closed.
pub(super) enum SyncPath {
    Partial(Arc<OpenFile>),
    Small(RelPath),
    Published(RelPath),
    Adopted(RelPath),
}

impl SyncPath {
    fn path(&self) -> &RelPath {
        match self {
            Self::Partial(open) => &open.path,
            Self::Small(path) | Self::Published(path) | Self::Adopted(path) => path,
        }
    }
}

impl Space {
    /// Makes a group durable. Returns the paths that could not be synced, each with its error.
    ///
    /// # Errors
    /// If the sync as a whole fails. In that case no item of the group counts as durable.
    pub(super) fn sync(&self, items: &[SyncPath]) -> Result<Vec<(RelPath, Error)>> {
        let mut names = Vec::with_capacity(items.len());
        let mut files = Vec::new();
        let mut published = HashSet::default();
        let mut folders = std::mem::take(&mut *self.touched.lock_unpoisoned());
        for item in items {
            match item {
                SyncPath::Partial(open) => names.push((&open.path, open.name.clone())),
                // A small file without a partial name was discarded, because it failed. Nothing
                // remains to sync.
                SyncPath::Small(path) => {
                    names.extend(self.small_name(path).map(|name| (path, name)));
                }
                SyncPath::Published(path) => {
                    // Sync the file before its folder. The sync of the file also writes the journal
                    // of the file system, so the sync of the folder costs little.
                    if self.unsynced.lock_unpoisoned().remove(path) {
                        files.push(path);
                        published.insert(path);
                    }
                    folders.insert(folder_of(path));
                }
                SyncPath::Adopted(path) => {
                    files.push(path);
                    folders.insert(folder_of(path));
                }
            }
        }
        let partials = names
            .iter()
            .map(|(path, name)| SyncItem::Partial { path, name });
        let files = files.into_iter().map(SyncItem::File);
        let folders = folders.iter().map(SyncItem::Folder);
        let all: Vec<SyncItem<'_>> = partials.chain(files).chain(folders).collect();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let mut failed = Vec::new();
        let mut without = Vec::new();
        let answers = self.store.sync_each(&all).inspect_err(|_| {
            // The system reports a lost write only once, and the error does not name the file. So
            // every file of the group is doubtful.
            for item in items {
                if let SyncPath::Partial(open) = item {
                    self.note_doubtful(open.number);
                }
            }
        })?;
        for (item, answer) in all.iter().zip(answers) {
            match (item, answer) {
                (_, Ok(())) => {}
                // The file was already durable under its final name. Another program has removed it
                // since, which is no error of this transfer.
                (SyncItem::File(path), Err(error))
                    if error.kind == ErrorKind::NotFound && published.contains(path) => {}
                (SyncItem::Folder(folder), Err(error)) => {
                    // Later entries in the folder need a successful sync of the folder too, unless
                    // it no longer exists.
                    if error.kind != ErrorKind::NotFound {
                        self.touched.lock_unpoisoned().insert((*folder).clone());
                    }
                    without.push((*folder, error));
                }
                (SyncItem::File(path) | SyncItem::Partial { path, .. }, Err(error)) => {
                    failed.push(((*path).clone(), error));
                }
            }
        }
        // A name is durable only if all folders above it are durable.
        for item in items {
            let path = item.path();
            let is_lost = |(folder, _): &&(&RelPath, Error)| path.starts_with(folder);
            match (without.iter().find(is_lost), item) {
                (Some((_, error)), _) => failed.push((path.clone(), error.clone().file(path))),
                (None, SyncPath::Published(_)) => {
                    self.undurable.lock_unpoisoned().remove(path);
                }
                (None, _) => {}
            }
        }
        Ok(failed)
    }
}
