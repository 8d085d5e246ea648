//! Invariants of the two state machines, as conditions on their state. Each invariant has the name
//! of a checker in the simulator. That checker tests the same invariant on the effects and on the
//! simulated disk.

use dray_core::{BufferId, ByteRange, FileIndex};
use std::collections::HashSet;

/// Name of a violated invariant.
pub(crate) type Breach = &'static str;

pub(crate) const ACK: Breach = "ack_never_precedes_durability";
pub(crate) const ATTEMPT: Breach = "one_live_attempt_per_object";
pub(crate) const POOL: Breach = "bytes_in_flight_never_exceed_pool";
pub(crate) const RECORD: Breach = "sink_record_never_follows_its_ack";
pub(crate) const VERDICT: Breach = "verdict_never_precedes_final_name";

/// A debug build checks the invariants after every input, but only if the machine has at most this
/// many blocks. The simulator checks its machines without this limit.
pub(crate) const CHECKED_BLOCKS_MAX: usize = 256;

pub(crate) fn ensure(holds: bool, breach: Breach) -> Result<(), Breach> {
    if holds { Ok(()) } else { Err(breach) }
}

/// Returns true if two of the ranges have a byte of the same file in common.
pub(crate) fn overlap(ranges: impl Iterator<Item = (FileIndex, ByteRange)>) -> bool {
    let mut sorted: Vec<_> = ranges
        .filter(|(_, range)| !range.is_empty())
        .map(|(file, range)| (file, range.offset, range.end()))
        .collect();
    sorted.sort_unstable();
    sorted
        .windows(2)
        .any(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2)
}

/// Returns true if the buffers are distinct and their number is at most `count`, the size of the
/// pool.
pub(crate) fn are_of_pool(buffers: impl Iterator<Item = BufferId>, count: u32) -> bool {
    let mut seen = HashSet::new();
    let mut buffers = buffers.into_iter();
    buffers.all(|buffer| seen.insert(buffer)) && seen.len() <= count as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: u64, offset: u64, length: u64) -> (FileIndex, ByteRange) {
        (FileIndex(file), ByteRange { offset, length })
    }

    #[test]
    fn ranges_overlap_only_within_a_file() {
        assert!(!overlap(
            [at(0, 0, 4), at(1, 2, 4), at(0, 4, 4)].into_iter()
        ));
        assert!(overlap([at(0, 4, 4), at(1, 2, 4), at(0, 0, 5)].into_iter()));
    }

    #[test]
    fn duplicate_or_excess_buffers_are_detected() {
        assert!(are_of_pool([0, 2, 1].map(BufferId).into_iter(), 3));
        assert!(!are_of_pool([0, 2, 0].map(BufferId).into_iter(), 3));
        assert!(!are_of_pool([0, 1, 2, 3].map(BufferId).into_iter(), 3));
    }
}
