//! The queue of unsent objects of one pair of targets.

use super::{Dataset, Objects, Pair};
use dray_core::FileIndex;
use dray_core::maps::HashMap;
use std::collections::{BTreeMap, VecDeque};

/// Remaining bytes of datasets. Used for [`dray_core::options::Order::Layout`] only.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// For each dataset, the number of bytes that are not sent yet. Includes announced files about
    /// which the sink has not decided.
    bytes: HashMap<Dataset, u64>,
    /// The dataset that is being listed. Its remaining size is not known yet.
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

    /// Returns the sort key of a dataset. The dataset closest to completion has the smallest key.
    pub(super) fn of(&self, dataset: Dataset) -> (bool, u64) {
        let bytes = self.bytes.get(&dataset).copied().unwrap_or(0);
        (self.listing == Some(dataset), bytes)
    }
}

/// Number of files in a queue that are served in rotation. This is enough to read several files
/// concurrently, and few enough that only few partial files exist.
pub(super) const ACTIVE_FILES: usize = 8;

/// Number of small files of a dataset that move to the queue together, enough for a few packs.
const SMALL_CALLED: usize = 64;

/// Number of waiting datasets among which a choice looks for the one closest to completion. These
/// are the datasets that were listed first. The number is large enough that other datasets remain
/// if one of them stalls. The limit keeps the cost of a choice independent of the number of waiting
/// datasets. The value is estimated, not measured.
const DATASETS_COMPARED: usize = 32;

/// One choice in `FIRST_EVERY` takes the dataset that was listed first, however many bytes this
/// dataset has left.
const FIRST_EVERY: u32 = 4;

/// Files of datasets that are not in the queue yet.
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

    /// Takes up to `most` files of the dataset that is closest to completion.
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

/// The queue of one pair of targets. An entry may be stale: its file was removed, or has no unsent
/// object for this pair.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Files with objects of this pair. The first [`ACTIVE_FILES`] files are served in rotation.
    pub(super) files: VecDeque<FileIndex>,
    /// Small files, which are sent whole and several to a block.
    pub(super) small: VecDeque<FileIndex>,
    /// Files whose datasets have not had their turn. When the turn of a dataset comes, its files
    /// move to [`Self::files`].
    pub(super) files_waiting: Waiting,
    /// Small files whose datasets have not had their turn. When the turn of a dataset comes, its
    /// small files move to [`Self::small`].
    pub(super) small_waiting: Waiting,
    /// True if the last block of this pair contained small files.
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

    /// Returns the next small file. If there is none, moves waiting files of datasets to the queue,
    /// so that a pack can be filled from several datasets.
    pub(super) fn next_small(&mut self, left: &Left) -> Option<FileIndex> {
        if self.small.is_empty() && !self.small_waiting.is_empty() {
            self.small
                .extend(self.small_waiting.call(left, SMALL_CALLED));
        }
        self.small.front().copied()
    }
}

impl Objects {
    /// Moves waiting files of datasets to the queue until it has [`ACTIVE_FILES`] files.
    pub(super) fn call_files(&mut self, pair: Pair) {
        let Some(queue) = self.queues.get_mut(pair) else {
            return;
        };
        while queue.files.len() < ACTIVE_FILES && !queue.files_waiting.is_empty() {
            queue
                .files
                .extend(queue.files_waiting.call(&self.datasets, 1));
        }
    }
}
