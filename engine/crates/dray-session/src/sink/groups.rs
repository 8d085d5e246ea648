//! Sync groups. A group contains written data. The sink makes the data durable with one sync, then
//! logs all records of the group, and then acknowledges the blocks of the group. While one group is
//! being synced, the next group collects data. With asynchronous logging, the next group is also
//! synced while the records of earlier groups are logged.
//!
//! Objects of a congested target collect in a group of their own, the *late* group, which is synced
//! less often. Otherwise each sync would wait for the slow target, and the objects of all targets
//! would become durable only at the speed of this target (LADS, section 4, has the same aim for the
//! order of objects). If the store permits it, the late group is synced while the main group is
//! synced too.
//!
//! Invariant owned here: two groups that are synced concurrently have no file in common. The
//! operating system reports a lost write of a file to one sync only. So if two syncs covered the
//! file, one of them could report success for lost data.

use super::group::Group;
use super::tree::{Node, Stage};
use super::{Effect, Sink, SyncGroup, SyncItem};
use crate::mutants::Mutant;
use dray_core::maps::HashMap;
use dray_core::options::Durability;
use dray_core::{Error, FileIndex, RelPath, TargetId, Time};
use dray_wire::message::BlockState;
use std::collections::BTreeSet;
use std::time::Duration;

/// The late group is synced after this many sync intervals, if other data waits for a sync and the
/// sink syncs one group at a time. The value is estimated, not measured.
const LATE_INTERVALS: u32 = 8;

/// The late group is synced when its bytes reach those of a full group divided by this number. The
/// other bytes of a full group are left for objects of the other targets, which arrive while the
/// late group is synced. The value is estimated, not measured.
const LATE_PART: u64 = 4;

impl Sink {
    /// Makes the logging asynchronous (Kasu et al. 2019, section V-B): the sink syncs the next group
    /// while the records of earlier groups are written to the log. The runtime must carry out all
    /// [`Effect::Log`] in the order of the effects. A block is still reported as durable only after
    /// its record is in the log.
    #[must_use]
    pub const fn logging_apart(mut self, is_async: bool) -> Self {
        if is_async {
            self.syncing.log_apart();
        }
        self
    }

    /// Returns true if the log may contain, now or soon, a record of lost data. Called if a write
    /// that began at `began` has failed: the failure may mean that the kernel lost data of an
    /// earlier write. The kernel reports a loss only once. So it may have reported the loss to the
    /// failed write, and success to a concurrent sync.
    pub(super) fn may_have_logged_since(&self, began: Option<Time>) -> bool {
        self.config.options.durability == Durability::None
            || !self.syncing.is_none()
            || self
                .synced_at
                .is_some_and(|at| began.is_none_or(|began| at >= began))
    }

    /// Closes an entry after its folder entry is durable.
    pub(super) fn close_when_durable(&mut self, index: FileIndex, now: Time) {
        if self.config.options.durability == Durability::None {
            self.close(index);
        } else {
            // The sync of a folder may wait for every target, so it belongs to the late group.
            let which = match self.has_late_group() && self.congestion.has_congested() {
                true => SyncGroup::Late,
                false => SyncGroup::Main,
            };
            let group = self.group(which);
            group.touch(now);
            group.closing.push(index);
        }
    }

    /// Returns true if objects of congested targets have a group of their own.
    fn has_late_group(&self) -> bool {
        self.config.options.durability == Durability::File
            && self.config.ordered_window.is_none()
            && !self.config.writes_durably
    }

    /// Returns the group that objects of `target` belong to.
    pub(super) fn group_of(&self, target: TargetId) -> SyncGroup {
        let is_congested = self.congestion.bound(target) < super::CONGESTED_OR_NOT;
        match self.has_late_group() && is_congested {
            true => SyncGroup::Late,
            false => SyncGroup::Main,
        }
    }

    pub(super) const fn group(&mut self, which: SyncGroup) -> &mut Group {
        match which {
            SyncGroup::Main => &mut self.gathering,
            SyncGroup::Late => &mut self.late,
        }
    }

    /// Returns true if no data waits for a sync.
    pub(super) fn has_gathered_nothing(&self) -> bool {
        self.gathering.is_empty() && self.late.is_empty()
    }

    /// Returns the time after which the main group is due.
    fn main_interval(&self) -> Duration {
        self.syncing.main_interval(self.config.sync_interval)
    }

    /// Returns the time after which a late group is due.
    fn late_interval(&self) -> Duration {
        let interval = self.config.sync_interval;
        match self.config.syncs_apart || self.gathering.is_empty() {
            true => interval,
            false => interval * LATE_INTERVALS,
        }
    }

    /// Returns true if a group may be synced now. That is the case if nothing is being synced. It is
    /// also the case if only the other group is being synced, the store permits concurrent syncs, and
    /// the two groups have no file in common.
    fn is_free(&self, which: SyncGroup) -> bool {
        if !self.syncing.has_room() {
            return false;
        }
        if self.syncing.is_idle() {
            return true;
        }
        let (group, other) = match which {
            SyncGroup::Main => (&self.gathering, SyncGroup::Late),
            SyncGroup::Late => (&self.late, SyncGroup::Main),
        };
        let is_planted = self.planted.is(Mutant::SinkSyncsFileTwice);
        let shares = |other: &Group| group.shares_file(other) && !is_planted;
        self.config.syncs_apart
            && self.syncing.of(which).is_none()
            && !self.syncing.of(other).is_some_and(shares)
    }

    /// Returns the time at which the next group is due.
    pub(super) fn sync_due_at(&self) -> Option<Time> {
        let due = |which, group: &Group, after| {
            (!group.is_empty() && self.is_free(which)).then(|| group.since + after)
        };
        let main = due(SyncGroup::Main, &self.gathering, self.main_interval());
        let late = due(SyncGroup::Late, &self.late, self.late_interval());
        main.into_iter().chain(late).min()
    }

    /// Takes the group to sync now. Returns `None` if no group is due.
    fn take_due(&mut self, now: Time) -> Option<(SyncGroup, Group)> {
        let is_idle = self.syncing.is_idle() && self.syncing.has_room();
        if self.config.options.durability != Durability::File {
            return (is_idle && !self.gathering.is_empty())
                .then(|| (SyncGroup::Main, std::mem::take(&mut self.gathering)));
        }
        let nothing_more = self.is_listed_to_the_end() && self.wanting == 0 && self.finishing == 0;
        let is_last = nothing_more || matches!(self.phase, super::Phase::Stopping { .. });
        if is_idle && is_last && !self.has_gathered_nothing() {
            let mut group = std::mem::take(&mut self.gathering);
            group.join(std::mem::take(&mut self.late));
            return Some((SyncGroup::Main, group));
        }
        let is_main_due = self.is_due(SyncGroup::Main, is_last, now);
        // When both groups are due, they take turns. If the main group always came first, the late
        // group would never be synced while the other targets are busy. If the late group always
        // came first, its slow syncs would delay the main group.
        if self.is_due(SyncGroup::Late, is_last, now) && !(is_main_due && self.was_late) {
            self.was_late = true;
            return Some((SyncGroup::Late, std::mem::take(&mut self.late)));
        }
        is_main_due.then(|| {
            self.was_late = false;
            (SyncGroup::Main, std::mem::take(&mut self.gathering))
        })
    }

    /// Returns true if a group is due and may be synced now. `is_last` is true if no more data will
    /// arrive.
    fn is_due(&self, which: SyncGroup, is_last: bool, now: Time) -> bool {
        let most = self.config.sync_group_bytes;
        let is_full = self.unsafe_bytes >= most / 2;
        let (group, is_due) = match which {
            SyncGroup::Main => {
                let is_old = now >= self.gathering.since + self.main_interval();
                (&self.gathering, is_full || is_old)
            }
            SyncGroup::Late => {
                let is_large = self.late.bytes() >= most / LATE_PART;
                let is_alone = self.config.syncs_apart || self.gathering.is_empty();
                let is_old = now >= self.late.since + self.late_interval();
                let is_due = is_large || is_old || (is_alone && is_full);
                (&self.late, is_due)
            }
        };
        let is_due = is_due || is_last || group.is_due(self.config.live_entries_max);
        // Compare the files last, because this takes longest.
        is_due && !group.is_empty() && self.is_free(which)
    }

    pub(super) fn sync_if_due(&mut self, now: Time) {
        while let Some((which, mut group)) = self.take_due(now) {
            group.sync_began = now;
            if self.config.options.durability == Durability::None {
                self.log(which, group);
            } else {
                let items = self.sync_items(&group);
                *self.syncing.slot(which) = Some(group);
                self.synced_at = Some(now);
                self.out.push_back(Effect::Sync(which, items));
            }
        }
    }

    fn sync_items(&self, group: &Group) -> Vec<SyncItem> {
        let files: BTreeSet<FileIndex> = group.records.iter().map(|r| r.file).collect();
        let path = |index: &FileIndex| self.live.get(index).map(|live| live.path.clone());
        let closing = |index: &FileIndex| {
            let live = self.live.get(index)?;
            let path = live.path.clone();
            match &live.node {
                Node::File(file) if file.stage == Stage::Adopted => Some(SyncItem::Adopted(path)),
                _ => Some(SyncItem::Published(path)),
            }
        };
        files
            .iter()
            .filter(|index| self.live.contains_key(index))
            .map(|index| SyncItem::Partial(*index))
            .chain(group.small.iter().filter_map(path).map(SyncItem::Small))
            .chain(group.closing.iter().filter_map(closing))
            .collect()
    }

    pub(super) fn on_synced(
        &mut self,
        which: SyncGroup,
        result: Result<Vec<(RelPath, Error)>, Error>,
    ) {
        let Some(mut group) = self.syncing.slot(which).take() else {
            return;
        };
        match result {
            Ok(failed) => {
                self.fail_unsynced(&mut group, failed);
                self.log(which, group);
            }
            // After a failed sync, none of the data since the last sync can be trusted. The sink
            // neither logs nor acknowledges this data, so the next run sends it again.
            Err(error) => self.break_off(in_doubt(error)),
        }
    }

    /// Fails the entries that could not be synced, for example because another program removed
    /// them. Ranges that earlier groups made durable are kept.
    fn fail_unsynced(&mut self, group: &mut Group, failed: Vec<(RelPath, Error)>) {
        if failed.is_empty() {
            return;
        }
        let failed: HashMap<RelPath, Error> = failed.into_iter().collect();
        for index in group.entries() {
            let path = self.live.get(&index).map(|live| &live.path);
            if let Some(error) = path.and_then(|path| failed.get(path)) {
                self.fail(index, error.clone(), false);
                group.forget(index);
            }
        }
    }

    fn log(&mut self, which: SyncGroup, mut group: Group) {
        group
            .records
            .retain(|record| self.live.contains_key(&record.file));
        let records = group.records.clone();
        self.syncing.keep_for_log(which, group);
        self.out.push_back(Effect::Log {
            group: which,
            records,
        });
    }

    pub(super) fn on_logged(&mut self, which: SyncGroup, result: Result<(), Error>, now: Time) {
        let Some(group) = self.syncing.take_logged(which) else {
            return;
        };
        self.syncing.ended(which, &group, now);
        if let Err(error) = result {
            self.break_off(in_doubt(error));
            return;
        }
        // The bytes of a small file count until the file is closed.
        self.unsafe_bytes = self.unsafe_bytes.saturating_sub(group.record_bytes);
        // Some files of these blocks may have failed meanwhile. The source has already received
        // FILE_CLOSE for these files, so it counts none of their bytes.
        for key in group.blocks {
            self.forget_block(key);
            self.state(key, BlockState::Durable);
        }
        for record in group.records {
            let Some(file) = self.file(record.file) else {
                continue;
            };
            file.known.insert(record.range, record.sums);
            if let Some(unproven) = &mut file.unproven {
                unproven.insert(record.range, record.sums);
            }
            let complete = file.known.bytes() == file.key.size;
            self.progress.bytes_durable += record.range.length;
            if complete {
                self.finish(record.file);
            }
        }
        for index in group.small {
            self.finish(index);
        }
        for index in group.closing {
            self.close(index);
        }
    }
}

/// Returns the error for a group that could not be made durable. The store's error often has no
/// remedy, so this function adds one.
fn in_doubt(error: Error) -> Error {
    if error.remedy.is_empty() {
        error.remedy("check the sink's storage, then run the same command again to resume")
    } else {
        error
    }
}
