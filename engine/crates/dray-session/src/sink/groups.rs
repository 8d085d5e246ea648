//! Sync groups. A group contains written data. The sink makes the data durable with one sync, then
//! logs all records of the group, and then acknowledges the blocks of the group. While one group is
//! being synced, the next group collects data.

use super::tree::{Node, Stage};
use super::{Effect, LogRecord, Sink, SyncItem};
use dray_core::maps::HashMap;
use dray_core::options::Durability;
use dray_core::{ByteRange, Error, FileIndex, RelPath, Time};
use dray_wire::message::BlockState;
use std::collections::BTreeSet;

/// A group with this number of small files and folder entries is synced, even if it has few bytes.
const GROUP_ENTRIES: usize = 4096;

/// Lower bound for the number of entries at which a group is synced ([`Group::is_due`]). The value
/// is estimated, not measured.
const GROUP_ENTRIES_LEAST: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) since: Time,
    /// Number of data bytes in the group's records. Records of files that have failed in the
    /// meantime count too.
    bytes: u64,
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
        self.bytes += data_bytes;
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

    pub(super) fn add_small(&mut self, file: FileIndex, now: Time) {
        self.touch(now);
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

    /// Removes a failed file from the group. Otherwise the file would be published or closed again.
    pub(super) fn forget(&mut self, file: FileIndex) {
        self.small.retain(|other| *other != file);
        self.closing.retain(|other| *other != file);
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
    /// Closes an entry after its folder entry is durable.
    pub(super) fn close_when_durable(&mut self, index: FileIndex, now: Time) {
        if self.config.options.durability == Durability::None {
            self.close(index);
        } else {
            self.gathering.touch(now);
            self.gathering.closing.push(index);
        }
    }

    pub(super) fn sync_if_due(&mut self, now: Time) {
        if self.syncing.is_some() || self.gathering.is_empty() {
            return;
        }
        let group = &self.gathering;
        let nothing_more = self.is_listed_to_the_end() && self.wanting == 0 && self.finishing == 0;
        let due = match self.config.options.durability {
            Durability::None | Durability::Object => true,
            Durability::File => {
                self.unsafe_bytes >= self.config.sync_group_bytes / 2
                    || group.is_due(self.config.live_entries_max)
                    || now >= group.since + self.config.sync_interval
                    || nothing_more
                    || matches!(self.phase, super::Phase::Stopping { .. })
            }
        };
        if !due {
            return;
        }
        let group = std::mem::take(&mut self.gathering);
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
        self.unsafe_bytes = self.unsafe_bytes.saturating_sub(group.bytes);
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
