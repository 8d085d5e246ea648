//! Detects storage targets whose operations do not block a thread, and limits the number of threads
//! for these targets.
//!
//! On storage that does not block, such as files in memory, each thread keeps a processor busy. If
//! there are more threads than processors, threads wait for each other and their data moves between
//! processor caches. On two processors, four readers and four writers took up to a sixth longer
//! than one reader and one writer (decision 0038). On storage that blocks, more threads keep more
//! operations under way.
//!
//! Non-goals: the number of threads for storage that blocks ([`crate::tuner::threads`]); whether a
//! single job has blocked, which the code that runs the threads decides.

use std::time::Duration;

/// Number of last jobs of a target that are evaluated. A job is one read or one write.
const LOOKED_AT: u32 = 8;

/// A target counts as blocking if at least this many of its last [`LOOKED_AT`] jobs have blocked.
/// One blocked job may be chance.
const WAITED_MIN: u32 = 2;

/// A job that runs longer than this counts as blocking, whatever the previous jobs did. To read or
/// write an object in memory takes about a millisecond. The value is estimated, not measured.
pub const WAITS_AFTER: Duration = Duration::from_millis(50);

/// History of a target's last jobs: one bit for each job, set if the job blocked. A new target has
/// all bits set and counts as blocking, because too few threads cost more than too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits(u8);

impl Default for Waits {
    fn default() -> Self {
        Self(u8::MAX)
    }
}

impl Waits {
    /// Records a finished job.
    #[must_use]
    pub const fn with(self, has_waited: bool) -> Self {
        Self(self.0 << 1 | has_waited as u8)
    }

    /// Returns the number of threads that is enough for a target that does not block: `busy_max`,
    /// at least 1. Returns `None` for a target that blocks.
    #[must_use]
    pub fn enough(self, busy_max: u32) -> Option<u32> {
        (self.0.count_ones() < WAITED_MIN).then_some(busy_max.max(1))
    }

    /// Returns the history as bits, which an atomic variable can store.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Restores the history from [`Self::bits`].
    #[must_use]
    pub const fn of_bits(bits: u8) -> Self {
        Self(bits)
    }
}

const _: () = assert!(
    LOOKED_AT == u8::BITS,
    "the type must have one bit for each examined transfer"
);

#[cfg(test)]
mod tests {
    use super::{LOOKED_AT, Waits};

    #[test]
    fn storage_makes_wait_until_many_jobs_did_not_and_again_when_two_did() {
        let mut waits = Waits::default();
        for _ in 1..LOOKED_AT {
            waits = waits.with(false);
            let bits = waits.bits();
            assert_eq!(waits, Waits::of_bits(bits));
        }
        assert_eq!(waits.enough(0), Some(1), "one at the least");
        waits = waits.with(false);
        assert_eq!(waits.enough(3), Some(3));
        waits = waits.with(true);
        assert_eq!(waits.enough(3), Some(3), "one is chance");
        waits = waits.with(false).with(true);
        assert_eq!(waits.enough(3), None);
        for _ in 0..LOOKED_AT - 2 {
            waits = waits.with(false);
        }
        assert_eq!(waits.enough(3), Some(3), "that was long ago");
        assert_eq!(Waits::default().enough(3), None, "nothing is known");
    }
}
