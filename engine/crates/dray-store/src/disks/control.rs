//! Control files, and making files durable on several disks.

use super::Set;
use crate::store::{ControlFile, Store};
use crate::types::{ControlMode, SyncItem};
use dray_core::lock::LockExt;
use dray_core::{Error, ErrorKind, RelPath, Result};
use std::panic::resume_unwind;
use std::thread;

impl Set {
    pub(super) fn open_control(
        &self,
        path: &RelPath,
        mode: ControlMode,
    ) -> Result<Box<dyn ControlFile>> {
        let open = || self.disks[0].store.open_control(path, mode);
        let is_made = matches!(mode, ControlMode::Create | ControlMode::CreateNew);
        // The folder that contains the control folder may exist on another disk only.
        let above = path.parent().and_then(|folder| folder.parent());
        let opened = match (open(), above) {
            (Err(error), Some(above)) if is_made && error.kind == ErrorKind::NotFound => {
                match self.make_folder_on(0, &above)? {
                    true => open(),
                    false => Err(error),
                }
            }
            (opened, _) => opened,
        };
        opened.map_err(|error| self.on(0, error))
    }

    /// Makes items durable. The disks are synced concurrently, so that the call takes as long as the
    /// slowest disk. [`FolderStates`](super::folders::FolderStates) chooses the disks of folders.
    pub(super) fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut answers = Answers(items.iter().map(|_| None).collect());
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        let mut syncs: Vec<DiskSync<'_>> = Vec::with_capacity(self.disks.len());
        syncs.resize_with(self.disks.len(), DiskSync::default);
        for (at, item) in items.iter().enumerate() {
            let (SyncItem::File(path) | SyncItem::Partial { path, .. }) = *item else {
                folders.push(at);
                continue;
            };
            match self.disks_of(item) {
                Ok(disks) => {
                    for disk in disks {
                        files.push((disk, path));
                        syncs[disk].push(*item, Some(at));
                    }
                }
                Err(error) if is_of_item(&error) => answers.0[at] = Some(Err(error)),
                Err(error) => return Err(error),
            }
        }
        let asked: Vec<&RelPath> = folders.iter().map(|at| items[*at].path()).collect();
        let plan = self.folders.plan(&asked, &files, self.disks.len());
        for (at, disks) in folders.iter().zip(&plan.asked) {
            for disk in disks {
                syncs[*disk].push(items[*at], Some(*at));
            }
        }
        for (disk, added) in &plan.added {
            for folder in added {
                syncs[*disk].push(SyncItem::Folder(folder), None);
            }
        }
        let mut failed = None;
        for (disk, synced) in self.sync_disks(&syncs) {
            let sync = &syncs[disk];
            match synced {
                Ok(synced) => self.take_answers((disk, plan.last), sync, synced, &mut answers),
                Err(error) => {
                    let noted = sync.folders().map(|folder| (disk, folder));
                    noted.for_each(|(disk, folder)| self.folders.note_failed(disk, folder));
                    failed = failed.or_else(|| Some(self.on(disk, error)));
                }
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(answers.0.into_iter().map(|a| a.unwrap_or(Ok(()))).collect()),
        }
    }

    /// Syncs the items of all disks concurrently. Returns the answers with the numbers of the disks.
    fn sync_disks(&self, syncs: &[DiskSync<'_>]) -> Vec<(usize, Result<Vec<Result<()>>>)> {
        let sync = |at: usize| {
            let disk = &self.disks[at];
            let covers_folders = syncs[at].folders().next().is_some();
            let _lock = covers_folders.then(|| disk.folder_sync.lock_unpoisoned());
            (at, disk.store.sync_each(&syncs[at].items))
        };
        let mut used = (0..syncs.len()).filter(|disk| !syncs[*disk].items.is_empty());
        let Some(first) = used.next() else {
            return Vec::new();
        };
        thread::scope(|scope| {
            // The system may refuse to start a thread. This thread then syncs the disk itself.
            let start = |disk| {
                let started = thread::Builder::new().spawn_scoped(scope, move || sync(disk));
                started.map_err(|_| disk)
            };
            let others: Vec<_> = used.map(start).collect();
            let mut synced = vec![sync(first)];
            for other in others {
                synced.push(match other {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    Err(disk) => sync(disk),
                });
            }
            synced
        })
    }

    /// Merges the answers of one disk into `answers`. `last` is the number of the last note about
    /// folders before the sync.
    fn take_answers(
        &self,
        (disk, last): (usize, u64),
        sync: &DiskSync<'_>,
        synced: Vec<Result<()>>,
        answers: &mut Answers,
    ) {
        for ((item, at), answer) in sync.items.iter().zip(&sync.of).zip(synced) {
            let answer = answer.map_err(|error| self.on(disk, error));
            if let SyncItem::Folder(folder) = item {
                match &answer {
                    Err(error) if error.kind != ErrorKind::NotFound => {
                        self.folders.note_failed(disk, folder);
                        if at.is_none() {
                            answers.fail_below(sync, folder, error);
                        }
                    }
                    // A folder that does not exist on this disk needs no sync there.
                    _ => self.folders.note_synced(disk, folder, last),
                }
            }
            if let Some(at) = at {
                answers.merge(*at, answer);
            }
        }
    }

    /// Returns the disks on which a file is synced.
    fn disks_of(&self, item: &SyncItem<'_>) -> Result<Vec<usize>> {
        match item {
            SyncItem::Folder(_) => Ok(Vec::new()),
            // A missing file is reported by the first disk.
            SyncItem::File(path) => {
                let found = self.find(path)?;
                Ok(vec![found.map_or(0, |found| found.disk)])
            }
            SyncItem::Partial { path, name } => {
                let found = self.disks_with_partial(path, name)?;
                Ok(if found.is_empty() { vec![0] } else { found })
            }
        }
    }
}

/// The items that one sync covers on one disk.
#[derive(Default)]
struct DiskSync<'a> {
    items: Vec<SyncItem<'a>>,
    /// Place of each item in the request; `None` for a folder that was added to the request.
    of: Vec<Option<usize>>,
}

impl<'a> DiskSync<'a> {
    fn push(&mut self, item: SyncItem<'a>, at: Option<usize>) {
        self.items.push(item);
        self.of.push(at);
    }

    fn folders(&self) -> impl Iterator<Item = &'a RelPath> + '_ {
        self.items.iter().filter_map(|item| match *item {
            SyncItem::Folder(folder) => Some(folder),
            SyncItem::File(_) | SyncItem::Partial { .. } => None,
        })
    }
}

/// Answers for the items of a request.
struct Answers(Vec<Option<Result<()>>>);

impl Answers {
    fn merge(&mut self, at: usize, answer: Result<()>) {
        self.0[at] = Some(merged(self.0[at].take(), answer));
    }

    /// Gives the files and folders of a disk below `folder` the error of this folder.
    fn fail_below(&mut self, sync: &DiskSync<'_>, folder: &RelPath, error: &Error) {
        for (item, at) in sync.items.iter().zip(&sync.of) {
            if let Some(at) = at
                && item.path().starts_with(folder)
            {
                self.merge(*at, Err(error.clone()));
            }
        }
    }
}

/// Returns true for an error that concerns one item and not the disk.
const fn is_of_item(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::PathEscapes
            | ErrorKind::NameTooLong
            | ErrorKind::PermissionDenied
    )
}

/// Joins the answers of two disks for one item. A folder may be missing on one disk.
fn merged(before: Option<Result<()>>, answer: Result<()>) -> Result<()> {
    let is_missing =
        |answer: &Result<()>| matches!(answer, Err(error) if error.kind == ErrorKind::NotFound);
    match (before, answer) {
        (None, answer) => answer,
        (Some(before), answer) if is_missing(&answer) => before,
        (Some(before), answer) if is_missing(&before) => answer,
        (Some(Err(error)), _) => Err(error),
        (Some(Ok(())), answer) => answer,
    }
}
