//! State that both ends of a transfer share: the pool, the names, and the state of files and folders.

use crate::cluster::Cluster;
use crate::errors::{Answer, Errno};
use crate::implied::Scans;
use crate::layout::{OBJECT_SIZE, SIZE, STRIPE_COUNT, STRIPE_UNIT};
use crate::names::{self, Names, State};
use crate::note::{GENERATION, Generation, NOTE, Note, USER_PREFIX, XRDCKS, xrdcks_of};
use crate::places::Places;
use crate::pool::{Got, Job, Pool};
use crate::unpublished::Unpublished;
use crate::url::{FileLayout, Url};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, ModifiedTime, Name, RelPath, Result};
use dray_store::{FileKind, FileState};
use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::{Arc, Mutex};

/// Maximum number of remembered folders in each set. Further folders are looked up at each use.
const FOLDERS_MAX: usize = 65_536;

/// Bounds on the attributes of a file, so that arithmetic with them does not overflow. Ceph has
/// smaller bounds.
const STRIPES_MAX: u64 = 1 << 16;
const OBJECT_BYTES_MAX: u64 = 1 << 40;
const FILE_BYTES_MAX: u64 = 1 << 62;

/// Mode of files that other programs have made.
pub(crate) const FILE_MODE: u32 = 0o644;
/// Mode of folders that other programs have made.
pub(crate) const FOLDER_MODE: u32 = 0o755;

/// A folder of a namespace, with all that its calls need.
pub(crate) struct Files {
    pub(crate) url: Url,
    pub(crate) end: End,
    pub(crate) names: Names,
    /// The namespace with the objects of files.
    pub(crate) data: Pool,
    /// The namespace with all other objects.
    pub(crate) state: Arc<Pool>,
    /// The OSDs of the objects of files.
    pub(crate) places: Arc<Places>,
    /// Contents of small files that are written and not yet published.
    pub(crate) kept: Mutex<Unpublished>,
    /// Full names of folders that are known to exist.
    folders: Mutex<HashSet<Vec<u8>>>,
    /// Full names of folders that this store has made, and that were empty then.
    fresh: Mutex<HashSet<Vec<u8>>>,
    /// Scans for folders of other programs.
    scans: Scans,
}

/// The attributes of the first object of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) size: u64,
    pub(crate) layout: FileLayout,
    /// Number of the file; `None` for a file of another program.
    pub(crate) generation: Option<Generation>,
    pub(crate) note: Option<Note>,
    /// Checksum of XrdCeph, if it is of this version of the first object.
    pub(crate) xrdcks: Option<u32>,
    /// Attributes of users, with their names.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Found {
    /// Parses the attributes of a first object. Returns `None` if one is missing or malformed.
    pub(crate) fn of(got: &Got) -> Option<Self> {
        let number = |name: &CStr| -> Option<u64> {
            std::str::from_utf8(got.attribute(name)?).ok()?.parse().ok()
        };
        let layout = FileLayout {
            object_size: number(OBJECT_SIZE)?,
            stripe_unit: number(STRIPE_UNIT)?,
            stripe_count: number(STRIPE_COUNT)?,
        };
        let is_usable = layout.stripe_unit > 0
            && (1..=STRIPES_MAX).contains(&layout.stripe_count)
            && layout.object_size <= OBJECT_BYTES_MAX
            && layout.object_size >= layout.stripe_unit
            && layout.object_size.is_multiple_of(layout.stripe_unit);
        let mut xattrs: Vec<_> = got
            .attributes
            .iter()
            .filter_map(|(name, value)| {
                Some((name.strip_prefix(USER_PREFIX)?.to_vec(), value.clone()))
            })
            .collect();
        xattrs.sort();
        let size = number(SIZE)?;
        // A note for another size is left from a file that another program has changed.
        let note = got.attribute(NOTE).and_then(Note::parse);
        (is_usable && size <= FILE_BYTES_MAX).then_some(Self {
            size,
            layout,
            generation: got.attribute(GENERATION).and_then(Generation::parse),
            note: note.filter(|note| note.file.size == size),
            xrdcks: got
                .attribute(XRDCKS)
                .and_then(|value| xrdcks_of(value, got.time)),
            xattrs,
        })
    }

    pub(crate) fn objects(&self) -> u64 {
        self.layout.objects(self.size)
    }
}

/// An entry of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    File(Found, ModifiedTime),
    Folder(Option<Note>),
}

impl Entry {
    pub(crate) fn state(&self, pool: i64) -> FileState {
        let device = u64::try_from(pool).unwrap_or(0);
        match self {
            Self::File(found, modified) => FileState {
                kind: FileKind::File,
                size: found.size,
                modified: *modified,
                mode: found.note.map_or(FILE_MODE, |note| note.mode),
                inode: found.generation.map_or(0, |generation| generation.0),
                device,
            },
            Self::Folder(note) => FileState {
                kind: FileKind::Directory,
                size: 0,
                modified: note.map_or_else(ModifiedTime::default, |note| note.file.modified),
                mode: note.map_or(FOLDER_MODE, |note| note.mode),
                inode: 0,
                device,
            },
        }
    }
}

/// Returns the folder of an entry.
pub(crate) fn folder_of(path: &RelPath) -> RelPath {
    path.parent().unwrap_or_else(RelPath::root)
}

/// Returns true if a component of the path is one of dray's own names.
pub(crate) fn is_own(path: &RelPath) -> bool {
    let mut components = path.as_bytes().split(|byte| *byte == b'/');
    components.any(|name| Name::new(name).is_ok_and(|name| name.is_reserved()))
}

impl Files {
    pub(crate) fn open(url: Url, end: End) -> Result<Self> {
        let cluster = Cluster::of(&url.access).map_err(|error| error.at(end))?;
        let open = |namespace: &str| {
            Pool::open(&cluster, &url.pool, namespace).map_err(|error| error.at(end))
        };
        Ok(Self {
            data: open(&url.namespace)?,
            state: Arc::new(open(&url.state_namespace())?),
            names: Names {
                is_absolute: url.is_absolute,
                root: url.path.clone(),
            },
            places: cluster.places(&url.pool),
            end,
            url,
            kept: Mutex::default(),
            folders: Mutex::default(),
            fresh: Mutex::default(),
            scans: Scans::default(),
        })
    }

    pub(crate) fn error(&self, kind: ErrorKind, operation: &str, path: &RelPath) -> Error {
        Error::new(kind, self.end, operation).file(path)
    }

    /// Returns the error of an operation on the entry at `path`.
    pub(crate) fn failed(&self, errno: Errno, operation: &str, path: &RelPath) -> Error {
        self.places.doubt(errno);
        errno.at(self.end, operation, path)
    }

    /// Converts the result of an operation on the entry at `path`.
    pub(crate) fn about<T>(&self, answer: Answer<T>, operation: &str, path: &RelPath) -> Result<T> {
        answer.map_err(|errno| self.failed(errno, operation, path))
    }

    pub(crate) fn full(&self, path: &RelPath) -> Result<Vec<u8>> {
        self.names.full(self.end, path)
    }

    /// Returns the first objects of the files at `fulls`. An item is `None` if the file is missing.
    pub(crate) fn firsts(&self, fulls: &[&[u8]]) -> Vec<Answer<Option<Got>>> {
        let jobs = fulls.iter().map(|full| {
            let object = names::object(full, 0);
            let osd = self.osd(&object);
            Job::look(object).on(osd)
        });
        let found = self.data.run(jobs.collect()).into_iter();
        found.map(absent).collect()
    }

    /// Returns the attributes of the file at `path`, if it exists.
    pub(crate) fn find(&self, path: &RelPath) -> Result<Option<Found>> {
        let full = self.full(path)?;
        if full.is_empty() {
            return Ok(None);
        }
        let got = self.firsts(&[&full]).pop().unwrap_or(Ok(None));
        match self.about(got, "look up the file", path)? {
            None => Ok(None),
            Some(got) => self.parse(&got, path).map(Some),
        }
    }

    pub(crate) fn parse(&self, got: &Got, path: &RelPath) -> Result<Found> {
        Found::of(got).ok_or_else(|| {
            self.error(ErrorKind::Unsupported, "look up the file", path)
                .cause("the first object of the file lacks attributes that libradosstriper writes")
                .remedy("write the file again, or exclude it")
        })
    }

    /// Returns the modification time of a file. For a file of another program, returns the time of
    /// its last object. If such a file has only one object, returns 0, because a reader of XrdCeph
    /// locks the first object and so changes the time of this object.
    pub(crate) fn modified(&self, full: &[u8], found: &Found) -> Answer<ModifiedTime> {
        if let Some(note) = &found.note {
            return Ok(note.file.modified);
        }
        let last = found.objects() - 1;
        if last == 0 {
            return Ok(ModifiedTime::default());
        }
        let object = names::object(full, last);
        let osd = self.osd(&object);
        let got = absent(self.data.one(Job::look(object).on(osd)))?;
        Ok(ModifiedTime {
            seconds: got.map_or(0, |got| got.time),
            nanoseconds: 0,
        })
    }

    /// Returns the note of the folder with this full name. The outer value is `None` if the folder
    /// is missing, and the inner value if the folder has no note.
    pub(crate) fn folder(&self, full: &[u8]) -> Answer<Option<Option<Note>>> {
        if full.is_empty() {
            return Ok(Some(None));
        }
        let got = absent(self.state.one(Job::look(State::Folder.object(full))))?;
        Ok(got.map(|got| folder_note(&got)))
    }

    /// Returns the entry at `path`: a file, or a folder. A folder of other programs in a very large
    /// namespace is not found.
    pub(crate) fn entry(&self, path: &RelPath) -> Result<Option<Entry>> {
        const OPERATION: &str = "look up the entry";
        let full = self.full(path)?;
        if full.is_empty() {
            return Ok(Some(Entry::Folder(None)));
        }
        let object = names::object(&full, 0);
        let osd = self.osd(&object);
        let (mut file, mut folder) = Pool::run_both(
            (&self.data, vec![Job::look(object).on(osd)]),
            (&self.state, vec![Job::look(State::Folder.object(&full))]),
        );
        let file = absent(file.pop().unwrap_or(Err(Errno::NOT_FOUND)));
        if let Some(got) = self.about(file, OPERATION, path)? {
            let found = self.parse(&got, path)?;
            let modified = self.about(self.modified(&full, &found), OPERATION, path)?;
            return Ok(Some(Entry::File(found, modified)));
        }
        let folder = absent(folder.pop().unwrap_or(Err(Errno::NOT_FOUND)));
        if let Some(note) = self
            .about(folder, OPERATION, path)?
            .map(|got| folder_note(&got))
        {
            self.remember(&full);
            return Ok(Some(Entry::Folder(note)));
        }
        if self.is_of_others(path)? {
            return Ok(Some(Entry::Folder(None)));
        }
        self.check_above(path)?;
        Ok(None)
    }

    pub(crate) fn remember(&self, full: &[u8]) {
        let mut folders = self.folders.lock_unpoisoned();
        if folders.len() < FOLDERS_MAX {
            folders.insert(full.to_vec());
        }
    }

    pub(crate) fn forget(&self, full: &[u8]) {
        self.folders.lock_unpoisoned().remove(full);
        self.fresh.lock_unpoisoned().remove(full);
    }

    /// Records that this store has made a folder without files.
    pub(crate) fn remember_fresh(&self, full: &[u8]) {
        let mut fresh = self.fresh.lock_unpoisoned();
        if fresh.len() < FOLDERS_MAX {
            fresh.insert(full.to_vec());
        }
    }

    pub(crate) fn is_fresh(&self, full: &[u8]) -> bool {
        self.fresh.lock_unpoisoned().contains(full)
    }

    /// Returns true if other programs have files below the folder at `path`. Call this only for a
    /// folder for which dray has stored no object.
    pub(crate) fn is_of_others(&self, path: &RelPath) -> Result<bool> {
        Ok(self.has_files_below(path)? == Some(true))
    }

    /// Returns true if files are below the folder at `path`. Returns `None` if that is unknown,
    /// because the namespace is very large.
    pub(crate) fn has_files_below(&self, path: &RelPath) -> Result<Option<bool>> {
        if is_own(path) {
            // Other programs have no files below dray's own names.
            return Ok(Some(false));
        }
        let full = self.full(path)?;
        let found = self.scans.has_files_below(&self.data, &self.names, &full);
        self.about(found, "look up the folder", path)
    }

    fn is_remembered(&self, full: &[u8]) -> bool {
        full.is_empty() || self.folders.lock_unpoisoned().contains(full)
    }

    /// Fails if one of the folders above `path` is a file. Missing folders are permitted.
    pub(crate) fn check_above(&self, path: &RelPath) -> Result<()> {
        let mut above = path.parent();
        while let Some(folder) = above.filter(|folder| !folder.is_root()) {
            match self.is_folder(&folder) {
                Ok(true) => return Ok(()),
                Ok(false) => above = folder.parent(),
                Err(error) => return Err(error.file(path)),
            }
        }
        Ok(())
    }

    /// Returns true if a folder is at `path`. Fails if a file is there.
    pub(crate) fn is_folder(&self, path: &RelPath) -> Result<bool> {
        Ok(self.is_made(path)? || self.is_of_others(path)?)
    }

    /// Returns true if dray has made a folder at `path`. Fails if a file is there.
    pub(crate) fn is_made(&self, path: &RelPath) -> Result<bool> {
        let full = self.full(path)?;
        if path.is_root() || self.is_remembered(&full) {
            return Ok(true);
        }
        let note = self.about(self.folder(&full), "look up the folder", path)?;
        if note.is_some() {
            self.remember(&full);
            return Ok(true);
        }
        let file = self.firsts(&[&full]).pop().unwrap_or(Ok(None));
        match self.about(file, "look up the folder", path)? {
            None => Ok(false),
            Some(_) => Err(self
                .error(ErrorKind::NotADirectory, "look up the folder", path)
                .cause("a file with this name exists")
                .remedy("move the existing file away, or choose another destination")),
        }
    }

    /// Fails if the folder of `path` does not exist.
    pub(crate) fn need_folder(&self, path: &RelPath, operation: &str) -> Result<()> {
        let folder = folder_of(path);
        match self.is_folder(&folder) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self
                .error(ErrorKind::NotFound, operation, path)
                .cause("the folder does not exist")),
            Err(error) => Err(error.file(path)),
        }
    }
}

/// Returns the note in the object of a folder. A folder without a note has the time of its object.
fn folder_note(got: &Got) -> Option<Note> {
    let time = ModifiedTime {
        seconds: got.time,
        nanoseconds: 0,
    };
    let made = Note::of_folder(time, FOLDER_MODE);
    Some(got.attribute(NOTE).and_then(Note::parse).unwrap_or(made))
}

/// Returns `None` for a missing object.
pub(crate) fn absent(answer: Answer<Got>) -> Answer<Option<Got>> {
    match answer {
        Ok(got) => Ok(Some(got)),
        Err(Errno::NOT_FOUND) => Ok(None),
        Err(errno) => Err(errno),
    }
}
