//! Order by layout: serves the pairs of targets in rotation, and the files within each pair too.

use super::pairs::Span;
use super::queues::ACTIVE_FILES;
use super::{Assignment, Objects, Pair};
use dray_core::{ByteRange, FileIndex, TargetId};

/// Returns the two spans of a rotation: the targets after `last`, and the targets up to `last`.
fn rotation(last: Option<TargetId>) -> [Span; 2] {
    let all = Span::ALL;
    match last {
        None => [all, Span::EMPTY],
        Some(last) => [after(last, all), Span { to: last, ..all }],
    }
}

/// Returns the part of `span` after `target`.
fn after(target: TargetId, span: Span) -> Span {
    match target.0.checked_add(1) {
        Some(next) => Span {
            from: TargetId(next),
            to: span.to,
        },
        None => Span::EMPTY,
    }
}

impl Objects {
    /// Serves the source targets in rotation, and picks an object of the next one that has a free
    /// reader. The sink targets of each source target are served in rotation too.
    pub(super) fn pick_by_layout(&mut self) -> Option<Assignment> {
        if !self.has_useful_credit() {
            return None;
        }
        for mut span in rotation(self.turn) {
            loop {
                let mut sources = self.queues.sources(span);
                let Some(source) = sources.find(|source| self.has_reader(*source)) else {
                    break;
                };
                drop(sources);
                if let Some(assignment) = self.pick_of(source) {
                    self.turn = Some(source);
                    return Some(assignment);
                }
                span = after(source, span);
            }
        }
        None
    }

    /// Picks an object of `source` for the next sink target in the rotation that has credit.
    fn pick_of(&mut self, source: TargetId) -> Option<Assignment> {
        for mut span in rotation(self.turns.get(&source).copied()) {
            while let Some(sink) = self.queues.next_sink(source, &self.credit, span) {
                if let Some(parts) = self.take_turn((source, sink)) {
                    self.turns.insert(source, sink);
                    return Some(Assignment {
                        source,
                        sink,
                        parts,
                    });
                }
                span = after(sink, span);
            }
        }
        None
    }

    fn take_turn(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        let queue = self.queues.get_mut(pair)?;
        let small_first = !queue.small_last;
        queue.small_last = small_first;
        let parts = if small_first {
            self.take_pack(pair).or_else(|| self.take_object(pair))
        } else {
            self.take_object(pair).or_else(|| self.take_pack(pair))
        };
        self.queues.drop_if_empty(pair);
        parts
    }

    pub(super) fn take_pack(&mut self, pair: Pair) -> Option<Vec<(FileIndex, ByteRange)>> {
        let queue = self.queues.get_mut(pair)?;
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
                let queue = self.queues.get_mut(pair)?;
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
        self.close(dataset, bytes);
        Some(part)
    }

    /// Moves a file that still has several unsent objects behind the other active files. If one
    /// object is left, puts the file in front, because this object completes the file.
    fn requeue(&mut self, index: FileIndex, pair: Pair) {
        let Some(file) = self.files.get(&index) else {
            return;
        };
        let is_last = file.unsent_bytes() <= file.grid.object_bytes().get();
        if file.open.contains_key(&pair)
            && let Some(queue) = self.queues.get_mut(pair)
        {
            let place = match is_last {
                true => 0,
                false => queue.files.len().min(ACTIVE_FILES - 1),
            };
            queue.files.insert(place, index);
        }
    }
}
