//! Examines the existing entries of a destination and the records of the log, without changing the
//! destination. Plans use this module, and the sink uses it before it writes.

use super::compare;
use super::find_logs::refuse_same_request;
use super::lease;
use super::log_file::StoredLog;
use super::log_place::{own_place, reachable};
use super::neighbours::{Neighbours, Speaker};
use super::request::DestinationRequest;
use dray_core::lock::LockExt;
use dray_core::{ContentKey, Layout, RelPath, Result, TargetId};
use dray_log::trust::{self, FoundPartial};
use dray_log::{BootId, LoggedFile, Recovery, layout, recover};
use dray_session::sink::{Existing, Facts, Resume};
use dray_store::{ControlMode, FileKind, PartialId, Store};
use dray_wire::message::Selection;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The present state of a destination and of the logs around it. Takes no lease and makes no files.
pub struct Peek {
    request: DestinationRequest,
    boot_id: BootId,
    /// Other transfers' logs; `None` if the store keeps no logs.
    neighbours: Option<Mutex<Neighbours>>,
    /// Recovered content of complete logs, for queries about further files.
    read: Mutex<HashMap<RelPath, Arc<Recovery>>>,
}

/// Maximum number of logs whose recovered content is kept. The value is estimated, not measured.
const LOGS_MAX: usize = 16;

impl Peek {
    /// Prepares to examine the destination of `request`.
    ///
    /// # Errors
    /// If this host's boot id cannot be read. [`dray_core::ErrorKind::LeaseHeld`] if another
    /// transfer is executing the same request for the same folder. The error names that transfer.
    pub fn open(request: DestinationRequest, selection: &Selection) -> Result<Self> {
        let has_logs = request.store.capabilities().can_hold_log;
        if has_logs {
            let (include, exclude) = (&selection.include, &selection.exclude);
            let mark = layout::request_mark(&request.claims, include, exclude);
            let place = own_place(&request)?;
            refuse_same_request(&place, &request.words, mark, None, Duration::ZERO)?;
        }
        Ok(Self {
            boot_id: lease::boot_id()?,
            neighbours: has_logs.then(|| Mutex::new(Neighbours::new(&request, None))),
            read: Mutex::default(),
            request,
        })
    }

    /// Returns the facts about one file of the destination.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::LeaseHeld`] names a transfer that is writing the file. Errors of the
    /// store.
    pub fn look(&self, path: &RelPath, key: &ContentKey) -> Result<Facts> {
        let store = self.request.store.as_ref();
        Ok(Facts {
            existing: existing(store, path, key, &|| false)?,
            resume: self.resume(path, key)?,
            layout: layout_of_new(store, path, key.size),
        })
    }

    fn resume(
        &self,
        path: &RelPath,
        key: &ContentKey,
    ) -> Result<Option<Result<Resume, dray_core::Error>>> {
        let Some(neighbours) = &self.neighbours else {
            return Ok(None);
        };
        let mut neighbours = neighbours.lock_unpoisoned();
        neighbours.look_again();
        let mut best: Option<Result<Resume, dray_core::Error>> = None;
        for speaker in neighbours.speaking_of(path, &|_| false)? {
            if let Some(error) = neighbours.refusal(&speaker, path)? {
                return Err(error);
            }
            if speaker.owner != self.request.owner {
                continue;
            }
            let Some(log) = self.read(&speaker)? else {
                continue;
            };
            let Some(file) = log.files.get(&speaker.path) else {
                continue;
            };
            // A transfer does not adopt a partial file whose name has another form.
            let is_on_disks = self.request.store.capabilities().is_on_disks;
            if layout::is_on_disks(&file.partial.name) != is_on_disks {
                continue;
            }
            // A transfer whose log has sums does not adopt ranges without sums.
            let is_own = log.tenure.transfer == self.request.transfer;
            let wants_sums = self.request.form().unwrap_or_default().has_sums;
            if !is_own && wants_sums && !log.header.form.has_sums {
                continue;
            }
            let words = format!("the log {} of {}", speaker.log(), self.request.words);
            let sink = trust::Sink {
                log: &words,
                owner: &self.request.owner,
                boot_id: &self.boot_id,
                durability: self.request.durability,
            };
            let store = self.request.store.as_ref();
            let judged = judge(store, path, key, &log, (&speaker.path, file), &sink)?;
            let judged = judged.map(resume_of);
            let bytes = |one: &Result<Resume, _>| one.as_ref().map_or(0, |one| one.done.bytes());
            if best
                .as_ref()
                .is_none_or(|best| bytes(best) < bytes(&judged))
            {
                best = Some(judged);
            }
        }
        Ok(best)
    }

    fn read(&self, speaker: &Speaker) -> Result<Option<Arc<Recovery>>> {
        let mut read = self.read.lock_unpoisoned();
        if let Some(known) = read.get(speaker.log()) {
            return Ok(Some(Arc::clone(known)));
        }
        let store = &speaker.place.store;
        let opened = reachable(store.open_control(speaker.log(), ControlMode::ReadOnly))?;
        let Some(file) = opened else { return Ok(None) };
        let Ok(Some(recovery)) = recover(&mut StoredLog::new(file, store, speaker.log())) else {
            return Ok(None);
        };
        if read.len() >= LOGS_MAX {
            read.clear();
        }
        let recovery = Arc::new(recovery);
        read.insert(speaker.log().clone(), Arc::clone(&recovery));
        Ok(Some(recovery))
    }
}

/// Compares the log's record of a file with the partial file, and returns the ranges that can be
/// trusted. `logged_path` is the file's path in the log. The inner error is the reason why no range
/// can be trusted.
///
/// # Errors
/// Errors of the store. `PermissionDenied` if the log belongs to another owner.
pub(super) fn judge(
    store: &dyn Store,
    path: &RelPath,
    key: &ContentKey,
    recovery: &Recovery,
    (logged_path, file): (&RelPath, &LoggedFile),
    sink: &trust::Sink<'_>,
) -> Result<Result<trust::Trusted>> {
    let partial = found_partial(store, path, file)?;
    match trust::judge(recovery, logged_path, file, sink, partial.as_ref(), key) {
        trust::Verdict::Trusted(trusted) => Ok(Ok(trusted)),
        trust::Verdict::StartOver(error) => Ok(Err(error)),
        trust::Verdict::Refused(error) => Err(error),
    }
}

/// Decides which ranges of an unfinished file the next run would trust, if this host ran it now for
/// the owner of the log and the source had not changed. `path` is the path of the file in the log,
/// and the root of `store` is the folder of the log. Changes nothing.
///
/// # Errors
/// If this host's boot id cannot be read. Errors of the store.
pub(super) fn judge_left(
    store: &dyn Store,
    path: &RelPath,
    recovery: &Recovery,
    file: &LoggedFile,
) -> Result<trust::Verdict> {
    let partial = found_partial(store, path, file)?;
    let sink = trust::Sink {
        log: "the log",
        owner: &recovery.header.owner,
        boot_id: &lease::boot_id()?,
        durability: recovery.tenure.durability,
    };
    let wanted = &file.key;
    Ok(trust::judge(
        recovery,
        path,
        file,
        &sink,
        partial.as_ref(),
        wanted,
    ))
}

/// Returns the store's identity of a partial file that was found.
pub(super) const fn id_of(found: &FoundPartial) -> PartialId {
    PartialId {
        inode: found.inode,
        device: found.device,
        born: found.born,
    }
}

/// Returns the store's identity of the partial file that the log names.
pub(super) const fn logged_id(logged: &LoggedFile) -> PartialId {
    PartialId {
        inode: logged.partial.inode,
        device: logged.partial.device,
        born: logged.partial.born,
    }
}

/// Converts the trusted ranges of a file to an input of the machine.
pub(super) fn resume_of(trusted: trust::Trusted) -> Resume {
    Resume {
        done: trusted.done,
        object_bytes: trusted.object_bytes.get(),
    }
}

/// Returns the layout of the file at `path`, or the layout that a new file of `size` bytes would
/// get there. If the folder of the file does not exist yet, returns the layout of such a file in the
/// nearest folder that exists.
pub fn layout_of_new(store: &dyn Store, path: &RelPath, size: u64) -> Layout {
    let name = path.name();
    let mut near = path.clone();
    loop {
        if let Ok(layout) = store.layout_for(&near, size) {
            return layout;
        }
        let above = near.parent().and_then(|folder| folder.parent());
        let next = above
            .zip(name.clone())
            .map(|(above, name)| above.join(&name));
        match next {
            Some(Ok(next)) => near = next,
            _ => break,
        }
    }
    let root = store.layout_for(&RelPath::root(), size);
    root.unwrap_or(Layout::Single(TargetId(0)))
}

/// Returns the existing entry under a final name, if there is one.
pub(super) fn existing(
    store: &dyn Store,
    path: &RelPath,
    key: &ContentKey,
    is_over: &dyn Fn() -> bool,
) -> Result<Option<Existing>> {
    let Some(state) = store.stat(path)? else {
        return Ok(None);
    };
    let sums = compare::sums(store, path, &state, key, is_over)?;
    Ok(Some(Existing {
        kind: state.kind,
        size: state.size,
        modified: state.modified,
        sums,
        mode: store.capabilities().mode.then_some(state.mode),
    }))
}

/// Returns the present state of the partial file that the log names.
pub(super) fn found_partial(
    store: &dyn Store,
    path: &RelPath,
    file: &LoggedFile,
) -> Result<Option<FoundPartial>> {
    let folder = path.parent().unwrap_or_else(RelPath::root);
    let partial = folder.join(&file.partial.name)?;
    let state = store.stat(&partial)?;
    let Some(state) = state.filter(|state| state.kind == FileKind::File) else {
        return Ok(None);
    };
    Ok(Some(FoundPartial {
        device: state.device,
        inode: state.inode,
        born: store.born(&partial)?,
        size: state.size,
    }))
}
