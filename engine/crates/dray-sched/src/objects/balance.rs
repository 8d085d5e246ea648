//! Credit for sink targets, and the return of unused credit.

use super::pairs::Span;
use super::{File, Lack, Objects};
use dray_core::options::Order;
use dray_core::{FileIndex, TargetId};
use std::collections::BTreeSet;

impl Objects {
    /// Adds credit that the sink has granted for a target.
    pub fn grant(&mut self, target: TargetId, count: u32) {
        if count > 0 {
            let credit = self.credit.entry(target).or_default();
            *credit = credit.saturating_add(count);
        }
    }

    /// Returns one credit to `target`. `pick` spent this credit for a block that does not need it.
    pub fn refund(&mut self, target: TargetId) {
        self.grant(target, 1);
    }

    /// Returns the sink targets that have unsent objects and no credit.
    #[must_use]
    pub fn starving(&self) -> BTreeSet<TargetId> {
        if self.order != Order::File && !self.is_ordered {
            let sinks = self.queues.sinks();
            return sinks.filter(|sink| !self.has_credit(*sink)).collect();
        }
        let mut sinks = self.wanted_sinks();
        sinks.retain(|sink| !self.has_credit(*sink));
        sinks
    }

    /// Returns true if a sink target has both unsent objects and credit.
    pub(super) fn has_useful_credit(&self) -> bool {
        self.credit.keys().any(|sink| self.queues.has_sink(*sink))
    }

    /// Returns the reason why no object can be picked. Returns `None` if there are no unsent
    /// objects. Stale queue entries count as unsent objects.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        if self.queues.is_empty() {
            return None;
        }
        if !self.has_useful_credit() {
            return Some(Lack::Credit);
        }
        let all = Span::ALL;
        let mut sources = self.queues.sources(all);
        let is_ready = sources.any(|source| {
            self.has_reader(source) && self.queues.next_sink(source, &self.credit, all).is_some()
        });
        Some(if is_ready {
            Lack::Nothing
        } else {
            Lack::Reader
        })
    }

    /// Returns the sink targets for which unsent objects wait, so credit for them is useful. A
    /// stale queue entry counts as an unsent object. With [`Order::File`], only the first unsent
    /// object of the first file counts. If the sink writes files in order, only the first unsent
    /// object of each file counts.
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
        self.queues.sinks().collect()
    }

    /// Takes the credit that no object can use now. The source returns it to the sink.
    pub fn take_idle_credit(&mut self) -> Vec<(TargetId, u32)> {
        self.sweep();
        let busy = self.wanted_sinks();
        let mut idle = Vec::new();
        self.credit.retain(|target, objects| {
            let is_busy = busy.contains(target);
            if !is_busy {
                idle.push((*target, *objects));
            }
            is_busy
        });
        idle.sort_unstable();
        idle
    }

    /// Removes stale entries from the queues.
    fn sweep(&mut self) {
        if !std::mem::take(&mut self.queues.is_stale) {
            return;
        }
        let files = &self.files;
        self.queues.retain(|pair, queue| {
            let is_open = |index: &FileIndex| {
                files
                    .get(index)
                    .is_some_and(|file| file.open.contains_key(&pair))
            };
            queue.files.retain(is_open);
            queue.small.retain(is_open);
            queue.files_waiting.retain(is_open);
            queue.small_waiting.retain(is_open);
        });
    }
}
