//! A look at a destination that changes nothing: what stands there, what its log says. For plans,
//! and for the sink before it writes.

use super::destination::{self, DestinationRequest};
use super::log_file::StoredLog;
use super::look;
use dray_core::{ContentKey, Layout, RelPath, Result, TargetId};
use dray_log::trust::{self, FoundPartial};
use dray_log::{BootId, LoggedFile, Recovery, recover};
use dray_session::sink::{Existing, Facts, Resume};
use dray_store::{ControlMode, FileKind, Store};
use std::time::Duration;

/// A destination and its log as they are now; no lease is taken and nothing is made.
pub struct Peek {
    request: DestinationRequest,
    boot_id: BootId,
    /// The log that speaks for the claims, the destination as seen from its top, its name.
    log: Option<(Recovery, RelPath, String)>,
}

impl Peek {
    /// Looks.
    ///
    /// # Errors
    /// [`dray_core::ErrorKind::LeaseHeld`] names a transfer that writes there now; `LogVersion` and
    /// `LogDamaged` for a log that cannot be read, `PermissionDenied` for one of another owner.
    pub fn open(request: DestinationRequest) -> Result<Self> {
        let boot_id = destination::boot_id()?;
        let log = match request.store.capabilities().can_hold_log {
            true => read_log(&request, &boot_id)?,
            false => None,
        };
        Ok(Self {
            request,
            boot_id,
            log,
        })
    }

    /// What is known of one file.
    ///
    /// # Errors
    /// What the store says; `PermissionDenied` when the log belongs to somebody else.
    pub fn look(&self, path: &RelPath, key: &ContentKey) -> Result<Facts> {
        let store = self.request.store.as_ref();
        Ok(Facts {
            existing: existing(store, path, key)?,
            resume: self.resume(path, key)?,
            layout: layout_near(store, path),
        })
    }

    fn resume(
        &self,
        path: &RelPath,
        key: &ContentKey,
    ) -> Result<Option<Result<Resume, dray_core::Error>>> {
        let Some((recovery, prefix, words)) = &self.log else {
            return Ok(None);
        };
        let logged_path = prefix.join_path(path)?;
        let Some(file) = recovery.files.get(&logged_path) else {
            return Ok(None);
        };
        let sink = trust::Sink {
            log: words,
            owner: &self.request.owner,
            boot_id: &self.boot_id,
            durability: self.request.durability,
        };
        let store = self.request.store.as_ref();
        let judged = judge(store, path, key, recovery, (&logged_path, file), &sink)?;
        Ok(Some(judged.map(resume_of)))
    }
}

/// Holds what the log says of a file (its path there, and its records) against the partial file. An
/// error within says why nothing of it counts.
///
/// # Errors
/// What the store says; `PermissionDenied` when the log belongs to somebody else.
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

/// What the machine is told of it.
pub(super) fn resume_of(trusted: trust::Trusted) -> Resume {
    Resume {
        done: trusted.done,
        object_bytes: trusted.object_bytes.get(),
    }
}

fn read_log(
    request: &DestinationRequest,
    boot_id: &BootId,
) -> Result<Option<(Recovery, RelPath, String)>> {
    let Some(found) = look::find_existing(request)? else {
        return Ok(None);
    };
    look::refuse_if_held(
        found.store.as_ref(),
        &found.lease,
        &request.words,
        Duration::ZERO,
    )?;
    let file = found
        .store
        .open_control(&found.log, ControlMode::ReadOnly)?;
    let words = format!("the log {} of {}", found.log, request.words);
    let Some(recovery) = recover(&mut StoredLog::new(file))? else {
        return Ok(None);
    };
    let judge = trust::Sink {
        log: &words,
        owner: &request.owner,
        boot_id,
        durability: request.durability,
    };
    trust::check_owner(&recovery, &judge)?;
    Ok(Some((recovery, found.prefix, words)))
}

/// Where a file would lie. A folder that is still to be made lies where the one above it does.
fn layout_near(store: &dyn Store, path: &RelPath) -> Layout {
    let mut near = path.clone();
    loop {
        match (store.layout(&near), near.parent()) {
            (Ok(layout), _) => return layout,
            (Err(_), Some(above)) => near = above,
            (Err(_), None) => return Layout::Single(TargetId(0)),
        }
    }
}

/// What stands under a final name.
pub(super) fn existing(
    store: &dyn Store,
    path: &RelPath,
    key: &ContentKey,
) -> Result<Option<Existing>> {
    let Some(state) = store.stat(path)? else {
        return Ok(None);
    };
    let sums = if state.kind == FileKind::File && key.demanded.is_some() {
        store.known_sums(path)?
    } else {
        None
    };
    Ok(Some(Existing {
        kind: state.kind,
        size: state.size,
        modified: state.modified,
        sums,
    }))
}

/// The partial file that the log speaks of, as it is now.
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
