//! Records which changes of a file a sync makes durable.
//!
//! Invariant: a sync never covers a change that the server had not answered when the sync began,
//! whenever the change reached the server: over another connection it may have arrived after the
//! sync.

use std::sync::atomic::{AtomicU64, Ordering};

/// The changes that a sync starting now makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// A counter of a file's changes: see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Incremented when a change is sent and again when it is answered.
    changes: AtomicU64,
    /// Value of `changes` that is durable.
    durable: AtomicU64,
}

impl Ledger {
    /// Records that a change of the file is sent, or that its answer came, good or bad.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the mark of a sync; called before the sync is sent.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.changes.load(Ordering::SeqCst))
    }

    /// Records that a sync that began at the mark has succeeded.
    pub(crate) fn settled(&self, mark: Mark) {
        self.durable.fetch_max(mark.0, Ordering::SeqCst);
    }

    /// Returns true if all changes are durable.
    pub(crate) fn is_clean(&self) -> bool {
        self.durable.load(Ordering::SeqCst) == self.changes.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn a_write_that_is_answered_after_a_sync_began_is_not_durable_by_it() {
        let ledger = Ledger::default();
        assert!(ledger.is_clean());
        ledger.changed();
        assert!(!ledger.is_clean());
        // The write is sent before the sync and answered before the sync ends.
        let mark = ledger.mark();
        ledger.changed();
        ledger.settled(mark);
        assert!(!ledger.is_clean(), "it may have come behind the sync");
        let mark = ledger.mark();
        ledger.settled(mark);
        assert!(ledger.is_clean());
    }

    #[test]
    fn a_sync_that_ends_late_takes_nothing_back() {
        let ledger = Ledger::default();
        ledger.changed();
        let first = ledger.mark();
        ledger.changed();
        ledger.settled(ledger.mark());
        ledger.settled(first);
        assert!(ledger.is_clean());
    }
}
