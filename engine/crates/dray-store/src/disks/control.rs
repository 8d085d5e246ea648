//! Control files, and making files durable on several disks.

use super::Set;
use crate::store::{ControlFile, Store};
use crate::types::{ControlMode, SyncItem};
use dray_core::{Error, ErrorKind, RelPath, Result};

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

    /// Makes items durable. A folder is synced on each disk that has it.
    pub(super) fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut answers: Vec<Option<Result<()>>> = Vec::with_capacity(items.len());
        let mut groups: Vec<Vec<usize>> = vec![Vec::new(); self.disks.len()];
        for (at, item) in items.iter().enumerate() {
            let disks = match self.disks_of(item) {
                Ok(disks) => disks,
                Err(error) if is_of_item(&error) => {
                    answers.push(Some(Err(error)));
                    continue;
                }
                Err(error) => return Err(error),
            };
            answers.push(None);
            for disk in disks {
                groups[disk].push(at);
            }
        }
        for (disk, group) in groups
            .iter()
            .enumerate()
            .filter(|(_, group)| !group.is_empty())
        {
            let of_disk: Vec<SyncItem<'_>> = group.iter().map(|at| items[*at]).collect();
            let synced = self.disks[disk].store.sync_each(&of_disk);
            let synced = synced.map_err(|error| self.on(disk, error))?;
            for (at, answer) in group.iter().zip(synced) {
                let answer = answer.map_err(|error| self.on(disk, error));
                answers[*at] = Some(merged(answers[*at].take(), answer));
            }
        }
        let missing = |answer: Option<Result<()>>| answer.unwrap_or(Ok(()));
        Ok(answers.into_iter().map(missing).collect())
    }

    /// Returns the disks on which an item is synced.
    fn disks_of(&self, item: &SyncItem<'_>) -> Result<Vec<usize>> {
        match item {
            SyncItem::Folder(_) => Ok((0..self.disks.len()).collect()),
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
