//! Credit of the sink targets, and what to do with credit that cannot be used.

use super::{File, Lack, Objects};
use dray_core::options::Order;
use dray_core::{FileIndex, TargetId};
use std::collections::BTreeSet;

impl Objects {
    /// The sink grants more objects to a target.
    pub fn grant(&mut self, target: TargetId, count: u32) {
        let credit = self.credit.entry(target).or_default();
        *credit = credit.saturating_add(count);
    }

    /// A credit that was spent by `pick` was not needed after all.
    pub fn refund(&mut self, target: TargetId) {
        self.grant(target, 1);
    }

    /// Sink targets that have open objects and no credit.
    #[must_use]
    pub fn starving(&self) -> BTreeSet<TargetId> {
        let mut sinks = self.wanted_sinks();
        sinks.retain(|sink| !self.has_credit(*sink));
        sinks
    }

    /// What the open objects wait for; none if nothing is open. Stale entries of the queues count as
    /// open objects.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        let queues = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let mut lack = None;
        for ((source, sink), _) in queues {
            let of_this = match (self.has_credit(*sink), self.has_reader(*source)) {
                (true, true) => return Some(Lack::Nothing),
                (true, false) => Lack::Reader,
                (false, _) if lack == Some(Lack::Reader) => Lack::Reader,
                (false, _) => Lack::Credit,
            };
            lack = Some(of_this);
        }
        lack
    }

    /// Sink targets whose credit could be used. Stale entries of the queues count as open objects;
    /// file after file, and of a file that goes in order, only the first object counts.
    fn wanted_sinks(&self) -> BTreeSet<TargetId> {
        if self.order == Order::File {
            let first = self.listed.first().and_then(|index| self.files.get(index));
            let sink = first.and_then(File::first).map(|(_, (_, sink))| sink);
            return sink.into_iter().collect();
        }
        if self.is_ordered {
            let files = self.files.values().filter_map(File::first);
            return files.map(|(_, (_, sink))| sink).collect();
        }
        let queues = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        queues.map(|((_, sink), _)| *sink).collect()
    }

    /// Takes the credit that no object can use now, to be given back.
    pub fn take_idle_credit(&mut self) -> Vec<(TargetId, u32)> {
        self.sweep();
        let busy = self.wanted_sinks();
        let mut idle: Vec<_> = self
            .credit
            .extract_if(|target, count| *count > 0 && !busy.contains(target))
            .collect();
        idle.sort_unstable();
        idle
    }

    /// Drops what `pick` would find stale in the queues.
    fn sweep(&mut self) {
        let files = &self.files;
        for (pair, queue) in &mut self.queues {
            let is_open = |index: &FileIndex| {
                files
                    .get(index)
                    .is_some_and(|file| file.open.contains_key(pair))
            };
            queue.files.retain(is_open);
            queue.small.retain(is_open);
            queue.files_waiting.retain(is_open);
            queue.small_waiting.retain(is_open);
        }
    }
}
