//! Folders whose entries or attributes have changed and may not be durable yet.
//!
//! Invariants owned here:
//! - A sync covers each changed folder above the entries whose names it makes durable. Otherwise a
//!   record could be durable while the name of its partial file is not.
//! - One sync at a time covers folders. The kernel reports a lost change of a folder to one sync
//!   only, so a concurrent sync of the same folder could report success.

use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use dray_core::{Error, RelPath, Result};
use std::sync::{Mutex, MutexGuard};

#[derive(Default)]
pub(super) struct Touched {
    waiting: Mutex<HashSet<RelPath>>,
    /// Locked during a sync that covers folders. Contains the error of the first such sync that
    /// failed as a whole. The lost change may concern any folder, so after this error no sync may
    /// cover folders.
    in_sync: Mutex<Option<Error>>,
}

/// The right to sync folders.
pub(super) struct FolderSync<'a> {
    touched: &'a Touched,
    failed: MutexGuard<'a, Option<Error>>,
}

impl Touched {
    pub(super) fn add(&self, folder: RelPath) {
        self.waiting.lock_unpoisoned().insert(folder);
    }

    /// Records that a sync failed as a whole that may have covered folders.
    pub(super) fn fail(&self, error: &Error) {
        *self.in_sync.lock_unpoisoned() = Some(error.clone());
    }

    /// Waits until no other sync covers folders.
    ///
    /// # Errors
    /// The error of an earlier sync of folders that failed as a whole.
    pub(super) fn begin_sync(&self) -> Result<FolderSync<'_>> {
        let failed = self.in_sync.lock_unpoisoned();
        match failed.as_ref() {
            Some(error) => Err(error.clone()),
            None => Ok(FolderSync {
                touched: self,
                failed,
            }),
        }
    }
}

impl FolderSync<'_> {
    /// Takes the changed folders that must be durable before the names of `entries` count as
    /// durable. An entry that is a folder belongs to these folders too, because its attributes may
    /// have changed.
    pub(super) fn take<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a RelPath>,
    ) -> HashSet<RelPath> {
        let mut waiting = self.touched.waiting.lock_unpoisoned();
        let mut found = HashSet::default();
        for entry in entries {
            let mut at = Some(entry.clone());
            while let Some(folder) = at.filter(|_| !waiting.is_empty()) {
                at = folder.parent();
                found.extend(waiting.take(&folder));
            }
        }
        found
    }

    /// Records that a folder still needs a sync.
    pub(super) fn put_back(&self, folder: RelPath) {
        self.touched.add(folder);
    }

    /// Records that the sync failed as a whole.
    pub(super) fn fail(&mut self, error: &Error) {
        *self.failed = Some(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dray_core::{End, ErrorKind};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn a_sync_covers_the_changed_folders_of_its_entries_once() {
        let touched = Touched::default();
        for folder in ["a", "a/b", "a/b/c", "d"] {
            touched.add(path(folder));
        }
        let sync = touched.begin_sync().expect("the first sync");
        let above = HashSet::from_iter(["a", "a/b"].map(path));
        assert_eq!(sync.take([&path("a/b/f")]), above);
        sync.put_back(path("a"));
        let itself = HashSet::from_iter(["a", "a/b/c"].map(path));
        assert_eq!(sync.take([&path("a/b/c")]), itself);
        assert_eq!(sync.take([&path("a/b/f")]), HashSet::default());
    }

    #[test]
    fn no_folder_is_synced_after_a_failed_sync() {
        let touched = Touched::default();
        let error = Error::new(ErrorKind::Io, End::Sink, "sync");
        touched.begin_sync().expect("the first sync").fail(&error);
        assert_eq!(touched.begin_sync().err(), Some(error));
    }
}
