//! The logs of all writers at the destination.

use super::Destination;
use crate::log_file::DiskFile;
use dray_core::{RelPath, Result};
use dray_log::{Recovery, layout, recover};

/// Returns all logs at the destination that can be read.
pub(super) fn logs(at: &Destination) -> Result<Vec<(RelPath, Recovery)>> {
    let mut found = Vec::new();
    for path in log_paths(at) {
        if let Ok(Some(recovery)) = recover(&mut DiskFile::open(&at.disk, &path)) {
            found.push((path, recovery));
        }
    }
    Ok(found)
}

/// Returns the paths of all logs at the destination.
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
