//! One sync group: written data that becomes durable with one sync.

use super::{BlockKey, LogRecord, SyncGroup};
use dray_core::maps::HashSet;
use dray_core::{ByteRange, FileIndex, Time};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Maximum number of groups that are synced or logged at a time with asynchronous logging. The
/// limit on unlogged bytes (`unsafe_bytes_max`) usually takes effect first. The value is estimated,
/// not measured.
pub(super) const GROUPS_IN_FLIGHT_MAX: usize = 4;

/// The main group is synced after this number of times the duration of the last sync. So syncs take
/// at most a tenth of the time, unless they take longer than a tenth of the longest interval. The
/// value is estimated, not measured.
const INTERVAL_SYNCS: u32 = 10;

/// Minimum time after which the main group is synced, unless the group is full. The value is
/// estimated, not measured.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// A group with this number of small files and folder entries is synced, even if it has few bytes.
const GROUP_ENTRIES: usize = 4096;

/// Lower bound for the number of entries at which a group is synced ([`Group::is_due`]). The value
/// is estimated, not measured.
const GROUP_ENTRIES_LEAST: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) since: Time,
    /// Time at which the sync of the group began.
    pub(super) sync_began: Time,
    /// Number of data bytes in the group's records. Records of files that have failed in the
    /// meantime count too.
    pub(super) record_bytes: u64,
    /// Number of bytes of the group's small files. Failed files count too.
    small_bytes: u64,
    pub(super) records: Vec<LogRecord>,
    /// Files of the records.
    files: HashSet<FileIndex>,
    /// Small files whose data is written and which are not published yet.
    pub(super) small: Vec<FileIndex>,
    /// Published files and created entries. The sink closes these files and entries after their
    /// names in the folders are durable.
    pub(super) closing: Vec<FileIndex>,
    /// Blocks that become durable together with this group.
    pub(super) blocks: Vec<BlockKey>,
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
        self.files.insert(record.file);
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

    pub(super) fn entries(&self) -> BTreeSet<FileIndex> {
        let files = self.records.iter().map(|record| record.file);
        let others = self.small.iter().chain(&self.closing).copied();
        files.chain(others).collect()
    }

    /// Adds the content of another group.
    pub(super) fn join(&mut self, other: Self) {
        if other.started {
            self.touch(other.since);
            self.since = self.since.min(other.since);
        }
        self.record_bytes += other.record_bytes;
        self.small_bytes += other.small_bytes;
        self.records.extend(other.records);
        self.files.extend(other.files);
        self.small.extend(other.small);
        self.closing.extend(other.closing);
        self.blocks.extend(other.blocks);
    }

    /// Removes a failed file from the group. Otherwise the file would be published or closed again.
    pub(super) fn forget(&mut self, file: FileIndex) {
        self.small.retain(|other| *other != file);
        self.closing.retain(|other| *other != file);
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.record_bytes + self.small_bytes
    }

    /// Returns true if the group has enough entries for a sync. The required number is half of the
    /// limit on unclosed entries, but at least [`GROUP_ENTRIES_LEAST`] and at most
    /// [`GROUP_ENTRIES`]. With a higher number, a source that has reached the limit would wait for
    /// the sync interval.
    pub(super) fn is_due(&self, live_entries_max: u32) -> bool {
        let half = (live_entries_max / 2) as usize;
        let enough = half.clamp(GROUP_ENTRIES_LEAST, GROUP_ENTRIES);
        self.small.len() + self.closing.len() >= enough
    }

    /// Returns true if both groups have records of the same file.
    pub(super) fn shares_file(&self, other: &Self) -> bool {
        let (few, many) = match self.files.len() < other.files.len() {
            true => (self, other),
            false => (other, self),
        };
        few.files.iter().any(|file| many.files.contains(file))
    }
}

/// The groups that are being synced or logged. At most one main group and one late group are being
/// synced. With asynchronous logging, further groups wait for the logger.
#[derive(Debug, Default)]
pub(super) struct Syncing {
    main: Option<Group>,
    late: Option<Group>,
    /// Synced groups whose records the logger writes, in the order in which it writes them. Empty
    /// with synchronous logging.
    logging: VecDeque<(SyncGroup, Group)>,
    /// Maximum number of groups that are being synced or logged. Zero with synchronous logging: a
    /// group is then logged before the next group of its kind is synced.
    groups_max: usize,
    /// Time that the last main group took from the beginning of its sync until its records were in
    /// the log.
    main_time: Duration,
}

impl Syncing {
    /// Returns the time after which the main group is due, at most `longest`. The time is a multiple
    /// of the time that the last main group took. So a fault loses little data on fast storage, and
    /// syncs do not occupy slow storage.
    pub(super) fn main_interval(&self, longest: Duration) -> Duration {
        let shortest = INTERVAL_MIN.min(longest);
        let several = self.main_time.saturating_mul(INTERVAL_SYNCS);
        several.clamp(shortest, longest)
    }

    /// Notes the time that a group took until its records were in the log.
    pub(super) fn ended(&mut self, which: SyncGroup, group: &Group, now: Time) {
        if which == SyncGroup::Main {
            self.main_time = now.since(group.sync_began);
        }
    }

    /// Begins asynchronous logging.
    pub(super) const fn log_apart(&mut self) {
        self.groups_max = GROUPS_IN_FLIGHT_MAX;
    }

    /// Returns true if no group is being synced or logged.
    pub(super) fn is_none(&self) -> bool {
        self.is_idle() && self.logging.is_empty()
    }

    /// Returns true if no group is being synced, or logged synchronously.
    pub(super) const fn is_idle(&self) -> bool {
        self.main.is_none() && self.late.is_none()
    }

    /// Returns true if another group may be synced. If the logger is slow, the syncs wait for it.
    pub(super) fn has_room(&self) -> bool {
        let syncing = usize::from(self.main.is_some()) + usize::from(self.late.is_some());
        self.groups_max == 0 || syncing + self.logging.len() < self.groups_max
    }

    /// Keeps a group until its records are in the log.
    pub(super) fn keep_for_log(&mut self, which: SyncGroup, group: Group) {
        if self.groups_max == 0 {
            *self.slot(which) = Some(group);
        } else {
            self.logging.push_back((which, group));
        }
    }

    /// Takes the group of this kind that was logged first.
    pub(super) fn take_logged(&mut self, which: SyncGroup) -> Option<Group> {
        if self.groups_max == 0 {
            return self.slot(which).take();
        }
        let at = self.logging.iter().position(|(other, _)| *other == which)?;
        self.logging.remove(at).map(|(_, group)| group)
    }

    pub(super) const fn of(&self, which: SyncGroup) -> Option<&Group> {
        match which {
            SyncGroup::Main => self.main.as_ref(),
            SyncGroup::Late => self.late.as_ref(),
        }
    }

    pub(super) const fn slot(&mut self, which: SyncGroup) -> &mut Option<Group> {
        match which {
            SyncGroup::Main => &mut self.main,
            SyncGroup::Late => &mut self.late,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        let logging = self.logging.iter().map(|(_, group)| group);
        self.main.iter().chain(&self.late).chain(logging)
    }

    /// Returns true if two groups with records of the same file are being synced. This must never
    /// happen: the operating system reports a lost write of a file to one sync only, so the other
    /// sync could report success.
    pub(super) fn share_file(&self) -> bool {
        let both = self.main.as_ref().zip(self.late.as_ref());
        both.is_some_and(|(main, late)| main.shares_file(late))
    }
}
