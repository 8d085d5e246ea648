//! Order by layout: serves the pairs of targets in rotation, and the files within each pair too.

use super::queues::ACTIVE_FILES;
use super::{Assignment, Objects, Pair};
use dray_core::{ByteRange, FileIndex};
use std::ops::Bound;

impl Objects {
    /// Picks an object of the next pair in the rotation that may be served and has unsent objects.
    pub(super) fn pick_by_layout(&mut self) -> Option<Assignment> {
        let turn = self.turn;
        let (mut after, mut is_second) = (turn, false);
        loop {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let to = match turn {
                Some(turn) if is_second => Bound::Included(turn),
                _ => Bound::Unbounded,
            };
            let mut queues = self.queues.range((from, to));
            let ready = queues.find(|(pair, queue)| self.is_ready(**pair, queue));
            let Some((pair, _)) = ready else {
                if is_second || turn.is_none() {
                    return None;
                }
                (after, is_second) = (None, true);
                continue;
            };
            let pair = *pair;
            if let Some(parts) = self.take_turn(pair) {
                self.turn = Some(pair);
                return Some(Assignment {
                    source: pair.0,
                    sink: pair.1,
                    parts,
                });
            }
            after = Some(pair);
        }
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

    pub(super) fn take_pack(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        let queue = self.queues.get_mut(&pair)?;
        let mut parts = Vec::new();
        let mut closed = Vec::new();
        let mut bytes = 0;
        while parts.len() < self.limits.segments_max {
            let Some(index) = queue.next_small(&self.datasets) else {
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
            let Some(open) = file.open.remove(&pair).filter(|open| !open.is_empty()) else {
                continue;
            };
            file.open_bytes = file.open_bytes.saturating_sub(open.bytes());
            closed.push((file.dataset, open.bytes()));
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
        for (dataset, bytes) in closed {
            self.close(dataset, bytes);
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// Takes the next object from the files that `pair` serves in rotation.
    pub(super) fn take_object(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        // If the sink writes in order, a file at the front may wait for an object in another queue.
        // So examine all files.
        let places = if self.is_ordered {
            usize::MAX
        } else {
            ACTIVE_FILES
        };
        self.call_files(pair);
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

    /// Takes the object that contains the unsent byte at `offset`.
    pub(super) fn take_at(
        &mut self,
        index: FileIndex,
        pair: Pair,
        offset: u64,
    ) -> Option<ByteRange> {
        let file = self.files.get_mut(&index)?;
        let object = file.grid.range(file.grid.index_of(offset));
        let open = file.open.get_mut(&pair)?;
        let run = open.run_from(offset)?;
        let part = ByteRange::between(offset, run.end().min(object.end()));
        file.taken_end = file.taken_end.max(part.end());
        let bytes = open.remove(part);
        if open.is_empty() {
            file.open.remove(&pair);
        }
        file.open_bytes = file.open_bytes.saturating_sub(bytes);
        let dataset = file.dataset;
        if file.open.is_empty() {
            self.listed.remove(&index);
        }
        self.close(dataset, bytes);
        Some(part)
    }

    /// Moves a file with more unsent objects behind the other active files. If one object is left,
    /// puts the file in front, because this object completes the file.
    fn requeue(&mut self, index: FileIndex, pair: Pair) {
        let Some(file) = self.files.get(&index) else {
            return;
        };
        let is_last = file.open_bytes <= file.grid.object_bytes().get();
        if file.open.contains_key(&pair)
            && let Some(queue) = self.queues.get_mut(&pair)
        {
            let place = match is_last {
                true => 0,
                false => queue.files.len().min(ACTIVE_FILES - 1),
            };
            queue.files.insert(place, index);
        }
    }
}
