//! Chooses the next object to send (LADS, sections 3 and 4). Objects wait in one queue for each
//! pair of source target and sink target. If either target of a queue is busy, the choice skips the
//! queue and does not wait. A congested source target gets fewer concurrent reads, but at least
//! one.
//!
//! Pairs are served in rotation, so that no pair starves. Within a pair, files are served in
//! rotation too. Objects that complete something have precedence: the last object of a file goes
//! immediately, and files of the dataset that is closest to completion go before other files.

mod balance;
mod baselines;
mod layout;
mod pairs;
mod queues;
mod window;

use crate::congestion::{Congestion, Load, Moved, Pace};
use crate::rng::Rng;
use dray_core::maps::HashMap;
use dray_core::options::Order;
use dray_core::plan::Grid;
use dray_core::{ByteRange, FileIndex, Layout, RangeSet, TargetId, Time};
use pairs::Pairs;
use queues::Left;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

/// Limits on blocks, reads and ranges.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum size of a pack of small files in bytes.
    pub pack_bytes_max: u64,
    /// Maximum number of segments in one block.
    pub segments_max: usize,
    /// Maximum number of concurrent reads on one source target. Each target has its own readers, so
    /// a slow target never occupies the readers of others.
    pub reads_max: u32,
    /// Maximum number of separate ranges, over all files, that random picks may create, because
    /// both ends keep each range in memory. At the maximum, objects are picked in order.
    pub pieces_max: usize,
    /// Maximum number of objects of striped files in the queues. The other objects of these files
    /// wait as ranges. Even above this maximum, each file may have a few objects in the queues.
    pub striped_max: u64,
}

/// Key of a dataset: a set of files that is useful only when complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dataset(pub u64);

/// A file whose objects must be sent.
#[derive(Debug, Clone)]
pub struct Work {
    /// Index of the file.
    pub index: FileIndex,
    /// Division of the file into objects.
    pub grid: Grid,
    /// Targets of the file at the source.
    pub source: Layout,
    /// Targets of the file at the sink.
    pub sink: Layout,
    /// Ranges that the sink needs.
    pub wanted: RangeSet,
    /// For a sink that writes files in order: maximum number of the file's objects that are in
    /// transit at the same time. `None` for a sink with random writes.
    pub ordered_window: Option<u32>,
    /// Dataset of the file. `None` if the file belongs to no dataset.
    pub dataset: Option<Dataset>,
}

/// The reason why no unsent object can be picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// No reason: some object has a free reader and credit.
    Nothing,
    /// Every object that has credit waits for a reader of its source target.
    Reader,
    /// No object has credit for its sink target.
    Credit,
}

/// The next block to read and send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Source target from which to read.
    pub source: TargetId,
    /// Sink target of the block. One credit of this target was spent for the block.
    pub sink: TargetId,
    /// Contents of the block: one object, or several whole small files.
    pub parts: Vec<(FileIndex, ByteRange)>,
}

type Pair = (TargetId, TargetId);

#[derive(Debug)]
struct File {
    grid: Grid,
    source: Layout,
    sink: Layout,
    /// Unsent objects by pair of targets. Each queue that contains the file has an entry.
    open: BTreeMap<Pair, RangeSet>,
    /// Total number of bytes in `open`.
    open_bytes: u64,
    /// Unsent objects of a striped file that are not in the queues yet.
    later: RangeSet,
    /// True if the file has several targets at an end.
    is_striped: bool,
    /// Number of the file's objects in [`Objects::striped`].
    counted: u64,
    dataset: Option<Dataset>,
    is_small: bool,
    ordered_window: Option<u32>,
    under_way: u32,
    /// Highest end offset of all objects that were picked.
    taken_end: u64,
}

impl File {
    /// Returns true if the object at `offset` must wait, because the sink writes the file in order.
    /// Objects are sent in order, and at most one window of objects may be in transit. An object
    /// that is sent again may go even if the window is full, because all later objects wait for it.
    fn is_early(&self, offset: u64) -> bool {
        let Some(window) = self.ordered_window else {
            return false;
        };
        let is_first = self.first().is_some_and(|(first, _)| first == offset);
        !is_first || (self.under_way >= window && offset >= self.taken_end)
    }

    /// Returns the offset of the first unsent byte, and its pair of targets.
    fn first(&self) -> Option<(u64, Pair)> {
        let firsts = self
            .open
            .iter()
            .filter_map(|(pair, open)| Some((open.first()?.offset, *pair)));
        firsts.min()
    }

    fn pair_at(&self, offset: u64) -> Pair {
        (self.source.target_at(offset), self.sink.target_at(offset))
    }
}

/// All unsent objects of a source, in queues.
#[derive(Debug)]
pub struct Objects {
    order: Order,
    limits: Limits,
    draw: Rng,
    files: HashMap<FileIndex, File>,
    queues: Pairs,
    /// Number of objects of striped files in the queues.
    striped: u64,
    /// Files with unsent objects, in listing order. Used for [`Order::File`] only.
    listed: BTreeSet<FileIndex>,
    datasets: Left,
    congestion: Congestion,
    /// Number of credits of each sink target with credit.
    credit: BTreeMap<TargetId, u32>,
    reading: HashMap<TargetId, u32>,
    /// Maximum number of useful concurrent reads, for source targets whose reads do not block.
    enough: HashMap<TargetId, u32>,
    /// Source target that was served last.
    turn: Option<TargetId>,
    /// For each source target, the sink target that was served last.
    turns: HashMap<TargetId, TargetId>,
    /// True if the sink writes files in order.
    is_ordered: bool,
}

impl Objects {
    /// Creates empty queues.
    #[must_use]
    pub fn new(order: Order, limits: Limits) -> Self {
        let seed = match order {
            Order::Random { seed } => seed,
            Order::Layout | Order::File => 0,
        };
        Self {
            order,
            limits,
            draw: Rng::new(seed),
            files: HashMap::default(),
            queues: Pairs::default(),
            striped: 0,
            listed: BTreeSet::new(),
            datasets: Left::default(),
            congestion: Congestion::new(limits.reads_max),
            credit: BTreeMap::new(),
            reading: HashMap::default(),
            enough: HashMap::default(),
            turn: None,
            turns: HashMap::default(),
            is_ordered: false,
        }
    }

    /// Changes the limits. Call this before the first file is added, because files that were
    /// already added keep their division into packs.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.set_reads_max(limits.reads_max);
    }

    /// Changes the maximum number of concurrent reads on each source target. Reads that have begun
    /// continue.
    pub const fn set_reads_max(&mut self, reads_max: u32) {
        self.limits.reads_max = reads_max;
        self.congestion.set_most(reads_max);
    }

    /// Sets the number of concurrent reads that is enough for a source target. `None` allows the
    /// maximum number.
    pub fn set_enough(&mut self, source: TargetId, reads: Option<u32>) {
        match reads {
            Some(reads) => self.enough.insert(source, reads.max(1)),
            None => self.enough.remove(&source),
        };
    }

    /// Returns true if some source target needs fewer concurrent reads than the maximum.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        !self.enough.is_empty()
    }

    /// Adds the objects of a file that the sink needs.
    pub fn add(&mut self, work: Work) {
        let size = work.grid.size();
        let whole = size > 0 && work.wanted.bytes() == size;
        self.is_ordered |= work.ordered_window.is_some();
        // If the sink writes in order, each choice of an object must be able to examine every file.
        // So all files are put in the queue immediately, and none waits with its dataset.
        let may_wait = self.order == Order::Layout && work.ordered_window.is_none();
        let is_striped = !work.source.is_single() || !work.sink.is_single();
        let is_small = whole && work.grid.count() == 1 && size <= self.limits.pack_bytes_max;
        let file = File {
            grid: work.grid,
            source: work.source,
            sink: work.sink,
            open: BTreeMap::new(),
            open_bytes: 0,
            later: RangeSet::new(),
            is_striped,
            counted: 0,
            dataset: work.dataset.filter(|_| may_wait),
            is_small,
            ordered_window: work.ordered_window,
            under_way: 0,
            taken_end: 0,
        };
        if is_striped && let Some(dataset) = file.dataset {
            self.datasets.add(dataset, work.wanted.bytes());
        }
        self.files.insert(work.index, file);
        if is_striped {
            if let Some(file) = self.files.get_mut(&work.index) {
                file.later = work.wanted;
            }
            self.refill(work.index);
            return;
        }
        for run in work.wanted.iter() {
            self.open(work.index, run);
        }
    }

    /// Sets the dataset whose files are being listed, if any. The size of this dataset is unknown
    /// until its listing ends, so the other datasets have precedence.
    pub const fn set_listing(&mut self, dataset: Option<Dataset>) {
        self.datasets.listing = dataset;
    }

    /// Adds the size of an announced file to its dataset, until [`Objects::decided`].
    pub fn announced(&mut self, dataset: Dataset, bytes: u64) {
        self.datasets.add(dataset, bytes);
    }

    /// Undoes [`Objects::announced`] for a file after the sink has decided about it. Call this
    /// before adding the file.
    pub fn decided(&mut self, dataset: Dataset, bytes: u64) {
        self.datasets.take(dataset, bytes);
    }

    /// Removes a file that has failed or that the sink has closed.
    pub fn remove(&mut self, index: FileIndex) {
        if let Some(file) = self.files.remove(&index) {
            self.listed.remove(&index);
            self.close(file.dataset, file.unsent_bytes());
            self.striped = self.striped.saturating_sub(file.counted);
            self.queues.is_stale |= !file.open.is_empty();
            // The entries of a file in several queues stay, and are removed later as stale entries.
            if file.open.len() == 1
                && let Some(pair) = file.open.keys().next().copied()
                && let Some(queue) = self.queues.get_mut(pair)
            {
                let list = if file.is_small {
                    &mut queue.small
                } else {
                    &mut queue.files
                };
                if list.front() == Some(&index) {
                    list.pop_front();
                }
                self.queues.drop_if_empty(pair);
            }
        }
    }

    /// Makes a range unsent again after a failure. The range must consist of whole objects.
    pub fn put_back(&mut self, index: FileIndex, range: ByteRange) {
        if self.files.contains_key(&index) {
            self.open(index, range);
        }
    }

    /// Moves the unsent objects of a file to the targets of another replica, because its source
    /// targets are not used any more. Objects in transit are not affected until they are put back.
    pub fn move_source(&mut self, index: FileIndex, source: Layout) {
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        let open = std::mem::take(&mut file.open);
        let bytes = std::mem::take(&mut file.open_bytes);
        file.source = source;
        file.is_striped |= !file.source.is_single();
        let dataset = file.dataset;
        self.queues.is_stale |= !open.is_empty();
        self.close(dataset, bytes);
        for run in open.values().flat_map(RangeSet::iter) {
            self.open(index, run);
        }
    }

    /// Returns the speed of a source target compared with the other source targets.
    #[must_use]
    pub fn pace(&self, source: TargetId, now: Time) -> Pace {
        self.congestion.pace(source, now)
    }

    /// Returns the state of each source target that has had reads.
    #[must_use]
    pub fn loads(&self, now: Time) -> Vec<Load> {
        self.congestion.loads(now)
    }

    /// Excludes a small file from packs from now on, because a pack with this file failed.
    pub fn go_alone(&mut self, index: FileIndex) {
        if let Some(file) = self.files.get_mut(&index) {
            file.is_small = false;
        }
    }

    /// Records that an object of the file `index` is no longer in transit: the object was written,
    /// or its transfer failed.
    pub fn settled(&mut self, index: FileIndex) {
        if let Some(file) = self.files.get_mut(&index) {
            file.under_way = file.under_way.saturating_sub(1);
        }
    }

    /// Takes the first `most` unsent ranges of a file within `hole`, even if another pair or file
    /// is next in the rotation. `hole` is a range of the file without data. If the sink writes the
    /// file in order, takes only a range at the start of the hole.
    pub fn take_open(&mut self, index: FileIndex, hole: ByteRange, most: usize) -> RangeSet {
        let mut found = RangeSet::new();
        let Some(file) = self.files.get_mut(&index) else {
            return found;
        };
        let open = file.open.values().flat_map(RangeSet::iter);
        let later = file.later.run_from(hole.offset);
        for run in open.chain(later) {
            found.insert(run.intersection(&hole));
        }
        let goes = |run: &ByteRange| file.ordered_window.is_none() || run.offset == hole.offset;
        let taken: Vec<ByteRange> = found.iter().filter(goes).take(most).collect();
        let mut set = RangeSet::new();
        let mut bytes = 0;
        for run in taken {
            set.insert(run);
            file.later.remove(run);
            bytes += file
                .open
                .values_mut()
                .map(|open| open.remove(run))
                .sum::<u64>();
        }
        let pairs = file.open.len();
        file.open.retain(|_, open| !open.is_empty());
        self.queues.is_stale |= file.open.len() < pairs;
        file.open_bytes = file.open_bytes.saturating_sub(bytes);
        let dataset = file.dataset;
        self.close(dataset, set.bytes());
        self.refill(index);
        self.unlist(index);
        set
    }

    /// Returns true if all bytes of `range` are unsent.
    #[must_use]
    pub fn is_open(&self, index: FileIndex, range: ByteRange) -> bool {
        self.files.get(&index).is_some_and(|file| {
            let open = file.open.values().flat_map(RangeSet::iter);
            let open: u64 = open
                .chain(file.later.iter())
                .map(|run| run.intersection(&range).length)
                .sum();
            open == range.length
        })
    }

    /// Returns the start of the object that contains the byte at `offset`. At the end of the file,
    /// returns `offset`.
    #[must_use]
    pub fn object_at(&self, index: FileIndex, offset: u64) -> u64 {
        let Some(grid) = self.files.get(&index).map(|file| file.grid) else {
            return offset;
        };
        grid.range(grid.index_of(offset)).offset.min(offset)
    }

    /// Records the end of a read on `source` that was picked at `began`. Pass `None` as `moved` if
    /// the duration says nothing about the target, because the read failed or found a hole.
    pub fn read_ended(&mut self, source: TargetId, began: Time, moved: Option<Moved>, now: Time) {
        if let Some(count) = self.reading.get_mut(&source) {
            *count = count.saturating_sub(1);
        }
        self.congestion.ended(source, began, moved, now);
    }

    /// Returns true if there are no unsent objects.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// Picks the next object and counts it as in transit. Returns `None` if no object may be sent
    /// now.
    pub fn pick(&mut self, now: Time) -> Option<Assignment> {
        self.congestion.look(now);
        let assignment = match self.order {
            Order::Layout => self.pick_by_layout(),
            Order::File => self.pick_by_file(),
            Order::Random { .. } => self.pick_at_random(),
        }?;
        if let Some(credit) = self.credit.get_mut(&assignment.sink) {
            *credit -= 1;
            if *credit == 0 {
                self.credit.remove(&assignment.sink);
            }
        }
        *self.reading.entry(assignment.source).or_default() += 1;
        self.congestion.began(assignment.source, now);
        for (index, _) in &assignment.parts {
            if let Some(file) = self.files.get_mut(index) {
                file.under_way += 1;
            }
            self.refill(*index);
            self.unlist(*index);
        }
        Some(assignment)
    }

    /// Adds unsent bytes to the queues, and to the remaining size of their dataset.
    fn open(&mut self, index: FileIndex, range: ByteRange) {
        let bytes = self.insert(index, range);
        let dataset = self.files.get(&index).and_then(|file| file.dataset);
        if let Some(dataset) = dataset {
            self.datasets.add(dataset, bytes);
        }
        self.recount(index);
    }

    /// Adds unsent bytes to the queues of their pairs. Returns the number of bytes.
    fn insert(&mut self, index: FileIndex, range: ByteRange) -> u64 {
        let Some(file) = self.files.get_mut(&index) else {
            return 0;
        };
        let single = !file.is_striped;
        let mut added = 0;
        let step = if single {
            range.length
        } else {
            file.grid.object_bytes().get()
        };
        let mut at = range.offset;
        while at < range.end() {
            let boundary = if single {
                range.end()
            } else {
                (at / step + 1) * step
            };
            let part = ByteRange::between(at, boundary.min(range.end()));
            let pair = file.pair_at(at);
            let open = file.open.entry(pair).or_default();
            if open.is_empty() {
                let queue = self.queues.queue(pair);
                queue.push(index, file.is_small, file.dataset);
            }
            let bytes = open.insert(part);
            file.open_bytes += bytes;
            added += bytes;
            at = part.end();
        }
        if self.order == Order::File {
            self.listed.insert(index);
        }
        added
    }

    /// Subtracts bytes that are sent or removed from the remaining size of a dataset.
    fn close(&mut self, dataset: Option<Dataset>, bytes: u64) {
        if let Some(dataset) = dataset {
            self.datasets.take(dataset, bytes);
        }
    }

    /// Returns true if a source target may start another read. A congested target may use only some
    /// of its readers, so that buffers remain for the other targets. If no other target has unsent
    /// objects, a congested target may use all its readers. With [`Order::File`] all reads follow
    /// the file order, so congestion does not matter.
    fn has_reader(&self, source: TargetId) -> bool {
        let reading = self.reading.get(&source).copied().unwrap_or(0);
        let enough = self.enough.get(&source).copied();
        reading < self.limits.reads_max.min(enough.unwrap_or(u32::MAX))
            && (reading < self.congestion.bound(source)
                || self.order == Order::File
                || !self.queues.has_other_source(source))
    }

    fn has_credit(&self, sink: TargetId) -> bool {
        self.credit.contains_key(&sink)
    }

    /// Removes the file from `listed` if it has no objects in the queues.
    fn unlist(&mut self, index: FileIndex) {
        let file = self.files.get(&index);
        if self.order == Order::File && file.is_none_or(|file| file.open.is_empty()) {
            self.listed.remove(&index);
        }
    }
}

/// Builds a grid from plain numbers. An object size of zero counts as one byte.
#[must_use]
pub fn grid(size: u64, object_bytes: u64) -> Grid {
    Grid::new(
        size,
        NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
    )
}

#[cfg(test)]
mod tests;
