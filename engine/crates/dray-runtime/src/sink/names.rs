//! Names of partial files.
//!
//! A partial file's name is a hash of the final name. A peer that chooses the final names can
//! therefore produce collisions.
//!
//! Partial files in a store with several disks have names of another form than partial files in one
//! folder. A transfer to the folder of one disk does not see the logs of the other disks, and a
//! transfer to all disks sees only the logs of the first disk.
//!
//! Invariants: no two files of this transfer share a partial file. Another transfer's partial file
//! is removed only if its name has the form of this transfer's names and no log names it.

use super::other_logs::{OtherLogs, PartialKey};
use dray_core::lock::LockExt;
use dray_core::maps::HashSet;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_log::layout::{is_on_disks, on_disks, partial_name_at_turn, partial_name_of_log};
use dray_store::{PartialId, Store};
use std::sync::{Arc, Mutex};

/// Number of partial names of each kind that are tried for one file: names that every transfer
/// computes for the file, and then names that only this transfer's log gives. A partial name
/// contains a hash of the file's name. Hashes of two files are the same only in a hostile manifest,
/// so this number limits the cost of such a manifest. The value is estimated, not measured.
const TURNS_MAX: u32 = 8;

/// The partial names of a transfer.
pub(super) struct Names {
    store: Arc<dyn Store>,
    /// True if the store has several disks.
    is_on_disks: bool,
    /// Partial files of this session and of this transfer's log.
    taken: Mutex<HashSet<PartialKey>>,
    /// Other transfers' logs; `None` if the store keeps no logs.
    others: Mutex<Option<OtherLogs>>,
    /// Name of this transfer's log; `None` if the store keeps no logs.
    own_log: Option<Name>,
}

fn place_of(path: &RelPath, name: &Name) -> PartialKey {
    (path.parent().unwrap_or_else(RelPath::root), name.clone())
}

impl Names {
    pub(super) fn new(store: Arc<dyn Store>, others: Option<OtherLogs>) -> Self {
        Self {
            is_on_disks: store.capabilities().is_on_disks,
            store,
            taken: Mutex::new(HashSet::default()),
            own_log: others.as_ref().and_then(OtherLogs::own_name),
            others: Mutex::new(others),
        }
    }

    /// Returns the name of this transfer's log, or `None` if the store keeps no logs.
    pub(super) const fn own_log(&self) -> Option<&Name> {
        self.own_log.as_ref()
    }

    /// Returns the name to try at number `turn`. The first [`TURNS_MAX`] names are common to all
    /// transfers. The following names are unique to this transfer.
    fn name_at(&self, final_name: &Name, turn: u32) -> Result<Option<Name>> {
        let name = match (turn.checked_sub(TURNS_MAX), &self.own_log) {
            (None, _) => partial_name_at_turn(final_name, turn)?,
            (Some(turn), Some(log)) => partial_name_of_log(final_name, turn, log)?,
            (Some(_), None) => return Ok(None),
        };
        match self.is_on_disks {
            true => on_disks(&name).map(Some),
            false => Ok(Some(name)),
        }
    }

    /// Returns true if `name` has the form of this transfer's names. The logs that name other
    /// partial files may be invisible to this transfer, so these files must stay.
    pub(super) fn has_own_form(&self, name: &Name) -> bool {
        is_on_disks(name) == self.is_on_disks
    }

    /// Records that `path` has a partial file of this name. Returns false if another file has the
    /// name.
    pub(super) fn take(&self, path: &RelPath, name: &Name) -> bool {
        self.taken.lock_unpoisoned().insert(place_of(path, name))
    }

    /// Takes the first of the possible names for the partial file of `path`. Returns `None` if
    /// another file of this transfer has that name. Does not check the store.
    pub(super) fn take_first(&self, path: &RelPath) -> Result<Option<Name>> {
        let Some(final_name) = path.name() else {
            return Ok(None);
        };
        let name = self.name_at(&final_name, 0)?;
        Ok(name.filter(|name| self.take(path, name)))
    }

    /// Returns true if a file of this transfer, or of its log, has a partial file of this name.
    pub(super) fn is_taken(&self, path: &RelPath, name: &Name) -> bool {
        self.taken.lock_unpoisoned().contains(&place_of(path, name))
    }

    /// Returns true if the last call of [`Self::clear`] kept a file because a log could not be
    /// read.
    pub(super) fn is_unread(&self) -> bool {
        self.others
            .lock_unpoisoned()
            .as_ref()
            .is_some_and(OtherLogs::is_unread)
    }

    /// Releases a name. The caller has removed or published the partial file, and no valid record
    /// names it.
    pub(super) fn release(&self, path: &RelPath, name: &Name) {
        self.taken.lock_unpoisoned().remove(&place_of(path, name));
    }

    /// Makes the partial file of `path` under an unused name. `make` returns `None` if an entry of
    /// that name exists.
    ///
    /// # Errors
    /// Errors of `make`. [`ErrorKind::LimitExceeded`] if all names are taken.
    pub(super) fn claim<T>(
        &self,
        path: &RelPath,
        make: impl Fn(&Name) -> Result<Option<T>>,
    ) -> Result<(Name, T)> {
        let wrong =
            |kind| Error::new(kind, End::Sink, "find a name for the partial file").file(path);
        let final_name = path.name().ok_or_else(|| wrong(ErrorKind::InvalidName))?;
        for turn in 0..2 * TURNS_MAX {
            let Some(name) = self.name_at(&final_name, turn)? else {
                break;
            };
            if !self.take(path, &name) {
                continue;
            }
            let first = make(&name);
            let is_in_the_way = matches!(first, Ok(None));
            let made = match first {
                Ok(None) => self.clear(path, &name).and_then(|is_free| match is_free {
                    true => make(&name),
                    false => Ok(None),
                }),
                made => made,
            };
            match made {
                Ok(Some(made)) => {
                    // A run that was killed while it moved a file has left two partial files.
                    if is_in_the_way {
                        let _ = self.clear_beside(path, &name);
                    }
                    return Ok((name, made));
                }
                Ok(None) => self.release(path, &name),
                Err(error) => {
                    self.release(path, &name);
                    return Err(error);
                }
            }
        }
        Err(wrong(ErrorKind::LimitExceeded)
            .cause("all possible names of the partial file are in use")
            .remedy("rename the file, or copy the file alone"))
    }

    /// Removes the partial files that an interrupted move has left beside the partial file `name`.
    /// A move copies a file to a second partial file, which gets the first free name. So this
    /// function examines all names that come before `name`, and one name after it. Partial files
    /// that a log names stay.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn clear_beside(&self, path: &RelPath, name: &Name) -> Result<()> {
        let Some(final_name) = path.name() else {
            return Ok(());
        };
        let mut is_last = false;
        for turn in 0..2 * TURNS_MAX {
            let Some(other) = self.name_at(&final_name, turn)? else {
                break;
            };
            if other == *name {
                is_last = true;
                continue;
            }
            if self.take(path, &other) {
                let cleared = self.clear(path, &other);
                self.release(path, &other);
                cleared?;
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Removes a partial file that this transfer has not made, unless a log names it or its name
    /// has another form. Returns true if the name is free afterwards.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn clear(&self, path: &RelPath, name: &Name) -> Result<bool> {
        if !self.has_own_form(name) {
            return Ok(false);
        }
        let (folder, name) = place_of(path, name);
        // Record the identity of this file first, and remove only this file. Another process may
        // make a file of the same name later, and the logs were not checked for that file.
        let at = folder.join(&name)?;
        let Some(found) = self.store.stat(&at)? else {
            return Ok(true);
        };
        let id = PartialId {
            inode: found.inode,
            device: found.device,
            born: self.store.born(&at)?,
        };
        let place = (folder, name);
        if let Some(others) = &mut *self.others.lock_unpoisoned()
            && others.speak_of(&place)?
        {
            return Ok(false);
        }
        self.store.discard(path, &place.1, Some(id))?;
        Ok(true)
    }
}
