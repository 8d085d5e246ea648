//! Reads the part logs of a log, which contain the ranges of its files.
//!
//! Invariant: a range of a part log counts only for a file that the log itself lists as unfinished,
//! with the same content and the same partial file.

use super::{Limits, Recovery, recover_within};
use crate::file::{LogFile, PartAccess};
use crate::record::Tenure;
use dray_core::{ErrorKind, RelPath, Result};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// A part log whose records count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundPart {
    /// Length of the file.
    pub(crate) file_bytes: u64,
    /// Number of bytes that were certainly durable.
    pub(crate) durable: u64,
}

/// Adds the ranges of the part logs to the unfinished files of `recovery`.
///
/// # Errors
/// Errors of the storage. A part log that cannot be read as a log counts as damage.
pub(super) fn read_parts<F: LogFile>(
    file: &mut F,
    recovery: &mut Recovery,
    files_per_part: NonZeroU32,
    limits: Limits,
) -> Result<()> {
    let mut paths: BTreeMap<u32, Vec<RelPath>> = BTreeMap::new();
    for (path, logged) in &recovery.files {
        let part = logged.number.0 / files_per_part;
        paths.entry(part).or_default().push(path.clone());
    }
    let mut runs_left = limits.runs_max;
    for (part, paths) in paths {
        let Some(mut opened) = file.open_part(part, PartAccess::Read)? else {
            continue;
        };
        let limits = Limits {
            runs_max: runs_left,
            ..limits
        };
        let found = match recover_within(&mut opened, limits) {
            Ok(found) => found.filter(|found| belongs(found, recovery, part)),
            Err(error) if matches!(error.kind, ErrorKind::LogDamaged | ErrorKind::LogVersion) => {
                recovery.damage.get_or_insert_default().count += 1;
                None
            }
            Err(error) => return Err(error),
        };
        let Some(found) = found else { continue };
        if found.over_limit > 0 {
            // A part of the records would disagree with the part log when the log is continued.
            recovery.over_limit += found.over_limit;
            continue;
        }
        runs_left -= found.run_count().min(runs_left);
        merge(recovery, part, found, &paths);
    }
    let files = recovery.files.len() as u64;
    if let Some(damage) = &mut recovery.damage {
        damage.files_kept = files;
    }
    Ok(())
}

/// Returns true if `found` is the part log `part` of the log.
fn belongs(found: &Recovery, log: &Recovery, part: u32) -> bool {
    found.header.id == log.header.id
        && found.header.form == log.header.form
        && found.header.part == Some(part)
        && found.tenure.epoch <= log.tenure.epoch
}

fn merge(recovery: &mut Recovery, part: u32, mut found: Recovery, paths: &[RelPath]) {
    if let Some(theirs) = found.damage.take() {
        let ours = recovery.damage.get_or_insert_default();
        ours.count += theirs.count;
        ours.files_forgotten += theirs.files_forgotten;
    }
    let is_rebooted = is_rebooted(&found.tenure, recovery.boot_epoch);
    for path in paths {
        let (Some(ours), Some(theirs)) = (recovery.files.get_mut(path), found.files.remove(path))
        else {
            continue;
        };
        if !ours.is_same(&theirs) {
            continue;
        }
        let lengths = FoundPart {
            file_bytes: found.file_bytes,
            durable: found.durable,
        };
        recovery.parts.insert(part, lengths);
        if !((theirs.is_weak || !recovery.header.form.has_sums) && is_rebooted) {
            ours.done = theirs.done;
            ours.is_weak = theirs.is_weak;
        }
    }
}

/// Returns true if the host may have restarted, or another host may have continued the log, since
/// the tenure `last` of a part log. The weak ranges of the part log then do not count.
pub(crate) const fn is_rebooted(last: &Tenure, boot_epoch: u64) -> bool {
    last.epoch < boot_epoch
}

impl Recovery {
    fn run_count(&self) -> usize {
        self.files.values().map(|file| file.done.run_count()).sum()
    }
}
