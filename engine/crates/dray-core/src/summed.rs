//! Byte ranges with the checksums of their bytes. Adjacent ranges are merged, and their checksums
//! combined.

use crate::checksum::Sums;
use crate::range::{ByteRange, RangeSet};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    end: u64,
    sums: Sums,
}

/// The known content of a file: ranges that do not overlap, each with the checksums of its bytes.
///
/// Memory grows with the number of gaps, not with the number of objects, because adjacent ranges
/// are merged immediately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SummedRanges {
    runs: BTreeMap<u64, Run>,
    bytes: u64,
}

impl SummedRanges {
    /// Creates a value without known bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of known bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if no byte is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of separate ranges.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Adds a range with the checksums of its bytes. If the range is empty or one of its bytes is
    /// already known, changes nothing and returns false: the checksum of a range cannot be split
    /// into checksums of its parts.
    pub fn insert(&mut self, range: ByteRange, sums: Sums) -> bool {
        if range.is_empty() || self.overlaps(range) {
            return false;
        }
        let mut start = range.offset;
        let mut run = Run {
            end: range.end(),
            sums,
        };
        if let Some((&before_start, before)) = self.runs.range(..start).next_back()
            && before.end == start
        {
            run.sums = before.sums.then(run.sums, run.end - start);
            start = before_start;
        }
        if let Some(after) = self.runs.remove(&run.end) {
            run.sums = run.sums.then(after.sums, after.end - run.end);
            run.end = after.end;
        }
        self.runs.insert(start, run);
        self.bytes += range.length;
        true
    }

    /// Returns true if any byte of `range` is known.
    #[must_use]
    pub fn overlaps(&self, range: ByteRange) -> bool {
        !range.is_empty()
            && self
                .runs
                .range(..range.end())
                .next_back()
                .is_some_and(|(_, run)| run.end > range.offset)
    }

    /// Returns true if every byte of `range` is known.
    #[must_use]
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty()
            || self
                .runs
                .range(..=range.offset)
                .next_back()
                .is_some_and(|(_, run)| run.end >= range.end())
    }

    /// Returns the ranges in order, with their checksums.
    pub fn iter(&self) -> impl Iterator<Item = (ByteRange, Sums)> + '_ {
        self.runs
            .iter()
            .map(|(&start, run)| (ByteRange::between(start, run.end), run.sums))
    }

    /// Returns the ranges without their checksums.
    #[must_use]
    pub fn ranges(&self) -> RangeSet {
        self.iter().map(|(range, _)| range).collect()
    }

    /// Returns the checksums of the bytes `0 .. length`. Returns `None` unless exactly these bytes
    /// are known.
    #[must_use]
    pub fn whole(&self, length: u64) -> Option<Sums> {
        if length == 0 {
            return self.runs.is_empty().then_some(Sums::EMPTY);
        }
        let (&start, run) = self.runs.first_key_value()?;
        (self.runs.len() == 1 && start == 0 && run.end == length).then_some(run.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::SummedRanges;
    use crate::checksum::Sums;
    use crate::range::ByteRange;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn objects_in_any_order_give_the_whole_file(
            data in prop::collection::vec(any::<u8>(), 1..4096),
            object in 1..700usize,
            seed in any::<u64>(),
        ) {
            let mut order: Vec<usize> = (0..data.len().div_ceil(object)).collect();
            let mut state = seed | 1;
            for i in (1..order.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(i, (state >> 33) as usize % (i + 1));
            }
            let mut known = SummedRanges::new();
            for index in order {
                prop_assert_eq!(known.whole(data.len() as u64), None);
                let start = index * object;
                let end = data.len().min(start + object);
                let range = ByteRange::between(start as u64, end as u64);
                prop_assert!(known.insert(range, Sums::of(&data[start..end])));
                prop_assert!(!known.insert(range, Sums::EMPTY), "a second insert is refused");
            }
            prop_assert_eq!(known.whole(data.len() as u64), Some(Sums::of(&data)));
            prop_assert_eq!(known.run_count(), 1);
        }
    }

    #[test]
    fn bytes_past_the_end_are_not_a_whole_file() {
        let mut known = SummedRanges::new();
        known.insert(
            ByteRange {
                offset: 0,
                length: 5,
            },
            Sums::of(b"hello"),
        );
        assert_eq!(known.whole(4), None);
        assert_eq!(known.whole(5), Some(Sums::of(b"hello")));
        assert_eq!(SummedRanges::new().whole(0), Some(Sums::EMPTY));
    }
}
