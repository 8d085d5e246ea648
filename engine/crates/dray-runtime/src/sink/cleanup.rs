//! Removes partial data: of failed files, of files that no run resumes, and everything on a purge.
//!
//! Invariants:
//! - While a log names a partial file, no other file gets that name.
//! - A partial file that is dropped for good is removed before its records are removed. After an
//!   interruption, each remaining partial file is therefore still in a log.

use crate::sink::destination::Destination;
use crate::sink::files::{Space, folder_of};
use crate::sink::find_logs::{LogStep, about_folder};
use crate::sink::log_place::below;
use crate::sink::neighbours::Neighbours;
use crate::sink::probe::{self, id_of};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_link::open_file::OpenFile;
use dray_log::{Ending, LoggedFile, ObjectLog};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns true if another log names the same partial file. A run that died during an adoption
/// leaves the file in two logs.
fn is_shared(
    neighbours: Option<&mut Neighbours>,
    path: &RelPath,
    file: &LoggedFile,
) -> Result<bool> {
    let Some(neighbours) = neighbours else {
        return Ok(false);
    };
    neighbours.look_soon();
    let speaking = neighbours.speaking_of(path, &|_| false)?;
    Ok(speaking.iter().any(|one| {
        let theirs = &one.spoken.partial;
        theirs.name == file.partial.name && theirs.inode == file.partial.inode
    }))
}

impl Space {
    /// Removes the partial file of a file that is no longer in the log. If another transfer has
    /// made a new partial file of that name, the new file stays.
    pub(super) fn drop_partial(
        &self,
        path: &RelPath,
        logged: &LoggedFile,
        is_same_boot: bool,
    ) -> Result<()> {
        let name = &logged.partial.name;
        let found = probe::found_partial(self.store.as_ref(), path, logged)?;
        match found {
            Some(found) if logged.partial.is(&found, is_same_boot) => {
                self.store.discard(path, name, Some(id_of(&found)))?;
            }
            Some(_) => {
                self.names.clear(path, name)?;
            }
            None => {}
        }
        let _ = self.names.clear_beside(path, name);
        self.names.release(path, name);
        Ok(())
    }

    pub(super) fn discard(&self, open: &Arc<OpenFile>) {
        let Ok(mut destination) = self.destination() else {
            return;
        };
        let ended = destination.log.end_file(open.number, Ending::Dropped);
        // The partial file may be removed only after the log no longer names it.
        if ended.and_then(|()| self.commit(&mut destination)).is_ok() {
            let aborted = self.handles.of(open).and_then(|partial| partial.abort());
            let _ = self.noting(&open.path, aborted);
            self.names.release(&open.path, &open.name);
        }
    }

    /// Removes partial data that no run can resume. Called at the end of the session after every
    /// outcome, when all writing threads have ended.
    pub(super) fn clear_away(&self) {
        self.clear_small();
        // Ignore errors. If a partial file cannot be removed now, a later run that needs the name
        // of the file removes the file.
        if self.check_lease().is_err() {
            return;
        }
        let mut neighbours = self.neighbours.lock_unpoisoned();
        let Ok(mut destination) = self.destination() else {
            return;
        };
        if destination.is_log_removed {
            return;
        }
        let met = self.met.lock_unpoisoned();
        let _ = self.drop_files(&mut destination, neighbours.as_mut(), |path, file| {
            met.contains(path) && file.done.bytes() == 0
        });
        // No run can use a log without unfinished files, and a run with another transfer id would
        // not remove the log. So remove the log now.
        if destination.log.files().next().is_none() {
            let _ = destination.remove_log();
        }
    }

    /// Removes small files without a final name. These files have no records, so no run can resume
    /// them.
    pub(super) fn clear_small(&self) {
        let left: Vec<RelPath> = self.small.lock_unpoisoned().keys().cloned().collect();
        for path in left {
            if self.check_lease().is_err() {
                return;
            }
            let _ = self.keeping_time(&folder_of(&path), || self.discard_small(&path));
        }
    }

    /// Removes partial data at the end of the transfer. Keeps the partial files of failed files,
    /// and of files that an incomplete listing did not contain. The next run resumes these files.
    pub(super) fn finish_log(
        &self,
        keeps: Option<&BTreeSet<RelPath>>,
        is_listed: bool,
    ) -> Result<()> {
        // Remove small files while the lease excludes other writers, and before the log is removed.
        self.clear_small();
        self.check_lease()?;
        self.tidy_logs(self.names.own_log());
        self.remove_strays()?;
        let mut neighbours = self.neighbours.lock_unpoisoned();
        let mut destination = self.destination()?;
        let met = self.met.lock_unpoisoned();
        // If the listing was incomplete, files in the log that the source did not announce may
        // still exist at the source. Keep them.
        self.drop_files(&mut destination, neighbours.as_mut(), |path, file| {
            let is_kept = keeps.is_none_or(|keeps| keeps.contains(path));
            let is_met = met.contains(path);
            // A partial file without durable ranges is of no use to a later run.
            !is_kept && (is_listed || is_met) || is_met && file.done.bytes() == 0
        })?;
        self.remove_if_empty(&mut destination)
    }

    fn remove_if_empty(&self, destination: &mut Destination) -> Result<()> {
        let is_empty = destination.log.files().next().is_none();
        if is_empty {
            let told = |error| about_folder(error, &self.words, LogStep::Remove);
            destination.remove_log().map_err(told)
        } else {
            self.commit(destination)
        }
    }

    /// Removes all partial data and the log. A partial file that another transfer has left, and
    /// that this transfer has not adopted, belongs to the other transfer and stays.
    pub(super) fn purge(&self) -> Result<()> {
        self.clear_small();
        self.check_lease()?;
        self.remove_strays()?;
        let mut neighbours = self.neighbours.lock_unpoisoned();
        let mut destination = self.destination()?;
        let other = match neighbours.as_mut() {
            Some(neighbours)
                if destination.found.is_none() && self.met.lock_unpoisoned().is_empty() =>
            {
                neighbours.look_again();
                neighbours.same_claims(&destination.owner, &destination.claims)?
            }
            _ => None,
        };
        self.drop_files(&mut destination, neighbours.as_mut(), |_, _| true)?;
        self.remove_if_empty(&mut destination)?;
        match other {
            None => Ok(()),
            Some(other) => Err(Error::new(ErrorKind::LeaseHeld, End::Sink, "purge")
                .cause(format!(
                    "transfer {other} has resumed from the partial data, so the data \
                    now belongs to {other}"
                ))
                .remedy(format!("cancel transfer {other} with --purge"))),
        }
    }

    fn drop_files(
        &self,
        destination: &mut Destination,
        mut neighbours: Option<&mut Neighbours>,
        is_dropped: impl Fn(&RelPath, &LoggedFile) -> bool,
    ) -> Result<()> {
        let mut dropped = Vec::new();
        for (path, file) in destination.log.files() {
            let Some(path) = below(&destination.prefix, path)? else {
                continue;
            };
            if is_dropped(&path, file) {
                dropped.push((path, file.clone()));
            }
        }
        // End the records only after the files are removed. If this process is interrupted in
        // between, each remaining file still has its record in the log.
        for (path, file) in &dropped {
            self.check_lease()?;
            match is_shared(neighbours.as_deref_mut(), path, file)? {
                true => self.names.release(path, &file.partial.name),
                false => {
                    let is_same_boot = destination.is_same_boot();
                    let drop = || self.drop_partial(path, file, is_same_boot);
                    self.keeping_time(&folder_of(path), drop)?;
                }
            }
        }
        for (_, file) in &dropped {
            destination.log.end_file(file.number, Ending::Dropped)?;
        }
        self.commit(destination)
    }
}
