//! Byte ranges of a file, and sets of byte ranges.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The bytes `offset .. offset + length` of one file. A set contains no empty range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl ByteRange {
    /// Creates a range. Returns `None` if the end does not fit in 64 bits, because a peer may send
    /// any numbers.
    #[must_use]
    pub const fn new(offset: u64, length: u64) -> Option<Self> {
        match offset.checked_add(length) {
            Some(_) => Some(Self { offset, length }),
            None => None,
        }
    }

    /// Returns the range from `start` to `end`; an empty range if `end <= start`.
    #[must_use]
    pub const fn between(start: u64, end: u64) -> Self {
        Self {
            offset: start,
            length: end.saturating_sub(start),
        }
    }

    /// Returns the offset after the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    /// Returns true if the range contains no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns true if both ranges share a byte.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }

    /// Returns the bytes that both ranges share.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::between(self.offset.max(other.offset), self.end().min(other.end()))
    }
}

/// A set of bytes of one file. Stored as ordered ranges that are not empty, do not overlap and do
/// not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Maps the start of each range to its end.
    runs: BTreeMap<u64, u64>,
    bytes: u64,
}

impl RangeSet {
    /// Returns the empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set of bytes `0 .. length`.
    #[must_use]
    pub fn full(length: u64) -> Self {
        let mut set = Self::new();
        set.insert(ByteRange { offset: 0, length });
        set
    }

    /// Returns the number of bytes in the set.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of separate ranges.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Returns the ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ByteRange> + '_ {
        self.runs
            .iter()
            .map(|(&start, &end)| ByteRange::between(start, end))
    }

    /// Returns the range with the lowest offset.
    #[must_use]
    pub fn first(&self) -> Option<ByteRange> {
        self.iter().next()
    }

    /// Returns the first range of the set at or after `offset`. If a range contains `offset`,
    /// returns its part from `offset` on. Otherwise returns the next range.
    #[must_use]
    pub fn run_from(&self, offset: u64) -> Option<ByteRange> {
        if let Some((_, &end)) = self.runs.range(..=offset).next_back()
            && end > offset
        {
            return Some(ByteRange::between(offset, end));
        }
        self.runs
            .range(offset..)
            .next()
            .map(|(&start, &end)| ByteRange::between(start, end))
    }

    /// Adds a range. Returns the number of bytes that were not yet in the set.
    pub fn insert(&mut self, range: ByteRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end) = (range.offset, range.end());
        let mut absorbed = 0;
        while let Some((&run_start, &run_end)) = self.runs.range(..=end).next_back() {
            if run_end < start {
                break;
            }
            self.runs.remove(&run_start);
            absorbed += run_end - run_start;
            start = start.min(run_start);
            end = end.max(run_end);
        }
        self.runs.insert(start, end);
        let added = (end - start) - absorbed;
        self.bytes += added;
        added
    }

    /// Removes a range. Returns the number of bytes that were in the set.
    pub fn remove(&mut self, range: ByteRange) -> u64 {
        let (start, end) = (range.offset, range.end());
        let mut removed = 0;
        while let Some((&run_start, &run_end)) = self.runs.range(..end).next_back() {
            if run_end <= start || range.is_empty() {
                break;
            }
            self.runs.remove(&run_start);
            if run_start < start {
                self.runs.insert(run_start, start);
            }
            if run_end > end {
                self.runs.insert(end, run_end);
            }
            removed += run_end.min(end) - run_start.max(start);
        }
        self.bytes -= removed;
        removed
    }

    /// Returns true if every byte of `range` is in the set.
    #[must_use]
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty()
            || self
                .runs
                .range(..=range.offset)
                .next_back()
                .is_some_and(|(_, &end)| end >= range.end())
    }

    /// Returns true if any byte of `range` is in the set.
    #[must_use]
    pub fn overlaps(&self, range: ByteRange) -> bool {
        !range.is_empty()
            && self
                .runs
                .range(..range.end())
                .next_back()
                .is_some_and(|(_, &end)| end > range.offset)
    }

    /// Returns the bytes of `0 .. length` that are not in the set.
    #[must_use]
    pub fn complement(&self, length: u64) -> Self {
        let mut rest = Self::full(length);
        for run in self.iter() {
            rest.remove(run);
        }
        rest
    }
}

impl FromIterator<ByteRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = ByteRange>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteRange, RangeSet};
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
        prop::collection::vec((any::<bool>(), 0..64u64, 0..16u64), 0..40)
    }

    proptest! {
        #[test]
        fn set_agrees_with_a_bitmap(steps in ranges()) {
            let mut set = RangeSet::new();
            let mut bits = [false; 96];
            for (add, offset, length) in steps {
                let range = ByteRange { offset, length };
                let slots = offset as usize..(offset + length) as usize;
                let differing = bits[slots.clone()].iter().filter(|bit| **bit != add).count() as u64;
                bits[slots].fill(add);
                let changed = if add { set.insert(range) } else { set.remove(range) };
                prop_assert_eq!(changed, differing);
                prop_assert_eq!(set.bytes(), bits.iter().filter(|bit| **bit).count() as u64);
            }
            for start in 0..90u64 {
                for length in 1..5u64 {
                    let probe = ByteRange { offset: start, length };
                    let slots = &bits[start as usize..(start + length) as usize];
                    prop_assert_eq!(set.contains(probe), slots.iter().all(|bit| *bit));
                    prop_assert_eq!(set.overlaps(probe), slots.iter().any(|bit| *bit));
                }
            }
            let complement = set.complement(96);
            prop_assert_eq!(complement.bytes() + set.bytes(), 96);
            let runs: Vec<_> = set.iter().collect();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].end() < pair[1].offset, "runs must be apart");
            }
        }
    }

    #[test]
    fn a_claimed_range_past_64_bits_is_none() {
        assert!(ByteRange::new(u64::MAX, 1).is_none());
        assert!(ByteRange::new(u64::MAX, 0).is_some());
    }
}
