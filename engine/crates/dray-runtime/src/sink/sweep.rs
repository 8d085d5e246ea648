//! Finds partial data that no transfer resumes, below a folder, and removes it on request.
//!
//! A walk finds three kinds of data: logs with all files that they name, remnants of removed logs
//! such as leases, and partial files that no log names. The caller decides what to remove.
//!
//! Invariants of this module:
//! - Data of a live writer is never touched.
//! - If data changes after the walk has found it, the data is not removed.
//! - A log is removed only after all files that the log names.

mod place;
mod purge;
mod remove;
mod survey;

pub use place::WalkRoot;
pub use purge::Purged;
pub(in crate::sink) use remove::remove_silent;
pub use remove::{Removed, remove};

use super::log_place::{log_folder, reachable};
use dray_core::{EntryKind, Error, ErrorKind, ModifiedTime, Name, RelPath, Result, TransferId};
use dray_log::layout;
use dray_store::{Holding, ListOptions, Lister, PartialId, Store};
use place::{Logs, Part, one_of_several_disks};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
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
    /// Folder of the disk of the log or of the partial file, if the walked root has several disks.
    pub disk: Option<Arc<str>>,
    /// Path of the log or of the partial file, relative to the folder of the disk or to the walked
    /// folder. For a remnant, the former path of the log.
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
    /// Number of the part of the [`WalkRoot`] in which the walk found the data.
    part: usize,
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
    let before = now.checked_sub(AGE_MIN).unwrap_or(UNIX_EPOCH);
    let mut logs = place.logs();
    for (number, part) in place.parts.iter().enumerate() {
        // If `gather_lost` fails, the listing lacks only the lost data.
        if let Err(error) = part.store.gather_lost(before)
            && tell(WalkEvent::Unreadable(part.on_disk(error))).is_break()
        {
            return Ok(());
        }
        let mut lister = match part.store.list(&place.top, &options) {
            // The folder exists on another disk.
            Err(error) if part.disk.is_some() && is_no_folder(&error) => continue,
            listed => listed.map_err(|error| part.on_disk(error))?,
        };
        let mut walk = Walk {
            place,
            part,
            number,
            logs: &mut logs,
            now,
            tell: &mut *tell,
        };
        if walk.tree(lister.as_mut()).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// The walk of one part.
struct Walk<'a> {
    place: &'a WalkRoot,
    part: &'a Part,
    /// Number of the part.
    number: usize,
    logs: &'a mut Logs,
    now: SystemTime,
    tell: &'a mut dyn FnMut(WalkEvent) -> ControlFlow<()>,
}

impl Walk<'_> {
    fn tree(&mut self, lister: &mut dyn Lister) -> ControlFlow<()> {
        let mut at = self.place.top.clone();
        self.folder(&at)?;
        while let Some(item) = lister.next() {
            let item = match item {
                Ok(item) => item,
                Err(error) => {
                    self.unreadable(error)?;
                    continue;
                }
            };
            let path = match at.join(&item.name) {
                Ok(path) => path,
                Err(error) => {
                    lister.skip_folder();
                    self.unreadable(error)?;
                    continue;
                }
            };
            match item.kind {
                EntryKind::Directory if is_log_folder(&path) => lister.skip_folder(),
                EntryKind::Directory => match self.place.is_disk(self.part, &path) {
                    Ok(false) => {
                        at = path;
                        self.folder(&at)?;
                    }
                    is_disk => {
                        lister.skip_folder();
                        let is_one = || one_of_several_disks(&path.to_string());
                        self.unreadable(is_disk.err().unwrap_or_else(is_one))?;
                    }
                },
                EntryKind::DirectoryEnd => at = at.parent().unwrap_or_else(RelPath::root),
                EntryKind::File { .. } | EntryKind::Symlink { .. } => self.file(&path)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Enters a folder. Reports the logs of the folder before the files that they name.
    fn folder(&mut self, at: &RelPath) -> ControlFlow<()> {
        (self.tell)(WalkEvent::Folder)?;
        let logs = log_folder(at);
        let listed = logs.and_then(|logs| Ok((self.part.store.list_control(&logs)?, logs)));
        let (names, logs) = match listed {
            Ok(listed) => listed,
            Err(error) => return self.unreadable(error),
        };
        let units: BTreeSet<Name> = names.iter().filter_map(layout::log_of).collect();
        let place = survey::Place {
            store: &self.part.store,
            beside: &self.place.stores_beside(self.number),
            logs: &logs,
        };
        for log in units {
            match survey::survey(&place, &log, survey::Lease::Ask) {
                Ok(Some(survey)) => (self.tell)(WalkEvent::PartialData(PartialData {
                    disk: self.part.disk.clone(),
                    part: self.number,
                    ..survey.found
                }))?,
                // The transfer has finished and removed its log since the listing.
                Ok(None) => {}
                Err(error) => self.unreadable(error)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Reports an error of this part.
    fn unreadable(&mut self, error: Error) -> ControlFlow<()> {
        (self.tell)(WalkEvent::Unreadable(self.part.on_disk(error)))
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
        let found = reachable(stray(self.part.store.as_ref(), path));
        let found = found.map_err(|error| self.part.on_disk(error))?;
        let Some((id, holding)) = found.flatten() else {
            return Ok(None);
        };
        let found = PartialData {
            what: PartialKind::Partial,
            disk: self.part.disk.clone(),
            path: path.clone(),
            owner: None,
            transfer: None,
            files: 1,
            bytes: holding.bytes,
            changed: holding.changed,
            is_held: false,
            part: self.number,
            id: Some(id),
        };
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let is_spoken_of = self.logs.speak_of(&(folder, name))?;
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

/// Returns true if nothing, a file or a link is at the path of a folder.
const fn is_no_folder(error: &Error) -> bool {
    use ErrorKind::{NotADirectory, NotFound, PathEscapes};
    matches!(error.kind, NotFound | NotADirectory | PathEscapes)
}

fn is_log_folder(path: &RelPath) -> bool {
    path.name()
        .is_some_and(|name| name.as_bytes() == layout::LOG_FOLDER)
}
