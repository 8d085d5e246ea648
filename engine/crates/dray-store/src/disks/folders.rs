//! Syncs of folders, per disk. A folder of the store exists on every disk, but a sync of a few files
//! must wait only for the disks of these files, and not for a slow disk.
//!
//! Invariants:
//! - A folder is synced on each disk where the store has changed the folder's entries or attributes
//!   since the last sync.
//! - A sync that skips a disk notes the folder there. The next sync of any file below the folder on
//!   this disk includes the folder.
//! - A note is kept until a sync that began after it has succeeded. So a concurrent sync of another
//!   file below the folder includes the folder too, and never reports the file as durable before
//!   the folder is.

use dray_core::RelPath;
use dray_core::lock::LockExt;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

/// Maximum number of changes, and of skipped syncs, that are noted. Further folders are synced on all
/// disks.
const NOTES_MAX: usize = 1 << 16;

/// Folders by disk, each with the number of its last note.
type Folders = HashMap<(usize, RelPath), u64>;

/// Notes about the folders of each disk.
#[derive(Debug, Default)]
pub(super) struct FolderStates(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Folders with a changed entry or attribute. A new partial file is not such a change: the sync
    /// of this file names its disk.
    changed: Folders,
    /// Folders whose last sync did not include the disk.
    skipped: Folders,
    /// Number of the last note.
    last: u64,
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
    /// Number of the last note before the sync.
    pub(super) last: u64,
}

impl State {
    /// Returns the number of a new note.
    const fn new_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn note_changed(&mut self, disk: usize, folder: RelPath) {
        if self.changed.len() >= NOTES_MAX {
            self.has_lost_changes = true;
        } else {
            let number = self.new_number();
            self.changed.insert((disk, folder), number);
        }
    }
}

impl FolderStates {
    /// Notes a change of the entries or attributes of a folder on a disk.
    pub(super) fn note_changed(&self, disk: usize, folder: RelPath) {
        self.0.lock_unpoisoned().note_changed(disk, folder);
    }

    /// Notes that the sync of a folder failed on a disk. The next sync includes it again.
    pub(super) fn note_failed(&self, disk: usize, folder: &RelPath) {
        let mut state = self.0.lock_unpoisoned();
        state.note_changed(disk, folder.clone());
        let number = state.new_number();
        state.skipped.insert((disk, folder.clone()), number);
    }

    /// Forgets the notes about a folder that has been synced on a disk. `last` is [`Plan::last`] of
    /// the sync. Later notes stay, because the sync may not cover them.
    pub(super) fn note_synced(&self, disk: usize, folder: &RelPath, last: u64) {
        let key = (disk, folder.clone());
        let mut guard = self.0.lock_unpoisoned();
        let state = &mut *guard;
        for notes in [&mut state.changed, &mut state.skipped] {
            if notes.get(&key).is_some_and(|number| *number <= last) {
                notes.remove(&key);
            }
        }
    }

    /// Chooses the disks on which folders are synced. After the sync, the caller must call
    /// [`FolderStates::note_synced`] or [`FolderStates::note_failed`] for each folder and disk.
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
        let mut plan = Plan {
            last: state.last,
            ..Plan::default()
        };
        // Folders that the caller asks for on some disks, with these disks.
        let mut chosen = BTreeSet::new();
        for folder in folders {
            let mut disks = Vec::new();
            let mut others = Vec::new();
            let mut has_any_file = false;
            for disk in 0..count {
                let key = (disk, (*folder).clone());
                let has_file = above.contains(&key);
                let is_changed = state.changed.contains_key(&key) || state.has_lost_changes;
                has_any_file |= has_file;
                if has_file || is_changed {
                    disks.push(disk);
                } else {
                    others.push(key);
                }
            }
            // If no file of the sync is below the folder, the caller may mean an entry on any disk.
            let is_unknown = !has_any_file || state.skipped.len() >= NOTES_MAX;
            for key in others {
                if is_unknown {
                    disks.push(key.0);
                } else {
                    let number = state.new_number();
                    state.skipped.insert(key, number);
                }
            }
            chosen.extend(disks.iter().map(|disk| (*disk, (*folder).clone())));
            plan.asked.push(disks);
        }
        // The name of an asked folder is an entry of the folders above it.
        let asked = chosen.iter().map(|(disk, folder)| (*disk, folder));
        let mut needed = match state.skipped.is_empty() {
            true => BTreeSet::new(),
            false => parents_of(&asked.collect::<Vec<_>>()),
        };
        needed.extend(above);
        for key in needed.difference(&chosen) {
            if state.skipped.contains_key(key) {
                let (disk, folder) = key.clone();
                plan.added.entry(disk).or_default().push(folder);
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
mod tests;
