//! Starts the threads of transfers and servers, counts the processors for these threads, and
//! measures whether a thread waits. If the system refuses a thread, the caller gets an error with a
//! remedy instead of a panic.

use dray_core::{End, Error, ErrorKind, Result};
use nix::libc::c_long;
use nix::sys::resource::{UsageWho, getrusage};
use std::io;
use std::marker::PhantomData;
use std::thread::{Builder, Scope, ScopedJoinHandle, available_parallelism};

/// Starts a thread in `scope`; the scope waits for the thread's end.
///
/// # Errors
/// If the system cannot start another thread.
pub fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    Builder::new()
        .spawn_scoped(scope, run)
        .map_err(|error| refused(&error))
}

/// Returns the error for a thread that cannot be started.
#[must_use]
pub fn refused(error: &io::Error) -> Error {
    Error::new(ErrorKind::Busy, End::Here, "start a thread")
        .cause(error.to_string())
        .remedy(
            "raise the limit of threads (ulimit -u, TasksMax of a service, pids of a container) \
             or run fewer transfers at a time, then try again",
        )
}

/// Returns the useful number of threads for one storage target whose threads never wait for
/// storage. The number is half of the processors that this process may use, but at least one.
/// Streams and other targets use the remaining processors.
pub fn busy_max() -> u32 {
    let processors = available_parallelism().map_or(1, usize::from);
    u32::try_from(processors / 2).unwrap_or(u32::MAX).max(1)
}

/// A measurement of whether the calling thread waits.
pub struct Waiting {
    before: Option<c_long>,
    /// Makes the type `!Send`: the kernel counts waits for each thread.
    _of_this_thread: PhantomData<*const ()>,
}

impl Waiting {
    /// Starts a measurement for the calling thread.
    pub fn begin() -> Self {
        Self {
            before: waits_so_far(),
            _of_this_thread: PhantomData,
        }
    }

    /// Returns true if the thread has given up its processor to wait since the start of the
    /// measurement. Preemption does not count. Also returns true if the system has no such counter.
    pub fn had_any(&self) -> bool {
        let now = waits_so_far();
        self.before.is_none() || self.before != now
    }
}

/// Returns the number of waits of the calling thread so far (`ru_nvcsw`, getrusage(2)).
fn waits_so_far() -> Option<c_long> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    Some(usage.voluntary_context_switches())
}

#[cfg(test)]
mod tests {
    use super::{Waiting, busy_max, start};
    use dray_core::Result;
    use std::time::Duration;

    #[test]
    fn a_sleeping_thread_waits_and_a_computing_one_does_not() {
        let waits = Waiting::begin();
        std::thread::sleep(Duration::from_millis(1));
        assert!(waits.had_any());
        // Even on a busy host, at least one of many short computations runs without a wait.
        let computes = || {
            let waits = Waiting::begin();
            let sum = (0..1_000_u64).fold(0, |sum, number| std::hint::black_box(sum + number));
            assert!(sum > 0);
            !waits.had_any()
        };
        assert!((0..100).any(|_| computes()));
    }

    #[test]
    fn a_thread_that_is_started_is_waited_for() -> Result<()> {
        let mut is_done = false;
        std::thread::scope(|scope| start(scope, || is_done = true).map(drop))?;
        assert!(is_done);
        assert!(busy_max() >= 1);
        Ok(())
    }
}
