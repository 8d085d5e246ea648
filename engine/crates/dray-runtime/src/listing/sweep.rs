//! Removes old checkpoints from the folder in which an endpoint keeps them.

use super::{CheckpointOptions, EXTENSION};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Bounds of the checkpoints in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepBounds {
    /// Maximum number of checkpoints.
    pub count_max: u64,
    /// Maximum size of all checkpoints in bytes.
    pub bytes_max: u64,
}

struct Found {
    path: PathBuf,
    written: SystemTime,
    bytes: u64,
}

/// Removes the checkpoints in `folder` that were not written for the maximum age of a checkpoint:
/// their transfers have ended, or would not use them. Then removes the oldest checkpoints until the
/// others are within the bounds. Keeps `own`, which the caller is about to open. Keeps each
/// checkpoint that a session has open, even an old one: the session may send data for more than a
/// day, and then remove the record of a folder in which a file has changed. A removed checkpoint
/// costs a new listing, but no data. Ignores errors: the next call tries again.
pub fn sweep(folder: &Path, own: &Path, bounds: SweepBounds, now: SystemTime) {
    let age_max = CheckpointOptions::default().age_max;
    let mut kept = Vec::new();
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = file.path();
        if path.extension().is_none_or(|end| end != EXTENSION) {
            continue;
        }
        let Ok(state) = file.metadata() else { continue };
        let written = state.modified().unwrap_or(now);
        let age = now.duration_since(written).unwrap_or_default();
        if age > age_max && path != own && !is_open(&path) {
            let _ = std::fs::remove_file(path);
            continue;
        }
        kept.push(Found {
            path,
            written,
            bytes: state.len(),
        });
    }
    kept.sort_by_key(|found| found.written);
    let mut count = kept.len() as u64;
    let mut bytes = kept.iter().map(|found| found.bytes).sum::<u64>();
    for found in kept {
        if count <= bounds.count_max && bytes <= bounds.bytes_max {
            return;
        }
        if found.path != own && !is_open(&found.path) && std::fs::remove_file(found.path).is_ok() {
            count -= 1;
            bytes = bytes.saturating_sub(found.bytes);
        }
    }
}

/// Returns true if a session has the checkpoint open.
fn is_open(path: &Path) -> bool {
    let lock = FlockOperation::NonBlockingLockExclusive;
    File::open(path).is_ok_and(|file| rustix::fs::flock(&file, lock).is_err())
}
