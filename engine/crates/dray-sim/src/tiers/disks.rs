//! The contents of all tiers, as they are. The catalog of a tier may disagree.

use std::collections::BTreeMap;

/// Application and number of a version.
pub(super) type Key = (String, u64);

/// A version on the fast tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Number of the content: an application that writes a version again increments it.
    pub(super) content: u64,
}

/// A copy on a slow tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Copy {
    /// True if the copy survives a crash.
    pub(super) is_durable: bool,
    /// True if the bytes of the copy are those of the content.
    pub(super) is_good: bool,
    /// Number of the content that was copied.
    pub(super) content: u64,
}

#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Versions on the fast tier.
    pub(super) fast: BTreeMap<Key, Written>,
    /// Copies on the slow tier.
    pub(super) slow: BTreeMap<Key, Copy>,
    /// Copies on the second slow tier.
    pub(super) replicas: BTreeMap<Key, Copy>,
    /// Number of the last content of each version.
    pub(super) contents: BTreeMap<Key, u64>,
    /// Numbers of the newest versions that were completed, by application.
    pub(super) completed: BTreeMap<String, u64>,
    /// True if the slow tiers are unreachable.
    pub(super) is_slow_away: bool,
    /// True if the next copy to a slow tier gets a wrong bit.
    pub(super) damages_next: bool,
}

impl Disks {
    /// Returns the number of bytes on the fast tier.
    pub(super) fn used(&self) -> u64 {
        self.fast.values().map(|written| written.bytes).sum()
    }

    /// Writes a new version to the fast tier.
    pub(super) fn write(&mut self, key: Key, bytes: u64) {
        self.contents.insert(key.clone(), 0);
        self.fast.insert(key, Written { bytes, content: 0 });
    }

    /// Returns a copy of the content that the fast tier has now.
    fn copied(&self, key: &Key, is_good: bool) -> Copy {
        let slow = self.slow.get(key).map(|copy| copy.content);
        let fast = self.fast.get(key).map(|written| written.content);
        Copy {
            is_durable: false,
            is_good,
            content: fast.or(slow).unwrap_or(0),
        }
    }

    /// Copies a version to the slow tier.
    pub(super) fn copy_to_slow(&mut self, key: &Key, is_good: bool) {
        let copy = self.copied(key, is_good);
        self.slow.insert(key.clone(), copy);
    }

    /// Copies a version to the second slow tier.
    pub(super) fn replicate(&mut self, key: &Key, is_good: bool) {
        let copy = self.copied(key, is_good);
        self.replicas.insert(key.clone(), copy);
    }

    /// Returns true if the slow tier has no copy of the present content of the fast copy. A wrong
    /// bit in the slow copy does not count.
    pub(super) fn differ(&self, key: &Key) -> bool {
        match (self.fast.get(key), self.slow.get(key)) {
            (Some(fast), Some(slow)) => fast.content != slow.content,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Removes a version from all tiers.
    pub(super) fn remove(&mut self, key: &Key) {
        self.fast.remove(key);
        self.slow.remove(key);
        self.replicas.remove(key);
        self.contents.remove(key);
    }

    /// Removes the copies that do not survive a crash.
    pub(super) fn lose_what_is_not_durable(&mut self) {
        self.slow.retain(|_, copy| copy.is_durable);
        self.replicas.retain(|_, copy| copy.is_durable);
    }

    /// Returns true if the slow tier has a durable and correct copy of the last content.
    pub(super) fn is_safe(&self, key: &Key) -> bool {
        self.is_current(self.slow.get(key), key)
    }

    /// Returns true if the second slow tier has a durable and correct copy of the last content.
    pub(super) fn is_replicated(&self, key: &Key) -> bool {
        self.is_current(self.replicas.get(key), key)
    }

    fn is_current(&self, copy: Option<&Copy>, key: &Key) -> bool {
        let content = self.contents.get(key);
        copy.is_some_and(|copy| copy.is_durable && copy.is_good && Some(&copy.content) == content)
    }
}
