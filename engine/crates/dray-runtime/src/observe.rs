//! Reports of a running end to its caller.

use dray_core::{End, Result, StreamId, TargetId};
use dray_sched::congestion::Load;
use dray_session::source::Listed;
use dray_session::{Event, Progress, UnderWay};
use dray_store::Store;
use dray_wire::message::{BlockHead, Totals};

/// State of one storage target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetLoad {
    /// Name of the target in its store.
    pub name: String,
    /// Operations, durations and congestion.
    pub load: Load,
}

impl TargetLoad {
    /// Names the targets of `store`.
    pub(crate) fn named(store: &dyn Store, loads: Vec<Load>) -> Vec<Self> {
        let targets = store.targets();
        let name = |target: TargetId| {
            let known = targets.iter().find(|known| known.id == target);
            known.map_or_else(|| target.to_string(), |known| known.name.clone())
        };
        let named = loads.into_iter().map(|load| Self {
            name: name(load.target),
            load,
        });
        named.collect()
    }
}

/// Observer of a transfer. The executor's thread calls these methods, so a method must not block
/// unless its description allows it.
pub trait Observer: Sync {
    /// Receives an event of the session.
    fn event(&self, event: &Event) {
        let _ = event;
    }

    /// Receives the counters, several times a second and once at the end.
    fn progress(&self, progress: &Progress) {
        let _ = progress;
    }

    /// Receives the state of the storage targets of `end`, several times a second.
    fn targets(&self, end: End, targets: &[TargetLoad]) {
        let _ = (end, targets);
    }

    /// Returns true if the observer wants the unclosed files of `end` now. Called several times a
    /// second. The cost of the files grows with their number, so an observer should want them only
    /// while somebody looks at them.
    fn wants_under_way(&self, end: End) -> bool {
        let _ = end;
        false
    }

    /// Receives the unclosed files of `end`, after [`Observer::wants_under_way`] has returned true.
    fn under_way(&self, end: End, found: UnderWay) {
        let _ = (end, found);
    }

    /// Receives listed entries. Called at a source only.
    fn listed(&self, entries: &[Listed]) {
        let _ = entries;
    }

    /// Receives the head of an object. A source calls this method when it passes the object to a
    /// stream. A sink calls this method when the object has arrived. At a sink, `stream` is `None`,
    /// because a sink does not know the stream.
    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        let _ = (stream, head);
    }

    /// Stores the totals durably, if the observer keeps totals beyond the end of this process.
    /// After this method returns, the sink may delete the log, which holds the same information.
    /// May block.
    ///
    /// # Errors
    /// If the totals could not be stored. The sink then keeps the log.
    fn store_verdict(&self, totals: &Totals) -> Result<()> {
        let _ = totals;
        Ok(())
    }
}

/// An observer that ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Passes on the reports of a transfer to a null sink. Drops the events that describe data as
/// durable.
pub struct Unkept<'a>(pub &'a dyn Observer);

impl Unkept<'_> {
    /// Returns the counters, marked as those of a transfer whose sink discards all data.
    #[must_use]
    pub fn of(progress: &Progress) -> Progress {
        Progress {
            keeps_nothing: true,
            ..*progress
        }
    }
}

impl Observer for Unkept<'_> {
    fn event(&self, event: &Event) {
        if !matches!(event, Event::FileDone { .. }) {
            self.0.event(event);
        }
    }

    fn progress(&self, progress: &Progress) {
        self.0.progress(&Self::of(progress));
    }

    fn targets(&self, end: End, targets: &[TargetLoad]) {
        self.0.targets(end, targets);
    }

    fn wants_under_way(&self, end: End) -> bool {
        self.0.wants_under_way(end)
    }

    fn under_way(&self, end: End, found: UnderWay) {
        self.0.under_way(end, found);
    }

    fn listed(&self, entries: &[Listed]) {
        self.0.listed(entries);
    }

    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        self.0.object(stream, head);
    }

    /// Stores nothing, because a null sink keeps no data and no log.
    fn store_verdict(&self, _totals: &Totals) -> Result<()> {
        Ok(())
    }
}
