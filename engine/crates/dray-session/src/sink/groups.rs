//! Sync groups. A group contains written data. The sink makes the data durable with one sync, then
//! logs all records of the group, and then acknowledges the blocks of the group. While one group is
//! being synced, the next group collects data.
//!
//! Objects of a congested target collect in a group of their own, the *late* group, which is synced
//! less often. Otherwise each sync would wait for the slow target, and the objects of all targets
//! would become durable only at the speed of this target (LADS, section 4, has the same aim for the
//! order of objects).

use super::tree::{Node, Stage};
use super::{Effect, LogRecord, Sink, SyncItem};
use dray_core::maps::HashMap;
use dray_core::options::Durability;
use dray_core::{ByteRange, Error, FileIndex, RelPath, TargetId, Time};
use dray_wire::message::BlockState;
use std::collections::BTreeSet;

/// A group with this number of small files and folder entries is synced, even if it has few bytes.
const GROUP_ENTRIES: usize = 4096;

/// Lower bound for the number of entries at which a group is synced ([`Group::is_due`]). The value
/// is estimated, not measured.
const GROUP_ENTRIES_LEAST: usize = 128;

/// The late group is synced after this many sync intervals while the gathering group has data.
/// While the gathering group is empty, the late group is synced after one interval. The value is
/// estimated, not measured.
const LATE_INTERVALS: u32 = 8;

/// The late group is synced when its bytes reach those of a full group divided by this number. The
/// other bytes of a full group are left for objects of the other targets, which arrive while the
/// late group is synced. The value is estimated, not measured.
const LATE_PART: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) since: Time,
    /// Number of data bytes in the group's records. Records of files that have failed in the
    /// meantime count too.
    record_bytes: u64,
    /// Number of bytes of the group's small files. Failed files count too.
    small_bytes: u64,
    records: Vec<LogRecord>,
    /// Small files whose data is written and which are not published yet.
    small: Vec<FileIndex>,
    /// Published files and created entries. The sink closes these files and entries after their
    /// names in the folders are durable.
    closing: Vec<FileIndex>,
    /// Blocks that become durable together with this group.
    pub(super) blocks: Vec<super::BlockKey>,
    started: bool,
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.small.is_empty()
            && self.closing.is_empty()
            && self.blocks.is_empty()
    }

    pub(super) fn touch(&mut self, now: Time) {
        if !self.started {
            self.started = true;
            self.since = now;
        }
    }

    pub(super) fn add_record(&mut self, record: LogRecord, data_bytes: u64, now: Time) {
        self.touch(now);
        self.record_bytes += data_bytes;
        self.records.push(record);
    }

    pub(super) fn record_count(&self) -> usize {
        self.records.len()
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = (FileIndex, ByteRange)> {
        self.records
            .iter()
            .map(|record| (record.file, record.range))
    }

    pub(super) fn add_small(&mut self, file: FileIndex, bytes: u64, now: Time) {
        self.touch(now);
        self.small_bytes += bytes;
        self.small.push(file);
    }

    /// Merges adjacent records, from index `first` on. The segments of an object (data, hole, data)
    /// become one record.
    pub(super) fn merge_neighbours(&mut self, first: usize) {
        let mut at = self.records.len();
        while at >= first + 2 {
            let (before, after) = (self.records[at - 2], self.records[at - 1]);
            if before.file != after.file || before.range.end() != after.range.offset {
                break;
            }
            self.records[at - 2] = LogRecord {
                file: before.file,
                range: ByteRange::between(before.range.offset, after.range.end()),
                sums: before.sums.then(after.sums, after.range.length),
            };
            self.records.pop();
            at -= 1;
        }
    }

    fn entries(&self) -> BTreeSet<FileIndex> {
        let files = self.records.iter().map(|record| record.file);
        let others = self.small.iter().chain(&self.closing).copied();
        files.chain(others).collect()
    }

    /// Adds the content of another group.
    fn join(&mut self, other: Self) {
        if other.started {
            self.touch(other.since);
            self.since = self.since.min(other.since);
        }
        self.record_bytes += other.record_bytes;
        self.small_bytes += other.small_bytes;
        self.records.extend(other.records);
        self.small.extend(other.small);
        self.closing.extend(other.closing);
        self.blocks.extend(other.blocks);
    }

    /// Removes a failed file from the group. Otherwise the file would be published or closed again.
    pub(super) fn forget(&mut self, file: FileIndex) {
        self.small.retain(|other| *other != file);
        self.closing.retain(|other| *other != file);
    }

    const fn bytes(&self) -> u64 {
        self.record_bytes + self.small_bytes
    }

    /// Returns true if the group has enough entries for a sync. The required number is half of the
    /// limit on unclosed entries, but at least [`GROUP_ENTRIES_LEAST`] and at most
    /// [`GROUP_ENTRIES`]. With a higher number, a source that has reached the limit would wait for
    /// the sync interval.
    fn is_due(&self, live_entries_max: u32) -> bool {
        let half = (live_entries_max / 2) as usize;
        let enough = half.clamp(GROUP_ENTRIES_LEAST, GROUP_ENTRIES);
        self.small.len() + self.closing.len() >= enough
    }
}

impl Sink {
    /// Returns true if the log may contain, now or soon, a record of lost data. Called if a write
    /// that began at `began` has failed: the failure may mean that the kernel lost data of an
    /// earlier write. The kernel reports a loss only once. So it may have reported the loss to the
    /// failed write, and success to a concurrent sync.
    pub(super) fn may_have_logged_since(&self, began: Option<Time>) -> bool {
        self.config.options.durability == Durability::None
            || self.syncing.is_some()
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
            let is_late = self.has_late_group() && self.congestion.has_congested();
            let group = self.group(is_late);
            group.touch(now);
            group.closing.push(index);
        }
    }

    /// Returns true if objects of congested targets have a group of their own.
    fn has_late_group(&self) -> bool {
        self.config.options.durability == Durability::File && self.config.ordered_window.is_none()
    }

    /// Returns true if objects of `target` belong to the late group.
    pub(super) fn is_late(&self, target: TargetId) -> bool {
        self.has_late_group() && self.congestion.bound(target) < super::CONGESTED_OR_NOT
    }

    pub(super) const fn group(&mut self, is_late: bool) -> &mut Group {
        if is_late {
            &mut self.late
        } else {
            &mut self.gathering
        }
    }

    /// Returns true if no data waits for a sync.
    pub(super) fn has_gathered_nothing(&self) -> bool {
        self.gathering.is_empty() && self.late.is_empty()
    }

    /// Returns the time at which the oldest group is due.
    pub(super) fn sync_due_at(&self) -> Option<Time> {
        let interval = self.config.sync_interval;
        let late = match self.gathering.is_empty() {
            true => interval,
            false => interval * LATE_INTERVALS,
        };
        let due = |group: &Group, after| (!group.is_empty()).then(|| group.since + after);
        let times = [due(&self.gathering, interval), due(&self.late, late)];
        times.into_iter().flatten().min()
    }

    /// Takes the group to sync now. Returns `None` if no group is due.
    fn take_due(&mut self, now: Time) -> Option<Group> {
        if self.config.options.durability != Durability::File {
            return Some(std::mem::take(&mut self.gathering));
        }
        let nothing_more = self.is_listed_to_the_end() && self.wanting == 0 && self.finishing == 0;
        let is_stopping = matches!(self.phase, super::Phase::Stopping { .. });
        if nothing_more || is_stopping {
            let mut group = std::mem::take(&mut self.gathering);
            group.join(std::mem::take(&mut self.late));
            return Some(group);
        }
        let is_full = self.unsafe_bytes >= self.config.sync_group_bytes / 2;
        let live_max = self.config.live_entries_max;
        let interval = self.config.sync_interval;
        // The late group comes first when both are due: otherwise it would never be synced while
        // the other targets are busy.
        let late = &self.late;
        let is_alone = self.gathering.is_empty();
        let is_late_due = late.bytes() >= self.config.sync_group_bytes / LATE_PART
            || late.is_due(live_max)
            || now >= late.since + interval * LATE_INTERVALS
            || (is_alone && (is_full || now >= late.since + interval));
        let is_late_due = is_late_due && !late.is_empty();
        let group = &self.gathering;
        let is_due = is_full || group.is_due(live_max) || now >= group.since + interval;
        let is_due = is_due && !group.is_empty();
        // Both groups take turns. Otherwise slow syncs of the late group would delay the other.
        if is_late_due && !(is_due && self.was_late) {
            self.was_late = true;
            return Some(std::mem::take(&mut self.late));
        }
        is_due.then(|| {
            self.was_late = false;
            std::mem::take(&mut self.gathering)
        })
    }

    pub(super) fn sync_if_due(&mut self, now: Time) {
        if self.syncing.is_some() || self.has_gathered_nothing() {
            return;
        }
        let Some(group) = self.take_due(now) else {
            return;
        };
        if self.config.options.durability == Durability::None {
            self.log(group);
        } else {
            let items = self.sync_items(&group);
            self.syncing = Some(group);
            self.synced_at = Some(now);
            self.out.push_back(Effect::Sync(items));
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

    pub(super) fn on_synced(&mut self, result: Result<Vec<(RelPath, Error)>, Error>) {
        let Some(mut group) = self.syncing.take() else {
            return;
        };
        match result {
            Ok(failed) => {
                self.fail_unsynced(&mut group, failed);
                self.log(group);
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

    fn log(&mut self, mut group: Group) {
        group
            .records
            .retain(|record| self.live.contains_key(&record.file));
        let records = group.records.clone();
        self.syncing = Some(group);
        self.out.push_back(Effect::Log { records });
    }

    pub(super) fn on_logged(&mut self, result: Result<(), Error>) {
        let Some(group) = self.syncing.take() else {
            return;
        };
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
