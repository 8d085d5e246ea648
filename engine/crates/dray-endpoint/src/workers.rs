//! Threads for calls that block.
//!
//! Purpose: run a call's work on the queue or the storage, away from the threads that answer calls.
//! The number of threads follows the number of waiting jobs, up to a limit. At least one thread
//! always exists.
//!
//! Not for: limits on concurrent calls, for which the API has permits.
//!
//! Invariant owned here: if the system refuses a thread, calls take longer and nothing panics. The
//! thread pool of the async runtime would panic, so this module replaces it.

use dray_core::Result;
use dray_core::lock::LockExt;
use dray_link::threads::refused;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// Pause between a refused thread and the next request for a thread.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

type Job = Box<dyn FnOnce() + Send>;

/// A function that starts a thread for a job.
type Start = fn(Job) -> io::Result<()>;

/// The pool of threads. When this value is dropped, the threads do the remaining jobs and end.
pub(crate) struct Workers(Arc<Shared>);

struct Shared {
    threads_max: usize,
    idle: Duration,
    start: Start,
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Number of threads that wait for work. A thread counts as waiting until it has taken a job.
    idle: usize,
    refused: Option<Instant>,
    is_over: bool,
}

impl Workers {
    /// Creates the pool and starts its first thread.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn new(threads_max: usize) -> Result<Self> {
        let start: Start = |run| {
            let name = "api-call".to_owned();
            Builder::new().name(name).spawn(run).map(drop)
        };
        Self::with(threads_max, IDLE, start)
    }

    fn with(threads_max: usize, idle: Duration, start: Start) -> Result<Self> {
        let shared = Arc::new(Shared {
            threads_max,
            idle,
            start,
            state: Mutex::default(),
            woken: Condvar::new(),
        });
        shared.state().threads = 1;
        shared.start(true).map_err(|error| refused(&error))?;
        Ok(Self(shared))
    }

    /// Runs `work` on a thread, and returns a receiver for the result. The job is skipped if the
    /// receiver is dropped before the job starts. If `work` panics, the receiver gets no result.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, answer) = oneshot::channel();
        self.hand_in(move || {
            if !done.is_closed() {
                drop(done.send(work()));
            }
        });
        answer
    }

    /// Runs `work` on a thread, without a result.
    pub(crate) fn hand_in(&self, work: impl FnOnce() + Send + 'static) {
        self.0.add(Box::new(work));
    }

    /// Waits until all jobs are done, but at most `patience`.
    pub(crate) fn wait(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.0.is_busy() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.woken.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }

    fn is_busy(&self) -> bool {
        let state = self.state();
        !state.jobs.is_empty() || state.idle < state.threads
    }

    fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        state.jobs.push_back(job);
        let is_short = state.idle < state.jobs.len() && state.threads < self.threads_max;
        let was_refused = state.refused.is_some_and(|at| at.elapsed() < REFUSED_PAUSE);
        let is_one_more = is_short && !was_refused;
        state.threads += usize::from(is_one_more);
        drop(state);
        self.woken.notify_one();
        if is_one_more && let Err(error) = self.start(false) {
            let mut state = self.state();
            state.threads -= 1;
            state.refused = Some(Instant::now());
            drop(state);
            // The existing threads do the job later.
            tracing::warn!(
                "API calls are waiting because no new thread can be started: {}",
                refused(&error)
            );
        }
    }

    fn start(self: &Arc<Self>, stays: bool) -> io::Result<()> {
        let shared = Arc::clone(self);
        (self.start)(Box::new(move || shared.work(stays)))
    }

    fn work(&self, stays: bool) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // After a panic, the job's result channel is closed, so its receiver does not wait.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state();
                continue;
            }
            if state.is_over {
                break;
            }
            state.idle += 1;
            let (next, waited) = self
                .woken
                .wait_timeout(state, self.idle)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if waited.timed_out() && !stays && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests;
