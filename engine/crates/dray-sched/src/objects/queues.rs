//! The queue of one pair of targets.

use super::{Dataset, Objects, Pair};
use dray_core::FileIndex;
use dray_core::maps::HashMap;
use std::collections::{BTreeMap, VecDeque};

/// Remaining bytes of datasets (only kept for [`dray_core::options::Order::Layout`]).
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Bytes of each dataset that are not yet sent, and the bytes of announced files whose wanted ranges
    /// are not yet known.
    bytes: HashMap<Dataset, u64>,
    /// Dataset that is being listed: its remaining size is unknown.
    pub(super) listing: Option<Dataset>,
}

impl Left {
    pub(super) fn add(&mut self, dataset: Dataset, bytes: u64) {
        *self.bytes.entry(dataset).or_default() += bytes;
    }

    pub(super) fn take(&mut self, dataset: Dataset, bytes: u64) {
        if let Some(left) = self.bytes.get_mut(&dataset) {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.bytes.remove(&dataset);
            }
        }
    }

    /// Returns the sort key of a dataset; the smaller, the nearer to complete.
    pub(super) fn of(&self, dataset: Dataset) -> (bool, u64) {
        let bytes = self.bytes.get(&dataset).copied().unwrap_or(0);
        (self.listing == Some(dataset), bytes)
    }
}

/// Number of files in one queue whose objects are sent in turn. Enough to keep reads of several
/// files under way, few enough that files finish and their partial files stay few.
pub(super) const ACTIVE_FILES: usize = 8;

/// Number of small files of a dataset that are called up together: a few packs.
const SMALL_CALLED: usize = 64;

/// Number of datasets compared, from the head of the line: enough to pass one that stalls, few
/// enough that a choice costs the same for any number of waiting datasets (guess, revisit).
const DATASETS_COMPARED: usize = 32;

/// One choice in this many takes the dataset that came first, however many of its bytes are left.
const FIRST_EVERY: u32 = 4;

/// Files of datasets that are not called up yet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    datasets: BTreeMap<Dataset, VecDeque<FileIndex>>,
    choices: u32,
}

impl Waiting {
    fn push(&mut self, index: FileIndex, dataset: Dataset) {
        self.datasets.entry(dataset).or_default().push_back(index);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datasets.is_empty()
    }

    pub(super) fn retain(&mut self, is_open: impl Fn(&FileIndex) -> bool) {
        self.datasets.retain(|_, files| {
            files.retain(&is_open);
            !files.is_empty()
        });
    }

    /// Takes up to `most` files of the dataset that is nearest to complete.
    fn call(&mut self, left: &Left, most: usize) -> Vec<FileIndex> {
        self.choices = (self.choices + 1) % FIRST_EVERY;
        let compared = match self.choices {
            0 => 1,
            _ => DATASETS_COMPARED,
        };
        let datasets = self.datasets.keys().take(compared).copied();
        let Some(nearest) = datasets.min_by_key(|dataset| left.of(*dataset)) else {
            return Vec::new();
        };
        let Some(files) = self.datasets.get_mut(&nearest) else {
            return Vec::new();
        };
        let called = files.drain(..files.len().min(most)).collect();
        if files.is_empty() {
            self.datasets.remove(&nearest);
        }
        called
    }
}

/// The queue of a pair. Entries may be stale: their file was removed, or has no open object in this
/// pair.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Files with objects of this pair; the first [`ACTIVE_FILES`] take turns.
    pub(super) files: VecDeque<FileIndex>,
    /// Small files, sent whole, several to a block.
    pub(super) small: VecDeque<FileIndex>,
    /// Files of datasets that follow in [`Self::files`].
    pub(super) files_waiting: Waiting,
    /// Files of datasets that follow in [`Self::small`].
    pub(super) small_waiting: Waiting,
    /// Set when small files had the last turn.
    pub(super) small_last: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
            && self.small.is_empty()
            && self.files_waiting.is_empty()
            && self.small_waiting.is_empty()
    }

    pub(super) fn push(&mut self, index: FileIndex, is_small: bool, dataset: Option<Dataset>) {
        match (is_small, dataset) {
            (false, None) => self.files.push_back(index),
            (true, None) => self.small.push_back(index),
            (false, Some(dataset)) => self.files_waiting.push(index, dataset),
            (true, Some(dataset)) => self.small_waiting.push(index, dataset),
        }
    }

    /// Returns the next small file. If none is in line, it calls up files of datasets, so that a
    /// pack is filled however few are called up together.
    pub(super) fn next_small(&mut self, left: &Left) -> Option<FileIndex> {
        if self.small.is_empty() && !self.small_waiting.is_empty() {
            self.small
                .extend(self.small_waiting.call(left, SMALL_CALLED));
        }
        self.small.front().copied()
    }
}

impl Objects {
    /// Calls up files of datasets while fewer than [`ACTIVE_FILES`] files take turns.
    pub(super) fn call_files(&mut self, pair: Pair) {
        let Some(queue) = self.queues.get_mut(&pair) else {
            return;
        };
        while queue.files.len() < ACTIVE_FILES && !queue.files_waiting.is_empty() {
            queue
                .files
                .extend(queue.files_waiting.call(&self.datasets, 1));
        }
    }
}
