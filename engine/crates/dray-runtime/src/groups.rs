//! Threads that belong to storage targets: a slow one holds up its own and nobody else's.
//!
//! Each target has as many as are said, started when there are jobs for them. How many may be changed
//! while they run: those that are too many end when they come to their next job, so none is waited for.
//!
//! Invariant: a job that was given is taken, however the number changes: of the threads of a target that
//! has been met, one at the least stays.

use crossbeam_channel::{Receiver, Sender, unbounded};
use dray_core::TargetId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Targets that get threads of their own; further ones share theirs.
const GROUPS_MAX: usize = 64;

/// What the threads of one target share.
struct Crew {
    /// Jobs that were given and are not done.
    open: AtomicU32,
    /// Threads that run.
    running: AtomicU32,
    /// Threads that may run, of each target.
    allowed: Arc<AtomicU32>,
}

impl Crew {
    /// Counts one more thread, if there is a job that no other may do and it may run.
    fn may_start(&self) -> bool {
        let running = self.running.load(Ordering::Relaxed);
        let is_needed = self.open.load(Ordering::Relaxed) > running;
        let may_start = is_needed && running < self.allowed.load(Ordering::Relaxed);
        if may_start {
            self.running.fetch_add(1, Ordering::Relaxed);
        }
        may_start
    }

    /// Counts one thread less, if there are too many.
    fn must_end(&self) -> bool {
        let one_less = |running: u32| {
            let is_too_many = running > self.allowed.load(Ordering::Relaxed).max(1);
            is_too_many.then(|| running - 1)
        };
        self.running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }
}

/// What a thread of a target gets its jobs from.
pub(crate) struct Worker<J> {
    jobs: Receiver<J>,
    crew: Arc<Crew>,
}

impl<J> Worker<J> {
    /// The next job; none when the thread is to end.
    pub(crate) fn next(&self) -> Option<J> {
        match self.crew.must_end() {
            true => None,
            false => self.jobs.recv().ok(),
        }
    }

    /// A job is done, whoever had taken it.
    pub(crate) fn done(&self) {
        self.crew.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Group<J, S> {
    target: TargetId,
    jobs: Sender<J>,
    taken: Receiver<J>,
    crew: Arc<Crew>,
    shared: S,
}

/// The threads of each target, by the channel that their jobs come through, with what they share. They
/// end when this is gone.
pub(crate) struct Groups<J, S> {
    groups: Vec<Group<J, S>>,
    allowed: Arc<AtomicU32>,
}

impl<J, S> Groups<J, S> {
    /// So many threads for each target, one at the least.
    pub(crate) fn new(threads: u32) -> Self {
        Self {
            groups: Vec::new(),
            allowed: Arc::new(AtomicU32::new(threads.max(1))),
        }
    }

    /// From now on so many.
    pub(crate) fn set_threads(&self, threads: u32) {
        self.allowed.store(threads.max(1), Ordering::Relaxed);
    }

    /// Gives a job to the threads of a target. `share` makes what they share when the target is first met;
    /// `start` starts one of them.
    pub(crate) fn give(
        &mut self,
        target: TargetId,
        job: J,
        share: impl FnOnce() -> S,
        start: impl Fn(Worker<J>, &S),
    ) {
        let known = (self.groups.iter()).position(|group| group.target == target);
        let place = known.unwrap_or_else(|| {
            if self.groups.len() >= GROUPS_MAX {
                return target.0 as usize % GROUPS_MAX;
            }
            let (jobs, taken) = unbounded();
            self.groups.push(Group {
                target,
                jobs,
                taken,
                crew: Arc::new(Crew {
                    open: AtomicU32::new(0),
                    running: AtomicU32::new(0),
                    allowed: Arc::clone(&self.allowed),
                }),
                shared: share(),
            });
            self.groups.len() - 1
        });
        let group = &self.groups[place];
        group.crew.open.fetch_add(1, Ordering::Relaxed);
        // Its receiver is in the group.
        let _ = group.jobs.send(job);
        while group.crew.may_start() {
            let worker = Worker {
                jobs: group.taken.clone(),
                crew: Arc::clone(&group.crew),
            };
            start(worker, &group.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GROUPS_MAX, Groups, Worker};
    use dray_core::TargetId;
    use std::cell::RefCell;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn each_target_has_its_own_up_to_a_bound() {
        let mut groups = Groups::new(1);
        let started = RefCell::new(Vec::new());
        for _ in 0..2 {
            for target in 0..100 {
                let start = |worker: Worker<u32>, _: &()| started.borrow_mut().push(worker);
                groups.give(TargetId(target), target, || (), start);
            }
        }
        let started = started.into_inner();
        assert_eq!(started.len(), GROUPS_MAX);
        let taken: Vec<Vec<u32>> = started
            .iter()
            .map(|worker| worker.jobs.try_iter().collect())
            .collect();
        assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 200);
        assert_eq!(taken[63], [63, 63], "its own");
        assert_eq!(taken[0], [0, 64, 0, 64], "one past the bound shares");
    }

    #[test]
    fn threads_are_started_as_they_are_needed_and_no_more_than_may_run() {
        let started = AtomicU32::new(0);
        let mut groups = Groups::new(3);
        let workers = RefCell::new(Vec::new());
        let start = |worker: Worker<u32>, _: &()| {
            started.fetch_add(1, Ordering::Relaxed);
            workers.borrow_mut().push(worker);
        };
        let started = || started.load(Ordering::Relaxed);
        groups.give(TargetId(0), 0, || (), start);
        assert_eq!(started(), 1);
        // Who has done what there was does the next.
        let done = || {
            let workers = workers.borrow();
            let worker = workers.first().expect("one");
            worker.next().expect("a job");
            worker.done();
        };
        done();
        groups.give(TargetId(0), 1, || (), start);
        assert_eq!(started(), 1);
        for job in 0..9 {
            groups.give(TargetId(0), job, || (), start);
        }
        assert_eq!(started(), 3, "no more than may run");
        groups.set_threads(5);
        groups.give(TargetId(0), 10, || (), start);
        assert_eq!(started(), 5, "there are jobs for them");
        groups.set_threads(2);
        for worker in workers.borrow().iter().take(3) {
            assert_eq!(worker.next(), None, "too many");
        }
        let workers = workers.borrow();
        let left: Vec<u32> = std::iter::from_fn(|| {
            (!workers[3].jobs.is_empty()).then(|| workers[4].next().expect("one of two"))
        })
        .collect();
        assert_eq!(left.len(), 11, "nothing is lost");
    }

    #[test]
    fn however_the_number_changes_each_job_is_done() {
        let (done, most, now) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let mut groups = Groups::new(4);
            let (done, most, now, begun) = (&done, &most, &now, &begun);
            for job in 0..4_000_u32 {
                // Up and down, and one alone in between.
                groups.set_threads([1, 16, 2, 7][job as usize / 100 % 4]);
                groups.give(
                    TargetId(job % 3),
                    job,
                    || (),
                    |worker, ()| {
                        scope.spawn(move || {
                            while let Some(job) = worker.next() {
                                most.fetch_max(
                                    now.fetch_add(1, Ordering::SeqCst) + 1,
                                    Ordering::SeqCst,
                                );
                                if job == 3_999 {
                                    begun.wait();
                                }
                                std::thread::sleep(Duration::from_micros(20));
                                now.fetch_sub(1, Ordering::SeqCst);
                                done.fetch_add(1, Ordering::SeqCst);
                                worker.done();
                            }
                        });
                    },
                );
            }
            begun.wait();
        });
        assert_eq!(done.into_inner(), 4_000);
        assert!(most.into_inner() <= 3 * 16);
    }
}
