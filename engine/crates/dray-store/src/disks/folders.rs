//! Syncs of folders, per disk. A folder of the store exists on every disk, but a sync of a few files
//! must wait only for the disks of these files, and not for a slow disk.
//!
//! Invariants:
//! - A folder is synced on each disk where the store has changed the folder's entries or attributes
//!   since the last sync.
//! - A sync that skips a disk notes the folder there. The next sync of any file below the folder on
//!   this disk includes the folder.

use dray_core::RelPath;
use dray_core::lock::LockExt;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;

/// Maximum number of changes, and of skipped syncs, that are noted. Further folders are synced on all
/// disks.
const NOTES_MAX: usize = 1 << 16;

/// Folders by disk.
type Folders = HashSet<(usize, RelPath)>;

/// What is known about the folders of each disk.
#[derive(Debug, Default)]
pub(super) struct FolderStates(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Folders with a changed entry or attribute. A new partial file is not such a change: the sync
    /// of this file names its disk.
    changed: Folders,
    /// Folders whose last sync did not include the disk.
    skipped: Folders,
    /// True after more than [`NOTES_MAX`] changes. From then on, every folder counts as changed.
    has_lost_changes: bool,
}

/// The folders that one sync covers, on each disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Disks of each folder that the caller asked for, in the order of the request.
    pub(super) asked: Vec<Vec<usize>>,
    /// Further folders on each disk: skipped earlier, and above a file of this sync.
    pub(super) added: BTreeMap<usize, Vec<RelPath>>,
}

impl FolderStates {
    /// Notes a change of the entries or attributes of a folder on a disk.
    pub(super) fn note_changed(&self, disk: usize, folder: RelPath) {
        let mut state = self.0.lock_unpoisoned();
        if state.changed.len() >= NOTES_MAX {
            state.has_lost_changes = true;
        } else {
            state.changed.insert((disk, folder));
        }
    }

    /// Notes that the sync of a folder failed on a disk. The next sync includes it again.
    pub(super) fn note_failed(&self, disk: usize, folder: &RelPath) {
        self.note_changed(disk, folder.clone());
        let mut state = self.0.lock_unpoisoned();
        state.skipped.insert((disk, folder.clone()));
    }

    /// Chooses the disks on which folders are synced, and forgets the notes about them. If a sync
    /// fails, the caller must call [`FolderStates::note_failed`].
    ///
    /// `files` are the files of the same sync with their disks. `count` is the number of disks.
    pub(super) fn plan(
        &self,
        folders: &[&RelPath],
        files: &[(usize, &RelPath)],
        count: usize,
    ) -> Plan {
        let mut state = self.0.lock_unpoisoned();
        let needs_parents = !folders.is_empty() || !state.skipped.is_empty();
        let above = match needs_parents {
            true => parents_of(files),
            false => BTreeSet::new(),
        };
        let mut plan = Plan::default();
        for folder in folders {
            let mut disks = Vec::new();
            let mut others = Vec::new();
            let mut has_any_file = false;
            for disk in 0..count {
                let key = (disk, (*folder).clone());
                let has_file = above.contains(&key);
                let is_changed = state.changed.remove(&key) || state.has_lost_changes;
                has_any_file |= has_file;
                if has_file || is_changed {
                    state.skipped.remove(&key);
                    disks.push(disk);
                } else {
                    others.push(key);
                }
            }
            // If no file of the sync is below the folder, the caller may mean an entry on any disk.
            let is_unknown = !has_any_file || state.skipped.len() >= NOTES_MAX;
            for key in others {
                if is_unknown {
                    state.skipped.remove(&key);
                    disks.push(key.0);
                } else {
                    state.skipped.insert(key);
                }
            }
            plan.asked.push(disks);
        }
        for key in above {
            if state.skipped.remove(&key) {
                plan.added.entry(key.0).or_default().push(key.1);
            }
        }
        plan
    }
}

/// Returns each folder above a file, with the disk of the file.
fn parents_of(files: &[(usize, &RelPath)]) -> BTreeSet<(usize, RelPath)> {
    let mut found = BTreeSet::new();
    for (disk, file) in files {
        let mut at = file.parent();
        while let Some(folder) = at {
            at = folder.parent();
            // The folders above a known folder are known too.
            if !found.insert((*disk, folder)) {
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn a_folder_is_synced_on_the_disks_of_the_files_and_later_on_the_others() {
        let states = FolderStates::default();
        let (folder, file) = (path("a/b"), path("a/b/f"));
        let plan = states.plan(&[&folder], &[(0, &file), (2, &file)], 4);
        assert_eq!(plan.asked, [vec![0, 2]]);
        assert_eq!(plan.added, BTreeMap::new());
        // The folder is not asked for again: its name is durable on the disks above.
        let plan = states.plan(&[], &[(0, &file), (3, &file)], 4);
        assert_eq!(plan.added, BTreeMap::from([(3, vec![folder])]));
        assert_eq!(states.plan(&[], &[(3, &file)], 4), Plan::default());
    }

    #[test]
    fn a_changed_folder_is_synced_on_its_disk() {
        let states = FolderStates::default();
        let (folder, file) = (path("a"), path("a/f"));
        states.note_changed(1, folder.clone());
        let plan = states.plan(&[&folder], &[(0, &file)], 3);
        assert_eq!(plan.asked, [vec![0, 1]]);
        let plan = states.plan(&[&folder], &[(0, &file)], 3);
        assert_eq!(plan.asked, [vec![0]], "the change was noted once");
    }

    #[test]
    fn without_files_a_folder_is_synced_on_all_disks() {
        let states = FolderStates::default();
        let folder = path("a");
        assert_eq!(states.plan(&[&folder], &[], 3).asked, [vec![0, 1, 2]]);
        states.note_changed(1, folder.clone());
        let plan = states.plan(&[&folder], &[(0, &path("b/f"))], 3);
        assert_eq!(plan.asked, [vec![1, 0, 2]], "changed disks come first");
    }

    #[test]
    fn a_failed_sync_is_repeated() {
        let states = FolderStates::default();
        let (folder, file) = (path("a"), path("a/f"));
        states.note_failed(2, &folder);
        let plan = states.plan(&[], &[(2, &file)], 3);
        assert_eq!(plan.added, BTreeMap::from([(2, vec![folder.clone()])]));
        states.note_failed(2, &folder);
        let plan = states.plan(&[&folder], &[(0, &file)], 3);
        assert_eq!(plan.asked, [vec![0, 2]]);
    }

    #[test]
    fn too_many_notes_lead_to_syncs_on_all_disks() {
        let states = FolderStates::default();
        for number in 0..=NOTES_MAX {
            states.note_changed(1, path(&format!("{number}")));
        }
        let (folder, file) = (path("a"), path("a/f"));
        let plan = states.plan(&[&folder], &[(0, &file)], 3);
        assert_eq!(plan.asked, [vec![0, 1, 2]]);
    }
}
