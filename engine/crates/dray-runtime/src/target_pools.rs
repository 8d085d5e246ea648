//! Pools of threads, one for each storage target. A slow target delays only its own threads.
//!
//! Each pool starts threads when jobs arrive, up to a maximum number. The maximum may change at any
//! time. If the maximum falls, each surplus thread ends before its next job, and the caller does
//! not wait for these threads.
//!
//! If the storage causes no waits, a pool starts only as many threads as the processors can use
//! ([`dray_sched::blocking`]).
//!
//! Invariant: every job is executed, however the maximum changes, because each pool keeps at least
//! one thread. A job remains in the queue only if the system cannot start any thread of the pool.

use crossbeam_channel::{Receiver, Sender, unbounded};
use dray_core::{Result, TargetId};
use dray_link::threads::Waiting;
use dray_sched::blocking::{WAITS_AFTER, Waits};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Maximum number of targets with a pool of their own. Further targets share a pool with others.
const POOLS_MAX: usize = 64;

/// State shared by the threads of one target.
struct PoolState {
    /// Number of jobs in the queue or in execution.
    open: AtomicU32,
    /// Number of running threads.
    running: AtomicU32,
    /// Maximum number of threads of each target.
    allowed: Arc<AtomicU32>,
    /// Waits of the latest jobs, in the format of [`Waits::bits`].
    waits: AtomicU8,
    /// Time at which a job last began or ended, as returned by [`millis`].
    moved: AtomicU64,
    /// Maximum number of threads while the storage causes no waits.
    busy_max: u32,
}

/// Returns the milliseconds since the first call of this function.
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
            // No job has begun or ended for `WAITS_AFTER`, so all running threads wait for the
            // storage, or none is running.
            true => allowed,
            false => allowed.min(self.enough().unwrap_or(u32::MAX)),
        }
    }

    /// Returns true if more jobs are open than threads run, and the maximum permits further
    /// threads.
    fn is_held_back(&self) -> bool {
        let running = self.running.load(Ordering::Relaxed);
        self.open.load(Ordering::Relaxed) > running
            && running < self.allowed.load(Ordering::Relaxed)
    }

    fn enough(&self) -> Option<u32> {
        Waits::of_bits(self.waits.load(Ordering::Relaxed)).enough(self.busy_max)
    }

    /// If a job has no thread and the maximum permits another thread, counts this thread and
    /// returns true.
    fn may_start(&self) -> bool {
        let running = self.running.load(Ordering::Relaxed);
        let is_needed = self.open.load(Ordering::Relaxed) > running;
        let may_start = is_needed && running < self.most();
        if may_start {
            self.running.fetch_add(1, Ordering::Relaxed);
        }
        may_start
    }

    /// Counts one thread less and returns true, if too many threads run.
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

/// State of one thread of a pool: the job queue of the target, and the shared state of the pool.
pub(crate) struct Worker<J> {
    jobs: Receiver<J>,
    crew: Arc<PoolState>,
}

impl<J> Worker<J> {
    /// Returns the next job, or `None` if the thread must end.
    pub(crate) fn next(&self) -> Option<J> {
        match self.crew.must_end() {
            true => None,
            false => self.jobs.recv().ok(),
        }
    }

    /// Executes a job, and records whether the job waited for the storage.
    pub(crate) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let waits = Waiting::begin();
        self.crew.moved.store(millis(), Ordering::Relaxed);
        let done = work();
        self.done(waits.had_any());
        done
    }

    /// Returns the number of threads that is enough while the storage does not block the jobs.
    /// Returns `None` if recent jobs had to wait for the storage.
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

/// The thread pools of all targets. Each pool has a job channel and a state that its threads share.
/// The threads end when this value is dropped.
pub(crate) struct TargetPools<J, S> {
    groups: Vec<TargetPool<J, S>>,
    allowed: Arc<AtomicU32>,
    busy_max: u32,
}

impl<J, S> TargetPools<J, S> {
    /// Returns pools with up to `threads` threads for each target, at least one. While the storage
    /// of a target causes no waits, its pool has up to `busy_max` threads.
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

    /// Queues a job for the threads of a target. `share` makes the state that these threads share;
    /// it is called when the target is first used. `start` starts one thread. If `start` fails, the
    /// running threads execute the job.
    ///
    /// # Errors
    /// The error of `start`, if the pool has no running thread.
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
        // The group owns a receiver of this channel, so the send cannot fail.
        let _ = group.jobs.send(job);
        group.start_more(&start)
    }

    /// Returns true if a pool may need further threads once its running threads begin to wait. The
    /// caller then calls [`Self::start_more`] again after [`WAITS_AFTER`].
    pub(crate) fn are_held_back(&self) -> bool {
        self.groups.iter().any(|group| group.crew.is_held_back())
    }

    /// Starts threads for jobs that are already queued.
    ///
    /// # Errors
    /// The errors of [`Self::give`].
    pub(crate) fn start_more(&self, start: impl Fn(Worker<J>, &S) -> Result<()>) -> Result<()> {
        let mut groups = self.groups.iter();
        groups.try_for_each(|group| group.start_more(&start))
    }
}

#[cfg(test)]
mod tests;
