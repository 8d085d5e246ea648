//! Locations of logs: in the destination folder, and in the folders above it.

use super::request::DestinationRequest;
use dray_core::{ErrorKind, Name, RelPath, Result};
use dray_log::layout;
use dray_store::Store;
use std::sync::Arc;

/// Location of a log.
#[derive(Clone)]
pub(super) struct LogPlace {
    pub(super) store: Arc<dyn Store>,
    /// The folder `.dray-log`.
    pub(super) folder: RelPath,
    pub(super) log: Name,
    /// Path of the destination folder relative to the log's top folder.
    pub(super) prefix: RelPath,
}

impl LogPlace {
    /// Removes the log with its part logs and its lease. If the folder of the log is then empty,
    /// removes the folder too.
    pub(super) fn remove(&self) -> Result<()> {
        if self.store.capabilities().can_hold_log_parts {
            for name in self.store.list_control(&self.folder)? {
                if layout::is_of_part(&self.log, &name) {
                    self.store.remove_control(&self.folder.join(&name)?)?;
                }
            }
        }
        self.store.remove_control(&self.folder.join(&self.log)?)?;
        if let Some(lease) = layout::lease_of_log(&self.log) {
            self.store.remove_control(&self.folder.join(&lease)?)?;
        }
        // Ignore errors: if the folder contains another transfer's log, it stays.
        let _ = self.store.remove(&self.folder);
        Ok(())
    }
}

/// Returns the path of a folder's `.dray-log`.
pub(super) fn log_folder(top: &RelPath) -> Result<RelPath> {
    top.join(&layout::log_folder_name()?)
}

/// Returns the folders above `folder`, the nearest first. Each result also contains the path of
/// `folder` relative to that folder above.
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

/// Returns the location of the transfer's own log, in the destination folder.
pub(super) fn own_place(request: &DestinationRequest) -> Result<LogPlace> {
    Ok(LogPlace {
        store: Arc::clone(&request.store),
        folder: log_folder(&RelPath::root())?,
        log: layout::log_name(&request.claims, &request.transfer)?,
        prefix: RelPath::root(),
    })
}

/// Converts a path of the log to a path relative to the destination. Returns `None` for a path
/// outside the destination.
pub(super) fn below(prefix: &RelPath, path: &RelPath) -> Result<Option<RelPath>> {
    if !path.starts_with(prefix) {
        return Ok(None);
    }
    let names = path.components().skip(prefix.components().count());
    let joined = names
        .into_iter()
        .try_fold(RelPath::root(), |joined, name| joined.join(&name));
    joined.map(Some)
}

/// Converts some errors of opening another transfer's log to `None`: the log no longer exists, or
/// this user may not open it. The caller skips such a log, because its files can be neither resumed
/// nor examined.
pub(super) fn reachable<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error)
            if matches!(
                error.kind,
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::reachable;
    use dray_core::{End, Error, ErrorKind};

    #[test]
    fn logs_that_may_not_be_opened_are_skipped_like_missing_ones() {
        let fails = |kind| reachable::<()>(Err(Error::new(kind, End::Sink, "open the log")));
        assert_eq!(fails(ErrorKind::PermissionDenied), Ok(None));
        assert_eq!(fails(ErrorKind::NotFound), Ok(None));
        assert!(fails(ErrorKind::Io).is_err());
    }
}
