//! The store: a folder in a namespace of a pool.

use crate::control::RadosControl;
use crate::errors::Errno;
use crate::files::{Entry, Files, Found, folder_of, is_own};
use crate::names::State;
use crate::note::{GENERATION, NOTE, Note, USER_PREFIX};
use crate::partial::Part;
use crate::pool::{Job, Step};
use crate::read::RadosFile;
use crate::url::Url;
use dray_core::lock::{LockExt, RwLockExt};
use dray_core::{
    Checksum, End, ErrorKind, Layout, Metadata, ModifiedTime, Name, RelPath, Result, Sums,
};
use dray_store::{
    Capabilities, ControlFile, ControlMode, FileKind, FileNote, FileState, FreeSpace, Holding,
    ListOptions, Lister, MadeDir, Partial, PartialId, PartialRequest, Publish, ReadHandle,
    ReadPurpose, SmallFile, SmallName, Store, SyncItem, Target, unsupported,
};
use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A folder in a pool, open for reading and writing.
///
/// If the cluster puts this process on its blocklist, the next call opens a new connection. Handles
/// that were opened before stay on the former connection, so all their calls fail.
pub struct RadosStore(RwLock<Arc<Files>>);

/// Time after the loss of a lease during which the former holder may still change a name. Zero
/// would be correct: the former holder is on the blocklist, so the OSDs refuse its calls before
/// they execute the first call of the new holder. The value is not zero, because callers treat a
/// store with the value zero as local.
const LATE_CALLS: Duration = Duration::from_secs(1);

impl RadosStore {
    /// Opens the folder of `url` for the end `end`. The folder need not exist.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if librados cannot be loaded; errors of the cluster.
    pub fn open(url: Url, end: End) -> Result<Self> {
        Files::open(url, end).map(|files| Self(RwLock::new(Arc::new(files))))
    }

    /// Returns the present connection.
    fn files(&self) -> Arc<Files> {
        let files = Arc::clone(&self.0.read_unpoisoned());
        if !files.data.cluster.is_lost.load(Ordering::SeqCst) {
            return files;
        }
        match Files::open(files.url.clone(), files.end) {
            Ok(opened) => {
                let opened = Arc::new(opened);
                *self.0.write_unpoisoned() = Arc::clone(&opened);
                opened
            }
            // The calls report the error of the former connection.
            Err(_) => files,
        }
    }

    /// Returns a checksum that dray or XrdCeph has stored with the file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the file does not exist; errors of the cluster.
    pub fn checksum(&self, path: &RelPath) -> Result<Option<Checksum>> {
        let found = self.found(path)?;
        let own = found.note.and_then(|note| note.file.sums);
        let own = own.map(|sums| Checksum::Crc32c(sums.crc32c));
        Ok(own.or(found.xrdcks.map(Checksum::Adler32)))
    }

    fn found(&self, path: &RelPath) -> Result<Found> {
        let files = self.files();
        files.find(path)?.ok_or_else(|| {
            let operation = "read the checksums of the file";
            files
                .error(ErrorKind::NotFound, operation, path)
                .cause("the file does not exist")
        })
    }

    /// Creates the folder and its missing parents.
    ///
    /// # Errors
    /// [`ErrorKind::NotADirectory`] if the folder or one of its parents is a file; errors of the
    /// cluster.
    pub fn make_root(&self) -> Result<()> {
        let url = Url {
            path: RelPath::root(),
            ..self.files().url.clone()
        };
        let above = Files::open(url, self.files().end)?;
        let mut folder = RelPath::root();
        for name in self.files().url.path.components() {
            folder = folder.join(&name)?;
            above.make_dir(&folder)?;
        }
        Ok(())
    }

    /// Opens another folder of the same namespace.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn elsewhere(&self, folder: &RelPath) -> Result<Self> {
        Self::open(self.files().url.with_path(folder), self.files().end)
    }
}

impl Files {
    pub(crate) fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        const OPERATION: &str = "create the folder";
        if path.is_root() || self.is_made(path)? {
            return Ok(MadeDir::Existed);
        }
        self.need_folder(path, OPERATION)?;
        let full = self.full(path)?;
        // The caller looks up no entries in a folder that was `Created`. If other programs have
        // files there, the caller would replace these files. So such a folder counts as `Existed`.
        let is_in_fresh = self.is_fresh(&self.full(&folder_of(path))?);
        let is_empty = is_in_fresh || self.has_files_below(path)? == Some(false);
        let made = self.state.one(Job::write(
            State::Folder.object(&full),
            vec![Step::CreateNew],
        ));
        let made = match made {
            Err(Errno::EXISTS) => Ok(MadeDir::Existed),
            made => made.map(|_| match is_empty {
                true => MadeDir::Created,
                false => MadeDir::Existed,
            }),
        };
        let made = self.about(made, OPERATION, path)?;
        self.remember(&full);
        if made == MadeDir::Created {
            self.remember_fresh(&full);
        }
        Ok(made)
    }

    /// Returns the state of one of dray's own files: a control file or a partial file.
    fn own_state(&self, path: &RelPath) -> Result<Option<FileState>> {
        if !is_own(path) {
            return Ok(None);
        }
        let full = self.full(path)?;
        let jobs = [State::Control, State::Partial].map(|kind| Job::look(kind.object(&full)));
        for answer in self.state.run(jobs.into()) {
            let got = match answer {
                Err(Errno::NOT_FOUND) => continue,
                answer => self.about(answer, "look up the file", path)?,
            };
            let generation = got
                .attribute(GENERATION)
                .and_then(crate::note::Generation::parse);
            // The state object of a partial file has only the bytes of the first object.
            let size = crate::files::Found::of(&got).map_or(got.size, |found| found.size);
            return Ok(Some(FileState {
                kind: FileKind::File,
                size,
                modified: ModifiedTime {
                    seconds: got.time,
                    nanoseconds: 0,
                },
                mode: 0o600,
                inode: generation.map_or(0, |generation| generation.0),
                device: u64::try_from(self.data.number).unwrap_or(0),
            }));
        }
        Ok(None)
    }

    fn discard(&self, path: &RelPath, partial: Vec<u8>, only: Option<PartialId>) -> Result<()> {
        self.kept.lock_unpoisoned().take_if(&partial, |_| true);
        let got = self.about(self.state_of(&partial), "delete the partial file", path)?;
        let Some(got) = got else {
            return Ok(());
        };
        let (part, size) = self.part_of(&got, path, partial)?;
        if only.is_some_and(|only| !part.id(self).is(&only)) {
            return Ok(());
        }
        self.discard_part(&part, size)
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        const OPERATION: &str = "delete the entry";
        let full = self.full(path)?;
        let first = self.about(
            self.firsts(&[&full]).pop().unwrap_or(Ok(None)),
            OPERATION,
            path,
        )?;
        if let Some(first) = first {
            let part = Part {
                path: path.clone(),
                partial: Vec::new(),
                full,
                generation: crate::note::Generation(0),
                layout: self.url.layout,
                is_direct: true,
            };
            return self.remove_file(&part, &first);
        }
        if is_own(path) {
            self.discard(path, full.clone(), None)?;
            self.remove_control(path)?;
            return self.remove_control_folder(path);
        }
        let folder = self.about(self.folder(&full), OPERATION, path)?;
        if full.is_empty() || (folder.is_none() && !self.is_of_others(path)?) {
            return Ok(());
        }
        if self.has_entries(path)? {
            return Err(self
                .error(ErrorKind::AlreadyExists, OPERATION, path)
                .cause("the folder is not empty"));
        }
        self.forget(&full);
        self.remove_object(State::Folder.object(&full), path)
    }

    pub(crate) fn remove_object(&self, object: CString, path: &RelPath) -> Result<()> {
        match self.state.one(Job::write(object, vec![Step::Remove])) {
            Err(Errno::NOT_FOUND) => Ok(()),
            removed => self.about(removed, "delete the entry", path).map(drop),
        }
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        let mut results = Vec::with_capacity(items.len());
        for chunk in items.chunks(crate::partial::BATCH) {
            let mut looks = Vec::new();
            for item in chunk {
                if let SyncItem::File(path) = item {
                    looks.push(Job::look(crate::names::object(&self.full(path)?, 0)));
                }
            }
            let mut looks = self.data.run(looks).into_iter();
            for item in chunk {
                let SyncItem::File(path) = item else {
                    // The pool has answered all writes of a partial file, so they are durable.
                    results.push(Ok(()));
                    continue;
                };
                let answer = looks.next().unwrap_or(Err(Errno::NOT_FOUND));
                match self.about(answer, "sync", path).map(drop) {
                    Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                    Err(error) => {
                        results.push(Err(error.cause("another program has removed the file")));
                    }
                    Ok(()) => results.push(Ok(())),
                }
            }
        }
        Ok(results)
    }

    /// Sets the mode and the attributes of a file.
    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        const OPERATION: &str = "set the attributes of the file";
        let found = self.find(path)?.ok_or_else(|| {
            self.error(ErrorKind::NotFound, OPERATION, path)
                .cause("the file does not exist")
        })?;
        let full = self.full(path)?;
        let modified = self.about(self.modified(&full, &found), OPERATION, path)?;
        let before = found.note.unwrap_or(Note {
            file: FileNote {
                size: found.size,
                modified,
                sums: None,
            },
            mode: crate::files::FILE_MODE,
        });
        let note = Note {
            mode: metadata.mode & 0o777,
            ..before
        };
        let changed = metadata
            .xattrs
            .iter()
            .filter(|one| !found.xattrs.contains(one));
        let changed: Vec<(CString, &Vec<u8>)> = changed
            .filter_map(|(name, value)| {
                Some((CString::new([USER_PREFIX, name].concat()).ok()?, value))
            })
            .collect();
        if (before.mode & 0o777) == note.mode && changed.is_empty() {
            return Ok(false);
        }
        let (text, generation) = (note.text(), found.generation.map(|one| one.text()));
        let mut steps = vec![Step::Exists];
        steps.extend(
            generation
                .iter()
                .map(|text| Step::Equals(GENERATION, text.as_bytes())),
        );
        steps.push(Step::Set(NOTE, text.as_bytes()));
        steps.extend(changed.iter().map(|(name, value)| Step::Set(name, value)));
        let set = self
            .data
            .one(Job::write(crate::names::object(&full, 0), steps));
        self.about(set, OPERATION, path).map(|_| true)
    }
}

impl Store for RadosStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_write: true,
            atomic_rename: true,
            publish_if_absent: true,
            publish_replace: true,
            can_hold_log: true,
            sets_times: true,
            time_precision_nanoseconds: 1,
            xattrs: true,
            mode: true,
            takes_many: true,
            late_calls: LATE_CALLS,
            writes_durably: true,
            ..Capabilities::MINIMAL
        }
    }

    fn targets(&self) -> Vec<Target> {
        self.files().targets()
    }

    fn layout(&self, path: &RelPath) -> Result<Layout> {
        let files = self.files();
        let found = files.find(path)?;
        Ok(files.layout_of(&files.full(path)?, found.as_ref()))
    }

    fn free_space(&self, path: &RelPath) -> Result<FreeSpace> {
        self.files().about(
            self.files().space(),
            "read the free space of the pool",
            path,
        )
    }

    fn list(&self, top: &RelPath, options: &ListOptions) -> Result<Box<dyn Lister>> {
        self.files().list(top, options)
    }

    fn open_read(&self, path: &RelPath, _purpose: ReadPurpose) -> Result<Box<dyn ReadHandle>> {
        const OPERATION: &str = "open the file";
        let files = self.files();
        match files.entry(path)? {
            Some(Entry::File(found, modified)) => {
                return Ok(Box::new(RadosFile::new(&files, path, found, modified)?));
            }
            Some(Entry::Folder(_)) => {
                let error = files.error(ErrorKind::IsADirectory, OPERATION, path);
                return Err(error.cause("a folder with this name exists"));
            }
            None => {}
        }
        if let Some(state) = files.own_state(path)?
            && let Some(partial) = files.read_partial(path, state.modified)?
        {
            return Ok(Box::new(partial));
        }
        let error = files.error(ErrorKind::NotFound, OPERATION, path);
        Err(error.cause("no file with this name exists"))
    }

    fn stat(&self, path: &RelPath) -> Result<Option<FileState>> {
        match self.files().entry(path)? {
            Some(entry) => Ok(Some(entry.state(self.files().data.number))),
            None => self.files().own_state(path),
        }
    }

    fn holding(&self, path: &RelPath) -> Result<Option<Holding>> {
        self.files().holding(path)
    }

    fn gather_lost(&self, before: SystemTime) -> Result<u64> {
        let before = before.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
        self.files().gather_lost(seconds)
    }

    fn known_sums(&self, path: &RelPath) -> Result<Option<Sums>> {
        Ok(self.found(path)?.note.and_then(|note| note.file.sums))
    }

    fn make_dir(&self, path: &RelPath) -> Result<MadeDir> {
        self.files().make_dir(path)
    }

    fn set_directory(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let full = self.files().full(path)?;
        if full.is_empty() {
            return Ok(());
        }
        let note = Note::of_folder(metadata.modified, metadata.mode & 0o7777);
        let text = note.text();
        let steps = vec![Step::Touch, Step::Set(NOTE, text.as_bytes())];
        let set = self
            .files()
            .state
            .one(Job::write(State::Folder.object(&full), steps));
        self.files()
            .about(set, "set the attributes of the folder", path)
            .map(drop)
    }

    fn set_file(&self, path: &RelPath, metadata: &Metadata) -> Result<bool> {
        self.files().set_file(path, metadata)
    }

    fn make_symlink(
        &self,
        path: &RelPath,
        _partial: &Name,
        _text: &[u8],
        _metadata: &Metadata,
        _how: Publish,
    ) -> Result<()> {
        let cause = "a Ceph pool cannot store symbolic links";
        Err(
            unsupported(self.files().end, "create the link", path, cause)
                .remedy("copy the targets of links with --links follow, or exclude links"),
        )
    }

    fn begin(
        &self,
        path: &RelPath,
        size_bytes: u64,
        request: &PartialRequest,
    ) -> Result<Box<dyn Partial>> {
        let partial = match request.reuse {
            None => self.files().create(path, &request.name, size_bytes)?,
            Some(id) => self.files().reopen(path, &request.name, id)?,
        };
        Ok(Box::new(partial))
    }

    fn write_small_each(&self, files: &[SmallFile<'_>]) -> Vec<Result<PartialId>> {
        self.files().write_small(files)
    }

    fn publish_small_each(&self, files: &[SmallName<'_>]) -> Vec<Result<()>> {
        self.files().publish_small(files)
    }

    fn discard(&self, path: &RelPath, partial: &Name, only: Option<PartialId>) -> Result<()> {
        let partial = self.files().beside(path, partial)?;
        self.files().discard(path, partial, only)
    }

    fn sync_each(&self, items: &[SyncItem<'_>]) -> Result<Vec<Result<()>>> {
        self.files().sync_each(items)
    }

    fn remove(&self, path: &RelPath) -> Result<()> {
        self.files().remove(path)
    }

    fn open_control(&self, path: &RelPath, mode: ControlMode) -> Result<Box<dyn ControlFile>> {
        Ok(Box::new(RadosControl::open(&self.files(), path, mode)?))
    }

    fn remove_control(&self, path: &RelPath) -> Result<()> {
        self.files().remove_control(path)
    }

    fn list_control(&self, folder: &RelPath) -> Result<Vec<Name>> {
        self.files().control_names(folder)
    }
}
