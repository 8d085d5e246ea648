//! Limits the number of storage targets that a sink may report, because the source has a queue for
//! each target. Also limits the memory of all layouts.

use super::Source;
use dray_core::{ErrorKind, Layout, TargetId};
use dray_sched::objects::Limits;
use dray_wire::bounds::{LAYOUT_BYTES_MAX, RUNS_MAX, SINK_TARGETS_MAX, STRIPED_MAX};

pub(super) fn limits(pack_bytes_max: u64, segments_max: u32, reads_max: u32) -> Limits {
    Limits {
        pack_bytes_max,
        segments_max: segments_max.max(1) as usize,
        reads_max,
        pieces_max: RUNS_MAX / 2,
        striped_max: STRIPED_MAX,
    }
}

impl Source {
    /// Records a storage target of the sink. Ends the session, and returns false, if the sink
    /// reports more than [`SINK_TARGETS_MAX`] targets.
    pub(super) fn knows_target(&mut self, target: TargetId) -> bool {
        if self.sink_targets.len() >= SINK_TARGETS_MAX && !self.sink_targets.contains(&target) {
            let cause = format!("the sink has more than {SINK_TARGETS_MAX} storage targets");
            self.violation(ErrorKind::LimitExceeded, cause);
            return false;
        }
        self.sink_targets.insert(target);
        true
    }

    /// Records all targets of a layout, as [`Source::knows_target`] does.
    pub(super) fn knows_layout(&mut self, layout: &Layout) -> bool {
        layout.targets().all(|target| self.knows_target(target))
    }

    /// Counts the memory of a layout of an unclosed file, and returns the counted bytes. If all
    /// layouts together would exceed [`LAYOUT_BYTES_MAX`], replaces the layout by the single target
    /// of the file's first byte. This is safe because the sink charges credit for the target that
    /// is named in the block.
    pub(super) fn admit_layout(&mut self, layout: &mut Layout) -> u64 {
        let bytes = layout.memory_bytes();
        if self.layout_bytes.saturating_add(bytes) > LAYOUT_BYTES_MAX {
            *layout = layout.first();
            return 0;
        }
        self.layout_bytes += bytes;
        bytes
    }
}
