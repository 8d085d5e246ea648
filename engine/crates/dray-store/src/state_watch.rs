//! Decides when a store asks its server again for the size and time of an open file.
//!
//! The caller of a store asks for the state of a file after each read. If each answer needed a
//! request to the server, each object would cost another round trip. So while reads are in
//! progress, one request per second is sufficient, and one request after the last read.
//!
//! Invariant: the state that is returned after a read is the result of a request that began after
//! this read, or another read of the file is still in progress.

use crate::types::ReadState;
use dray_core::Result;
use dray_core::lock::LockExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// While reads are in progress, the server is asked again only if its last answer is older than
/// this. The value is estimated, not measured.
const STATE_AGE: Duration = Duration::from_secs(1);

/// The reads of an open file, and the last state that the server sent. Threads share this value.
#[derive(Debug, Default)]
pub struct StateWatch {
    asked: Mutex<Option<Asked>>,
    /// Number of reads in progress.
    busy: AtomicU32,
    /// Number of completed reads.
    ended: AtomicU64,
}

/// Size and time from a query for the state.
#[derive(Debug, Clone, Copy)]
struct Asked {
    state: ReadState,
    at: Instant,
    /// Number of reads that had ended before the query.
    ended: u64,
}

impl StateWatch {
    /// Counts a read while `read` runs, and returns its result.
    pub fn reading<T>(&self, read: impl FnOnce() -> T) -> T {
        self.busy.fetch_add(1, Ordering::SeqCst);
        let read = read();
        // First count the read as completed, and then as no longer in progress. So a thread that
        // sees no reads in progress sees the number of all completed reads.
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.busy.fetch_sub(1, Ordering::SeqCst);
        read
    }

    /// Returns the state of the file. Calls `ask`, which requests the state from the server, if the
    /// last answer is too old. `opened` is the state of the file when it was opened.
    ///
    /// # Errors
    /// The errors of `ask`.
    pub fn state(
        &self,
        opened: ReadState,
        ask: impl FnOnce() -> Result<ReadState>,
    ) -> Result<ReadState> {
        if let Some(state) = self.still_holds(opened) {
            return Ok(state);
        }
        let (at, ended) = (Instant::now(), self.ended.load(Ordering::SeqCst));
        let state = ask()?;
        let mut last = self.asked.lock_unpoisoned();
        // Do not replace a result that showed a change by a result that arrives later.
        if last.is_none_or(|asked| asked.state == opened) {
            *last = Some(Asked { state, at, ended });
        }
        Ok(state)
    }

    /// Returns the last state from the server, if no new query is needed. If that state differs
    /// from `opened`, a new query would not help: it is unknown to which version the bytes read
    /// belong.
    fn still_holds(&self, opened: ReadState) -> Option<ReadState> {
        let asked = (*self.asked.lock_unpoisoned())?;
        if asked.state != opened {
            return Some(asked.state);
        }
        // The reads in progress ask for the state when they end.
        let are_others = self.busy.load(Ordering::SeqCst) > 0;
        let is_judged = self.ended.load(Ordering::SeqCst) == asked.ended;
        let is_young = asked.at.elapsed() < STATE_AGE;
        (is_young && (are_others || is_judged)).then_some(asked.state)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, StateWatch};
    use crate::types::ReadState;
    use dray_core::ModifiedTime;
    use dray_core::lock::LockExt;
    use std::cell::Cell;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    const fn state(size: u64) -> ReadState {
        ReadState {
            size,
            modified: ModifiedTime {
                seconds: 1,
                nanoseconds: 0,
            },
        }
    }

    #[test]
    fn the_server_is_asked_after_the_last_read_only() {
        let (watch, asked) = (StateWatch::default(), Cell::new(0));
        let look = || {
            let answer = watch.state(state(1), || {
                asked.set(asked.get() + 1);
                Ok(state(1))
            });
            assert_eq!(answer, Ok(state(1)));
            asked.get()
        };
        assert_eq!((look(), look()), (1, 1), "no read since the answer");
        let during = watch.reading(|| {
            watch.reading(|| ());
            look()
        });
        assert_eq!(during, 1, "another read is in progress");
        assert_eq!((look(), look()), (2, 2), "the last read has ended");
    }

    #[test]
    fn while_others_read_a_young_answer_is_enough() {
        let opened = state(1);
        let watch = StateWatch::default();
        let asked = |ago: u64| {
            let at = Instant::now().checked_sub(Duration::from_millis(ago));
            Some(Asked {
                state: opened,
                at: at.expect("the host runs longer"),
                ended: 0,
            })
        };
        assert_eq!(watch.still_holds(opened), None);
        *watch.asked.lock_unpoisoned() = asked(0);
        assert_eq!(watch.still_holds(opened), Some(opened));
        watch.ended.fetch_add(1, Ordering::SeqCst);
        assert_eq!(watch.still_holds(opened), None, "another read has ended");
        watch.busy.fetch_add(1, Ordering::SeqCst);
        assert_eq!(watch.still_holds(opened), Some(opened), "it will ask");
        *watch.asked.lock_unpoisoned() = asked(1001);
        assert_eq!(watch.still_holds(opened), None, "too old");
    }

    #[test]
    fn a_change_is_reported_for_ever() {
        let watch = StateWatch::default();
        assert_eq!(watch.state(state(1), || Ok(state(2))), Ok(state(2)));
        watch.reading(|| ());
        assert_eq!(watch.state(state(1), || Ok(state(1))), Ok(state(2)));
    }
}
