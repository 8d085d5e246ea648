//! Looks for logs: one that speaks for the destination, and others whose writers may be at work on the
//! same files, beside it, above it and below it.
//!
//! One writer: a log is made first and the others are looked for then, upward here and downward when
//! a folder is entered; so of two that begin at once at least one sees the other.

use super::destination::{DestinationRequest, HOLDER_PATIENCE, HOLDER_PAUSE, held, read_lease};
use super::log_file::StoredLog;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_log::{place, recover};
use dray_store::{ControlFile, ControlMode, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a log lies.
#[derive(Clone)]
pub(super) struct LogPlace {
    pub(super) store: Arc<dyn Store>,
    /// The folder `.dray-log`.
    pub(super) folder: RelPath,
    pub(super) log: Name,
    /// The destination folder as seen from the log's top.
    pub(super) prefix: RelPath,
}

impl LogPlace {
    /// Removes log and lease, and their folder if nothing else is in it.
    pub(super) fn remove(&self) -> Result<()> {
        self.store.remove_control(&self.folder.join(&self.log)?)?;
        if let Some(lease) = place::lease_of_log(&self.log) {
            self.store.remove_control(&self.folder.join(&lease)?)?;
        }
        // Another transfer's log may lie beside it: then the folder stays.
        let _ = self.store.remove(&self.folder);
        Ok(())
    }
}

/// The folder `.dray-log` of a folder.
pub(super) fn log_folder(top: &RelPath) -> Result<RelPath> {
    top.join(&place::log_folder_name()?)
}

/// The folders above a folder, the nearest first, each with the folder as seen from it.
pub(super) fn folders_above(folder: &RelPath) -> Result<Vec<(RelPath, RelPath)>> {
    let mut found = Vec::new();
    let (mut at, mut seen) = (folder.clone(), RelPath::root());
    while let (Some(parent), Some(name)) = (at.parent(), at.name()) {
        seen = RelPath::root().join(&name)?.join_path(&seen)?;
        at = parent;
        found.push((at.clone(), seen.clone()));
    }
    Ok(found)
}

/// Where logs that concern the claims may lie: beside the destination, then upward to the root.
fn levels(request: &DestinationRequest) -> Result<Vec<LogPlace>> {
    let log = place::log_name(&request.claims)?;
    let mut levels = vec![LogPlace {
        store: Arc::clone(&request.store),
        folder: log_folder(&RelPath::root())?,
        log: log.clone(),
        prefix: RelPath::root(),
    }];
    if let Some((store, top)) = &request.above {
        for (folder, prefix) in folders_above(top)? {
            levels.push(LogPlace {
                store: Arc::clone(store),
                folder: log_folder(&folder)?,
                log: log.clone(),
                prefix,
            });
        }
    }
    Ok(levels)
}

/// Looks for a log that covers the claims; without one, says where it would be made.
pub(super) fn find(request: &DestinationRequest) -> Result<LogPlace> {
    let levels = levels(request)?;
    for level in &levels {
        if let Some(found) = look_in(level, request, None)? {
            return Ok(found);
        }
    }
    levels.into_iter().next().ok_or_else(|| {
        Error::new(ErrorKind::Internal, End::Sink, "find the log").cause("no place for it")
    })
}

/// Refuses when another transfer that may write what we claim holds its log, in the destination
/// folder or above. The deeper log gives way, and of two in one folder the one of the greater name:
/// the other waits until it has. What lies below is looked at before it is entered.
pub(super) fn refuse_others(own: &LogPlace, request: &DestinationRequest) -> Result<()> {
    for level in levels(request)? {
        let is_here = level.prefix == own.prefix;
        let look = Others {
            own: is_here.then_some(&own.log),
        };
        look_in(&level, request, Some(look))?;
    }
    Ok(())
}

/// A log that is there.
pub(super) struct FoundLog {
    pub(super) store: Arc<dyn Store>,
    pub(super) log: RelPath,
    pub(super) lease: RelPath,
    /// The destination folder as seen from the log's top.
    pub(super) prefix: RelPath,
}

/// The log that a transfer to this destination would go on with, if there is one.
pub(super) fn find_existing(request: &DestinationRequest) -> Result<Option<FoundLog>> {
    let at = find(request)?;
    let names = at.store.list_control(&at.folder)?;
    let lease = place::lease_of_log(&at.log).filter(|_| names.contains(&at.log));
    let Some(lease) = lease else {
        return Ok(None);
    };
    Ok(Some(FoundLog {
        log: at.folder.join(&at.log)?,
        lease: at.folder.join(&lease)?,
        store: at.store,
        prefix: at.prefix,
    }))
}

/// A look that is not for a log to go on with.
#[derive(Clone, Copy)]
struct Others<'a> {
    /// Our own log, in the folder where it is.
    own: Option<&'a Name>,
}

/// One rule for what this user may not open, wherever it lies: it is another's, can neither be gone
/// on with nor asked, and is passed over. So is what was finished and removed while we looked.
pub(super) fn reachable<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error)
            if matches!(
                error.kind,
                ErrorKind::NotFound | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The log in one folder that covers the claims, if one is wanted. One that overlaps them, and is not
/// to be gone on with, must not be in use.
fn look_in(
    at: &LogPlace,
    request: &DestinationRequest,
    others: Option<Others<'_>>,
) -> Result<Option<LogPlace>> {
    let names = reachable(at.store.list_control(&at.folder))?.unwrap_or_default();
    let own = others.and_then(|others| others.own);
    let mine: Vec<RelPath> = if request.claims.is_empty() {
        vec![at.prefix.clone()]
    } else {
        let below = request
            .claims
            .iter()
            .map(|claim| at.prefix.join_path(claim));
        below.collect::<Result<_>>()?
    };
    for name in names {
        let Some(lease_name) = place::lease_of_log(&name).filter(|_| own != Some(&name)) else {
            continue;
        };
        let path = at.folder.join(&name)?;
        let Some(file) = reachable(at.store.open_control(&path, ControlMode::ReadOnly))? else {
            continue;
        };
        let lease = at.folder.join(&lease_name)?;
        let recovery = match recover(&mut StoredLog::new(file)) {
            Ok(Some(recovery)) => recovery,
            Ok(None) => continue,
            Err(error) if others.is_none() => return Err(error.file(&path)),
            // It may speak of what we write; its holder would know.
            Err(_) => {
                refuse_if_held(at.store.as_ref(), &lease, &request.words, Duration::ZERO)?;
                continue;
            }
        };
        let theirs = &recovery.header.claims;
        let covers = mine.iter().all(|claim| place::covers(theirs, claim));
        if covers && others.is_none() {
            return Ok(Some(LogPlace {
                store: Arc::clone(&at.store),
                folder: at.folder.clone(),
                log: name,
                prefix: at.prefix.clone(),
            }));
        }
        let overlaps = mine.iter().any(|claim| {
            place::covers(theirs, claim) || theirs.iter().any(|other| other.starts_with(claim))
        });
        if overlaps {
            let gives_way = own.is_some_and(|own| *own < name);
            let patience = if gives_way {
                HOLDER_PATIENCE
            } else {
                Duration::ZERO
            };
            refuse_if_held(at.store.as_ref(), &lease, &request.words, patience)?;
        }
    }
    Ok(None)
}

/// Refuses a transfer below whose folder another one writes. That one gives way if it began just
/// now: it finds the log above its own.
pub(super) fn refuse_logs_in(store: &dyn Store, folder: &RelPath) -> Result<()> {
    let logs = log_folder(folder)?;
    for name in reachable(store.list_control(&logs))?.unwrap_or_default() {
        if let Some(lease) = place::lease_of_log(&name) {
            let lease = logs.join(&lease)?;
            refuse_if_held(store, &lease, &folder.to_string(), HOLDER_PATIENCE)?;
        }
    }
    Ok(())
}

/// What a look at a lease shows.
pub(super) enum Lookup {
    /// Somebody holds it.
    Held(Box<dyn ControlFile>),
    /// Nobody does; the epoch of who did last, 0 for nobody.
    Free(u64),
}

/// Looks whether the lease at `path` is held by anybody.
///
/// # Errors
/// Of the store.
pub(super) fn look_at_lease(store: &dyn Store, path: &RelPath) -> Result<Lookup> {
    let file = match store.open_control(path, ControlMode::Existing) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(Lookup::Free(0)),
        Err(error) => return Err(error),
    };
    if !file.try_lock()? {
        return Ok(Lookup::Held(file));
    }
    let last = read_lease(file.as_ref());
    file.unlock()?;
    Ok(Lookup::Free(last?.map_or(0, |record| record.epoch)))
}

/// Refuses when the lease at `path` is held by anybody, and for so long.
///
/// # Errors
/// [`ErrorKind::LeaseHeld`] names the holder.
pub(super) fn refuse_if_held(
    store: &dyn Store,
    path: &RelPath,
    words: &str,
    patience: Duration,
) -> Result<()> {
    let until = Instant::now() + patience;
    while let Some(Lookup::Held(file)) = reachable(look_at_lease(store, path))? {
        if Instant::now() >= until {
            return Err(held(file.as_ref(), words));
        }
        std::thread::sleep(HOLDER_PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::reachable;
    use dray_core::{End, Error, ErrorKind};

    #[test]
    fn what_may_not_be_opened_is_passed_over_like_what_is_gone() {
        let fails = |kind| reachable::<()>(Err(Error::new(kind, End::Sink, "open the log")));
        assert_eq!(fails(ErrorKind::PermissionDenied), Ok(None));
        assert_eq!(fails(ErrorKind::NotFound), Ok(None));
        assert!(fails(ErrorKind::Io).is_err());
    }
}
