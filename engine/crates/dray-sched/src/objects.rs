//! Chooses the next object (LADS, sections 3 and 4). Objects wait in one queue per pair of source
//! and sink target. The choice skips a busy target at either end instead of waiting for it, and a
//! congested target gets fewer concurrent reads, at least one.
//!
//! Pairs take turns, so that none starves. Within a pair, files take turns too. Between equals, the
//! object that completes something comes first: the last object of a file goes immediately, and
//! files of the dataset that is nearest to complete come before others.

mod balance;
mod baselines;
mod layout;
mod queues;

use crate::congestion::{Congestion, Moved, Pace};
use crate::rng::Rng;
use dray_core::maps::HashMap;
use dray_core::options::Order;
use dray_core::plan::Grid;
use dray_core::{ByteRange, FileIndex, Layout, RangeSet, TargetId, Time};
use queues::{Left, Queue};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

/// Limits of blocks, reads and pieces.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum bytes of small files in one block.
    pub pack_bytes_max: u64,
    /// Maximum number of segments in one block.
    pub segments_max: usize,
    /// Maximum number of reads under way on one source target: each target has its own readers, so
    /// a slow one never holds all of them.
    pub reads_max: u32,
    /// Maximum number of separate pieces, over all files, that objects picked at random may leave;
    /// beyond it, objects are picked in order. Both ends remember each piece.
    pub pieces_max: usize,
}

/// A set of files that is useful only when complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dataset(pub u64);

/// A file whose objects are to be sent.
#[derive(Debug, Clone)]
pub struct Work {
    /// Index of the file.
    pub index: FileIndex,
    /// Division of the file into objects.
    pub grid: Grid,
    /// Its targets at the source.
    pub source: Layout,
    /// Its targets at the sink.
    pub sink: Layout,
    /// Ranges that the sink does not have.
    pub wanted: RangeSet,
    /// For a sink without random writes: maximum number of objects on the way, in order.
    pub ordered_window: Option<u32>,
    /// Dataset of the file; `None` for a file that is useful by itself.
    pub dataset: Option<Dataset>,
}

/// Resource that open objects wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// Nothing: targets and credit allow some objects.
    Nothing,
    /// Every object with credit waits for a reader of its source target.
    Reader,
    /// No object has credit.
    Credit,
}

/// Next block to read and send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Source target to read.
    pub source: TargetId,
    /// Sink target to write; one of its credits is spent.
    pub sink: TargetId,
    /// The parts of the block: one object, or several whole small files.
    pub parts: Vec<(FileIndex, ByteRange)>,
}

type Pair = (TargetId, TargetId);

#[derive(Debug)]
struct File {
    grid: Grid,
    source: Layout,
    sink: Layout,
    /// Open objects by pair; one entry for each queue that contains the file.
    open: BTreeMap<Pair, RangeSet>,
    /// Total bytes of `open`.
    open_bytes: u64,
    dataset: Option<Dataset>,
    is_small: bool,
    ordered_window: Option<u32>,
    under_way: u32,
    /// One past the highest byte that was ever taken.
    taken_end: u64,
}

impl File {
    /// Returns true if the object at `offset` must not yet go to a sink without random writes:
    /// objects go in order, and at most one window ahead. An object sent a second time may always
    /// go, because all later ones wait for it.
    fn is_early(&self, offset: u64) -> bool {
        let Some(window) = self.ordered_window else {
            return false;
        };
        let is_first = self.first().is_some_and(|(first, _)| first == offset);
        !is_first || (self.under_way >= window && offset >= self.taken_end)
    }

    /// Returns the first open byte and its pair.
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

/// The queues of open objects of one source.
#[derive(Debug)]
pub struct Objects {
    order: Order,
    limits: Limits,
    draw: Rng,
    files: HashMap<FileIndex, File>,
    queues: BTreeMap<Pair, Queue>,
    /// Files with open objects in listing order (only kept for [`Order::File`]).
    listed: BTreeSet<FileIndex>,
    datasets: Left,
    congestion: Congestion,
    credit: HashMap<TargetId, u32>,
    reading: HashMap<TargetId, u32>,
    /// Source targets with a lower sufficient number of concurrent reads, and that number.
    enough: HashMap<TargetId, u32>,
    /// Pair that had the last turn.
    turn: Option<Pair>,
    /// Set when files go in order.
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
            queues: BTreeMap::new(),
            listed: BTreeSet::new(),
            datasets: Left::default(),
            congestion: Congestion::new(limits.reads_max),
            credit: HashMap::default(),
            reading: HashMap::default(),
            enough: HashMap::default(),
            turn: None,
            is_ordered: false,
        }
    }

    /// Changes the limits. Call it before any part of a file is wanted: existing divisions stay.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.set_reads_max(limits.reads_max);
    }

    /// Changes the maximum number of reads under way on each source target. Reads under way
    /// continue.
    pub const fn set_reads_max(&mut self, reads_max: u32) {
        self.limits.reads_max = reads_max;
        self.congestion.set_most(reads_max);
    }

    /// Sets the number of concurrent reads that is enough for a source target; `None` allows the
    /// maximum.
    pub fn set_enough(&mut self, source: TargetId, reads: Option<u32>) {
        match reads {
            Some(reads) => self.enough.insert(source, reads.max(1)),
            None => self.enough.remove(&source),
        };
    }

    /// Returns true if fewer reads than the maximum are enough for some source target.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        !self.enough.is_empty()
    }

    /// Opens the wanted objects of a file.
    pub fn add(&mut self, work: Work) {
        let size = work.grid.size();
        let whole = size > 0 && work.wanted.bytes() == size;
        self.is_ordered |= work.ordered_window.is_some();
        // A file that goes in order is examined in any queue position, so it is kept with all
        // others.
        let may_wait = self.order == Order::Layout && work.ordered_window.is_none();
        let is_small = whole && work.grid.count() == 1 && size <= self.limits.pack_bytes_max;
        let file = File {
            grid: work.grid,
            source: work.source,
            sink: work.sink,
            open: BTreeMap::new(),
            open_bytes: 0,
            dataset: work.dataset.filter(|_| may_wait),
            is_small,
            ordered_window: work.ordered_window,
            under_way: 0,
            taken_end: 0,
        };
        self.files.insert(work.index, file);
        for run in work.wanted.iter() {
            self.open(work.index, run);
        }
    }

    /// Sets the dataset whose files are being listed, if any. Its size is unknown before the end of
    /// its listing, so the other datasets come before it.
    pub const fn set_listing(&mut self, dataset: Option<Dataset>) {
        self.datasets.listing = dataset;
    }

    /// Adds the bytes of an announced file to its dataset, until [`Objects::decided`].
    pub fn announced(&mut self, dataset: Dataset, bytes: u64) {
        self.datasets.add(dataset, bytes);
    }

    /// Removes the bytes of an announced file whose wanted ranges are now known. Call it before the
    /// file is added.
    pub fn decided(&mut self, dataset: Dataset, bytes: u64) {
        self.datasets.take(dataset, bytes);
    }

    /// Removes a file that failed or that the sink closed.
    pub fn remove(&mut self, index: FileIndex) {
        if let Some(file) = self.files.remove(&index) {
            self.listed.remove(&index);
            self.close(file.dataset, file.open_bytes);
            // `pick` cleans the queues lazily; a striped file may be in many queues.
            if file.open.len() == 1
                && let Some(queue) = file.open.keys().next().and_then(|p| self.queues.get_mut(p))
            {
                let list = if file.is_small {
                    &mut queue.small
                } else {
                    &mut queue.files
                };
                if list.front() == Some(&index) {
                    list.pop_front();
                }
            }
        }
    }

    /// Opens a range again whose attempt failed. The range must consist of whole objects.
    pub fn put_back(&mut self, index: FileIndex, range: ByteRange) {
        if self.files.contains_key(&index) {
            self.open(index, range);
        }
    }

    /// Moves the open objects of a file to the targets of another copy, when its former source
    /// targets are given up. Objects under way stay under way until they are put back.
    pub fn move_source(&mut self, index: FileIndex, source: Layout) {
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        let open = std::mem::take(&mut file.open);
        let bytes = std::mem::take(&mut file.open_bytes);
        file.source = source;
        let dataset = file.dataset;
        self.close(dataset, bytes);
        for run in open.values().flat_map(RangeSet::iter) {
            self.open(index, run);
        }
    }

    /// Returns the pace of a source target.
    #[must_use]
    pub fn pace(&self, source: TargetId, now: Time) -> Pace {
        self.congestion.pace(source, now)
    }

    /// Sends a small file by itself from now on, because something in its pack failed.
    pub fn go_alone(&mut self, index: FileIndex) {
        if let Some(file) = self.files.get_mut(&index) {
            file.is_small = false;
        }
    }

    /// Records that one attempt on `index` is no longer under way (written, or given up).
    pub fn settled(&mut self, index: FileIndex) {
        if let Some(file) = self.files.get_mut(&index) {
            file.under_way = file.under_way.saturating_sub(1);
        }
    }

    /// Takes the first `most` open runs within `hole`, outside of the turns. A file that goes in
    /// order gives up only a run that starts with the hole.
    pub fn take_open(&mut self, index: FileIndex, hole: ByteRange, most: usize) -> RangeSet {
        let mut found = RangeSet::new();
        let Some(file) = self.files.get_mut(&index) else {
            return found;
        };
        for run in file.open.values().flat_map(RangeSet::iter) {
            found.insert(run.intersection(&hole));
        }
        let goes = |run: &ByteRange| file.ordered_window.is_none() || run.offset == hole.offset;
        let taken: Vec<ByteRange> = found.iter().filter(goes).take(most).collect();
        let mut set = RangeSet::new();
        let mut bytes = 0;
        for run in taken {
            set.insert(run);
            bytes += file
                .open
                .values_mut()
                .map(|open| open.remove(run))
                .sum::<u64>();
        }
        file.open.retain(|_, open| !open.is_empty());
        file.open_bytes = file.open_bytes.saturating_sub(bytes);
        let dataset = file.dataset;
        if file.open.is_empty() {
            self.listed.remove(&index);
        }
        self.close(dataset, bytes);
        set
    }

    /// Returns true if all bytes of `range` are open.
    #[must_use]
    pub fn is_open(&self, index: FileIndex, range: ByteRange) -> bool {
        self.files.get(&index).is_some_and(|file| {
            let open: u64 = file
                .open
                .values()
                .flat_map(RangeSet::iter)
                .map(|run| run.intersection(&range).length)
                .sum();
            open == range.length
        })
    }

    /// Returns the start of the object that holds the byte at `offset`; for the end of the file,
    /// the end.
    #[must_use]
    pub fn object_at(&self, index: FileIndex, offset: u64) -> u64 {
        let Some(grid) = self.files.get(&index).map(|file| file.grid) else {
            return offset;
        };
        grid.range(grid.index_of(offset)).offset.min(offset)
    }

    /// Records the end of a read of `source` that was picked at `began`. `moved` is `None` if the
    /// duration says nothing about the target (the read failed, or found a hole).
    pub fn read_ended(&mut self, source: TargetId, began: Time, moved: Option<Moved>, now: Time) {
        if let Some(count) = self.reading.get_mut(&source) {
            *count = count.saturating_sub(1);
        }
        self.congestion.ended(source, began, moved, now);
    }

    /// Returns true if no object is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queues.values().all(Queue::is_empty)
    }

    /// Chooses the next object and counts it as under way. Returns `None` if no object may go now.
    pub fn pick(&mut self, now: Time) -> Option<Assignment> {
        self.congestion.look(now);
        let assignment = match self.order {
            Order::Layout => self.pick_by_layout(),
            Order::File => self.pick_by_file(),
            Order::Random { .. } => self.pick_at_random(),
        }?;
        let credit = self.credit.entry(assignment.sink).or_default();
        *credit = credit.saturating_sub(1);
        *self.reading.entry(assignment.source).or_default() += 1;
        self.congestion.began(assignment.source, now);
        for (index, _) in &assignment.parts {
            if let Some(file) = self.files.get_mut(index) {
                file.under_way += 1;
            }
        }
        Some(assignment)
    }

    fn open(&mut self, index: FileIndex, range: ByteRange) {
        let Some(file) = self.files.get_mut(&index) else {
            return;
        };
        let single = matches!(
            (&file.source, &file.sink),
            (Layout::Single(_), Layout::Single(_))
        );
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
            let queue = self.queues.entry(pair).or_default();
            let open = file.open.entry(pair).or_default();
            if open.is_empty() {
                queue.push(index, file.is_small, file.dataset);
            }
            let bytes = open.insert(part);
            file.open_bytes += bytes;
            if let Some(dataset) = file.dataset {
                self.datasets.add(dataset, bytes);
            }
            at = part.end();
        }
        if self.order == Order::File {
            self.listed.insert(index);
        }
    }

    /// Subtracts bytes of a dataset that are no longer open.
    fn close(&mut self, dataset: Option<Dataset>, bytes: u64) {
        if let Some(dataset) = dataset {
            self.datasets.take(dataset, bytes);
        }
    }

    /// Returns true if a source target may be read. A congested target leaves buffers to the
    /// others; if it is the only target, it may use all of its reads. In file order no read goes
    /// around it.
    fn has_reader(&self, source: TargetId) -> bool {
        let reading = self.reading.get(&source).copied().unwrap_or(0);
        let enough = self.enough.get(&source).copied();
        reading < self.limits.reads_max.min(enough.unwrap_or(u32::MAX))
            && (reading < self.congestion.bound(source)
                || self.order == Order::File
                || !self.has_others(source))
    }

    fn has_others(&self, source: TargetId) -> bool {
        let mut queues = self.queues.iter();
        queues.any(|((other, _), queue)| *other != source && !queue.is_empty())
    }

    fn is_ready(&self, (source, sink): Pair, queue: &Queue) -> bool {
        !queue.is_empty() && self.has_credit(sink) && self.has_reader(source)
    }

    fn has_credit(&self, sink: TargetId) -> bool {
        self.credit.get(&sink).copied().unwrap_or(0) > 0
    }
}

/// Builds a grid for tests and callers that hold plain numbers; objects of zero bytes count as one.
#[must_use]
pub fn grid(size: u64, object_bytes: u64) -> Grid {
    Grid::new(
        size,
        NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
    )
}

#[cfg(test)]
mod tests;
