//! The logs at the destination of all writers.

use super::Destination;
use crate::log_file::DiskFile;
use dray_core::{RelPath, Result};
use dray_log::{Recovery, layout, recover};

/// Returns all readable logs of the destination.
pub(super) fn logs(at: &Destination) -> Result<Vec<(RelPath, Recovery)>> {
    let mut found = Vec::new();
    for path in log_paths(at) {
        if let Ok(Some(recovery)) = recover(&mut DiskFile::open(&at.disk, &path)) {
            found.push((path, recovery));
        }
    }
    Ok(found)
}

/// Returns the paths of all logs of the destination.
pub(super) fn log_paths(at: &Destination) -> Vec<RelPath> {
    let disk = at.disk.borrow();
    let is_log = |path: &&RelPath| {
        path.name()
            .is_some_and(|name| layout::lease_of_log(&name).is_some())
    };
    disk.names()
        .map(|(path, _)| path)
        .filter(is_log)
        .cloned()
        .collect()
}
