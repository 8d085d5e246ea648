//! Partial files of earlier runs. Before a run continues such a file, it proves that the storage
//! has the recorded ranges. A doubtful file is copied to a new partial file.
//!
//! Invariant: after a write or a sync of an inode has failed in any run, no run writes to that
//! inode.

use crate::sink::doubtful::Doubtful;
use crate::sink::files::{Space, folder_of, unless};
use crate::sink::probe::{self, id_of};
use crate::sink::read_back::Piece;
use dray_core::options::ResumeMode;
use dray_core::{ByteRange, ContentKey, ErrorKind, Name, RelPath, Result, SummedRanges, Sums};
use dray_link::open_file::OpenFile;
use dray_log::pieces::parts;
use dray_log::{Ending, FileBegin, FileNumber, LoggedFile, ObjectLog, PartialFile};
use dray_store::{Partial, PartialRequest, ReadHandle, StoreExt, SyncItem};
use std::sync::Arc;

/// Maximum size in bytes of a record that several neighbouring ranges are merged into. If one of
/// the ranges turns out to be wrong, at most this many bytes are sent again.
const RECORD_BYTES: u64 = 64 << 20;

/// State of a partial file that an earlier run began.
pub(super) struct Kept {
    /// Durable ranges of the file.
    pub(super) done: SummedRanges,
    /// True if the ranges were copied to a new partial file.
    pub(super) is_moved: bool,
}

/// Result of a copy to a new partial file.
#[derive(Default)]
struct Copied {
    done: SummedRanges,
    /// The copied ranges, as they will be recorded in the log.
    records: Vec<(ByteRange, Sums)>,
    /// True if wrong bytes were written to the new file, so that the gaps between its ranges are
    /// not holes.
    is_soiled: bool,
    /// The last read error.
    unread: Option<dray_core::Error>,
}

impl Copied {
    fn add(&mut self, range: ByteRange, sums: Sums) {
        if !self.done.insert(range, sums) {
            return;
        }
        match self.records.last_mut() {
            Some((last, of_last))
                if last.end() == range.offset && last.length + range.length <= RECORD_BYTES =>
            {
                *of_last = of_last.then(sums, range.length);
                last.length += range.length;
            }
            _ => self.records.push((range, sums)),
        }
    }
}

impl Space {
    /// Continues the partial file that the log names.
    ///
    /// # Errors
    /// `NotFound` if the partial file no longer exists. `Cancelled` if the session ends while the
    /// recorded ranges are read. Errors of the store and of the log.
    pub(super) fn continue_file(
        &self,
        path: &RelPath,
        key: ContentKey,
        logged: &LoggedFile,
    ) -> Result<(Arc<OpenFile>, Kept)> {
        let is_same_boot = self.destination()?.is_same_boot();
        let found = probe::found_partial(self.store.as_ref(), path, logged)?;
        let found = found.filter(|found| logged.partial.is(found, is_same_boot));
        let request = PartialRequest {
            name: logged.partial.name.clone(),
            // Use the id of the file that was found: the device number in the log may be of an
            // earlier boot.
            reuse: Some(found.as_ref().map_or(probe::logged_id(logged), id_of)),
        };
        self.touch(folder_of(path));
        let partial = self.store.begin(path, key.size, &request)?;
        // The system reports lost writes to the first sync after the loss, and never again. This
        // sync finds a loss that no earlier run has seen.
        let synced = if logged.is_doubtful {
            Ok(())
        } else {
            partial.sync()
        };
        if let Err(error) = &synced {
            let file = Doubtful {
                path,
                name: &logged.partial.name,
                id: partial.id(),
            };
            self.mark_doubtful(&[(logged.number, file)], error)?;
        }
        let is_doubtful = logged.is_doubtful || synced.is_err();
        if !self.destination()?.log.header().form.has_sums {
            return self.continue_without_sums(path, key, logged, partial, is_doubtful);
        }
        let trusts = self.options.resume == ResumeMode::Trust;
        if is_doubtful || !trusts && !self.is_as_recorded(path, logged)? {
            drop(partial);
            return self.move_file(path, key, logged);
        }
        let name = logged.partial.name.clone();
        let _ = self.names.clear_beside(path, &name);
        let open = self
            .handles
            .adopt(path, key.size, logged.number, name, partial, false);
        if trusts {
            open.set_unread();
        }
        let done = logged.done.clone();
        Ok((
            open,
            Kept {
                done,
                is_moved: false,
            },
        ))
    }

    /// Continues a partial file whose log contains no sums. The sums of the recorded ranges are
    /// those of the bytes on the storage. If the file is doubtful, it begins again, because nothing
    /// shows which bytes are correct.
    fn continue_without_sums(
        &self,
        path: &RelPath,
        key: ContentKey,
        logged: &LoggedFile,
        partial: Box<dyn Partial>,
        is_doubtful: bool,
    ) -> Result<(Arc<OpenFile>, Kept)> {
        let done = match is_doubtful {
            true => None,
            false => self.sums_on_storage(path, logged)?,
        };
        let Some(done) = done else {
            drop(partial);
            let open = self.begin_anew(path, key, logged.object_bytes.get(), None)?;
            let done = SummedRanges::new();
            let is_moved = true;
            return Ok((open, Kept { done, is_moved }));
        };
        let name = logged.partial.name.clone();
        let _ = self.names.clear_beside(path, &name);
        let open = self
            .handles
            .adopt(path, key.size, logged.number, name, partial, false);
        let is_moved = false;
        Ok((open, Kept { done, is_moved }))
    }

    /// Reads the recorded ranges of a partial file, and returns them with the sums of the bytes
    /// that were read. Returns `None` if a range cannot be read.
    ///
    /// # Errors
    /// `Cancelled` if the session ends meanwhile. Errors of opening the file.
    fn sums_on_storage(&self, path: &RelPath, logged: &LoggedFile) -> Result<Option<SummedRanges>> {
        let file = self.open_back(path, &logged.partial.name)?;
        let mut done = SummedRanges::new();
        for (range, _) in logged.done.iter() {
            match self.read_back.sums(file.as_ref(), range) {
                Ok(sums) => done.insert(range, sums),
                Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                Err(_) => return Ok(None),
            };
        }
        Ok(Some(done))
    }

    /// Returns true if the storage has all ranges that the log records for a partial file.
    fn is_as_recorded(&self, path: &RelPath, logged: &LoggedFile) -> Result<bool> {
        let file = self.open_back(path, &logged.partial.name)?;
        for (range, sums) in logged.done.iter() {
            match self.read_back.sums(file.as_ref(), range) {
                Ok(found) if found == sums => {}
                Err(error) if error.kind == ErrorKind::Cancelled => return Err(error),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Copies the correct ranges of a partial file to a new one, and continues with the new file.
    /// The old file remains valid until the copy is durable.
    fn move_file(
        &self,
        path: &RelPath,
        key: ContentKey,
        logged: &LoggedFile,
    ) -> Result<(Arc<OpenFile>, Kept)> {
        let old = self.open_back(path, &logged.partial.name)?;
        let (name, partial) = self.names.claim(path, |name: &Name| {
            let request = PartialRequest {
                name: name.clone(),
                reuse: None,
            };
            let begun = self.store.begin(path, key.size, &request);
            unless(ErrorKind::AlreadyExists, begun)
        })?;
        let moved = self
            .copy_ranges(old.as_ref(), partial.as_ref(), logged)
            .and_then(|copied| self.settle(path, key.clone(), logged, (&name, &*partial), copied));
        match moved {
            Ok((number, copied)) => {
                let is_new = !copied.is_soiled;
                let open = self
                    .handles
                    .adopt(path, key.size, number, name, partial, is_new);
                let done = copied.done;
                Ok((
                    open,
                    Kept {
                        done,
                        is_moved: true,
                    },
                ))
            }
            Err(error) => {
                // Remove the new partial file now. No log names the file, so no later run would
                // remove the file.
                let _ = partial.abort();
                self.names.release(path, &name);
                if error.kind != ErrorKind::NoSpace {
                    return Err(error);
                }
                // The storage has no space for both files. Remove the old one and begin again.
                let open = self.begin_anew(path, key, logged.object_bytes.get(), None)?;
                let done = SummedRanges::new();
                Ok((
                    open,
                    Kept {
                        done,
                        is_moved: true,
                    },
                ))
            }
        }
    }

    fn copy_ranges(
        &self,
        old: &dyn ReadHandle,
        new: &dyn Partial,
        logged: &LoggedFile,
    ) -> Result<Copied> {
        let mut copied = Copied::default();
        for part in parts(logged) {
            let pieces = self.destination()?.log.pieces(logged.number, part)?;
            for (range, sums) in pieces {
                self.copy_piece(old, new, (range, sums), &mut copied)?;
            }
        }
        match copied.unread.take() {
            // If not a single range could be read, the device may be unreachable only for a moment.
            // Return the error, so that the old file is kept.
            Some(error) if copied.done.is_empty() => Err(error),
            _ => Ok(copied),
        }
    }

    fn copy_piece(
        &self,
        old: &dyn ReadHandle,
        new: &dyn Partial,
        (range, sums): (ByteRange, Sums),
        copied: &mut Copied,
    ) -> Result<()> {
        let mut found = Sums::EMPTY;
        let mut write = None;
        let read = self.read_back.each(old, range, &mut |at, piece| {
            match piece {
                Piece::Hole(length) => found = found.then(Sums::of_zeros(length), length),
                Piece::Data(bytes) => {
                    found = found.then(Sums::of(bytes), bytes.len() as u64);
                    let written = new.write_at(at, bytes);
                    write = written.as_ref().err().cloned();
                    written?;
                }
            }
            Ok(())
        });
        match read {
            Ok(()) if found == sums => copied.add(range, sums),
            Ok(()) => copied.is_soiled = true,
            Err(error) if error.kind == ErrorKind::Cancelled || write.is_some() => {
                return Err(error);
            }
            Err(error) => {
                copied.is_soiled = true;
                copied.unread = Some(error);
            }
        }
        Ok(())
    }

    /// Makes the new partial file durable, records it in the log in place of the old partial file,
    /// and removes the old partial file.
    fn settle(
        &self,
        path: &RelPath,
        key: ContentKey,
        logged: &LoggedFile,
        (name, partial): (&Name, &dyn Partial),
        copied: Copied,
    ) -> Result<(FileNumber, Copied)> {
        partial.sync()?;
        let folder = folder_of(path);
        self.store.sync_all(&[SyncItem::Folder(&folder)])?;
        self.check_lease()?;
        let mut guard = self.destination()?;
        let destination = &mut *guard;
        let id = partial.id();
        destination.log.end_file(logged.number, Ending::Dropped)?;
        self.commit(destination)?;
        let number = destination.log.begin_file(FileBegin {
            path: destination.prefix.join_path(path)?,
            key,
            object_bytes: logged.object_bytes,
            partial: PartialFile {
                name: name.clone(),
                device: id.device,
                inode: id.inode,
                born: id.born,
            },
        })?;
        for (range, sums) in &copied.records {
            destination.log.done(number, *range, *sums)?;
        }
        self.commit(destination)?;
        // Ignore errors. If the old partial file cannot be removed now, a later run that needs the
        // name of the file removes the file.
        let _ = self.drop_partial(path, logged, destination.is_same_boot());
        Ok((number, copied))
    }
}
