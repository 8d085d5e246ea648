//! Reports of a running end to its caller.

use dray_core::{Result, StreamId};
use dray_session::source::Listed;
use dray_session::{Event, Progress};
use dray_wire::message::{BlockHead, Totals};

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

    /// Receives listed entries. Called at a source only.
    fn listed(&self, entries: &[Listed]) {
        let _ = entries;
    }

    /// Receives the head of an object. A source calls this method when it passes the object to a
    /// stream. A sink calls it when the object has arrived; it does not know the stream.
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

/// Passes on the reports of a transfer to a null sink, without the events that describe data as
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
