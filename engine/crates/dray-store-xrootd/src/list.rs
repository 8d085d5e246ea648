//! Lists folders of a server with one request for each folder.

use crate::client::RemoteState;
use crate::cluster::{Cluster, whole};
use crate::located::listed;
use dray_core::{End, Name, RelPath, Result};
use dray_store::{EntryState, FolderEntries, FolderSource, unsupported};
use std::sync::Arc;

/// Lists the folders of a server.
pub(crate) struct Folders(pub(crate) Arc<Cluster>);

impl FolderSource for Folders {
    type Entry = RemoteState;

    fn end(&self) -> End {
        self.0.files.end
    }

    fn has_own_names(&self) -> bool {
        true
    }

    fn entries(&mut self, folder: &RelPath) -> Result<FolderEntries<RemoteState>> {
        let listed = self.0.files.entries(folder);
        let (entries, error) = listed.unwrap_or_else(|error| (Vec::new(), Some(error)));
        Ok(FolderEntries {
            entries: merged(entries),
            error: error.map(|error| error.file(folder)),
        })
    }

    fn is_folder(entry: &RemoteState) -> bool {
        entry.is_folder
    }

    fn state(&mut self, path: &RelPath, found: RemoteState) -> Result<EntryState> {
        if found.is_special {
            let cause = "the entry is neither a file nor a folder";
            return Err(unsupported(self.end(), "list", path, cause));
        }
        let (found, layout) = match found.is_folder {
            true => (found, whole()),
            false => self.0.examine(path, found)?,
        };
        Ok(EntryState {
            size: found.size,
            modified: found.modified,
            layout,
            identity: Vec::new(),
        })
    }
}

/// Merges entries with the same name. In a cluster, several servers may have the same folder, or
/// replicas of the same file.
fn merged(mut entries: Vec<(Result<Name>, RemoteState)>) -> Vec<(Result<Name>, RemoteState)> {
    entries.sort_by_cached_key(|(name, found)| {
        let name = name.as_ref().map(|name| name.as_bytes().to_vec());
        (found.is_folder, name.unwrap_or_default())
    });
    let mut left: Vec<(Result<Name>, RemoteState)> = Vec::with_capacity(entries.len());
    let mut replicas = Vec::new();
    for (name, found) in entries {
        match (left.last_mut(), &name) {
            (Some((Ok(before), known)), Ok(again))
                if before == again && known.is_folder == found.is_folder =>
            {
                replicas.push(found);
                *known = listed(&replicas).unwrap_or(found);
            }
            _ => {
                replicas.clear();
                replicas.push(found);
                left.push((name, found));
            }
        }
    }
    left
}
