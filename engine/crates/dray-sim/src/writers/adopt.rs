//! Inherits unfinished files from other logs, and drops files of which another log has more.

use super::host::{Doing, Writer, remove};
use super::{Destination, Mutant};
use crate::log_file::DiskFile;
use dray_core::{RelPath, Result};
use dray_log::neighbours::adopt;
use dray_log::{Ending, LoggedFile, ObjectLog, Recovery, Tenure, UniversalLog, recover};

impl Writer {
    /// Drops a file that is also open in a log that is in use, if that log has more of the file.
    pub(super) fn give_up(
        &mut self,
        at: &mut Destination,
        log: &RelPath,
        path: &RelPath,
    ) -> Result<()> {
        let Some(ours) = self.log().file(path).cloned() else {
            return Ok(());
        };
        let found = recover(&mut DiskFile::open(&at.disk, log)).ok().flatten();
        let theirs = found.and_then(|found| found.files.get(path).cloned());
        let is_same = theirs
            .as_ref()
            .is_some_and(|theirs| theirs.partial.inode == ours.partial.inode);
        let bytes = theirs.map_or(0, |theirs| theirs.done.bytes());
        let is_smaller = *log < self.log_path;
        let has_more = bytes > ours.done.bytes() || bytes == ours.done.bytes() && is_smaller;
        if !is_same && ours.done.is_empty() {
            return self.drop_file(at, path);
        }
        if is_same && has_more {
            self.log().end_file(ours.number, Ending::Dropped)?;
            self.log().commit_durably()?;
        }
        Ok(())
    }

    /// Copies the records of a file from another log to this writer's log. The other log ends the
    /// file in a separate step.
    pub(super) fn take_over(
        &mut self,
        at: &mut Destination,
        log: &RelPath,
        path: &RelPath,
    ) -> Result<bool> {
        let mut file = DiskFile::open(&at.disk, log);
        let Ok(Some(found)) = recover(&mut file) else {
            return Ok(false);
        };
        let Some(theirs) = found.files.get(path).cloned() else {
            return Ok(false);
        };
        if !self.is_trusted(at, &found, path, &theirs)? {
            return Ok(false);
        }
        if at.mutant == Some(Mutant::EndsFirst) {
            self.forget(at, log, path)?;
        }
        at.adopted += 1;
        at.held.entry(log.clone()).or_insert(self.number);
        self.doing = Doing::Adopted {
            log: log.clone(),
            path: path.clone(),
        };
        if at.mutant == Some(Mutant::EndsFirst) {
            // The mutant `EndsFirst` has already ended the file in the other log. A kill before the
            // next step, which adopts the file, loses the file from both logs.
            return Ok(true);
        }
        self.adopt(path, (&mut file, &found), &theirs)?;
        Ok(true)
    }

    fn adopt(
        &mut self,
        path: &RelPath,
        log: (&mut DiskFile, &Recovery),
        theirs: &LoggedFile,
    ) -> Result<()> {
        let own = self.log().file(path).cloned();
        if let Some(own) = own {
            if own.done.bytes() >= theirs.done.bytes() || own.partial.inode != theirs.partial.inode
            {
                return Ok(());
            }
            self.log().end_file(own.number, Ending::Dropped)?;
            self.log().commit_durably()?;
        }
        adopt(self.log(), path, log, theirs, 1)?;
        self.log().commit_durably()
    }

    /// Ends a file in another log, under the lease of that log, and releases the lease.
    pub(super) fn end_theirs(
        &mut self,
        at: &mut Destination,
        log: &RelPath,
        path: &RelPath,
    ) -> Result<()> {
        self.forget(at, log, path)?;
        if at.held.get(log) == Some(&self.number) {
            at.held.remove(log);
        }
        self.doing = Doing::Nothing;
        self.todo.push(path.clone());
        Ok(())
    }

    fn forget(&self, at: &Destination, log: &RelPath, path: &RelPath) -> Result<()> {
        let mut file = DiskFile::open(&at.disk, log);
        let Ok(Some(found)) = recover(&mut file) else {
            return Ok(());
        };
        let Some(number) = found.files.get(path).map(|file| file.number) else {
            return Ok(());
        };
        let own = self.log.as_ref().and_then(|log| log.file(path));
        let theirs = found.files.get(path).map(|file| file.partial.inode);
        if own.map(|own| own.partial.inode) != theirs && at.mutant != Some(Mutant::EndsFirst) {
            return Ok(());
        }
        let tenure = Tenure {
            transfer: found.tenure.transfer.clone(),
            ..self.tenure(at, found.tenure.epoch + 1)?
        };
        let mut theirs = UniversalLog::resume(file, found, tenure)?;
        theirs.end_file(number, Ending::Dropped)?;
        theirs.commit_durably()?;
        let is_empty = theirs.files().next().is_none();
        if is_empty {
            remove(at, log)?;
        }
        Ok(())
    }
}
