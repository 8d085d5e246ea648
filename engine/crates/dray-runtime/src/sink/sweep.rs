//! Finds partial data beneath a folder that no transfer resumes, and removes it on request.
//!
//! A walk finds logs with all files that they name, leases and other remnants of removed logs, and
//! partial files that no log names. The caller decides about their removal.
//!
//! Invariants owned here: data of a live writer is never touched; data that changed after it was
//! found stays; a log is removed after all files that it names.

mod purge;
mod remove;
mod survey;

pub use purge::Purged;
pub(in crate::sink) use remove::remove_silent;
pub use remove::{Removed, remove};

use super::log_place::{log_folder, reachable};
use super::other_logs::OtherLogs;
use dray_core::{
    End, EntryKind, Error, ErrorKind, ModifiedTime, Name, RelPath, Result, TransferId,
};
use dray_log::layout;
use dray_store::{Holding, ListOptions, Lister, PartialId, PosixOptions, PosixStore, Store};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Minimum age of an orphan, whatever the caller requests: a writer on a host whose locks do not
/// reach us may be active, and clocks of hosts differ.
pub const AGE_MIN: Duration = Duration::from_secs(3600);

/// Kinds of found data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A log, with its lease and the partial files that it names.
    Log,
    /// A remnant of a removed log: a lease, an unfinished replacement.
    Remnant,
    /// A partial file that no log names.
    Partial,
}

impl What {
    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Remnant => "remnant",
            Self::Partial => "partial",
        }
    }
}

/// Partial data, in its state when it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub what: What,
    /// Path beneath the folder of the log (of a remnant: its former path) or the partial file.
    pub path: RelPath,
    /// Owner in the log; `None` for a file without a log.
    pub owner: Option<Vec<u8>>,
    /// The last transfer that held it, if known.
    pub transfer: Option<TransferId>,
    /// Number of partial files.
    pub files: u64,
    /// Bytes of all of it on the storage.
    pub bytes: u64,
    /// Time of the last change of any part.
    pub changed: ModifiedTime,
    /// True if a writer is active: then it is no orphan at any age.
    pub is_held: bool,
    /// Identity of a partial file without a log.
    id: Option<PartialId>,
}

impl Found {
    /// Returns the time since the last change; zero for a time in the future.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanoseconds = u64::from(self.changed.nanoseconds);
        match u64::try_from(self.changed.seconds) {
            Ok(seconds) => since_1970
                .saturating_sub(Duration::from_secs(seconds))
                .saturating_sub(Duration::from_nanos(nanoseconds)),
            Err(_) => since_1970,
        }
    }

    /// Returns true if it may be removed at all.
    #[must_use]
    pub fn is_orphan(&self, now: SystemTime) -> bool {
        !self.is_held && self.age(now) >= AGE_MIN
    }
}

/// An event of a walk.
#[derive(Debug)]
pub enum Met {
    /// A folder is entered: the caller may pause or stop.
    Folder,
    /// Partial data was found.
    Found(Found),
    /// A partial file that no log names, younger than [`AGE_MIN`]: its log may be about to name it.
    Young(Found),
    /// A log or entry that cannot be read. An unreadable log stays, and so do files that it may
    /// name.
    Unreadable(Error),
}

/// A folder to walk, and the store above it, whose logs may name files in the folder.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn Store>,
    above: Option<(Arc<dyn Store>, RelPath)>,
}

impl Place {
    /// Returns the place of the folder at `store`'s root, which lies at `path`, absolute and
    /// without links.
    ///
    /// # Errors
    /// If the system's root cannot be opened, or `path` cannot be reached from there.
    pub fn new(store: Arc<dyn Store>, path: &Path) -> Result<Self> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = RelPath::parse(below.as_os_str().as_bytes())?;
        if below.is_root() {
            return Ok(Self { store, above: None });
        }
        let all = PosixStore::open(Path::new("/"), End::Sink, PosixOptions::default())?;
        Ok(Self {
            store,
            above: Some((Arc::new(all), below)),
        })
    }

    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let store = PosixStore::open(path, End::Sink, PosixOptions::default())?;
        let real = path.canonicalize().map_err(|error| {
            Error::new(ErrorKind::NotFound, End::Sink, "find the folder")
                .cause(format!("{}: {error}", path.display()))
        })?;
        Self::new(Arc::new(store), &real)
    }

    fn others(&self) -> OtherLogs {
        OtherLogs::all(&self.store, self.above.as_ref())
    }
}

/// Walks all entries of a folder without following links, and reports to `tell`. It holds one path,
/// one log's files and a batch of names at a time, whatever the size of the tree. Partial files
/// without a log are found if they are [`AGE_MIN`] old at `now`; younger ones are [`Met::Young`].
///
/// # Errors
/// If the folder itself cannot be listed.
pub fn walk(
    place: &Place,
    now: SystemTime,
    tell: &mut dyn FnMut(Met) -> ControlFlow<()>,
) -> Result<()> {
    let options = ListOptions {
        own: true,
        contents: true,
        ..ListOptions::default()
    };
    let mut walk = Walk {
        store: &place.store,
        others: place.others(),
        now,
        tell,
    };
    let mut lister = place.store.list(&RelPath::root(), &options)?;
    let _ = walk.tree(lister.as_mut());
    Ok(())
}

struct Walk<'a> {
    store: &'a Arc<dyn Store>,
    others: OtherLogs,
    now: SystemTime,
    tell: &'a mut dyn FnMut(Met) -> ControlFlow<()>,
}

impl Walk<'_> {
    fn tree(&mut self, lister: &mut dyn Lister) -> ControlFlow<()> {
        let mut at = RelPath::root();
        self.folder(&at)?;
        while let Some(item) = lister.next() {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    (self.tell)(Met::Unreadable(error))?;
                    continue;
                }
            };
            let path = match at.join(&item.name) {
                Ok(path) => path,
                Err(error) => {
                    lister.skip_folder();
                    (self.tell)(Met::Unreadable(error))?;
                    continue;
                }
            };
            match item.kind {
                EntryKind::Directory if is_log_folder(&path) => lister.skip_folder(),
                EntryKind::Directory => {
                    at = path;
                    self.folder(&at)?;
                }
                EntryKind::DirectoryEnd => at = at.parent().unwrap_or_else(RelPath::root),
                EntryKind::File { .. } | EntryKind::Symlink { .. } => self.file(&path)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Enters a folder: reports its logs first, before the files that they name.
    fn folder(&mut self, at: &RelPath) -> ControlFlow<()> {
        (self.tell)(Met::Folder)?;
        let logs = log_folder(at);
        let listed = logs.and_then(|logs| Ok((self.store.list_control(&logs)?, logs)));
        let (names, logs) = match listed {
            Ok(listed) => listed,
            Err(error) => return (self.tell)(Met::Unreadable(error)),
        };
        let units: BTreeSet<Name> = names.iter().filter_map(layout::log_of).collect();
        for log in units {
            let met = match survey::survey(self.store, &logs, &log, survey::Lease::Ask) {
                Ok(Some(survey)) => Met::Found(survey.found),
                // Finished meanwhile.
                Ok(None) => continue,
                Err(error) => Met::Unreadable(error),
            };
            (self.tell)(met)?;
        }
        ControlFlow::Continue(())
    }

    fn file(&mut self, path: &RelPath) -> ControlFlow<()> {
        match self.partial(path) {
            Ok(Some(found)) if found.is_orphan(self.now) => (self.tell)(Met::Found(found)),
            Ok(Some(found)) => (self.tell)(Met::Young(found)),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => (self.tell)(Met::Unreadable(error)),
        }
    }

    fn partial(&mut self, path: &RelPath) -> Result<Option<Found>> {
        let Some(name) = path.name().filter(layout::is_partial_name) else {
            return Ok(None);
        };
        let Some((id, holding)) = reachable(stray(self.store.as_ref(), path))?.flatten() else {
            return Ok(None);
        };
        let found = Found {
            what: What::Partial,
            path: path.clone(),
            owner: None,
            transfer: None,
            files: 1,
            bytes: holding.bytes,
            changed: holding.changed,
            is_held: false,
            id: Some(id),
        };
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let is_spoken_of = self.others.speak_of(&(folder, name))?;
        Ok((!is_spoken_of).then_some(found))
    }
}

/// Returns the identity and size of a partial file without a log: a file or a link, since folders
/// are no partial files.
fn stray(store: &dyn Store, path: &RelPath) -> Result<Option<(PartialId, Holding)>> {
    use dray_store::FileKind::{File, Symlink};
    let state = store.stat(path)?;
    let Some(state) = state.filter(|state| matches!(state.kind, File | Symlink)) else {
        return Ok(None);
    };
    let id = PartialId {
        inode: state.inode,
        device: state.device,
        born: store.born(path)?,
    };
    Ok(store.holding(path)?.map(|holding| (id, holding)))
}

fn is_log_folder(path: &RelPath) -> bool {
    path.name()
        .is_some_and(|name| name.as_bytes() == layout::LOG_FOLDER)
}
