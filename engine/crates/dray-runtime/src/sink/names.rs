//! Under which names the bytes of files lie until the files get their own.
//!
//! A partial file's name follows from the final one by a hash that whoever chooses the final names
//! can make collide. Invariant: no two files of this transfer have one partial file, and a partial
//! file that is not this transfer's is removed only when no log speaks of it.

use super::other_logs::{OtherLogs, Place};
use crate::lock::lock;
use dray_core::maps::HashSet;
use dray_core::{End, Error, ErrorKind, Name, RelPath, Result};
use dray_log::layout::{partial_name_at_turn, partial_name_of_log};
use dray_store::{PartialId, Store};
use std::sync::{Arc, Mutex};

/// Names tried for one partial file. Two names with one hash do not happen by themselves, so this
/// bounds what a hostile manifest costs (guess, revisit).
const TURNS_MAX: u32 = 8;

/// See the module's head.
pub(super) struct Names {
    store: Arc<dyn Store>,
    /// Partial files of this transfer and of its log.
    taken: Mutex<HashSet<Place>>,
    /// None at a store that keeps no logs.
    others: Mutex<Option<OtherLogs>>,
    /// This transfer's log.
    own_log: Option<Name>,
}

fn place_of(path: &RelPath, name: &Name) -> Place {
    (path.parent().unwrap_or_else(RelPath::root), name.clone())
}

impl Names {
    pub(super) fn new(store: Arc<dyn Store>, others: Option<OtherLogs>) -> Self {
        Self {
            store,
            taken: Mutex::new(HashSet::default()),
            own_log: others.as_ref().and_then(OtherLogs::own_name),
            others: Mutex::new(others),
        }
    }

    /// The name of this transfer's log; none at a store that keeps none.
    pub(super) const fn own_log(&self) -> Option<&Name> {
        self.own_log.as_ref()
    }

    /// Names to try for a partial file: first the names that are the same for all transfers, then
    /// names of this transfer alone.
    fn name_at(&self, final_name: &Name, turn: u32) -> Result<Option<Name>> {
        match (turn.checked_sub(TURNS_MAX), &self.own_log) {
            (None, _) => partial_name_at_turn(final_name, turn).map(Some),
            (Some(turn), Some(log)) => partial_name_of_log(final_name, turn, log).map(Some),
            (Some(_), None) => Ok(None),
        }
    }

    /// Notes that `path` has a partial file of this name. Returns whether nothing had.
    pub(super) fn take(&self, path: &RelPath, name: &Name) -> bool {
        lock(&self.taken).insert(place_of(path, name))
    }

    /// The name that the partial file of `path` has first, if no other file of this transfer has it: it is
    /// taken then. What stands there at the store is not looked at.
    pub(super) fn take_first(&self, path: &RelPath) -> Result<Option<Name>> {
        let Some(final_name) = path.name() else {
            return Ok(None);
        };
        let name = partial_name_at_turn(&final_name, 0)?;
        Ok(self.take(path, &name).then_some(name))
    }

    /// Whether a file of this transfer, or of its log, has this partial file.
    pub(super) fn is_taken(&self, path: &RelPath, name: &Name) -> bool {
        lock(&self.taken).contains(&place_of(path, name))
    }

    /// Whether [`Self::clear`] left the last partial file because of a log that cannot be read.
    pub(super) fn is_unread(&self) -> bool {
        lock(&self.others)
            .as_ref()
            .is_some_and(OtherLogs::is_unread)
    }

    /// There is no such partial file any more, or it has its final name; and no record that counts.
    pub(super) fn release(&self, path: &RelPath, name: &Name) {
        lock(&self.taken).remove(&place_of(path, name));
    }

    /// Makes the partial file of `path` under a name that is nobody else's. `make` answers nothing
    /// when something stands under the name.
    ///
    /// # Errors
    /// Those of `make`; [`ErrorKind::LimitExceeded`] when all names are others'.
    pub(super) fn claim<T>(
        &self,
        path: &RelPath,
        make: impl Fn(&Name) -> Result<Option<T>>,
    ) -> Result<(Name, T)> {
        let wrong = |kind| Error::new(kind, End::Sink, "name the partial file").file(path);
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
                    // A run that was killed in the middle of a move has left two.
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
            .cause("other files' partial files have all the names it may have")
            .remedy("rename the file, or copy it by itself"))
    }

    /// Removes partial files that a run left when it was killed while it moved a file to, or from, the
    /// partial file `name`: a move takes the first name that is free. What a log speaks of stays.
    ///
    /// # Errors
    /// Of the store.
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

    /// Removes a partial file that this transfer has not made, unless a log speaks of it. Returns
    /// whether the name is free now.
    ///
    /// # Errors
    /// Of the store.
    pub(super) fn clear(&self, path: &RelPath, name: &Name) -> Result<bool> {
        let (folder, name) = place_of(path, name);
        // What comes to lie there after the look at the logs is not what they were asked about.
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
        if let Some(others) = &mut *lock(&self.others)
            && others.speak_of(&place)?
        {
            return Ok(false);
        }
        self.store.discard(path, &place.1, Some(id))?;
        Ok(true)
    }
}
