//! Partial data that nobody goes on with: finds it beneath a folder, and removes what it is told to.
//!
//! What is found are logs with all that they speak of, leases and other remains of logs without one,
//! and partial files that no log speaks of. Which of it goes is not decided here.
//!
//! Invariants owned here: what a live writer holds is never touched; what was touched after it was
//! found is left; of what a log speaks of, the log itself goes last.

mod purge;
mod remove;
mod survey;

pub use purge::Purged;
pub(in crate::sink) use remove::remove_silent;
pub use remove::{Removed, remove};

use super::find_logs::reachable;
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

/// Nothing that was touched so shortly ago is an orphan, whatever anybody asks for: a writer on a host
/// whose locks do not reach us may be at it, and clocks of hosts differ.
pub const AGE_MIN: Duration = Duration::from_secs(3600);

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A log, with its lease and the partial files that it speaks of.
    Log,
    /// What is left of a log that is gone: a lease, a replacement that was never finished.
    Remnant,
    /// A partial file that no log speaks of.
    Partial,
}

impl What {
    /// In a word, for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Remnant => "remnant",
            Self::Partial => "partial",
        }
    }
}

/// Partial data, as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub what: What,
    /// The log (of a remnant: where it was) or the partial file, beneath the folder.
    pub path: RelPath,
    /// Whose it is, as the log says; a file without a log does not tell.
    pub owner: Option<Vec<u8>>,
    /// The last transfer that held it, if that is known.
    pub transfer: Option<TransferId>,
    /// Partial files.
    pub files: u64,
    /// Bytes that all of it takes on the storage.
    pub bytes: u64,
    /// When any of it was touched last.
    pub changed: ModifiedTime,
    /// Whether somebody is at work on it: then it is no orphan, however old.
    pub is_held: bool,
    /// A partial file without a log, as the store names it.
    id: Option<PartialId>,
}

impl Found {
    /// Time since it was touched last; zero for a time to come.
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

    /// Whether it may be removed at all.
    #[must_use]
    pub fn is_orphan(&self, now: SystemTime) -> bool {
        !self.is_held && self.age(now) >= AGE_MIN
    }
}

/// What a walk meets.
#[derive(Debug)]
pub enum Met {
    /// A folder is entered: the moment to take a rest, or to stop.
    Folder,
    /// Partial data.
    Found(Found),
    /// A partial file that no log names, younger than [`AGE_MIN`]: its log may be about to name it.
    Young(Found),
    /// Something that cannot be looked at. A log that cannot be read stays, and so does what it may
    /// speak of.
    Unreadable(Error),
}

/// Where is looked: a folder, and what lies above it, where logs may speak of what is in it.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn Store>,
    above: Option<(Arc<dyn Store>, RelPath)>,
}

impl Place {
    /// The folder that `store` has as its root, which lies at `path`, absolute and without links.
    ///
    /// # Errors
    /// When the system's root cannot be opened, or `path` cannot be looked at from there.
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

    /// The folder at `path`.
    ///
    /// # Errors
    /// When it cannot be opened.
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

/// Walks everything in a folder, no link followed, and tells what it meets. It holds
/// one path, one log's files and a batch of names at a time, whatever the size of the tree. Partial
/// files without a log are found when they are [`AGE_MIN`] old at `now`; younger ones are [`Met::Young`].
///
/// # Errors
/// When the folder itself cannot be listed.
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

    /// A folder is entered: its logs come first, before what they speak of.
    fn folder(&mut self, at: &RelPath) -> ControlFlow<()> {
        (self.tell)(Met::Folder)?;
        let logs = super::find_logs::log_folder(at);
        let listed = logs.and_then(|logs| Ok((self.store.list_control(&logs)?, logs)));
        let (names, logs) = match listed {
            Ok(listed) => listed,
            Err(error) => return (self.tell)(Met::Unreadable(error)),
        };
        let units: BTreeSet<Name> = names.iter().filter_map(layout::log_of).collect();
        for log in units {
            let met = match survey::survey(self.store, &logs, &log, survey::Lease::Ask) {
                Ok(Some(survey)) => Met::Found(survey.found),
                // Finished while we looked.
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

/// What stands under a partial file's name: a file or a link; folders are nobody's partial file.
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
