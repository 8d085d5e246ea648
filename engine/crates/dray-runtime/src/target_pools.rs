//! Threads that belong to storage targets: a slow target delays its own threads and no others.
//!
//! Each target has up to a given number of threads, started when there are jobs for them. The
//! number may change while they run: surplus threads end at their next job, and no thread is waited
//! for.
//!
//! For storage without waits there are only as many threads as are useful
//! ([`dray_sched::blocking`]).
//!
//! Invariant: every given job is taken, however the number changes: at least one thread of each
//! used target stays. A job is left only if the system cannot start even one.

use crate::threads::Waiting;
use crossbeam_channel::{Receiver, Sender, unbounded};
use dray_core::{Result, TargetId};
use dray_sched::blocking::{WAITS_AFTER, Waits};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Maximum number of targets with threads of their own; further ones share theirs.
const POOLS_MAX: usize = 64;

/// State shared by the threads of one target.
struct PoolState {
    /// Number of jobs given and not done.
    open: AtomicU32,
    /// Number of running threads.
    running: AtomicU32,
    /// Maximum number of threads of each target.
    allowed: Arc<AtomicU32>,
    /// Waits of the last jobs, as [`Waits::bits`].
    waits: AtomicU8,
    /// Time at which a job last began or ended, in milliseconds of [`millis`].
    moved: AtomicU64,
    /// Number of useful threads while none waits.
    busy_max: u32,
}

/// Returns the milliseconds since the first call.
fn millis() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(FIRST.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl PoolState {
    /// Returns the present maximum number of threads, at least one.
    fn most(&self) -> u32 {
        let allowed = self.allowed.load(Ordering::Relaxed).max(1);
        let stands = millis().saturating_sub(self.moved.load(Ordering::Relaxed));
        match u128::from(stands) >= WAITS_AFTER.as_millis() {
            // All running threads have been at their jobs for that long, or have none.
            true => allowed,
            false => allowed.min(self.enough().unwrap_or(u32::MAX)),
        }
    }

    /// Returns true if further threads could take queued jobs.
    fn is_held_back(&self) -> bool {
        let running = self.running.load(Ordering::Relaxed);
        self.open.load(Ordering::Relaxed) > running
            && running < self.allowed.load(Ordering::Relaxed)
    }

    fn enough(&self) -> Option<u32> {
        Waits::of_bits(self.waits.load(Ordering::Relaxed)).enough(self.busy_max)
    }

    /// Counts one more thread, if there is a job without a thread and the maximum permits it.
    fn may_start(&self) -> bool {
        let running = self.running.load(Ordering::Relaxed);
        let is_needed = self.open.load(Ordering::Relaxed) > running;
        let may_start = is_needed && running < self.most();
        if may_start {
            self.running.fetch_add(1, Ordering::Relaxed);
        }
        may_start
    }

    /// Counts one thread less, if there are too many.
    fn must_end(&self) -> bool {
        let one_less = |running: u32| {
            let is_too_many = running > self.most();
            is_too_many.then(|| running - 1)
        };
        self.running
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
    }
}

/// The jobs of one thread of a target.
pub(crate) struct Worker<J> {
    jobs: Receiver<J>,
    crew: Arc<PoolState>,
}

impl<J> Worker<J> {
    /// Returns the next job; `None` if the thread is to end.
    pub(crate) fn next(&self) -> Option<J> {
        match self.crew.must_end() {
            true => None,
            false => self.jobs.recv().ok(),
        }
    }

    /// Executes a job, and records its waits.
    pub(crate) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let waits = Waiting::begin();
        self.crew.moved.store(millis(), Ordering::Relaxed);
        let done = work();
        self.done(waits.had_any());
        done
    }

    /// Returns the number of useful threads, if the storage causes no waits.
    pub(crate) fn enough(&self) -> Option<u32> {
        self.crew.enough()
    }

    fn done(&self, has_waited: bool) {
        let crew = &self.crew;
        let noted = |before| Some(Waits::of_bits(before).with(has_waited).bits());
        let _ = (crew.waits).fetch_update(Ordering::Relaxed, Ordering::Relaxed, noted);
        crew.moved.store(millis(), Ordering::Relaxed);
        crew.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct TargetPool<J, S> {
    target: TargetId,
    jobs: Sender<J>,
    taken: Receiver<J>,
    crew: Arc<PoolState>,
    shared: S,
}

impl<J, S> TargetPool<J, S> {
    fn start_more(&self, start: &impl Fn(Worker<J>, &S) -> Result<()>) -> Result<()> {
        while self.crew.may_start() {
            let worker = Worker {
                jobs: self.taken.clone(),
                crew: Arc::clone(&self.crew),
            };
            if let Err(error) = start(worker, &self.shared) {
                let before = self.crew.running.fetch_sub(1, Ordering::Relaxed);
                return match before {
                    1 => Err(error),
                    _ => Ok(()),
                };
            }
        }
        Ok(())
    }
}

/// The threads of each target, by their job channel, with their shared state. They end when this is
/// dropped.
pub(crate) struct TargetPools<J, S> {
    groups: Vec<TargetPool<J, S>>,
    allowed: Arc<AtomicU32>,
    busy_max: u32,
}

impl<J, S> TargetPools<J, S> {
    /// Returns pools with up to `threads` threads for each target, at least one, and up to
    /// `busy_max` while its storage causes no waits.
    pub(crate) fn new(threads: u32, busy_max: u32) -> Self {
        Self {
            groups: Vec::new(),
            allowed: Arc::new(AtomicU32::new(threads.max(1))),
            busy_max,
        }
    }

    /// Changes the maximum number of threads for each target.
    pub(crate) fn set_threads(&self, threads: u32) {
        self.allowed.store(threads.max(1), Ordering::Relaxed);
    }

    /// Gives a job to the threads of a target. `share` makes their shared state when the target is
    /// first used; `start` starts one of them. If it cannot, the running threads do the job.
    ///
    /// # Errors
    /// The error of `start`, if no thread runs.
    pub(crate) fn give(
        &mut self,
        target: TargetId,
        job: J,
        share: impl FnOnce() -> S,
        start: impl Fn(Worker<J>, &S) -> Result<()>,
    ) -> Result<()> {
        let known = (self.groups.iter()).position(|group| group.target == target);
        let place = known.unwrap_or_else(|| {
            if self.groups.len() >= POOLS_MAX {
                return target.0 as usize % POOLS_MAX;
            }
            let (jobs, taken) = unbounded();
            self.groups.push(TargetPool {
                target,
                jobs,
                taken,
                crew: Arc::new(PoolState {
                    open: AtomicU32::new(0),
                    running: AtomicU32::new(0),
                    allowed: Arc::clone(&self.allowed),
                    waits: AtomicU8::new(Waits::default().bits()),
                    moved: AtomicU64::new(millis()),
                    busy_max: self.busy_max,
                }),
                shared: share(),
            });
            self.groups.len() - 1
        });
        let group = &self.groups[place];
        group.crew.open.fetch_add(1, Ordering::Relaxed);
        // Its receiver is in the group.
        let _ = group.jobs.send(job);
        group.start_more(&start)
    }

    /// Returns true if further threads could take queued jobs once the running ones begin to wait:
    /// then call [`Self::start_more`] again after [`WAITS_AFTER`].
    pub(crate) fn are_held_back(&self) -> bool {
        self.groups.iter().any(|group| group.crew.is_held_back())
    }

    /// Starts threads for jobs that were given before.
    ///
    /// # Errors
    /// As [`Self::give`].
    pub(crate) fn start_more(&self, start: impl Fn(Worker<J>, &S) -> Result<()>) -> Result<()> {
        let mut groups = self.groups.iter();
        groups.try_for_each(|group| group.start_more(&start))
    }
}

#[cfg(test)]
mod tests {
    use super::{POOLS_MAX, TargetPools, Worker};
    use dray_core::{End, Error, ErrorKind, TargetId};
    use std::cell::RefCell;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn each_target_has_its_own_up_to_a_bound() {
        let mut groups = TargetPools::new(1, 1);
        let started = RefCell::new(Vec::new());
        for _ in 0..2 {
            for target in 0..100 {
                let start = |worker: Worker<u32>, _: &()| {
                    started.borrow_mut().push(worker);
                    Ok(())
                };
                let given = groups.give(TargetId(target), target, || (), start);
                given.expect("started");
            }
        }
        let started = started.into_inner();
        assert_eq!(started.len(), POOLS_MAX);
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
        let mut groups = TargetPools::new(3, 1);
        let workers = RefCell::new(Vec::new());
        let start = |worker: Worker<u32>, _: &()| {
            started.fetch_add(1, Ordering::Relaxed);
            workers.borrow_mut().push(worker);
            Ok(())
        };
        let started = || started.load(Ordering::Relaxed);
        let give = |groups: &mut TargetPools<u32, ()>, job| {
            let given = groups.give(TargetId(0), job, || (), start);
            given.expect("started");
        };
        give(&mut groups, 0);
        assert_eq!(started(), 1);
        // A thread that has finished its job takes the next.
        let done = || {
            let workers = workers.borrow();
            let worker = workers.first().expect("one");
            worker.next().expect("a job");
            worker.done(true);
        };
        done();
        give(&mut groups, 1);
        assert_eq!(started(), 1);
        for job in 0..9 {
            give(&mut groups, job);
        }
        assert_eq!(started(), 3, "no more than may run");
        groups.set_threads(5);
        give(&mut groups, 10);
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
    fn jobs_behind_one_that_begins_to_wait_are_done_by_others() {
        let mut groups = TargetPools::new(4, 1);
        let (done, begun) = (AtomicU32::new(0), Barrier::new(2));
        std::thread::scope(|scope| {
            let (done, begun) = (&done, &begun);
            let start = |worker: Worker<u32>, _: &()| {
                scope.spawn(move || {
                    while let Some(job) = worker.next() {
                        worker.work(|| {
                            if job == 99 {
                                begun.wait();
                            }
                        });
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
                Ok(())
            };
            let give = |groups: &mut TargetPools<u32, ()>, job| {
                let given = groups.give(TargetId(0), job, || (), start);
                given.expect("started");
            };
            for job in 0..16 {
                give(&mut groups, job);
                while done.load(Ordering::SeqCst) <= job {
                    std::thread::yield_now();
                }
            }
            // The first of these jobs waits until the test releases it; the others do not wait.
            for job in [99, 100, 101] {
                give(&mut groups, job);
            }
            assert!(groups.are_held_back() || done.load(Ordering::SeqCst) >= 18);
            while done.load(Ordering::SeqCst) < 18 {
                groups.start_more(start).expect("started");
                std::thread::sleep(Duration::from_millis(1));
            }
            begun.wait();
            drop(groups);
        });
        assert_eq!(done.into_inner(), 19);
    }

    #[test]
    fn where_the_system_gives_no_more_threads_those_that_run_do_it() {
        let mut groups = TargetPools::new(4, 1);
        let workers = RefCell::new(Vec::new());
        let refused = || Err(Error::new(ErrorKind::Busy, End::Here, "start a thread"));
        let start = |worker: Worker<u32>, _: &()| {
            let mut workers = workers.borrow_mut();
            match workers.is_empty() {
                true => workers.push(worker),
                false => return refused(),
            }
            Ok(())
        };
        let given = groups.give(TargetId(0), 0, || (), |_, ()| refused());
        assert!(given.is_err(), "nobody would do it");
        for job in 1..9 {
            let given = groups.give(TargetId(0), job, || (), start);
            given.expect("one runs");
        }
        let worker = workers.into_inner().pop().expect("one");
        for job in 0..9 {
            assert_eq!(worker.next(), Some(job));
            worker.done(true);
        }
    }

    #[test]
    fn storage_that_makes_nobody_wait_has_few_until_it_does() {
        let mut groups = TargetPools::new(4, 2);
        let workers = RefCell::new(Vec::new());
        let start = |worker: Worker<u32>, _: &()| {
            workers.borrow_mut().push(worker);
            Ok(())
        };
        let give = |groups: &mut TargetPools<u32, ()>, jobs: u32| {
            for job in 0..jobs {
                let given = groups.give(TargetId(0), job, || (), start);
                given.expect("started");
            }
        };
        let done = |jobs: u32, has_waited: bool| {
            let workers = workers.borrow();
            let worker = workers.last().expect("one");
            for _ in 0..jobs {
                worker.jobs.recv().expect("a job");
                worker.done(has_waited);
            }
        };
        give(&mut groups, 20);
        assert_eq!(workers.borrow().len(), 4, "nothing is known");
        done(8, false);
        for worker in workers.borrow().iter().take(2) {
            assert_eq!(worker.next(), None, "two are enough");
        }
        give(&mut groups, 4);
        assert_eq!(workers.borrow().len(), 4, "none is started");
        done(1, true);
        give(&mut groups, 1);
        assert_eq!(workers.borrow().len(), 4, "one is chance");
        done(1, true);
        give(&mut groups, 1);
        assert_eq!(workers.borrow().len(), 6, "it makes wait");
    }

    #[test]
    fn however_the_number_changes_each_job_is_done() {
        let (done, most, now) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let mut groups = TargetPools::new(4, 1);
            let (done, most, now, begun) = (&done, &most, &now, &begun);
            for job in 0..4_000_u32 {
                // Increase and decrease, with a single thread in between.
                groups.set_threads([1, 16, 2, 7][job as usize / 100 % 4]);
                let given = groups.give(
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
                                worker.done(true);
                            }
                        });
                        Ok(())
                    },
                );
                given.expect("started");
            }
            begun.wait();
        });
        assert_eq!(done.into_inner(), 4_000);
        assert!(most.into_inner() <= 3 * 16);
    }
}
