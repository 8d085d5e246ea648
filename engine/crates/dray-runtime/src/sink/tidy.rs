//! Removes leftovers of interrupted transfers at the end of a successful transfer: partial files
//! that no log names, and leases and logs without resumable data. Data that other transfers may
//! resume is only counted.
//!
//! Invariant: this module never removes a log that is held, nor a partial file that a log names.
//!
//! The module `cleanup` removes the files of this transfer's own log, and `sweep` removes old data
//! of other transfers.

use super::files::Space;
use super::find_logs::{LeaseState, look_at_lease};
use super::log_file::StoredLog;
use super::log_place::{LogPlace, log_folder, reachable};
use super::probe::found_partial;
use super::sweep;
use dray_core::lock::LockExt;
use dray_core::{End, EntryKind, Error, ErrorKind, Metadata, Name, RelPath, Result};
use dray_log::{Limits, Recovery, layout, recover_within};
use dray_store::{ControlMode, ListOptions, Store};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of examined logs of other transfers.
const LOGS_MAX: usize = 64;
/// The same maximum for stores where each log costs a network round trip.
const REMOTE_LOGS_MAX: usize = 4;

/// Limits for reading one log. Files of a larger log are not all counted.
const LIMITS: Limits = Limits {
    files_max: 1 << 12,
    runs_max: 1 << 14,
};

const LATER: &str = "to remove the file, run `dray log sweep` in an hour";

fn unread(path: &RelPath) -> Error {
    let cause =
        "a log beside the partial file cannot be read, and this log may name the partial file";
    let operation = "remove the partial file";
    let error = Error::new(ErrorKind::PermissionDenied, End::Sink, operation).file(path);
    error.cause(cause)
}

/// Data that other transfers may resume.
#[derive(Default)]
struct Resumable {
    /// True if any log without a holder was found.
    is_any: bool,
    transfers: u64,
    files: u64,
}

impl Space {
    /// Removes partial files that no log names, in folders where earlier runs of this transfer may
    /// have left them. Called while the lease is held.
    pub(super) fn remove_strays(&self) -> Result<()> {
        if !self.strays.is_any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let folders = std::mem::take(&mut *self.strays.folders.lock_unpoisoned());
        for folder in folders {
            self.check_lease()?;
            let removed = self.keeping_time(&folder, || {
                // If a file disappears during the first listing, list the folder again. If a file
                // disappears during the second listing too, report an error.
                match self.remove_strays_in(&folder, false)? {
                    true => Ok(true),
                    false => self.remove_strays_in(&folder, true),
                }
            });
            if let Err(error) = removed {
                self.tell(error.remedy(LATER));
            }
        }
        Ok(())
    }

    /// Calls `remove`, then restores the modification time of the folder. Removing a partial file
    /// changes that time, and at the end of a transfer the folder already has the source's time.
    pub(super) fn keeping_time<T>(
        &self,
        folder: &RelPath,
        remove: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = self.store.stat(folder);
        let removed = remove();
        if let (Ok(Some(before)), Ok(Some(after))) = (before, self.store.stat(folder))
            && before.modified != after.modified
        {
            let metadata = Metadata {
                mode: after.mode,
                modified: before.modified,
                xattrs: Vec::new(),
            };
            // Ignore errors: the time of another user's folder cannot be restored, and this
            // transfer did not set it.
            let _ = self.set_directory(folder, &metadata);
        }
        removed
    }

    /// Removes the partial files in `folder`, except those that a log names. Returns false if a
    /// listed file no longer existed. With `is_again`, such a missing file is an error instead.
    fn remove_strays_in(&self, folder: &RelPath, is_again: bool) -> Result<bool> {
        let options = ListOptions {
            recursive: false,
            contents: true,
            own: true,
            ..ListOptions::default()
        };
        let Some(lister) = reachable(self.store.list(folder, &options))? else {
            return Ok(true);
        };
        let (mut failed, mut is_all) = (None, true);
        for item in lister {
            let item = match item {
                Ok(item) => item,
                // The entry is a folder inside this one. The listing does not enter it.
                Err(error) if error.kind == ErrorKind::IsADirectory => continue,
                Err(error) if error.kind == ErrorKind::NotFound && !is_again => {
                    is_all = false;
                    continue;
                }
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            let is_file = matches!(
                item.kind,
                EntryKind::File { .. } | EntryKind::Symlink { .. }
            );
            let is_partial = layout::is_partial_name(&item.name);
            if !is_file || !is_partial || !self.names.has_own_form(&item.name) {
                continue;
            }
            let path = folder.join(&item.name)?;
            if self.names.is_taken(&path, &item.name) {
                continue;
            }
            match self.names.clear(&path, &item.name) {
                Ok(true) => {}
                Ok(false) if !self.names.is_unread() => {}
                Ok(false) => failed = Some(unread(&path)),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(is_all), Err)
    }

    /// Removes leases and logs of other transfers in the destination folder, if they have no
    /// resumable data. Adds a notice about data that others may resume. Failures are not reported,
    /// because the next transfer tries again.
    pub(super) fn tidy_logs(&self, own: Option<&Name>) {
        let mut found = Resumable::default();
        let looked = self.look_at_logs(own, &mut found);
        if found.is_any {
            self.strays.is_any.store(true, Ordering::Relaxed);
        }
        if looked.is_ok() && found.transfers > 0 {
            let Resumable {
                transfers, files, ..
            } = found;
            let s = |count| if count == 1 { "" } else { "s" };
            let cause = format!(
                "{transfers} interrupted transfer{} may resume {files} file{}",
                s(transfers),
                s(files)
            );
            // An `AlreadyExists` error without a file is shown as its cause only.
            let operation = "remove partial data of other transfers";
            let told = Error::new(ErrorKind::AlreadyExists, End::Sink, operation).cause(cause);
            self.tell(told.remedy(
                "list the partial data with `dray log show`; remove it with \
                `dray log sweep`",
            ));
        }
    }

    fn look_at_logs(&self, own: Option<&Name>, found: &mut Resumable) -> Result<()> {
        let capabilities = self.store.capabilities();
        if !capabilities.can_hold_log {
            return Ok(());
        }
        let most = match capabilities.late_calls.is_zero() {
            true => LOGS_MAX,
            false => REMOTE_LOGS_MAX,
        };
        let owner = self.destination()?.owner.clone();
        let folder = log_folder(&RelPath::root())?;
        let names = reachable(self.store.list_control(&folder))?.unwrap_or_default();
        let mut logs: Vec<Name> = names.iter().filter_map(layout::log_of).collect();
        logs.sort_unstable();
        logs.dedup();
        logs.retain(|log| Some(log) != own);
        for log in logs.into_iter().take(most) {
            let at = LogPlace {
                store: Arc::clone(&self.store),
                folder: folder.clone(),
                log,
                prefix: RelPath::root(),
            };
            // Ignore errors: a log that cannot be read, or that was removed since the listing, is
            // skipped.
            let _ = look_at_log(&at, &owner, found);
        }
        Ok(())
    }
}

fn look_at_log(at: &LogPlace, owner: &[u8], found: &mut Resumable) -> Result<()> {
    let Some(lease) = layout::lease_of_log(&at.log) else {
        return Ok(());
    };
    let looked = look_at_lease(at.store.as_ref(), &at.folder.join(&lease)?)?;
    if matches!(looked, LeaseState::Held(_)) {
        return Ok(());
    }
    found.is_any = true;
    let says_nothing = |log: Option<&Recovery>| match log {
        Some(log) => is_over(at.store.as_ref(), log, owner),
        None => Ok(true),
    };
    let log = read(at)?;
    if says_nothing(log.as_ref())? {
        // Check again under the lease, because a holder may have written to the log after the first
        // check.
        return sweep::remove_silent(at, |at| says_nothing(read(at)?.as_ref()));
    }
    let left = log.map_or(0, |log| log.files.len());
    if left > 0 {
        found.transfers += 1;
        found.files += left as u64;
    }
    Ok(())
}

/// Returns true if this log has no resumable data. Either the log lists no unfinished files, or all
/// files that it lists belong to this owner, are complete and have their final names.
fn is_over(store: &dyn Store, log: &Recovery, owner: &[u8]) -> Result<bool> {
    if log.damage.is_some() || log.over_limit > 0 {
        return Ok(false);
    }
    let is_on_disks = store.capabilities().is_on_disks;
    for (path, file) in &log.files {
        // The partial file may be on another disk, which is invisible here.
        if layout::is_on_disks(&file.partial.name) != is_on_disks {
            return Ok(false);
        }
        // A power failure may lose the bytes of a weak range. Its record is needed in that case.
        let is_safe = !file.is_doubtful && !file.is_weak;
        let is_whole = is_safe && file.done.bytes() == file.key.size;
        if log.header.owner != owner
            || !is_whole
            || found_partial(store, path, file)?.is_some()
            || store.stat(path)?.is_none()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the content of the log, or `None` if the log does not exist or has no header yet.
fn read(at: &LogPlace) -> Result<Option<Recovery>> {
    let path = at.folder.join(&at.log)?;
    match at.store.open_control(&path, ControlMode::ReadOnly) {
        Ok(file) => recover_within(&mut StoredLog::new(file, &at.store, &path), LIMITS),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
