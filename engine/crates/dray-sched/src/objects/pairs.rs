//! The queues of all pairs of targets, with an index by source target and by sink target. The
//! choice of a pair thus examines no pairs without objects or without credit.

use super::Pair;
use super::queues::Queue;
use dray_core::TargetId;
use std::collections::BTreeMap;

/// A span of target numbers, with both ends. Empty if `from` is greater than `to`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) from: TargetId,
    pub(super) to: TargetId,
}

impl Span {
    pub(super) const ALL: Self = Self {
        from: TargetId(0),
        to: TargetId(u32::MAX),
    };

    pub(super) const EMPTY: Self = Self {
        from: TargetId(1),
        to: TargetId(0),
    };

    fn is_empty(self) -> bool {
        self.from > self.to
    }
}

/// The queues that have entries.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    queues: BTreeMap<Pair, Queue>,
    /// Number of queues of each source target.
    sources: BTreeMap<TargetId, usize>,
    /// Number of queues of each sink target.
    sinks: BTreeMap<TargetId, usize>,
    /// True if a queue may have stale entries.
    pub(super) is_stale: bool,
}

fn count_down(counts: &mut BTreeMap<TargetId, usize>, target: TargetId) {
    if let Some(count) = counts.get_mut(&target) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&target);
        }
    }
}

impl Pairs {
    /// Returns true if no queue has an entry.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the queue of a pair. Creates the queue if the pair has none. The caller must then
    /// add an entry.
    pub(super) fn queue(&mut self, pair: Pair) -> &mut Queue {
        let (sources, sinks) = (&mut self.sources, &mut self.sinks);
        self.queues.entry(pair).or_insert_with(|| {
            *sources.entry(pair.0).or_default() += 1;
            *sinks.entry(pair.1).or_default() += 1;
            Queue::default()
        })
    }

    /// Returns the queue of a pair, if the pair has one.
    pub(super) fn get_mut(&mut self, pair: Pair) -> Option<&mut Queue> {
        self.queues.get_mut(&pair)
    }

    /// Removes the queue of a pair if it has no entry. Call this after entries were taken.
    pub(super) fn drop_if_empty(&mut self, pair: Pair) {
        if self.queues.get(&pair).is_some_and(Queue::is_empty) {
            self.queues.remove(&pair);
            count_down(&mut self.sources, pair.0);
            count_down(&mut self.sinks, pair.1);
        }
    }

    /// Returns the pairs of `source` whose sink targets have credit.
    pub(super) fn with_credit<V>(
        &self,
        source: TargetId,
        credit: &BTreeMap<TargetId, V>,
    ) -> impl Iterator<Item = Pair> {
        let queues = self
            .queues
            .range((source, TargetId(0))..=(source, TargetId(u32::MAX)));
        let queues = queues.filter(|((_, sink), _)| credit.contains_key(sink));
        queues.map(|(pair, _)| *pair)
    }

    /// Changes every queue, and removes the queues that become empty.
    pub(super) fn retain(&mut self, mut change: impl FnMut(Pair, &mut Queue)) {
        let (sources, sinks) = (&mut self.sources, &mut self.sinks);
        self.queues.retain(|pair, queue| {
            change(*pair, queue);
            if queue.is_empty() {
                count_down(sources, pair.0);
                count_down(sinks, pair.1);
                return false;
            }
            true
        });
    }

    /// Returns the source targets in `span` that have queues, in order.
    pub(super) fn sources(&self, span: Span) -> impl Iterator<Item = TargetId> + '_ {
        let sources = (!span.is_empty()).then(|| self.sources.range(span.from..=span.to));
        sources.into_iter().flatten().map(|(target, _)| *target)
    }

    /// Returns true if another source target has queues.
    pub(super) fn has_other_source(&self, source: TargetId) -> bool {
        self.sources.len() > usize::from(self.sources.contains_key(&source))
    }

    /// Returns the sink targets that have queues.
    pub(super) fn sinks(&self) -> impl Iterator<Item = TargetId> + '_ {
        self.sinks.keys().copied()
    }

    /// Returns true if the sink target has a queue.
    pub(super) fn has_sink(&self, sink: TargetId) -> bool {
        self.sinks.contains_key(&sink)
    }

    /// Returns the first sink target in `span` that has credit and a queue of `source`. `credit`
    /// contains the sink targets with credit. The search examines either the queues of `source` or
    /// the targets with credit, whichever are fewer.
    pub(super) fn next_sink<V>(
        &self,
        source: TargetId,
        credit: &BTreeMap<TargetId, V>,
        span: Span,
    ) -> Option<TargetId> {
        if span.is_empty() {
            return None;
        }
        let Span { from, to } = span;
        let queues = self.sources.get(&source).copied().unwrap_or(0);
        if queues <= credit.len() {
            let mut queues = self.queues.range((source, from)..=(source, to));
            let found = queues.find(|((_, sink), _)| credit.contains_key(sink));
            found.map(|((_, sink), _)| *sink)
        } else {
            let mut sinks = credit.range(from..=to).map(|(sink, _)| *sink);
            sinks.find(|sink| self.queues.contains_key(&(source, *sink)))
        }
    }
}
