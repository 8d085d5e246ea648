//! Examines one log, or the remnant of a removed log. Determines the files that the log names, the
//! size of these files, and the time of the last change.

use super::super::find_logs::{LeaseState, look_at_lease};
use super::super::log_file::StoredLog;
use super::super::log_place::reachable;
use super::super::{lease, probe};
use super::{PartialData, PartialKind};
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_log::trust::FoundPartial;
use dray_log::{Limits, LoggedFile, PartialFile, Recovery, layout, recover_within};
use dray_store::{ControlMode, Holding, PartialId, Store};
use std::sync::Arc;

/// Maximum number of unfinished files and ranges of one log in memory. The limit is lower than the
/// limit of a transfer, because a sweep runs beside transfers. After the log is removed, partial
/// files beyond the limit have no log, and a later sweep removes them.
const LIMITS: Limits = Limits {
    files_max: 1 << 16,
    runs_max: 1 << 18,
};

/// Holder of the lease: unknown and to be checked, or this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lease {
    Ask,
    Ours,
}

/// The result of examining a log.
pub(super) struct Survey {
    pub(super) found: PartialData,
    /// The partial files that exist.
    pub(super) partials: Vec<Partial>,
}

/// A partial file that a log names.
pub(super) struct Partial {
    pub(super) store: Arc<dyn Store>,
    /// Final path of the file.
    pub(super) path: RelPath,
    pub(super) name: Name,
    pub(super) id: PartialId,
}

/// A folder of logs, and the stores of the partial files that these logs may name.
pub(super) struct Place<'a> {
    /// Store of the logs.
    pub(super) store: &'a Arc<dyn Store>,
    /// Stores of the other disks.
    pub(super) beside: &'a [Arc<dyn Store>],
    /// The folder of the logs.
    pub(super) logs: &'a RelPath,
}

/// Examines the log `log` and the files that it names. Returns `None` if neither the log nor a
/// remnant of the log ([`PartialKind::Remnant`]) exists.
///
/// # Errors
/// `LogVersion` and `LogDamaged` for an unreadable log. `PermissionDenied` for the log of another
/// user. Errors of the store.
pub(super) fn survey(place: &Place<'_>, log: &Name, lease: Lease) -> Result<Option<Survey>> {
    let Place { store, logs, .. } = place;
    let path = logs.join(log)?;
    let lease_name = layout::lease_of_log(log).ok_or_else(no_log)?;
    let lease_path = logs.join(&lease_name)?;
    let next_path = logs.join(&Name::new(&[log.as_bytes(), b".next"].concat())?)?;
    let is_held = match lease {
        Lease::Ours => false,
        Lease::Ask => match look_at_lease(store.as_ref(), &lease_path) {
            Ok(looked) => matches!(looked, LeaseState::Held(_)),
            Err(error) => return Err(error.file(&lease_path)),
        },
    };
    let hold = |path: &RelPath| store.holding(path);
    let (own, held, next) = (hold(&path)?, hold(&lease_path)?, hold(&next_path)?);
    let recovery = match own {
        Some(_) => read(store, &path)?,
        None => None,
    };
    // A check whether the lease is free takes and releases the lease, which changes the lease's
    // time. So the time of the lease counts only if there is no log.
    let lasting = match own {
        Some(_) => [own, next],
        None => [held, next],
    };
    let Some(changed) = lasting.iter().flatten().map(|one| one.changed).max() else {
        return Ok(None);
    };
    let holder = reachable(store.open_control(&lease_path, ControlMode::ReadOnly))?;
    let holder = holder.and_then(|file| lease::read_lease(file.as_ref()).ok().flatten());
    let tenure = recovery.as_ref().map(|recovery| &recovery.tenure);
    let mut survey = Survey {
        found: PartialData {
            what: match own {
                Some(_) => PartialKind::Log,
                None => PartialKind::Remnant,
            },
            disk: None,
            path: path.clone(),
            owner: recovery.as_ref().map(|log| log.header.owner.clone()),
            transfer: tenure
                .map(|tenure| tenure.transfer.clone())
                .or_else(|| holder.map(|holder| holder.transfer)),
            files: 0,
            bytes: sum([own, held, next]),
            changed,
            is_held,
            part: 0,
            id: None,
        },
        partials: Vec::new(),
    };
    if let Some(recovery) = &recovery {
        survey.add_partials(place, recovery)?;
        if recovery.header.form.files_per_part().is_some() {
            survey.add_parts(place, log)?;
        }
    }
    Ok(Some(survey))
}

impl Survey {
    fn add_partials(&mut self, place: &Place<'_>, log: &Recovery) -> Result<()> {
        let top = place.logs.parent().unwrap_or_else(RelPath::root);
        let is_same_boot = lease::boot_id().is_ok_and(|boot| boot == log.tenure.boot_id);
        for (path, file) in &log.files {
            // A partial file that cannot be reached counts as missing. Its path may be invalid, or
            // its folder may have been replaced.
            let Ok(path) = top.join_path(path) else {
                continue;
            };
            let is_alone = place.beside.is_empty();
            for store in std::iter::once(place.store).chain(place.beside) {
                self.add_partial(store, &path, file, |found| {
                    is_named(&file.partial, found, is_same_boot, is_alone)
                })?;
            }
        }
        Ok(())
    }

    /// Adds the part logs of the log named `log`.
    fn add_parts(&mut self, place: &Place<'_>, log: &Name) -> Result<()> {
        for name in place.store.list_control(place.logs)? {
            if !layout::is_of_part(log, &name) {
                continue;
            }
            if let Some(holding) = place.store.holding(&place.logs.join(&name)?)? {
                self.found.bytes = self.found.bytes.saturating_add(holding.bytes);
                self.found.changed = self.found.changed.max(holding.changed);
            }
        }
        Ok(())
    }

    /// Adds the partial file of the final path `path` in `store`, if it is the file that the log
    /// names.
    fn add_partial(
        &mut self,
        store: &Arc<dyn Store>,
        path: &RelPath,
        file: &LoggedFile,
        is_named: impl Fn(&FoundPartial) -> bool,
    ) -> Result<()> {
        let Ok(Some(partial)) = probe::found_partial(store.as_ref(), path, file) else {
            return Ok(());
        };
        if !is_named(&partial) {
            return Ok(());
        }
        let folder = path.parent().unwrap_or_else(RelPath::root);
        let Some(holding) = store.holding(&folder.join(&file.partial.name)?)? else {
            return Ok(());
        };
        let found = &mut self.found;
        found.files += 1;
        found.bytes = found.bytes.saturating_add(holding.bytes);
        found.changed = found.changed.max(holding.changed);
        self.partials.push(Partial {
            store: Arc::clone(store),
            path: path.clone(),
            name: file.partial.name.clone(),
            id: probe::id_of(&partial),
        });
        Ok(())
    }
}

/// Returns true if a partial file is the file that the log names. If the disk of the log does not
/// stand alone (`is_alone`), the log may name a file on any of the disks. Two disks may have files
/// with the same name and inode number, so the inode number alone is no proof: the device or the
/// creation time must also be known.
fn is_named(
    logged: &PartialFile,
    found: &FoundPartial,
    is_same_boot: bool,
    is_alone: bool,
) -> bool {
    let is_proof = is_alone || is_same_boot || (logged.born != 0 && found.born != 0);
    is_proof && logged.is(found, is_same_boot)
}

fn read(store: &Arc<dyn Store>, path: &RelPath) -> Result<Option<Recovery>> {
    let file = match store.open_control(path, ControlMode::ReadOnly) {
        Ok(file) => file,
        Err(error) if error.kind == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.file(path)),
    };
    recover_within(&mut StoredLog::new(file, store, path), LIMITS).map_err(|error| error.file(path))
}

fn sum(holdings: [Option<Holding>; 3]) -> u64 {
    holdings
        .iter()
        .flatten()
        .fold(0, |sum: u64, one| sum.saturating_add(one.bytes))
}

pub(super) fn no_log() -> Error {
    Error::new(ErrorKind::Internal, End::Sink, "read the log").cause(
        "the file name is not the \
        name of a log",
    )
}

#[cfg(test)]
mod tests {
    use super::is_named;
    use dray_core::Name;
    use dray_log::PartialFile;
    use dray_log::trust::FoundPartial;

    #[test]
    fn an_inode_number_alone_does_not_identify_a_file_on_several_disks() {
        let logged = |born| PartialFile {
            name: Name::new(b".dray-0123456789abcdef.part").expect("a name"),
            device: 1,
            inode: 12,
            born,
        };
        let found = |device, born| FoundPartial {
            device,
            inode: 12,
            born,
            size: 1,
        };
        // The numbers of devices may change when the host restarts.
        assert!(is_named(&logged(7), &found(2, 7), false, false));
        assert!(is_named(&logged(0), &found(1, 0), true, false));
        assert!(is_named(&logged(0), &found(2, 0), false, true));
        for (logged, found, is_same_boot) in [
            (logged(7), found(2, 8), false),
            (logged(0), found(2, 0), false),
            (logged(0), found(1, 7), false),
            (logged(0), found(2, 0), true),
            (logged(7), found(2, 7), true),
        ] {
            let is_it = is_named(&logged, &found, is_same_boot, false);
            assert!(!is_it, "{logged:?} {found:?} {is_same_boot}");
        }
    }
}
