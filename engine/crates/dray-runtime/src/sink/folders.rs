//! Folders of the destination whose state the inspecting thread remembers.

use dray_core::RelPath;
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use std::sync::Mutex;

/// Maximum number of remembered folders in each set.
const FOLDERS_MAX: usize = 1 << 16;

/// The remembered folders. The inspecting thread changes them.
#[derive(Default)]
pub(super) struct Folders {
    /// Folders that this transfer made. They contain only entries of this transfer.
    pub(super) fresh: Mutex<HashSet<RelPath>>,
    /// Folders that could not be made, or that this transfer may not enter.
    pub(super) refused: Mutex<HashSet<RelPath>>,
}

impl Folders {
    /// Returns true if this transfer made the folder.
    pub(super) fn is_fresh(&self, folder: &RelPath) -> bool {
        self.fresh.lock_unpoisoned().contains(folder)
    }
}

/// Adds a folder. If the set is full, all other folders are forgotten first.
pub(super) fn remember(folders: &Mutex<HashSet<RelPath>>, path: &RelPath) {
    let mut folders = folders.lock_unpoisoned();
    if folders.len() >= FOLDERS_MAX {
        folders.clear();
    }
    folders.insert(path.clone());
}
