//! Two simple orders for comparison: file after file, and random.

use super::pairs::Span;
use super::{Assignment, Objects, Pair};
use dray_core::{ByteRange, FileIndex};

impl Objects {
    pub(super) fn pick_by_file(&mut self) -> Option<Assignment> {
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
            let queue = self.queues.get_mut(pair)?;
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
                let queue = self.queues.get_mut(pair)?;
                // The file is usually the first one of the queue.
                match queue.files.front() {
                    Some(first) if *first == index => drop(queue.files.pop_front()),
                    _ => queue.files.retain(|other| *other != index),
                }
            }
            vec![(index, part)]
        };
        self.queues.drop_if_empty(pair);
        Some(Assignment {
            source: pair.0,
            sink: pair.1,
            parts,
        })
    }

    pub(super) fn pick_at_random(&mut self) -> Option<Assignment> {
        let mut candidates = self.ready();
        while !candidates.is_empty() {
            let choice = self.draw.below(candidates.len() as u64) as usize;
            let pair = candidates.swap_remove(choice);
            let taken = self.take_random(pair);
            self.queues.drop_if_empty(pair);
            if let Some(parts) = taken {
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
        let queue = self.queues.get_mut(pair)?;
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
        // Random picks leave separate ranges of a file. A single file may have at most a quarter of
        // the maximum number of ranges, and all files together at most the maximum.
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
            self.queues.get_mut(pair)?.files.remove(choice as usize);
        }
        Some(vec![(index, part)])
    }

    fn ready(&self) -> Vec<Pair> {
        let sources = self.queues.sources(Span::ALL);
        let sources = sources.filter(|source| self.has_reader(*source));
        let ready = sources.flat_map(|source| self.queues.with_credit(source, &self.credit));
        ready.collect()
    }
}
