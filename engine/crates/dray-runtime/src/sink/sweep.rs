//! Finds partial data that no transfer resumes, below a folder, and removes it on request.
//!
//! A walk finds three kinds of data: logs with all files that they name, remnants of removed logs
//! such as leases, and partial files that no log names. The caller decides what to remove.
//!
//! Invariants of this module:
//! - Data of a live writer is never touched.
//! - If data changes after the walk has found it, the data is not removed.
//! - A log is removed only after all files that the log names.

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
use dray_store::disks::MARK_NAME;
use dray_store::{Holding, ListOptions, Lister, PartialId, PosixOptions, PosixStore, Store};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Minimum age of partial data that may be removed. A caller cannot lower this age. A writer may be
/// active on a host whose locks are invisible here, and the clocks of two hosts may differ.
pub const AGE_MIN: Duration = Duration::from_secs(3600);

/// Kind of the data that a walk found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialKind {
    /// A log, together with its lease and the partial files that the log names.
    Log,
    /// A remnant of a removed log: a lease, or an unfinished replacement of the log.
    Remnant,
    /// A partial file that no log names.
    Partial,
}

impl PartialKind {
    /// Returns the name of this kind in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Remnant => "remnant",
            Self::Partial => "partial",
        }
    }
}

/// Partial data, as it was when the walk found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialData {
    /// Kind of the data.
    pub what: PartialKind,
    /// Path of the log or of the partial file, relative to the walked folder. For a remnant, the
    /// former path of the log.
    pub path: RelPath,
    /// Owner as recorded in the log; `None` for a partial file without a log.
    pub owner: Option<Vec<u8>>,
    /// The transfer that held the log last, if known.
    pub transfer: Option<TransferId>,
    /// Number of partial files.
    pub files: u64,
    /// Total size in bytes on the storage.
    pub bytes: u64,
    /// Time of the last change of any of its files.
    pub changed: ModifiedTime,
    /// True if a writer is active. The data must then stay at any age.
    pub is_held: bool,
    /// Identity of a partial file without a log.
    id: Option<PartialId>,
}

impl PartialData {
    /// Returns the time since the last change, or zero if that time is in the future.
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

    /// Returns true if the data may be removed: no writer is active, and the data is at least
    /// [`AGE_MIN`] old.
    #[must_use]
    pub fn is_orphan(&self, now: SystemTime) -> bool {
        !self.is_held && self.age(now) >= AGE_MIN
    }
}

/// An event that a walk reports.
#[derive(Debug)]
pub enum WalkEvent {
    /// The walk enters a folder. The caller may pause or stop the walk here.
    Folder,
    /// Partial data was found.
    PartialData(PartialData),
    /// A partial file that no log names and that is younger than [`AGE_MIN`]. A log may be about to
    /// name it.
    Young(PartialData),
    /// A log or entry that cannot be read. An unreadable log is not removed, and neither are the
    /// files that it may name.
    Unreadable(Error),
}

/// A folder to walk, and the store above it. Logs above the folder may name files in it.
#[derive(Clone)]
pub struct WalkRoot {
    store: Arc<dyn Store>,
    above: Option<(Arc<dyn Store>, RelPath)>,
    /// True for a folder of this host, which may contain disks of a store with several disks.
    is_local: bool,
}

impl WalkRoot {
    /// Returns the walk root for the folder at the root of `store`. `path` is the absolute path of
    /// that folder, without symbolic links.
    ///
    /// # Errors
    /// If `path` is invalid, or if the system's root `/` cannot be opened. `InvalidRequest` if the
    /// folder is on a disk of a store with several disks.
    pub fn new(store: Arc<dyn Store>, path: &Path) -> Result<Self> {
        let disk = Path::new(OsStr::from_bytes(MARK_NAME));
        if let Some(marked) = path.ancestors().find(|above| above.join(disk).exists()) {
            return Err(one_of_several_disks(&marked.display().to_string()));
        }
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = RelPath::parse(below.as_os_str().as_bytes())?;
        if below.is_root() {
            return Ok(Self {
                store,
                above: None,
                is_local: true,
            });
        }
        let all = PosixStore::open(Path::new("/"), End::Sink, PosixOptions::default())?;
        Ok(Self {
            store,
            above: Some((Arc::new(all), below)),
            is_local: true,
        })
    }

    /// Opens the folder at `path`.
    ///
    /// # Errors
    /// If the folder cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let store = PosixStore::open(path, End::Sink, PosixOptions::default())?;
        let real = path.canonicalize().map_err(|error| {
            Error::new(ErrorKind::NotFound, End::Sink, "find the folder")
                .cause(format!("{}: {error}", path.display()))
        })?;
        Self::new(Arc::new(store), &real)
    }

    /// Returns the place of the root of any store. Logs above the root are in `above`.
    #[must_use]
    pub fn in_store(store: Arc<dyn Store>, above: Option<(Arc<dyn Store>, RelPath)>) -> Self {
        Self {
            store,
            above,
            is_local: false,
        }
    }

    fn others(&self) -> OtherLogs {
        OtherLogs::all(&self.store, self.above.as_ref())
    }
}

/// Walks all entries of a folder without following links, and calls `tell` with each event. The
/// walk needs memory for one path, the files of one log, and one batch of names, whatever the size
/// of the tree. A partial file without a log is reported as [`WalkEvent::PartialData`] if it is at
/// least [`AGE_MIN`] old at `now`, otherwise as [`WalkEvent::Young`].
///
/// # Errors
/// If the folder itself cannot be listed.
pub fn walk(
    place: &WalkRoot,
    now: SystemTime,
    tell: &mut dyn FnMut(WalkEvent) -> ControlFlow<()>,
) -> Result<()> {
    let options = ListOptions {
        own: true,
        contents: true,
        ..ListOptions::default()
    };
    let mut walk = Walk {
        store: &place.store,
        has_disks: place.is_local,
        others: place.others(),
        now,
        tell,
    };
    // If `gather_lost` fails, the listing lacks only the lost data.
    let before = now.checked_sub(AGE_MIN).unwrap_or(UNIX_EPOCH);
    if let Err(error) = place.store.gather_lost(before)
        && (walk.tell)(WalkEvent::Unreadable(error)).is_break()
    {
        return Ok(());
    }
    let mut lister = place.store.list(&RelPath::root(), &options)?;
    let _ = walk.tree(lister.as_mut());
    Ok(())
}

struct Walk<'a> {
    store: &'a Arc<dyn Store>,
    /// True if folders in the store may be disks of another store.
    has_disks: bool,
    others: OtherLogs,
    now: SystemTime,
    tell: &'a mut dyn FnMut(WalkEvent) -> ControlFlow<()>,
}

impl Walk<'_> {
    fn tree(&mut self, lister: &mut dyn Lister) -> ControlFlow<()> {
        let mut at = RelPath::root();
        self.folder(&at)?;
        while let Some(item) = lister.next() {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    (self.tell)(WalkEvent::Unreadable(error))?;
                    continue;
                }
            };
            let path = match at.join(&item.name) {
                Ok(path) => path,
                Err(error) => {
                    lister.skip_folder();
                    (self.tell)(WalkEvent::Unreadable(error))?;
                    continue;
                }
            };
            match item.kind {
                EntryKind::Directory if is_log_folder(&path) => lister.skip_folder(),
                EntryKind::Directory if self.is_disk(&path) => {
                    lister.skip_folder();
                    (self.tell)(WalkEvent::Unreadable(one_of_several_disks(
                        &path.to_string(),
                    )))?;
                }
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

    /// Returns true if a folder is a disk of a store with several disks.
    fn is_disk(&self, folder: &RelPath) -> bool {
        let mark = Name::new(MARK_NAME).and_then(|mark| folder.join(&mark));
        self.has_disks && mark.is_ok_and(|mark| matches!(self.store.stat(&mark), Ok(Some(_))))
    }

    /// Enters a folder. Reports the logs of the folder before the files that they name.
    fn folder(&mut self, at: &RelPath) -> ControlFlow<()> {
        (self.tell)(WalkEvent::Folder)?;
        let logs = log_folder(at);
        let listed = logs.and_then(|logs| Ok((self.store.list_control(&logs)?, logs)));
        let (names, logs) = match listed {
            Ok(listed) => listed,
            Err(error) => return (self.tell)(WalkEvent::Unreadable(error)),
        };
        let units: BTreeSet<Name> = names.iter().filter_map(layout::log_of).collect();
        for log in units {
            let met = match survey::survey(self.store, &logs, &log, survey::Lease::Ask) {
                Ok(Some(survey)) => WalkEvent::PartialData(survey.found),
                // The transfer has finished and removed its log since the listing.
                Ok(None) => continue,
                Err(error) => WalkEvent::Unreadable(error),
            };
            (self.tell)(met)?;
        }
        ControlFlow::Continue(())
    }

    fn file(&mut self, path: &RelPath) -> ControlFlow<()> {
        match self.partial(path) {
            Ok(Some(found)) if found.is_orphan(self.now) => {
                (self.tell)(WalkEvent::PartialData(found))
            }
            Ok(Some(found)) => (self.tell)(WalkEvent::Young(found)),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => (self.tell)(WalkEvent::Unreadable(error)),
        }
    }

    fn partial(&mut self, path: &RelPath) -> Result<Option<PartialData>> {
        let Some(name) = path.name().filter(layout::is_partial_name) else {
            return Ok(None);
        };
        let Some((id, holding)) = reachable(stray(self.store.as_ref(), path))?.flatten() else {
            return Ok(None);
        };
        let found = PartialData {
            what: PartialKind::Partial,
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

/// Returns the identity and size of a partial file without a log; `None` for a folder, which cannot
/// be a partial file.
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

/// Returns the error for the folder of a disk. The logs of all disks are on the first disk, so the
/// walk of another disk would take its partial files for files without a log.
fn one_of_several_disks(folder: &str) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        End::Sink,
        "search for partial data",
    )
    .cause(format!(
        "{folder} has the file .dray-disk, so it is one of several disks whose logs are on the \
            first disk"
    ))
    .remedy(
        "to remove the partial data of a transfer on these disks, cancel the transfer with --purge",
    )
}

fn is_log_folder(path: &RelPath) -> bool {
    path.name()
        .is_some_and(|name| name.as_bytes() == layout::LOG_FOLDER)
}
