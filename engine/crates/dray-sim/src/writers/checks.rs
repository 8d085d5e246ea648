//! Checks promises about several writers, from outside of the writers.

use super::logs::logs;
use super::{Destination, OBJECT_BYTES};
use crate::disk::Node;
use dray_core::{RelPath, Result};

/// Checks a transfer that is about to write an object of a file.
pub(super) fn at_write(destination: &mut Destination, who: usize, path: &RelPath, object: u64) {
    let others = destination.writing.get(path).into_iter().flatten();
    if let Some(other) = others.copied().find(|other| *other != who) {
        let detail =
            format!("{path}: transfer {who} writes this file while transfer {other} writes it");
        destination.violate("one_writer_per_file", detail);
    }
    if destination.durable.contains(&(path.clone(), object)) {
        let detail = format!("{path}: transfer {who} sends the durable object {object} again");
        destination.violate("what_was_durable_is_not_sent_again", detail);
    }
}

/// Checks a transfer that is about to remove a partial file.
pub(super) fn at_removal(
    destination: &mut Destination,
    who: usize,
    own_log: &RelPath,
    inode: u64,
) -> Result<()> {
    for (log, found) in logs(destination)? {
        let speaks = found.files.values().any(|file| file.partial.inode == inode);
        if speaks && log != *own_log {
            let detail = format!("transfer {who} removes a partial file that the log {log} names");
            destination.violate("nothing_of_another_is_removed", detail);
        }
    }
    Ok(())
}

/// Checks the destination after all transfers have succeeded. `wanted` are the files of all
/// transfers.
pub(super) fn at_the_end<'w>(
    destination: &mut Destination,
    wanted: impl Iterator<Item = &'w RelPath>,
) -> Result<()> {
    let disk = destination.disk.clone();
    let disk = disk.borrow();
    for path in wanted {
        let found = match disk.look(path) {
            Some(Node::File(inode, _)) => disk.bytes(*inode),
            _ => &[],
        };
        if destination.files.get(path).map(Vec::as_slice) != Some(found) {
            let detail = format!("{path}: {} bytes arrived", found.len());
            destination.violate("sink_tree_equals_source_tree", detail);
        }
    }
    let left: Vec<String> = disk
        .names()
        .filter(|(_, node)| matches!(node, Node::File(..)))
        .map(|(path, _)| path.to_string())
        // A crash can lose a FileBegin record that was not synced. A sweep would remove the partial
        // file of such a record, so ignore this file.
        .filter(|path| path.ends_with(".log") || path.ends_with(".part") && destination.boot == 1)
        .collect();
    if !left.is_empty() {
        destination.violate("nothing_is_left", format!("{left:?}"));
    }
    Ok(())
}

/// Returns the number of objects in a file of `bytes` bytes.
pub(super) const fn objects(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(OBJECT_BYTES)
}
