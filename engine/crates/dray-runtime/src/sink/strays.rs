//! Leftovers of interrupted runs. When a destination is opened, this module checks whether there
//! are any. During the session, it remembers the folders that may contain partial files that no log
//! names.
//!
//! The module `tidy` removes the leftovers.

use super::neighbours::Neighbours;
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use dray_core::{RelPath, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of remembered folders. A sweep finds the leftovers in further folders.
const FOLDERS_MAX: usize = 1 << 16;

/// Leftovers of interrupted runs in the destination folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// The folder has logs of other transfers. Their transfers may be active.
    ByOthers,
    /// A log or a lease of this transfer existed.
    ByThis,
}

impl Left {
    /// Returns the kind of leftovers. `is_own` is true if a log or a lease of this transfer
    /// existed.
    pub(super) fn find(is_own: bool, neighbours: &mut Neighbours) -> Result<Self> {
        Ok(match is_own {
            true => Self::ByThis,
            false if neighbours.has_any()? => Self::ByOthers,
            false => Self::Nothing,
        })
    }
}

/// Folders that may contain partial files that no log names.
pub(super) struct Strays {
    /// True if the folders that this transfer visits are remembered, because an earlier run was
    /// interrupted.
    is_remembering: bool,
    /// True if the remembered folders are searched at the end of the session.
    pub(super) is_any: AtomicBool,
    pub(super) folders: Mutex<HashSet<RelPath>>,
}

impl Strays {
    /// Returns an empty set of folders. `left` is the kind of leftovers in the destination folder.
    pub(super) fn new(left: Left) -> Self {
        Self {
            is_remembering: left != Left::Nothing,
            is_any: AtomicBool::new(left == Left::ByThis),
            folders: Mutex::default(),
        }
    }

    /// Called when the transfer inspects an entry in this folder.
    pub(super) fn pass(&self, folder: &RelPath) {
        if self.is_remembering {
            self.remember(folder);
        }
    }

    /// Called when a partial file in this folder could not be removed.
    pub(super) fn note(&self, folder: &RelPath) {
        self.remember(folder);
        self.is_any.store(true, Ordering::Relaxed);
    }

    fn remember(&self, folder: &RelPath) {
        let mut folders = self.folders.lock_unpoisoned();
        if folders.len() < FOLDERS_MAX && !folders.contains(folder) {
            folders.insert(folder.clone());
        }
    }
}
