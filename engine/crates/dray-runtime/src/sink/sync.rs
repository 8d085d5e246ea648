//! Durability of a group: what is synced for each thing that the machine names.

use crate::lock::lock;
use crate::open_files::OpenFile;
use crate::sink::files::{Space, folder_of};
use dray_core::maps::{HashMap, HashSet};
use dray_core::{Error, ErrorKind, FileIndex, RelPath, Result};
use dray_session::sink::SyncItem as Wanted;
use dray_store::SyncItem;
use std::sync::Arc;

/// What a sync is told: names, because handles may be closed meanwhile.
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

pub(super) fn sync_path(
    item: Wanted,
    open: &HashMap<FileIndex, Arc<OpenFile>>,
) -> Option<SyncPath> {
    match item {
        Wanted::Partial(index) => open.get(&index).cloned().map(SyncPath::Partial),
        Wanted::Small(path) => Some(SyncPath::Small(path)),
        Wanted::Published(path) => Some(SyncPath::Published(path)),
        Wanted::Adopted(path) => Some(SyncPath::Adopted(path)),
    }
}

impl Space {
    /// Makes a group durable. Answers the paths for which that failed, each with its reason.
    ///
    /// # Errors
    /// When nothing of the group may be taken to be durable.
    pub(super) fn sync(&self, items: &[SyncPath]) -> Result<Vec<(RelPath, Error)>> {
        let mut names = Vec::with_capacity(items.len());
        let mut files = Vec::new();
        let mut published = HashSet::default();
        let mut folders = std::mem::take(&mut *lock(&self.touched));
        for item in items {
            match item {
                SyncPath::Partial(open) => names.push((&open.path, open.name.clone())),
                // One that was discarded meanwhile has failed.
                SyncPath::Small(path) => {
                    names.extend(self.small_name(path).map(|name| (path, name)));
                }
                SyncPath::Published(path) => {
                    // Before its folder: that sync then finds the journal written.
                    if lock(&self.unsynced).remove(path) {
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
            // The error does not tell which file it concerns, and the system reports it only once.
            for item in items {
                if let SyncPath::Partial(open) = item {
                    self.note_doubtful(open.number);
                }
            }
        })?;
        for (item, answer) in all.iter().zip(answers) {
            match (item, answer) {
                (_, Ok(())) => {}
                // It had its name; where somebody has taken it since is no concern of this run.
                (SyncItem::File(path), Err(error))
                    if error.kind == ErrorKind::NotFound && published.contains(path) => {}
                (SyncItem::Folder(folder), Err(error)) => {
                    // What comes to lie in it later needs it too, unless there is none any more.
                    if error.kind != ErrorKind::NotFound {
                        lock(&self.touched).insert((*folder).clone());
                    }
                    without.push((*folder, error));
                }
                (SyncItem::File(path) | SyncItem::Partial { path, .. }, Err(error)) => {
                    failed.push(((*path).clone(), error));
                }
            }
        }
        // A name is found again only when all folders above it are.
        for item in items {
            let path = item.path();
            let is_lost = |(folder, _): &&(&RelPath, Error)| path.starts_with(folder);
            match (without.iter().find(is_lost), item) {
                (Some((_, error)), _) => failed.push((path.clone(), error.clone().file(path))),
                (None, SyncPath::Published(_)) => {
                    lock(&self.undurable).remove(path);
                }
                (None, _) => {}
            }
        }
        Ok(failed)
    }
}
