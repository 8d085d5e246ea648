//! Whether a storage target makes the threads that use it wait, and how many of them it is worth.
//!
//! Of storage that makes nobody wait (files in memory) each thread keeps a processor busy. More of them than
//! processors wait for each other, and what one has in its cache the other has to fetch: on two
//! processors four readers and four writers cost up to a sixth of the time of one each (0038). Of storage
//! that makes wait, more threads have more under way.
//!
//! Non-goals: how many threads waiting storage is worth ([`crate::tuner::threads`]); what waiting is,
//! which whoever runs the threads sees.

use std::time::Duration;

/// The last jobs that are looked at.
const LOOKED_AT: u32 = 8;

/// When so many of them have waited, the target is one that makes wait. One alone is chance.
const WAITED_MIN: u32 = 2;

/// What is under way for so long waits, whatever those before it did: an object in memory takes a
/// millisecond (guess, revisit).
pub const WAITS_AFTER: Duration = Duration::from_millis(50);

/// What is known of a target: of the last jobs, which waited. Until so many did not as are looked at, it
/// is taken for one that makes wait, because to have few threads costs more there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits(u8);

impl Default for Waits {
    fn default() -> Self {
        Self(u8::MAX)
    }
}

impl Waits {
    /// One more job is done.
    #[must_use]
    pub const fn with(self, has_waited: bool) -> Self {
        Self(self.0 << 1 | has_waited as u8)
    }

    /// So many threads are enough, if it makes nobody wait: `busy_max`, one at the least.
    #[must_use]
    pub fn enough(self, busy_max: u32) -> Option<u32> {
        (self.0.count_ones() < WAITED_MIN).then_some(busy_max.max(1))
    }

    /// As it is kept where several threads note what they saw.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// From [`Self::bits`].
    #[must_use]
    pub const fn of_bits(bits: u8) -> Self {
        Self(bits)
    }
}

const _: () = assert!(LOOKED_AT == u8::BITS, "a bit for each");

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
