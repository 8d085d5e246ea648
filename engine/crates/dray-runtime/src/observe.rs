//! What a running end tells its caller.

use dray_core::{Result, StreamId};
use dray_session::source::Listed;
use dray_session::{Event, Progress};
use dray_wire::message::{BlockHead, Totals};

/// Somebody who watches a transfer. Called from the conductor's thread: must not block where nothing
/// else is said.
pub trait Observer: Sync {
    /// Something happened.
    fn event(&self, event: &Event) {
        let _ = event;
    }

    /// The counters, several times a second and once at the end.
    fn progress(&self, progress: &Progress) {
        let _ = progress;
    }

    /// Entries were listed (at a source).
    fn listed(&self, entries: &[Listed]) {
        let _ = entries;
    }

    /// An object is handed to a stream (at a source), or came in by one (at a sink, which does not
    /// know by which).
    fn object(&self, stream: Option<StreamId>, head: &BlockHead) {
        let _ = (stream, head);
    }

    /// Keep the totals durably, whoever keeps them beyond this process: when this returns, the log
    /// that could tell the same may go. May block.
    ///
    /// # Errors
    /// When they could not be kept; then the log stays.
    fn store_verdict(&self, totals: &Totals) -> Result<()> {
        let _ = totals;
        Ok(())
    }
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Passes on what a transfer to a null sink tells, but nothing that calls anything safe.
pub struct Unkept<'a>(pub &'a dyn Observer);

impl Unkept<'_> {
    /// The counters as what they are.
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

    /// Nothing of it is kept, and so neither is that it was.
    fn store_verdict(&self, _totals: &Totals) -> Result<()> {
        Ok(())
    }
}
