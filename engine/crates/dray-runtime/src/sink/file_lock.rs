//! Serialises the writes to one file, for stores that execute only one write to a file at a time.
//!
//! If another writer is already writing to the file, the job is queued for that writer, and the
//! calling writer takes its next job. Waiting inside the store would block the calling thread
//! instead. A busy lock in the kernel would even keep a processor core spinning.
//!
//! Invariant: at most one writer at a time executes jobs of a locked file. That writer also
//! executes the jobs that are queued for the file.

use dray_core::lock::LockExt;
use dray_core::maps::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Mutex;

/// The file locks of the writers of one storage target. Each target has its own locks, so that a
/// slow target does not delay writes to other targets.
pub(super) struct FileLocks<K, J>(Mutex<HashMap<K, VecDeque<J>>>);

impl<K: Hash + Eq, J> FileLocks<K, J> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::default()))
    }

    /// Locks the file and returns the job, which the caller then executes. If another writer has
    /// locked the file, queues the job for that writer and returns `None`.
    pub(super) fn begin(&self, file: K, job: J) -> Option<J> {
        match self.0.lock_unpoisoned().entry(file) {
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

    /// Returns the next queued job, for the writer that has locked the file. Unlocks the file if no
    /// job is queued.
    pub(super) fn next(&self, file: &K) -> Option<J> {
        let mut turns = self.0.lock_unpoisoned();
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
    fn the_lock_holder_takes_queued_writes_in_order() {
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
    fn one_writer_at_a_time_writes_a_file_and_no_job_is_lost() {
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
