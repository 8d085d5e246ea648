//! Folders of the destination that the inspecting thread knows.

use dray_core::RelPath;
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use std::sync::Mutex;

/// Maximum number of remembered folders of each kind.
const FOLDERS_MAX: usize = 1 << 16;

/// Known folders; used by the one inspecting thread.
#[derive(Default)]
pub(super) struct Folders {
    /// Folders made by this transfer: they contain only its entries.
    pub(super) fresh: Mutex<HashSet<RelPath>>,
    /// Folders that could not be made, or may not be entered.
    pub(super) refused: Mutex<HashSet<RelPath>>,
}

impl Folders {
    /// Returns true if this transfer made the folder.
    pub(super) fn is_fresh(&self, folder: &RelPath) -> bool {
        self.fresh.lock_unpoisoned().contains(folder)
    }
}

/// Adds a folder; forgets all others if there are too many.
pub(super) fn remember(folders: &Mutex<HashSet<RelPath>>, path: &RelPath) {
    let mut folders = folders.lock_unpoisoned();
    if folders.len() >= FOLDERS_MAX {
        folders.clear();
    }
    folders.insert(path.clone());
}
