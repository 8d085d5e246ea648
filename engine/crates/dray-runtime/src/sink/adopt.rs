//! Adopts unfinished files from the logs of other transfers, and refuses files that another
//! transfer is writing.
//!
//! Invariants of this module:
//! - If another transfer holds the lease of a log, no file that is open in this log is touched.
//! - Before the other log records the end of a file, the adopted ranges are durable in our own log.
//! - Apart from adopted files, no data of another transfer is removed.

use super::destination::Destination;
use super::doubtful::Doubtful;
use super::files::Space;
use super::find_logs::{LogStep, about_folder};
use super::lease::{HOLDER_PATIENCE, HOLDER_PAUSE, lock_lease, raise_epoch, record_of};
use super::lease_watch::{Lease, since_boot};
use super::log_file::StoredLog;
use super::log_place::reachable;
use super::neighbours::{Neighbours, Speaker};
use super::other_claims::OtherClaims;
use super::probe::{self, id_of};
use dray_core::lock::LockExt;
use dray_core::{ContentKey, ErrorKind, Name, RelPath, Result};
use dray_log::neighbours::{Claim, adopt, claim};
use dray_log::{
    Ending, FileNumber, LogFile, LoggedFile, ObjectLog, Recovery, Tenure, UniversalLog, recover,
    trust,
};
use dray_session::sink::{InspectItem, InspectTask, Resume};
use dray_store::{ControlMode, StoreExt, SyncItem};
use std::collections::{BTreeMap, HashMap};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// A file that this transfer wants to adopt, and its path in the other log.
struct Wanted<'a> {
    path: &'a RelPath,
    key: &'a ContentKey,
    theirs: RelPath,
}

impl Space {
    pub(super) fn neighbours(&self) -> Option<MutexGuard<'_, Option<Neighbours>>> {
        let guard = self.neighbours.lock_unpoisoned();
        guard.is_some().then_some(guard)
    }

    /// Looks for other writers of `items` before these entries are inspected. Refuses the entries
    /// that other transfers write, and adopts files from logs without a holder.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`], and errors after which the content of our own log is unknown.
    pub(super) fn meet(&self, items: &[InspectItem]) -> Result<()> {
        let Some(mut guard) = self.neighbours() else {
            return Ok(());
        };
        let Some(neighbours) = guard.as_mut() else {
            return Ok(());
        };
        let mut others = self.others.lock_unpoisoned();
        (others.refused, others.adopted) = (HashMap::new(), HashMap::new());
        neighbours.look_soon();
        let mut free: BTreeMap<(bool, RelPath), (Speaker, Vec<Wanted<'_>>)> = BTreeMap::new();
        for item in items {
            let InspectTask::File(key) = &item.task else {
                continue;
            };
            let path = &item.path;
            let speaking = neighbours.speaking_of(path, &|folder| self.is_fresh(folder));
            let met = speaking.and_then(|speaking| {
                let mut left = Vec::new();
                for speaker in speaking {
                    if let Some(refusal) = self.wait_for(neighbours, &mut others, &speaker, path)? {
                        self.give_up(&speaker, path)?;
                        return Ok(Err(refusal));
                    }
                    left.push(speaker);
                }
                Ok(Ok(left))
            });
            match met {
                Ok(Ok(left)) => {
                    for speaker in left {
                        let theirs = speaker.path.clone();
                        let entry = free.entry(speaker.id());
                        let (_, wanted) = entry.or_insert_with(|| (speaker, Vec::new()));
                        wanted.push(Wanted { path, key, theirs });
                    }
                }
                Err(error) if error.kind == ErrorKind::LeaseLost => return Err(error),
                // If the other writers of a file cannot be determined, this transfer does not touch
                // the file.
                Ok(Err(error)) | Err(error) => {
                    others.refused.insert(path.clone(), error);
                }
            }
        }
        for (_, (speaker, wanted)) in free {
            self.check_lease()?;
            match self.take_over(&speaker, &wanted, &mut others) {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::LeaseLost => return Err(error),
                Err(error) => {
                    let paths = wanted.iter().map(|one| one.path.clone());
                    others
                        .refused
                        .extend(paths.map(|path| (path, error.clone())));
                }
            }
        }
        Ok(())
    }

    /// Waits for the holder of a log, which may be about to end. Waits only once for each log.
    fn wait_for(
        &self,
        neighbours: &Neighbours,
        others: &mut OtherClaims,
        speaker: &Speaker,
        path: &RelPath,
    ) -> Result<Option<dray_core::Error>> {
        let first = others.waited.insert(speaker.id());
        let patience = if first {
            HOLDER_PATIENCE
        } else {
            Duration::ZERO
        };
        let until = Instant::now() + patience;
        loop {
            let refusal = neighbours.refusal(speaker, path)?;
            if refusal.is_none() || Instant::now() >= until {
                return Ok(refusal);
            }
            std::thread::sleep(HOLDER_PAUSE);
        }
    }

    /// Drops our record of a file if the other log has more bytes of the file. Two logs name one
    /// file if both transfers claimed the file and then died, or if one transfer died while it
    /// adopted the file. If both transfers run again concurrently, the transfer with more bytes
    /// must be able to resume the file.
    fn give_up(&self, other: &Speaker, path: &RelPath) -> Result<()> {
        self.check_lease()?;
        let mut guard = self.destination()?;
        let destination = &mut *guard;
        let own_path = destination.prefix.join_path(path)?;
        let Some(ours) = destination.log.file(&own_path).cloned() else {
            return Ok(());
        };
        let is_same = ours.partial.name == other.spoken.partial.name
            && ours.partial.inode == other.spoken.partial.inode;
        let is_theirs = match is_same {
            true => self.has_more(other, &ours)?,
            false => ours.done.is_empty(),
        };
        if !is_theirs {
            return Ok(());
        }
        destination.log.end_file(ours.number, Ending::Dropped)?;
        destination.log.commit_durably()?;
        if !is_same {
            let is_same_boot = destination.is_same_boot();
            self.drop_partial(path, &ours, is_same_boot)?;
        }
        self.names.release(path, &ours.partial.name);
        Ok(())
    }

    /// Returns true if the other log has more bytes of a file than ours. If both have the same
    /// number of bytes, returns true if the name of the other log is smaller.
    fn has_more(&self, other: &Speaker, ours: &LoggedFile) -> Result<bool> {
        let opened = other
            .place
            .store
            .open_control(other.log(), ControlMode::ReadOnly);
        let Some(file) = reachable(opened)? else {
            return Ok(false);
        };
        let store = &other.place.store;
        let Ok(Some(found)) = recover(&mut StoredLog::new(file, store, other.log())) else {
            return Ok(false);
        };
        let theirs = found
            .files
            .get(&other.path)
            .map_or(0, |file| file.done.bytes());
        let own = self.names.own_log();
        let (ours, is_smaller) = (
            ours.done.bytes(),
            own.is_some_and(|own| other.place.log < *own),
        );
        Ok(theirs > ours || theirs == ours && is_smaller)
    }

    /// Returns the error for a file that another transfer writes, or `None` for any other file.
    pub(super) fn refused(&self, path: &RelPath) -> Option<dray_core::Error> {
        self.others.lock_unpoisoned().refused.get(path).cloned()
    }

    /// Returns the ranges of a file that was just adopted. Later calls for this file return `None`.
    pub(super) fn adopted(&self, path: &RelPath) -> Option<Resume> {
        self.others.lock_unpoisoned().adopted.remove(path)
    }

    /// Adopts files from a log without a holder. If another transfer takes the log first, this
    /// function does nothing. Files whose records cannot be trusted are not adopted.
    fn take_over(
        &self,
        from: &Speaker,
        wanted: &[Wanted<'_>],
        others: &mut OtherClaims,
    ) -> Result<()> {
        // Skip the log of another owner before its lease is taken.
        if from.owner != self.destination()?.owner {
            return Ok(());
        }
        // A log that cannot be opened offers no files to adopt, and does not stop this transfer.
        let Ok(Some((lease, mut file, recovery))) = self.take_log(from) else {
            return Ok(());
        };
        let mut guard = self.destination()?;
        let destination = &mut *guard;
        let mut ends = Vec::new();
        for one in wanted {
            let Some(theirs) = recovery.files.get(&one.theirs) else {
                continue;
            };
            let log = (&mut file, &recovery);
            if let Some(resume) = self.take_file(destination, log, one, theirs)? {
                ends.push(theirs.number);
                self.met.lock_unpoisoned().insert(one.path.clone());
                others.adopted.insert(one.path.clone(), resume);
            }
        }
        if ends.is_empty() {
            return Ok(());
        }
        destination.log.commit_durably()?;
        // Ignore errors. A record that remains in the other log is still correct, and our lease
        // protects the file from other writers.
        let _ = self.end_theirs(from, &lease, (file, recovery), &ends, destination);
        Ok(())
    }

    /// Takes the log's lease and returns the log's recovered content. Returns `None` if another
    /// transfer holds the lease, or if the log no longer exists.
    #[expect(
        clippy::type_complexity,
        reason = "used in one place, where the tuple is destructured"
    )]
    fn take_log(
        &self,
        from: &Speaker,
    ) -> Result<Option<(Lease, Box<dyn LogFile + Send>, Recovery)>> {
        let (store, words) = (&from.place.store, from.log().to_string());
        let (transfer, boot_id) = {
            let destination = self.destination()?;
            let transfer = destination.log.tenure().transfer.clone();
            (transfer, destination.boot_id.clone())
        };
        let record = |epoch| record_of(store.as_ref(), &transfer, &boot_id, epoch, 0);
        let mut taken = match lock_lease(&from.place, &record, &words, Duration::ZERO) {
            Ok((file, record)) => Lease::new(file, record, &store.capabilities()),
            Err(error) if error.kind == ErrorKind::LeaseHeld => return Ok(None),
            Err(error) => return Err(error),
        };
        let opened = store.open_control(from.log(), ControlMode::Existing);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind == ErrorKind::NotFound => {
                // The last holder has removed the log, and `lock_lease` has created a new lease.
                // Remove the lease.
                let told = |error| about_folder(error, &self.words, LogStep::Remove);
                from.place.remove().map_err(told)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let mut file: Box<dyn LogFile + Send> = Box::new(StoredLog::new(file, store, from.log()));
        let Ok(Some(recovery)) = recover(&mut file) else {
            return Ok(None);
        };
        raise_epoch(&mut taken, Some(recovery.tenure.epoch))?;
        Ok(Some((taken, file, recovery)))
    }

    /// Copies a file's records from another log to ours, if the records can be trusted. Returns the
    /// ranges to resume.
    fn take_file(
        &self,
        destination: &mut Destination,
        (log, recovery): (&mut Box<dyn LogFile + Send>, &Recovery),
        one: &Wanted<'_>,
        theirs: &LoggedFile,
    ) -> Result<Option<Resume>> {
        // A log with sums cannot contain ranges whose sums are unknown.
        let has_sums = recovery.header.form.has_sums || !destination.log.header().form.has_sums;
        if !self.names.has_own_form(&theirs.partial.name) || !has_sums {
            return Ok(None);
        }
        let (store, path) = (self.store.as_ref(), one.path);
        let sink = trust::Sink {
            log: &destination.log_words,
            owner: &destination.owner,
            boot_id: &destination.boot_id,
            durability: destination.durability,
        };
        let judged = probe::judge(store, path, one.key, recovery, (&one.theirs, theirs), &sink)?;
        let Some(found) = probe::found_partial(store, path, theirs)? else {
            return Ok(None);
        };
        let Ok(trusted) = judged else { return Ok(None) };
        if trusted.object_bytes.get() > self.object_bytes_max {
            return Ok(None);
        }
        let own_path = destination.prefix.join_path(path)?;
        let mut is_doubtful = false;
        if let Some(ours) = destination.log.file(&own_path) {
            // Both logs name the same partial file: an earlier run died during this adoption.
            let is_same = ours.partial.inode == theirs.partial.inode
                && ours.partial.born == theirs.partial.born
                && ours.partial.name == theirs.partial.name;
            if !is_same {
                return Ok(None);
            }
            if ours.done.bytes() >= theirs.done.bytes() {
                return Ok(Some(Resume {
                    done: ours.done.clone(),
                    object_bytes: ours.object_bytes.get(),
                }));
            }
            is_doubtful = ours.is_doubtful;
            let number = ours.number;
            destination.log.end_file(number, Ending::Dropped)?;
            destination.log.commit_durably()?;
        }
        let name = &theirs.partial.name;
        let synced = match trusted.must_sync {
            true => store.sync_all(&[SyncItem::Partial { path, name }]),
            false => Ok(()),
        };
        self.names.take(path, &theirs.partial.name);
        self.touch(path.parent().unwrap_or_else(RelPath::root));
        let id = id_of(&found);
        let log = (log, recovery);
        let adopted = adopt(&mut destination.log, &own_path, log, theirs, id.device);
        if let Err(error) = synced {
            // Mark the old partial file as doubtful. Its ranges are then copied to a new partial
            // file before the first write.
            let marked = adopted.and_then(|number| {
                // The failed sync may have taken long.
                self.check_lease()?;
                destination.log.mark_doubtful(&[number])
            });
            let file = Doubtful { path, name, id };
            marked.inspect_err(|of_log| self.remove_doubtful(&file, &error, of_log))?;
        } else {
            let number = adopted?;
            if is_doubtful {
                destination.log.file_doubtful(number)?;
            }
        }
        Ok(Some(probe::resume_of(trusted)))
    }

    /// Ends the adopted files in the other log. Removes that log if it has no other unfinished
    /// files.
    fn end_theirs(
        &self,
        from: &Speaker,
        lease: &Lease,
        (file, recovery): (Box<dyn LogFile + Send>, Recovery),
        ends: &[FileNumber],
        destination: &Destination,
    ) -> Result<()> {
        let tenure = Tenure {
            epoch: lease.record.epoch,
            holder: lease.record.holder.clone(),
            // The remaining files still belong to the other transfer.
            transfer: recovery.tenure.transfer.clone(),
            boot_id: destination.boot_id.clone(),
            durability: recovery.tenure.durability,
        };
        let mut log = UniversalLog::resume(file, recovery, tenure)?;
        for number in ends {
            log.end_file(*number, Ending::Dropped)?;
        }
        log.commit_durably()?;
        if log.files().next().is_none() {
            lease.check()?;
            from.place.remove()?;
        }
        Ok(())
    }

    /// Decides whether this transfer may write a file that this transfer has just recorded in its
    /// log. If two transfers begin the same file concurrently, at most one of them may write the
    /// file.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseHeld`] if this transfer must not write the file. The error names the other
    /// transfer.
    pub(super) fn settle_claim(&self, path: &RelPath) -> Result<()> {
        let until = Instant::now() + HOLDER_PATIENCE;
        let mut before: Vec<((bool, RelPath), dray_core::Error)> = Vec::new();
        loop {
            let asked = since_boot();
            let (held, left, own) = {
                let Some(mut guard) = self.neighbours() else {
                    return Ok(());
                };
                let Some(neighbours) = guard.as_mut() else {
                    return Ok(());
                };
                neighbours.look_again_since(asked);
                let (mut held, mut left) = (Vec::new(), Vec::new());
                for one in neighbours.speaking_of(path, &|folder| self.is_fresh(folder))? {
                    let id = one.id();
                    match neighbours.refusal(&one, path)? {
                        Some(error) => held.push((id, one.place.log, error)),
                        None => left.push(id),
                    }
                }
                (held, left, self.names.own_log().cloned())
            };
            // If a writer that was active at the last check has ended, fail now: the next attempt
            // adopts its file.
            if let Some((_, error)) = before.into_iter().find(|(id, _)| left.contains(id)) {
                return Err(error);
            }
            let names: Vec<&Name> = held.iter().map(|(_, log, _)| log).collect();
            let claim = own.map_or(Claim::Ours, |own| claim(&own, names));
            let Some((_, _, error)) = held.first() else {
                return Ok(());
            };
            if claim == Claim::Theirs || Instant::now() >= until {
                return Err(error.clone());
            }
            let now = held.into_iter();
            before = now.map(|(id, _, error)| (id, error)).collect();
            std::thread::sleep(HOLDER_PAUSE);
        }
    }

    fn is_fresh(&self, folder: &RelPath) -> bool {
        self.folders.is_fresh(folder)
    }
}
