//! Records which changes of a file a sync makes durable.
//!
//! Invariant: a sync covers only changes that the server answered before the sync began. A change
//! that was sent earlier, over another connection, may reach the server after the sync.

use std::sync::atomic::{AtomicU64, Ordering};

/// State of the counter at the start of a sync. The sync makes the changes before this state
/// durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// A counter of the changes of a file. The module documentation describes its use.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Incremented when a change is sent and again when the server answers.
    changes: AtomicU64,
    /// Value of `changes` up to which all changes are durable.
    durable: AtomicU64,
}

impl Ledger {
    /// Records that a change of the file is sent, or that the server has answered, with success or
    /// with an error.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the current state of the counter. Called before a sync is sent.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.changes.load(Ordering::SeqCst))
    }

    /// Records that a sync has succeeded. `mark` is the state of the counter when the sync began.
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
        // The write is sent after the mark, and the server answers it before the sync ends.
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
