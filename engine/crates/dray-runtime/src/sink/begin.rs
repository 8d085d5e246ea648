//! Begins a new partial file, and records it in the log.

use crate::sink::files::{Space, folder_of, unless};
use dray_core::lock::LockExt;
use dray_core::{ContentKey, End, Error, ErrorKind, Name, RelPath, Result};
use dray_link::open_file::OpenFile;
use dray_log::{Ending, FileBegin, FileNumber, ObjectLog, PartialFile};
use dray_store::PartialRequest;
use std::num::NonZeroU64;
use std::sync::Arc;

impl Space {
    /// Begins a new partial file. If the log has an earlier number of this file, ends that number.
    pub(super) fn begin_anew(
        &self,
        path: &RelPath,
        key: ContentKey,
        object_bytes: u64,
        stripes: Option<&[u8]>,
    ) -> Result<Arc<OpenFile>> {
        let logged_path = {
            let mut guard = self.destination()?;
            let destination = &mut *guard;
            let logged_path = destination.prefix.join_path(path)?;
            let logged = destination.log.file(&logged_path).cloned();
            if let Some(logged) = logged {
                // Commit before the partial file is made again. Otherwise the old records would
                // apply to the new file.
                destination.log.end_file(logged.number, Ending::Dropped)?;
                self.commit(destination)?;
                let is_same_boot = destination.is_same_boot();
                self.drop_partial(path, &logged, is_same_boot)?;
            }
            logged_path
        };
        let size = key.size;
        let begin = |name: &Name| {
            let request = PartialRequest {
                name: name.clone(),
                reuse: None,
            };
            let begun = match stripes {
                Some(stripes) => self.store.begin_striped(path, size, &request, stripes),
                None => self.store.begin(path, size, &request),
            };
            unless(ErrorKind::AlreadyExists, begun)
        };
        // Do not hold the destination's lock while the store creates the file. Otherwise a slow
        // storage target would delay the log records of all files.
        let (name, partial) = self.names.claim(path, begin)?;
        self.touch(folder_of(path));
        let id = partial.id();
        self.met.lock_unpoisoned().insert(path.clone());
        let begin = FileBegin {
            path: logged_path,
            key,
            object_bytes: NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
            partial: PartialFile {
                name: name.clone(),
                device: id.device,
                inode: id.inode,
                born: id.born,
            },
        };
        match self.record_begin(begin) {
            Ok(number) => Ok(self.handles.adopt(path, size, number, name, partial, true)),
            Err(error) => {
                // Remove the partial file now. No log names the file, so no later run would remove
                // the file.
                let _ = self.noting(path, partial.abort());
                self.names.release(path, &name);
                Err(error)
            }
        }
    }

    /// Records the begin of a file in the log. Appends the record immediately: another transfer that
    /// is about to begin the same file reads this log.
    fn record_begin(&self, begin: FileBegin) -> Result<FileNumber> {
        let ticket = self.begin_records.push(begin);
        let mut destination = self.destination()?;
        if let Some(result) = self.begin_records.result(ticket) {
            return result;
        }
        // Without the lease, all queued records fail. A record that stayed in the queue would be
        // appended later, although its partial file is removed.
        let is_held = self.check_lease_often();
        let mut begun = Vec::new();
        for (ticket, begin) in self.begin_records.take_waiting() {
            let number = is_held
                .clone()
                .and_then(|()| destination.log.begin_file(begin));
            begun.push((ticket, number));
        }
        let written = is_held.and_then(|()| destination.log.write_pending());
        let results = begun.into_iter().map(|(ticket, begun)| {
            let result = begun.and_then(|number| written.clone().map(|()| number));
            (ticket, result)
        });
        // Another thread looks for its result when it gets the destination's lock, so set the
        // results before the lock is released.
        self.begin_records.set_results(results);
        drop(destination);
        self.begin_records.result(ticket).unwrap_or_else(|| {
            Err(
                Error::new(ErrorKind::Internal, End::Sink, "record the file in the log")
                    .cause("the record is not in the queue of records"),
            )
        })
    }
}
