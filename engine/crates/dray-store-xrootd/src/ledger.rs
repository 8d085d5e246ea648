//! Which changes of a file a sync makes durable.
//!
//! Invariant: a change that the server had not answered when a sync began is none of that sync's, whenever it
//! reached the server: by another connection it may have come there behind it.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a sync that begins now makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Each change counts when it is sent and once more when it is answered.
    changes: AtomicU64,
    /// Of them, those that are durable.
    durable: AtomicU64,
}

impl Ledger {
    /// Something is sent that changes the file, or its answer came, a bad one too.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// To be taken before the sync is sent.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.changes.load(Ordering::SeqCst))
    }

    /// A sync that began at the mark has succeeded.
    pub(crate) fn settled(&self, mark: Mark) {
        self.durable.fetch_max(mark.0, Ordering::SeqCst);
    }

    /// Whether all is durable.
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
        // The write is under way while the sync is sent, and answered before the sync ends.
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
