//! Makes a sync group durable: maps the machine's items to the files and folders to sync.

use crate::sink::doubtful::Doubtful;
use crate::sink::files::{Space, folder_of};
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use dray_core::{Error, ErrorKind, RelPath, Result};
use dray_link::open_file::OpenFile;
use dray_session::sink::SyncGroup;
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
    /// Returns the folder that contains the new final name of the entry, if the entry got one.
    fn changed_folder(&self) -> Option<RelPath> {
        match self {
            Self::Published(path) | Self::Adopted(path) => Some(folder_of(path)),
            Self::Partial(_) | Self::Small(_) => None,
        }
    }

    fn path(&self) -> &RelPath {
        match self {
            Self::Partial(open) => &open.path,
            Self::Small(path) | Self::Published(path) | Self::Adopted(path) => path,
        }
    }
}

/// The results of a sync.
#[derive(Default)]
struct Results {
    /// Files that could not be synced.
    files: Vec<(RelPath, Error)>,
    /// Folders that could not be synced.
    folders: Vec<(RelPath, Error)>,
}

impl Space {
    /// Makes a group durable. Returns the paths that could not be synced, each with its error. May
    /// be called for both groups concurrently, if they have no file in common.
    ///
    /// # Errors
    /// If the sync as a whole fails. In that case no item of the group counts as durable.
    pub(super) fn sync(
        &self,
        group: SyncGroup,
        items: &[SyncPath],
    ) -> Result<Vec<(RelPath, Error)>> {
        let results = self.sync_items(group, items).inspect_err(|error| {
            // The operating system reports a lost write only once, and the error does not name the
            // file. So every file of the group is doubtful.
            let partial = items.iter().filter_map(|item| match item {
                SyncPath::Partial(open) => Some(Doubtful::of(open.as_ref())),
                _ => None,
            });
            let files: Vec<_> = partial.collect();
            // The session ends with the error of the sync.
            let _ = self.mark_doubtful(&files, error);
        })?;
        let Results {
            files: mut failed,
            folders: without,
        } = results;
        // A name is durable only if all folders above it are durable.
        for item in items {
            let path = item.path();
            let is_lost = |(folder, _): &&(RelPath, Error)| path.starts_with(folder);
            match (without.iter().find(is_lost), item) {
                (Some((_, error)), _) => failed.push((path.clone(), error.clone().file(path))),
                (None, SyncPath::Published(_)) => {
                    self.undurable.lock_unpoisoned().remove(path);
                }
                (None, SyncPath::Partial(open)) => open.set_name_durable(),
                (None, _) => {}
            }
        }
        Ok(failed)
    }

    /// Syncs the files of a group, and the changed folders that contain entries of the group.
    fn sync_items(&self, group: SyncGroup, items: &[SyncPath]) -> Result<Results> {
        let mut names = Vec::with_capacity(items.len());
        let mut files = Vec::new();
        let mut published = HashSet::default();
        // Entries whose names must become durable.
        let mut entries = Vec::new();
        for item in items {
            match item {
                SyncPath::Partial(open) => {
                    names.push((&open.path, open.name.clone()));
                    entries.extend((!open.is_name_durable()).then_some(&open.path));
                }
                // A small file without a partial name was discarded, because it failed. Nothing
                // remains to sync. The name becomes durable after the file is published.
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
                    entries.push(path);
                }
                SyncPath::Adopted(path) => {
                    files.push(path);
                    entries.push(path);
                }
            }
        }
        let partials = names
            .iter()
            .map(|(path, name)| SyncItem::Partial { path, name });
        let files = files.into_iter().map(SyncItem::File);
        let mut all: Vec<SyncItem<'_>> = partials.chain(files).collect();
        let mut results = Results::default();
        // The sync of the late group's files may take long. Meanwhile the main group must be able to
        // sync folders, so the late group does not begin its sync of folders yet.
        if group == SyncGroup::Late || entries.is_empty() {
            if !all.is_empty() {
                // A store of several disks may add folders to the sync.
                let is_on_disks = self.store.capabilities().is_on_disks;
                let answers = self.store.sync_each(&all).inspect_err(|error| {
                    if is_on_disks {
                        self.touched.fail(error);
                    }
                });
                results.add(&all, answers?, &published);
            }
            all.clear();
        }
        if entries.is_empty() {
            return Ok(results);
        }
        let mut sync = self.touched.begin_sync()?;
        let mut folders = sync.take(entries.iter().copied());
        folders.extend(items.iter().filter_map(SyncPath::changed_folder));
        // A concurrent sync of the main group may have taken a folder of these entries, and may have
        // synced the folder only on the disks of its own files.
        if group == SyncGroup::Late && self.store.capabilities().is_on_disks {
            folders.extend(entries.into_iter().map(folder_of));
        }
        all.extend(folders.iter().map(SyncItem::Folder));
        if all.is_empty() {
            return Ok(results);
        }
        let answers = self.store.sync_each(&all);
        results.add(
            &all,
            answers.inspect_err(|error| sync.fail(error))?,
            &published,
        );
        // These folders still need a sync, for the entries of later groups. A folder that no longer
        // exists needs none.
        for (folder, error) in &results.folders {
            if error.kind != ErrorKind::NotFound {
                sync.put_back(folder.clone());
            }
        }
        Ok(results)
    }
}

impl Results {
    /// Adds the answers for `items`. `published` are the files that were already durable before
    /// they got their final names.
    fn add(
        &mut self,
        items: &[SyncItem<'_>],
        answers: Vec<Result<()>>,
        published: &HashSet<&RelPath>,
    ) {
        for (item, answer) in items.iter().zip(answers) {
            match (item, answer) {
                (_, Ok(())) => {}
                // Another program has removed the file, which is no error of this transfer.
                (SyncItem::File(path), Err(error))
                    if error.kind == ErrorKind::NotFound && published.contains(path) => {}
                (SyncItem::Folder(folder), Err(error)) => {
                    self.folders.push(((*folder).clone(), error));
                }
                (SyncItem::File(path) | SyncItem::Partial { path, .. }, Err(error)) => {
                    self.files.push(((*path).clone(), error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
