//! Leftovers of interrupted runs: those found when a destination is opened, and the folders that may
//! contain partial files without a record.
//!
//! Not for: removing them (`tidy`).

use super::neighbours::Neighbours;
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use dray_core::{RelPath, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of listed folders. The sweep finds leftovers in further ones.
const FOLDERS_MAX: usize = 1 << 16;

/// Leftovers of interrupted runs in the destination folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// Other transfers' logs exist; an active run may hold them.
    ByOthers,
    /// This transfer's log or lease was there.
    ByThis,
}

impl Left {
    /// Finds leftovers; `is_own` is true if this transfer's log or lease existed.
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
    /// True if the folders of the transfer are remembered: an earlier run was interrupted.
    is_remembering: bool,
    /// True if the folders are searched at the end.
    pub(super) is_any: AtomicBool,
    pub(super) folders: Mutex<HashSet<RelPath>>,
}

impl Strays {
    /// `left` describes the leftovers of earlier runs in the destination folder.
    pub(super) fn new(left: Left) -> Self {
        Self {
            is_remembering: left != Left::Nothing,
            is_any: AtomicBool::new(left == Left::ByThis),
            folders: Mutex::default(),
        }
    }

    /// Called when the transfer inspects an entry of this folder.
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
