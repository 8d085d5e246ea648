//! Records which objects of a partial file exist.
//!
//! The first write to an object creates it, and fails if the object exists. If several threads
//! write to one object for the first time, one thread creates the object and the others wait.
//! Otherwise the writes of the other threads would fail, and their bytes would be sent twice.

use dray_core::lock::LockExt;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Condvar, Mutex};

/// The objects of one partial file, by number.
#[derive(Debug, Default)]
pub(crate) struct Made {
    objects: Mutex<Objects>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Objects {
    made: HashSet<u64>,
    /// Objects that a thread is creating.
    begun: HashSet<u64>,
}

impl Objects {
    fn begin(&mut self, number: u64) -> Before {
        if self.made.contains(&number) {
            Before::Made
        } else if self.begun.insert(number) {
            Before::Missing
        } else {
            Before::Begun
        }
    }
}

/// State of an object before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// The object exists.
    Made,
    /// The calling thread must create the object, and call [`Made::end`] afterwards.
    Missing,
    /// Another thread is creating the object. The calling thread must first complete its own
    /// writes, and then call [`Made::wait`].
    Begun,
}

impl Made {
    /// Returns the state of an object, and makes the calling thread its creator if it is missing.
    pub(crate) fn begin(&self, number: u64) -> Before {
        self.objects.lock_unpoisoned().begin(number)
    }

    /// Records the result of a creation.
    pub(crate) fn end(&self, number: u64, is_made: bool) {
        let mut objects = self.objects.lock_unpoisoned();
        objects.begun.remove(&number);
        if is_made {
            objects.made.insert(number);
        }
        self.ended.notify_all();
    }

    /// Waits until no other thread is creating the object `number`. Then returns [`Before::Made`],
    /// or [`Before::Missing`] as [`Self::begin`] does.
    pub(crate) fn wait(&self, number: u64) -> Before {
        let mut objects = self.objects.lock_unpoisoned();
        while objects.begun.contains(&number) {
            objects = self
                .ended
                .wait(objects)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        // Decide before the lock is released: several threads may wait for a creation that failed.
        objects.begin(number)
    }

    /// Forgets objects that were deleted.
    pub(crate) fn forget(&self, numbers: &Range<u64>) {
        let mut objects = self.objects.lock_unpoisoned();
        objects.made.retain(|number| !numbers.contains(number));
    }
}

#[cfg(test)]
mod tests {
    use super::{Before, Made};

    #[test]
    fn one_thread_creates_an_object_and_the_others_wait() {
        let made = Made::default();
        assert_eq!(made.begin(1), Before::Missing);
        assert_eq!(made.begin(1), Before::Begun);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| made.wait(1));
            made.end(1, true);
            assert_eq!(waits.join().expect("no panic"), Before::Made);
        });
        assert_eq!(made.begin(1), Before::Made);
    }

    #[test]
    fn after_a_failed_creation_a_waiting_thread_creates_the_object() {
        let made = Made::default();
        assert_eq!(made.begin(1), Before::Missing);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| made.wait(1));
            made.end(1, false);
            assert_eq!(waits.join().expect("no panic"), Before::Missing);
        });
        made.end(1, true);
        made.forget(&(0..2));
        assert_eq!(made.begin(1), Before::Missing);
    }
}
