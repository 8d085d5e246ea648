//! Two parts of the dispatcher, neither of which goes on alone.

use dray_core::{End, Error, ErrorKind, Result};
use dray_runtime::threads;

/// Does both, `beside` on a thread of its own. Whichever ends first, be it by a panic, `stop` tells the
/// other, which is waited for.
///
/// # Errors
/// `Busy` when the system gives no thread, and nothing is done; `Internal` when `beside` panicked.
pub(super) fn both(
    stop: &(dyn Fn() + Sync),
    beside: impl FnOnce() + Send,
    own: impl FnOnce(),
) -> Result<()> {
    struct Ends<'a>(&'a (dyn Fn() + Sync));
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    std::thread::scope(|scope| {
        let beside = threads::start(scope, || {
            let _ends = Ends(stop);
            beside();
        })?;
        let ends = Ends(stop);
        own();
        drop(ends);
        beside.join().map_err(|_| {
            Error::new(ErrorKind::Internal, End::Here, "renew the tickets")
                .cause("it panicked")
                .remedy("report it, with the endpoint's log")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::both;
    use dray_core::ErrorKind;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    /// Returns when it is told to; fails when that takes long.
    fn until(told: &AtomicBool) {
        let late = Instant::now() + Duration::from_secs(20);
        while !told.load(Ordering::Acquire) {
            assert!(Instant::now() < late, "nobody told it");
            sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn whichever_of_the_two_ends_tells_the_other() {
        let told = AtomicBool::new(false);
        let stop = || told.store(true, Ordering::Release);
        both(&stop, || until(&told), || ()).expect("both ended well");
        told.store(false, Ordering::Release);
        both(&stop, || (), || until(&told)).expect("both ended well");
    }

    #[test]
    fn a_panic_of_either_ends_the_other() {
        let told = AtomicBool::new(false);
        let stop = || told.store(true, Ordering::Release);
        let beside = || panic!("broken, as the test wants it");
        let error = both(&stop, beside, || until(&told)).expect_err("it panicked");
        assert_eq!(error.kind, ErrorKind::Internal);
        told.store(false, Ordering::Release);
        let own = || panic!("broken, as the test wants it");
        let ended = catch_unwind(AssertUnwindSafe(|| both(&stop, || until(&told), own)));
        assert!(ended.is_err());
    }
}
