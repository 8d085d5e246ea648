//! Writers of one file take turns where the store would make them wait for each other.
//!
//! A writer that meets a file which another one is writing leaves its job to that one, and takes the
//! next. Waiting in the store instead costs a thread, and on a busy lock a core that spins.
//!
//! Invariant: of each file in turn one writer at the most has a job, and each job that was left is
//! taken by the one it was left to.

use crate::lock::lock;
use dray_core::maps::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Mutex;

/// The turns of the writers of one storage target: files are on several, and a slow one must not
/// hold up what goes to others.
pub(super) struct FileLocks<K, J>(Mutex<HashMap<K, VecDeque<J>>>);

impl<K: Hash + Eq, J> FileLocks<K, J> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::default()))
    }

    /// Gives the job back to do it now, unless another writer has the file's turn: then it is left
    /// to that one.
    pub(super) fn begin(&self, file: K, job: J) -> Option<J> {
        match lock(&self.0).entry(file) {
            Entry::Occupied(mut left) => {
                left.get_mut().push_back(job);
                None
            }
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                Some(job)
            }
        }
    }

    /// What was left meanwhile to the writer that has the file's turn; without any its turn ends.
    pub(super) fn next(&self, file: &K) -> Option<J> {
        let mut turns = lock(&self.0);
        let left = turns.get_mut(file).and_then(VecDeque::pop_front);
        if left.is_none() {
            turns.remove(file);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::FileLocks;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn what_is_left_is_taken_in_order_by_the_one_who_has_the_turn() {
        let turns = FileLocks::new();
        assert_eq!(turns.begin("a", 1), Some(1));
        assert_eq!(turns.begin("a", 2), None);
        assert_eq!(turns.begin("b", 3), Some(3), "another file");
        assert_eq!(turns.begin("a", 4), None);
        assert_eq!(turns.next(&"a"), Some(2));
        assert_eq!(turns.next(&"a"), Some(4));
        assert_eq!(turns.next(&"a"), None);
        assert_eq!(turns.begin("a", 5), Some(5), "the turn is free again");
    }

    #[test]
    fn of_many_writers_one_is_at_a_file_and_no_job_is_lost() {
        let (turns, files) = (FileLocks::new(), [const { AtomicU32::new(0) }; 3]);
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (turns, files, done) = (&turns, &files, &done);
                scope.spawn(move || {
                    for number in 0..3_000 {
                        let file = (number + writer) % files.len();
                        let mut job = turns.begin(file, number);
                        while job.is_some() {
                            let before = files[file].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0, "two at a file");
                            done.fetch_add(1, Ordering::Relaxed);
                            files[file].fetch_sub(1, Ordering::SeqCst);
                            job = turns.next(&file);
                        }
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 4 * 3_000);
    }
}
