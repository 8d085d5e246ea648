//! The contents of both tiers, as they are. The catalog of a tier may disagree.

use std::collections::BTreeMap;

/// Application and number of a version.
pub(super) type Key = (String, u64);

/// A copy on the slow tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copy {
    /// It survives a crash.
    pub(super) is_durable: bool,
    /// Its bytes are those of the version.
    pub(super) is_good: bool,
}

#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Sizes of the copies on the fast tier.
    pub(super) fast: BTreeMap<Key, u64>,
    /// Copies on the slow tier.
    pub(super) slow: BTreeMap<Key, Copy>,
    /// Numbers of the newest versions that were completed, by application.
    pub(super) completed: BTreeMap<String, u64>,
    /// The slow tier is unreachable.
    pub(super) is_slow_away: bool,
    /// The next copy to the slow tier has a wrong bit.
    pub(super) damages_next: bool,
}

impl Disks {
    /// Returns the number of bytes on the fast tier.
    pub(super) fn used(&self) -> u64 {
        self.fast.values().sum()
    }

    /// Returns true if the slow tier has a copy that is durable and correct.
    pub(super) fn is_safe(&self, key: &Key) -> bool {
        let copy = self.slow.get(key);
        copy.is_some_and(|copy| copy.is_durable && copy.is_good)
    }
}
