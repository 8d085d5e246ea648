//! Checks of the invariants that are visible in the state of a sink.

use super::group::Group;
use super::tree::Node;
use super::{Phase, Sink};
use crate::invariants::{
    ACK, ATTEMPT, Breach, CHECKED_BLOCKS_MAX, POOL, RECORD, VERDICT, are_of_pool, ensure, overlap,
};

impl Sink {
    /// Checks the invariants. Tests and the simulator call this after each input.
    ///
    /// # Errors
    ///
    /// The name of an invariant that does not hold.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        let buffers = self.blocks.values().filter_map(|block| block.buffer);
        ensure(are_of_pool(buffers, self.config.buffers), POOL)?;
        // A block has segments until its write ends. After the write the segments are records of a
        // group, which `check_group` checks.
        let segments = self.blocks.values().flat_map(|block| &block.segments);
        let live = segments.filter(|segment| self.live.contains_key(&segment.file));
        let ranges = live.map(|segment| (segment.file, segment.range));
        ensure(!overlap(ranges), ATTEMPT)?;
        self.check_group(&self.gathering)?;
        self.check_group(&self.late)?;
        self.syncing
            .iter()
            .try_for_each(|group| self.check_group(group))?;
        ensure(!self.syncing.share_file(), ACK)?;
        let is_settled =
            self.live.is_empty() && self.has_gathered_nothing() && self.syncing.is_none();
        let has_verdict = matches!(
            self.phase,
            Phase::Storing(_) | Phase::Announced(_) | Phase::Removing(_)
        );
        ensure(!has_verdict || is_settled, VERDICT)
    }

    /// Checks that the blocks of a group are written and not acknowledged, and that none of its
    /// records is in the log.
    fn check_group(&self, group: &Group) -> Result<(), Breach> {
        let mut blocks = group.blocks.iter();
        let is_pending = |key| {
            self.blocks
                .get(key)
                .is_none_or(|block| block.written && block.small_left == 0)
        };
        ensure(blocks.all(is_pending), ACK)?;
        let is_new = |(file, range)| match self.live.get(&file).map(|live| &live.node) {
            Some(Node::File(file)) => !file.known.overlaps(range),
            _ => true,
        };
        ensure(group.ranges().all(is_new), RECORD)
    }

    /// Checks the invariants in debug builds. Skips the check if the machine has more than
    /// [`CHECKED_BLOCKS_MAX`] blocks and records, or if a defect is planted, because the simulator
    /// must detect that defect by itself.
    pub(super) fn check_if_small(&self) -> Result<(), Breach> {
        let records = self.gathering.record_count() + self.late.record_count();
        let records = records + self.syncing.iter().map(Group::record_count).sum::<usize>();
        match self.planted.is_any() || self.blocks.len() + records > CHECKED_BLOCKS_MAX {
            true => Ok(()),
            false => self.check_invariants(),
        }
    }
}
