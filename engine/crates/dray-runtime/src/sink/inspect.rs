//! Inspects or makes entries before their data is sent. Makes folders and links. For a file,
//! reports the existing entry and the record in the log.

use crate::sink::files::{Space, folder_of, how, unless};
use crate::sink::folders::remember;
use crate::sink::probe;
use dray_core::lock::LockExt;
use dray_core::options::Overwrite;
use dray_core::{ContentKey, End, Error, ErrorKind, Metadata, Name, RelPath, Result};
use dray_log::{LoggedFile, ObjectLog, trust};
use dray_session::sink::decide::special_file_exists;
use dray_session::sink::{Facts, InspectItem, InspectTask, Inspected, Resume};
use dray_store::{FileKind, MadeDir, StoreExt, SyncItem};

impl Space {
    pub(super) fn inspect(&self, item: InspectItem) -> Result<Inspected> {
        let InspectItem { path, task, .. } = item;
        self.strays.pass(&folder_of(&path));
        let is_refused = |folder| self.folders.refused.lock_unpoisoned().contains(&folder);
        if path.parent().is_some_and(is_refused) {
            // The folder of this entry could not be made, and the machine already has that error.
            // Make no entry below the folder, even if it was requested in the same batch.
            if matches!(task, InspectTask::Directory) {
                remember(&self.folders.refused, &path);
            }
            return Err(
                Error::new(ErrorKind::NotADirectory, End::Sink, "create the entry")
                    .cause("the folder that contains the entry could not be created"),
            );
        }
        if let Some(asked) = &self.asked
            && let Err(error) = asked.check(&path, &task)
        {
            if matches!(task, InspectTask::Directory) {
                remember(&self.folders.refused, &path);
            }
            return Err(error);
        }
        match task {
            InspectTask::Directory => self.make_directory(&path).map(|()| Inspected::Made),
            InspectTask::Symlink { target, metadata } => self
                .make_symlink(&path, &target, &metadata)
                .map(|()| Inspected::Made),
            InspectTask::File(key) => self.look(&path, &key).map(Inspected::File),
        }
    }

    fn make_directory(&self, path: &RelPath) -> Result<()> {
        let entered = self.enter_directory(path);
        if entered.is_err() {
            remember(&self.folders.refused, path);
        }
        entered
    }

    fn enter_directory(&self, path: &RelPath) -> Result<()> {
        match self.store.make_dir(path)? {
            MadeDir::Created => {
                self.touch(folder_of(path));
                remember(&self.folders.fresh, path);
            }
            MadeDir::Existed => {
                // A run that died may have made this folder, and its entry may not be durable yet.
                self.touch(folder_of(path));
            }
        }
        Ok(())
    }

    fn make_symlink(&self, path: &RelPath, target: &[u8], metadata: &Metadata) -> Result<()> {
        let overwrite = self.options.overwrite;
        let how = how(overwrite != Overwrite::Never);
        if overwrite != Overwrite::Never && !self.is_in_fresh_folder(path) {
            self.refuse_link(path, target)?;
        }
        let make = |partial: &Name| {
            let made = self
                .store
                .make_symlink(path, partial, target, metadata, how);
            unless(ErrorKind::Busy, made)
        };
        match self.names.claim(path, make) {
            Ok((partial, ())) => {
                self.names.release(path, &partial);
                Ok(())
            }
            // With `--overwrite never`, an existing entry is kept.
            Err(error) if error.kind == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Refuses to replace a file by a link, because the file may be the only copy of the data, and
    /// the link may lead to that file. `--overwrite always` permits the replacement, except for a
    /// link to itself. A device or other special file is never replaced.
    fn refuse_link(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        match self.store.stat(path)?.map(|state| state.kind) {
            Some(FileKind::Special) => return Err(special_file_exists("create the link")),
            Some(FileKind::File) => {}
            Some(FileKind::Directory | FileKind::Symlink) | None => return Ok(()),
        }
        let own_name = target.strip_prefix(b"./").unwrap_or(target);
        let is_itself = path.name().is_some_and(|name| name.as_bytes() == own_name);
        if self.options.overwrite == Overwrite::Always && !is_itself {
            return Ok(());
        }
        let error = Error::new(ErrorKind::AlreadyExists, End::Sink, "create the link");
        Err(if is_itself {
            error
                .cause("the link would replace its own target, which has the same name")
                .remedy("choose another destination")
        } else {
            error
                .cause("a file with the name of the new link already exists")
                .remedy("move the file away, or add --overwrite always")
        })
    }

    /// Returns true if only this transfer has made entries in the folder of `path`.
    fn is_in_fresh_folder(&self, path: &RelPath) -> bool {
        path.parent()
            .is_some_and(|folder| self.folders.is_fresh(&folder))
    }

    fn look(&self, path: &RelPath, key: &ContentKey) -> Result<Facts> {
        if let Some(error) = self.refused(path) {
            return Err(error);
        }
        let existing = if self.is_in_fresh_folder(path) {
            None
        } else {
            probe::existing(self.store.as_ref(), path, key, &|| self.is_over())?
        };
        Ok(Facts {
            existing,
            resume: self.resume(path, key)?,
            layout: self.store.layout_for(path, key.size)?,
        })
    }

    fn resume(&self, path: &RelPath, key: &ContentKey) -> Result<Option<Result<Resume, Error>>> {
        if let Some(resume) = self.adopted(path) {
            return Ok(Some(Ok(resume)));
        }
        let mut guard = self.destination()?;
        let destination = &mut *guard;
        let logged_path = destination.prefix.join_path(path)?;
        let (Some(found), Some(file)) = (&destination.found, destination.log.file(&logged_path))
        else {
            return Ok(None);
        };
        let file: LoggedFile = file.clone();
        self.met.lock_unpoisoned().insert(path.clone());
        let sink = trust::Sink {
            log: &destination.log_words,
            owner: &destination.owner,
            boot_id: &destination.boot_id,
            durability: destination.durability,
        };
        let store = self.store.as_ref();
        let judged = probe::judge(store, path, key, found, (&logged_path, &file), &sink)?;
        if judged.as_ref().is_ok_and(|trusted| trusted.must_sync) {
            let name = &file.partial.name;
            match store.sync_all(&[SyncItem::Partial { path, name }]) {
                Ok(()) => destination.log.file_synced(file.number)?,
                // Mark the old partial file as doubtful. Its ranges are then copied to a new
                // partial file before the first write.
                Err(error) => {
                    self.mark_logged_as_doubtful(destination, path, &file, &error)?;
                }
            }
        }
        Ok(Some(judged.map(probe::resume_of)))
    }
}
