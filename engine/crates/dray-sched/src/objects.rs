//! Which object goes next (LADS, sections 3 and 4): objects wait in a queue per pair of source and
//! sink target; a busy target at either end is walked around, never waited for.

mod balance;

use crate::draw::Draw;
use dray_core::options::Order;
use dray_core::plan::Grid;
use dray_core::{ByteRange, FileIndex, Layout, RangeSet, TargetId};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU64;

/// Files of one queue whose objects are sent in turn. Enough to keep reads of several files under
/// way, few enough that files finish and their partial files stay few.
const ACTIVE_FILES: usize = 8;

/// Bounds of one block.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of small files put into one block at the most.
    pub pack_bytes_max: u64,
    /// Segments in one block at the most.
    pub segments_max: usize,
    /// Reads that may be under way on one source target: each target has readers of its own, so a
    /// slow one never holds all of them.
    pub reads_max: u32,
    /// Separate pieces that objects taken at random may leave of all files; beyond, they are taken
    /// in order. Both ends remember each piece.
    pub pieces_max: usize,
}

/// A file whose objects are to be sent.
#[derive(Debug, Clone)]
pub struct Work {
    /// Which.
    pub index: FileIndex,
    /// How it is cut.
    pub grid: Grid,
    /// Its targets at the source.
    pub source: Layout,
    /// Its targets at the sink.
    pub sink: Layout,
    /// What the sink does not have.
    pub wanted: RangeSet,
    /// For a sink without random writes: objects that may be on the way, in order.
    pub ordered_window: Option<u32>,
}

/// What to read and send next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The source target that will be read.
    pub source: TargetId,
    /// The sink target that will be written; one credit of it is spent.
    pub sink: TargetId,
    /// The parts of the block: one object, or several whole small files.
    pub parts: Vec<(FileIndex, ByteRange)>,
}

type Pair = (TargetId, TargetId);

#[derive(Debug, Default)]
struct Queue {
    /// Files with objects of this pair; the first [`ACTIVE_FILES`] take turns.
    files: VecDeque<FileIndex>,
    /// Small files, sent whole, several to a block.
    small: VecDeque<FileIndex>,
    /// Whether small files had the last turn.
    small_last: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.small.is_empty()
    }
}

#[derive(Debug)]
struct File {
    grid: Grid,
    source: Layout,
    sink: Layout,
    /// Open objects by pair; an entry per queue the file stands in.
    open: BTreeMap<Pair, RangeSet>,
    is_small: bool,
    ordered_window: Option<u32>,
    under_way: u32,
    /// One past the highest byte that was ever taken.
    taken_end: u64,
}

impl File {
    /// Whether a sink without random writes must not have the object at `offset` yet: it goes in
    /// order, and no further ahead than the window. One that comes a second time may always go,
    /// because all behind it wait for it.
    fn is_early(&self, offset: u64) -> bool {
        let Some(window) = self.ordered_window else {
            return false;
        };
        let is_first = self.first().is_some_and(|(first, _)| first == offset);
        !is_first || (self.under_way >= window && offset >= self.taken_end)
    }

    /// The first open byte, and where it belongs.
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
    draw: Draw,
    files: HashMap<FileIndex, File>,
    queues: BTreeMap<Pair, Queue>,
    /// Files with open objects in listing order (only kept for [`Order::File`]).
    listed: BTreeSet<FileIndex>,
    credit: HashMap<TargetId, u32>,
    reading: HashMap<TargetId, u32>,
    /// The pair that had the last turn.
    turn: Option<Pair>,
    /// Whether files go in order.
    is_ordered: bool,
}

impl Objects {
    /// No objects yet.
    #[must_use]
    pub fn new(order: Order, limits: Limits) -> Self {
        let seed = match order {
            Order::Random { seed } => seed,
            Order::Layout | Order::File => 0,
        };
        Self {
            order,
            limits,
            draw: Draw::new(seed),
            files: HashMap::new(),
            queues: BTreeMap::new(),
            listed: BTreeSet::new(),
            credit: HashMap::new(),
            reading: HashMap::new(),
            turn: None,
            is_ordered: false,
        }
    }

    /// Opens the wanted objects of a file.
    pub fn add(&mut self, work: Work) {
        let size = work.grid.size();
        let whole = size > 0 && work.wanted.bytes() == size;
        self.is_ordered |= work.ordered_window.is_some();
        let is_small = whole && work.grid.count() == 1 && size <= self.limits.pack_bytes_max;
        let file = File {
            grid: work.grid,
            source: work.source,
            sink: work.sink,
            open: BTreeMap::new(),
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

    /// Forgets a file (failed, or closed by the sink).
    pub fn remove(&mut self, index: FileIndex) {
        if let Some(file) = self.files.remove(&index) {
            self.listed.remove(&index);
            // Queues are cleaned lazily by `pick`; striped files may stand in many.
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

    /// Opens a range again whose attempt failed. It must be whole objects.
    pub fn put_back(&mut self, index: FileIndex, range: ByteRange) {
        if self.files.contains_key(&index) {
            self.open(index, range);
        }
    }

    /// A small file travels by itself from now on: something in its pack went wrong.
    pub fn go_alone(&mut self, index: FileIndex) {
        if let Some(file) = self.files.get_mut(&index) {
            file.is_small = false;
        }
    }

    /// One attempt on `index` is no longer on the way (written, or given up).
    pub fn settled(&mut self, index: FileIndex) {
        if let Some(file) = self.files.get_mut(&index) {
            file.under_way = file.under_way.saturating_sub(1);
        }
    }

    /// Takes what is open in a hole, apart from any turn: the first `most` runs of it. A file that
    /// goes in order gives up only what begins with the hole.
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
        for run in taken {
            set.insert(run);
            file.open.values_mut().for_each(|open| {
                open.remove(run);
            });
        }
        file.open.retain(|_, open| !open.is_empty());
        if file.open.is_empty() {
            self.listed.remove(&index);
        }
        set
    }

    /// Whether all bytes of `range` are open.
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

    /// Where the object that holds the byte at `offset` begins; of the file's end, the end.
    #[must_use]
    pub fn object_at(&self, index: FileIndex, offset: u64) -> u64 {
        let Some(grid) = self.files.get(&index).map(|file| file.grid) else {
            return offset;
        };
        grid.range(grid.index_of(offset)).offset.min(offset)
    }

    /// A read of `source` has ended.
    pub fn read_ended(&mut self, source: TargetId) {
        if let Some(count) = self.reading.get_mut(&source) {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether nothing is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queues.values().all(Queue::is_empty)
    }

    /// Chooses the next object and counts it as under way. `None`: nothing may go now.
    pub fn pick(&mut self) -> Option<Assignment> {
        let assignment = match self.order {
            Order::Layout => self.pick_by_layout(),
            Order::File => self.pick_by_file(),
            Order::Random { .. } => self.pick_at_random(),
        }?;
        let credit = self.credit.entry(assignment.sink).or_default();
        *credit = credit.saturating_sub(1);
        *self.reading.entry(assignment.source).or_default() += 1;
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
                let list = if file.is_small {
                    &mut queue.small
                } else {
                    &mut queue.files
                };
                list.push_back(index);
            }
            open.insert(part);
            at = part.end();
        }
        if self.order == Order::File {
            self.listed.insert(index);
        }
    }

    fn has_reader(&self, source: TargetId) -> bool {
        self.reading.get(&source).copied().unwrap_or(0) < self.limits.reads_max
    }

    fn has_credit(&self, sink: TargetId) -> bool {
        self.credit.get(&sink).copied().unwrap_or(0) > 0
    }

    fn candidates(&self) -> Vec<Pair> {
        self.queues
            .iter()
            .filter(|((source, sink), queue)| {
                !queue.is_empty() && self.has_credit(*sink) && self.has_reader(*source)
            })
            .map(|(pair, _)| *pair)
            .collect()
    }

    fn pick_by_layout(&mut self) -> Option<Assignment> {
        let candidates = self.candidates();
        let after = candidates
            .iter()
            .position(|pair| self.turn.is_none_or(|turn| *pair > turn));
        let start = after.unwrap_or(0);
        for offset in 0..candidates.len() {
            let pair = candidates[(start + offset) % candidates.len()];
            if let Some(parts) = self.take_turn(pair) {
                self.turn = Some(pair);
                return Some(Assignment {
                    source: pair.0,
                    sink: pair.1,
                    parts,
                });
            }
        }
        None
    }

    fn take_turn(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        let queue = self.queues.get_mut(&pair)?;
        let small_first = !queue.small_last;
        queue.small_last = small_first;
        if small_first {
            self.take_pack(pair).or_else(|| self.take_object(pair))
        } else {
            self.take_object(pair).or_else(|| self.take_pack(pair))
        }
    }

    fn take_pack(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        let queue = self.queues.get_mut(&pair)?;
        let mut parts = Vec::new();
        let mut bytes = 0;
        while parts.len() < self.limits.segments_max {
            let Some(index) = queue.small.front().copied() else {
                break;
            };
            let Some(file) = self.files.get_mut(&index) else {
                queue.small.pop_front();
                continue;
            };
            let size = file.grid.size();
            if !parts.is_empty() && bytes + size > self.limits.pack_bytes_max {
                break;
            }
            queue.small.pop_front();
            if file.open.remove(&pair).is_none_or(|open| open.is_empty()) {
                continue;
            }
            self.listed.remove(&index);
            bytes += size;
            parts.push((
                index,
                ByteRange {
                    offset: 0,
                    length: size,
                },
            ));
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// The next object of the files that take turns in `pair`.
    fn take_object(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        // One that goes in order may wait for its turn in another queue, so all are looked at.
        let places = if self.is_ordered {
            usize::MAX
        } else {
            ACTIVE_FILES
        };
        for position in 0..places {
            loop {
                let queue = self.queues.get_mut(&pair)?;
                let index = *queue.files.get(position)?;
                let Some(file) = self.files.get_mut(&index) else {
                    queue.files.remove(position);
                    continue;
                };
                let open = file.open.get(&pair).and_then(|open| open.first());
                let Some(run) = open else {
                    queue.files.remove(position);
                    continue;
                };
                if file.is_early(run.offset) {
                    break;
                }
                queue.files.remove(position);
                let part = self.take_at(index, pair, run.offset)?;
                self.requeue(index, pair);
                return Some(vec![(index, part)]);
            }
        }
        None
    }

    /// Takes the object that holds the open byte at `offset`.
    fn take_at(&mut self, index: FileIndex, pair: Pair, offset: u64) -> Option<ByteRange> {
        let file = self.files.get_mut(&index)?;
        let object = file.grid.range(file.grid.index_of(offset));
        let open = file.open.get_mut(&pair)?;
        let run = open.run_from(offset)?;
        let part = ByteRange::between(offset, run.end().min(object.end()));
        file.taken_end = file.taken_end.max(part.end());
        open.remove(part);
        if open.is_empty() {
            file.open.remove(&pair);
        }
        if file.open.is_empty() {
            self.listed.remove(&index);
        }
        Some(part)
    }

    /// Back into line, behind the other active files, if objects of the pair are still open.
    fn requeue(&mut self, index: FileIndex, pair: Pair) {
        let still_open = self
            .files
            .get(&index)
            .is_some_and(|file| file.open.contains_key(&pair));
        if still_open && let Some(queue) = self.queues.get_mut(&pair) {
            let place = queue.files.len().min(ACTIVE_FILES - 1);
            queue.files.insert(place, index);
        }
    }

    fn pick_by_file(&mut self) -> Option<Assignment> {
        let index = *self.listed.first()?;
        let file = self.files.get(&index)?;
        let (pair, open) = file
            .open
            .iter()
            .min_by_key(|(_, open)| open.first().map(|r| r.offset))?;
        let (pair, offset) = (*pair, open.first()?.offset);
        if !self.has_credit(pair.1) || !self.has_reader(pair.0) {
            return None;
        }
        if file.is_early(offset) {
            return None;
        }
        let parts = if file.is_small {
            let queue = self.queues.get_mut(&pair)?;
            if let Some(place) = queue.small.iter().position(|other| *other == index) {
                queue.small.rotate_left(place);
            }
            self.take_pack(pair)?
        } else {
            let part = self.take_at(index, pair, offset)?;
            if !self
                .files
                .get(&index)
                .is_some_and(|file| file.open.contains_key(&pair))
            {
                let queue = self.queues.get_mut(&pair)?;
                queue.files.retain(|other| *other != index);
            }
            vec![(index, part)]
        };
        Some(Assignment {
            source: pair.0,
            sink: pair.1,
            parts,
        })
    }

    fn pick_at_random(&mut self) -> Option<Assignment> {
        let mut candidates = self.candidates();
        while !candidates.is_empty() {
            let choice = self.draw.below(candidates.len() as u64) as usize;
            let pair = candidates.swap_remove(choice);
            if let Some(parts) = self.take_random(pair) {
                return Some(Assignment {
                    source: pair.0,
                    sink: pair.1,
                    parts,
                });
            }
        }
        None
    }

    fn take_random(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        let queue = self.queues.get_mut(&pair)?;
        let (files, small) = (queue.files.len() as u64, queue.small.len() as u64);
        let choice = self.draw.below(files + small);
        if choice >= files {
            queue.small.rotate_left((choice - files) as usize);
            return self.take_pack(pair).or_else(|| self.take_object(pair));
        }
        let index = queue.files[choice as usize];
        let file = self.files.get(&index);
        let blocked = file.is_some_and(|file| file.ordered_window.is_some());
        let open = file.and_then(|file| file.open.get(&pair));
        // No file takes more than a quarter of the pieces, all together no more than there are.
        let pieces_max = self.limits.pieces_max / self.files.len().max(4);
        let blocked = blocked || open.is_some_and(|open| open.run_count() > pieces_max);
        let (Some(open), false) = (open, blocked) else {
            return self.take_object(pair).or_else(|| self.take_pack(pair));
        };
        let grid = self.files.get(&index)?.grid;
        let from = self.draw.below(grid.count()) * grid.object_bytes().get();
        let offset = open.run_from(from).or_else(|| open.first())?.offset;
        let part = self.take_at(index, pair, offset)?;
        if !self
            .files
            .get(&index)
            .is_some_and(|file| file.open.contains_key(&pair))
        {
            self.queues.get_mut(&pair)?.files.remove(choice as usize);
        }
        Some(vec![(index, part)])
    }
}

/// A grid for tests and callers that hold plain numbers; objects of zero bytes count as one.
#[must_use]
pub fn grid(size: u64, object_bytes: u64) -> Grid {
    Grid::new(
        size,
        NonZeroU64::new(object_bytes).unwrap_or(NonZeroU64::MIN),
    )
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
