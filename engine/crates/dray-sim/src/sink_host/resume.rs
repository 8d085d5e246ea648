//! What is left of earlier runs: judged by the log's rules of trust, continued or dropped.

use super::{Partial, SinkHost, beside, wrong};
use crate::disk::Node;
use crate::mutants::Mutant;
use dray_core::{ContentKey, ErrorKind, FileIndex, Metadata, RelPath, Result};
use dray_log::trust::{FoundPartial, Verdict, judge};
use dray_log::{Ending, FileBegin, ObjectLog, PartialFile, place};
use dray_session::sink::Resume;
use std::num::NonZeroU64;

impl SinkHost {
    pub(super) fn resume(
        &mut self,
        path: &RelPath,
        key: &ContentKey,
    ) -> Result<Option<Result<Resume>>> {
        let is_logged = self
            .log
            .as_ref()
            .is_some_and(|log| log.file(path).is_some());
        let Some((recovery, true)) = self.recovery.as_ref().map(|found| (found, is_logged)) else {
            return Ok(None);
        };
        let Some(file) = recovery.files.get(path) else {
            return Ok(None);
        };
        let place = beside(path, &file.partial.name)?;
        let mut found = self.found(&place);
        if self.mutant == Some(Mutant::TrustBlindly) && found.is_some() {
            found = Some(FoundPartial {
                device: file.partial.device,
                inode: file.partial.inode,
                born: file.partial.born,
                size: u64::MAX,
            });
        }
        let verdict = judge(recovery, path, file, &self.trusting(), found.as_ref(), key);
        match verdict {
            Verdict::Trusted(trusted) => {
                if trusted.must_sync {
                    self.must_sync.insert(path.clone());
                }
                Ok(Some(Ok(Resume {
                    done: trusted.done,
                    object_bytes: trusted.object_bytes.get(),
                })))
            }
            Verdict::StartOver(error) => {
                self.drop_logged(path)?;
                Ok(Some(Err(error)))
            }
            Verdict::Refused(error) => Err(error),
        }
    }

    fn found(&self, place: &RelPath) -> Option<FoundPartial> {
        let disk = self.disk.borrow();
        match disk.look(place) {
            Some(Node::File(inode, _)) => Some(FoundPartial {
                device: 1,
                inode: *inode,
                born: *inode,
                size: disk.bytes(*inode).len() as u64,
            }),
            _ => None,
        }
    }

    /// Ends an unfinished file of the log and removes its partial file.
    pub(super) fn drop_logged(&mut self, path: &RelPath) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        let Some(file) = log.file(path) else {
            return Ok(());
        };
        let (number, place) = (file.number, beside(path, &file.partial.name)?);
        log.end_file(number, Ending::Dropped)?;
        log.commit()?;
        let mut disk = self.disk.borrow_mut();
        if disk.look(&place).is_some() {
            disk.remove_name(&place)?;
        }
        Ok(())
    }

    /// Opens a partial file.
    ///
    /// # Errors
    /// What disk and log say.
    pub fn prepare(
        &mut self,
        index: FileIndex,
        path: &RelPath,
        key: &ContentKey,
        object_bytes: u64,
        resume: bool,
    ) -> Result<()> {
        self.check_lease()?;
        let name = path
            .name()
            .ok_or_else(|| wrong(ErrorKind::InvalidName, "open the partial file", path))?;
        if resume {
            return self.continue_partial(index, path);
        }
        self.drop_logged(path)?;
        let place = beside(path, &place::partial_name(&name)?)?;
        let inode = {
            let mut disk = self.disk.borrow_mut();
            let inode = disk.create()?;
            disk.put_name(&place, Node::File(inode, Metadata::default()))?;
            disk.truncate(inode, key.size)?;
            inode
        };
        let begin = FileBegin {
            path: path.clone(),
            key: key.clone(),
            object_bytes: NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
            partial: PartialFile {
                name: place::partial_name(&name)?,
                device: 1,
                inode,
                born: inode,
            },
        };
        let number = self.log()?.begin_file(begin)?;
        let partial = Partial {
            path: path.clone(),
            place,
            inode,
            number,
            is_entry_durable: false,
        };
        self.partials.insert(index, partial);
        Ok(())
    }

    fn continue_partial(&mut self, index: FileIndex, path: &RelPath) -> Result<()> {
        let gone = || wrong(ErrorKind::NotFound, "continue the partial file", path);
        let file = self.log.as_ref().and_then(|log| log.file(path));
        let file = file.ok_or_else(gone)?;
        let (number, place) = (file.number, beside(path, &file.partial.name)?);
        let found = self.found(&place).ok_or_else(gone)?;
        if self.must_sync.remove(path) {
            let mut disk = self.disk.borrow_mut();
            let now = disk.now();
            disk.sync(found.inode, now)?;
            drop(disk);
            self.log()?.file_synced(number)?;
        }
        let partial = Partial {
            path: path.clone(),
            place,
            inode: found.inode,
            number,
            is_entry_durable: false,
        };
        self.partials.insert(index, partial);
        Ok(())
    }
}
