//! Threads for calls that block.
//!
//! Purpose: what a call does with the queue and the storage, beside the thread that answers. As many as
//! there is work for at once, up to a bound; one of them is always there.
//!
//! Not for: how many calls there may be (the API's turns and places).
//!
//! Invariant owned here: a thread that the system refuses costs a call time, and never its answer. A
//! runtime's own threads for blocking work panic then, which is why there are these.

use dray_core::Result;
use dray_runtime::threads::refused;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long one that has nothing to do stays.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

/// The threads. They end when this is dropped, after what was handed in.
pub(crate) struct Workers(Arc<Shared>);

struct Shared {
    threads_max: usize,
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Of them, those that wait for work; woken ones count until they look.
    idle: usize,
    is_over: bool,
}

impl Workers {
    /// Starts the first.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new(threads_max: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            threads_max,
            state: Mutex::default(),
            woken: Condvar::new(),
        });
        shared.state().threads = 1;
        shared.start(true).map_err(|error| refused(&error))?;
        Ok(Self(shared))
    }

    /// Has `work` done. The answer is an error when `work` panicked. It is done whether anybody waits for
    /// the answer or not.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, answer) = oneshot::channel();
        self.0.add(Box::new(move || drop(done.send(work()))));
        answer
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        state.jobs.push_back(job);
        let is_short = state.idle < state.jobs.len() && state.threads < self.threads_max;
        state.threads += usize::from(is_short);
        drop(state);
        self.woken.notify_one();
        if is_short && let Err(error) = self.start(false) {
            // Those that there are do it in their turn.
            self.state().threads -= 1;
            tracing::warn!("a call waits for its turn: {}", refused(&error));
        }
    }

    fn start(self: &Arc<Self>, stays: bool) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let name = "api-call".to_owned();
        let started = Builder::new().name(name).spawn(move || shared.work(stays));
        started.map(drop)
    }

    fn work(&self, stays: bool) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // Whoever waits for its answer hears that none comes.
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
                .wait_timeout(state, IDLE)
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
mod tests {
    use super::Workers;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn calls_run_side_by_side_up_to_the_bound_and_the_rest_in_turn() {
        let workers = Workers::new(3).expect("started");
        let (begun, begins) = channel();
        let (let_go, goes_on) = channel::<()>();
        let goes_on = std::sync::Arc::new(std::sync::Mutex::new(goes_on));
        let call = |number: u32| {
            let (begun, goes_on) = (begun.clone(), goes_on.clone());
            workers.call(move || {
                begun.send(number).expect("heard");
                // One after the other: what is told apart is who has begun.
                while goes_on.lock().expect("whole").try_recv().is_err() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                number
            })
        };
        let answers: Vec<_> = (0..5).map(call).collect();
        let mut began: Vec<u32> = (0..3).map(|_| begins.recv().expect("begun")).collect();
        began.sort_unstable();
        assert_eq!(began, [0, 1, 2]);
        assert!(begins.recv_timeout(Duration::from_millis(100)).is_err());
        assert_eq!(workers.0.state().threads, 3);
        (0..5).for_each(|_| let_go.send(()).expect("heard"));
        for (number, answer) in (0..).zip(answers) {
            assert_eq!(answer.blocking_recv().expect("answered"), number);
        }
    }

    #[test]
    fn a_call_that_panics_has_no_answer_and_the_next_one_has() {
        let workers = Workers::new(1).expect("started");
        let broken = workers.call(|| -> u32 { panic!("broken, as the test wants it") });
        assert!(broken.blocking_recv().is_err());
        assert_eq!(workers.call(|| 7).blocking_recv().expect("answered"), 7);
    }

    #[test]
    fn what_was_handed_in_is_done_and_then_all_of_them_end() {
        let workers = Workers::new(2).expect("started");
        let answers: Vec<_> = (0..20).map(|number| workers.call(move || number)).collect();
        let shared = workers.0.clone();
        drop(workers);
        for (number, answer) in (0..).zip(answers) {
            assert_eq!(answer.blocking_recv().expect("answered"), number);
        }
        let until = Instant::now() + Duration::from_secs(10);
        while shared.state().threads > 0 {
            assert!(Instant::now() < until, "a thread stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
