//! Threads that end together.
//!
//! Invariant owned here: if one thread ends or panics, or if the system refuses to start it, the
//! other threads are told to end.

use dray_core::Result;
use dray_link::threads;
use std::thread::{Scope, ScopedJoinHandle};

/// Calls `stop` when dropped.
struct Gone<'a>(&'a (dyn Fn() + Sync));

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Starts threads in a scope that waits for all of them.
#[derive(Clone, Copy)]
pub(crate) struct Supervisor<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    stop: &'scope (dyn Fn() + Sync),
}

impl<'scope, 'env> Supervisor<'scope, 'env> {
    /// Creates a supervisor. `stop` tells all threads to end, and may be called more than once.
    pub(crate) const fn new(
        scope: &'scope Scope<'scope, 'env>,
        stop: &'scope (dyn Fn() + Sync),
    ) -> Self {
        Self { scope, stop }
    }

    /// Does `work` on a new thread.
    ///
    /// # Errors
    /// If the system refuses the thread. The other threads are then told to end.
    pub(crate) fn spawn<T: Send + 'scope>(
        self,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Result<ScopedJoinHandle<'scope, T>> {
        let gone = Gone(self.stop);
        threads::start(self.scope, move || {
            let _gone = gone;
            work()
        })
    }

    /// Does `work` on the calling thread, and tells the other threads to end when `work` returns or
    /// panics.
    pub(crate) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        let _gone = Gone(self.stop);
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::Supervisor;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{scope, sleep};
    use std::time::{Duration, Instant};

    /// Returns when `told` is set. Panics after 20 s.
    fn until(told: &AtomicBool) {
        let late = Instant::now() + Duration::from_secs(20);
        while !told.load(Ordering::Acquire) {
            assert!(Instant::now() < late, "nobody told it");
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_part_that_panics_or_returns_ends_the_others() {
        for panics in [true, false] {
            let told = AtomicBool::new(false);
            let stop = || told.store(true, Ordering::Release);
            let end = || assert!(!panics, "broken, as the test wants it");
            let others = catch_unwind(AssertUnwindSafe(|| {
                scope(|scope| {
                    let parts = Supervisor::new(scope, &stop);
                    let waits = parts.spawn(|| until(&told));
                    let ends = parts.spawn(end);
                    assert!(waits.is_ok() && ends.is_ok());
                });
            }));
            assert_eq!(others.is_err(), panics, "whoever started them hears of it");
            told.store(false, Ordering::Release);
            let own = catch_unwind(AssertUnwindSafe(|| {
                scope(|scope| {
                    let parts = Supervisor::new(scope, &stop);
                    assert!(parts.spawn(|| until(&told)).is_ok());
                    parts.run(end);
                });
            }));
            assert_eq!(own.is_err(), panics, "whoever started them hears of it");
        }
    }
}
