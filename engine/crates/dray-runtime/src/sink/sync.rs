//! Durability of a group: what is synced for each thing that the machine names.

use crate::sink::files::{Space, folder_of, lock};
use crate::sink::handles::OpenFile;
use dray_core::{FileIndex, Name, RelPath, Result};
use dray_session::sink::SyncItem as Wanted;
use dray_store::SyncItem;
use std::collections::HashMap;
use std::sync::Arc;

/// What a sync is told: names, because handles may be closed meanwhile.
pub(super) enum SyncPath {
    Partial(RelPath, Name),
    Small(RelPath),
    Published(RelPath),
    Adopted(RelPath),
}

pub(super) fn sync_path(
    item: Wanted,
    open: &HashMap<FileIndex, Arc<OpenFile>>,
) -> Option<SyncPath> {
    match item {
        Wanted::Partial(index) => open
            .get(&index)
            .map(|open| SyncPath::Partial(open.path.clone(), open.name.clone())),
        Wanted::Small(path) => Some(SyncPath::Small(path)),
        Wanted::Published(path) => Some(SyncPath::Published(path)),
        Wanted::Adopted(path) => Some(SyncPath::Adopted(path)),
    }
}

impl Space {
    pub(super) fn sync(&self, items: &[SyncPath]) -> Result<()> {
        let mut names = Vec::with_capacity(items.len());
        let mut files = Vec::new();
        let mut folders = std::mem::take(&mut *lock(&self.touched));
        for item in items {
            match item {
                SyncPath::Partial(path, name) => names.push((path, name.clone())),
                // One that was discarded meanwhile has failed.
                SyncPath::Small(path) => {
                    names.extend(self.small_name(path).map(|name| (path, name)));
                }
                SyncPath::Published(path) => {
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
            Ok(())
        } else {
            self.store.sync_all(&all)
        }
    }
}
