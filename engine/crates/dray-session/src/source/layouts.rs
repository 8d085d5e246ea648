//! Limits the number of storage targets that a sink may report. The source has a queue for each
//! target, and tracks each object of a file that is striped over several targets.

use super::Source;
use dray_core::plan::Grid;
use dray_core::{ErrorKind, Layout, TargetId};
use dray_wire::bounds::{SINK_TARGETS_MAX, STRIPED_MAX};

impl Source {
    /// Records a storage target of the sink. Ends the session if the sink reports too many targets.
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
}

/// Returns the layouts with which the source sends a file, and their cost: the number of objects
/// and targets to track. `spent` is the cost of all other files. If the file would exceed the
/// limit, the source treats it as a file on the single target of its first byte. This is safe
/// because the sink charges credit for the target that is named in the block.
pub(super) fn bounded(
    grid: &Grid,
    source: &Layout,
    sink: Layout,
    spent: u64,
) -> (Layout, Layout, u64) {
    let targets = |layout: &Layout| match layout {
        Layout::Single(_) => 0,
        several => several.targets().count() as u64,
    };
    let named = targets(source) + targets(&sink);
    if named == 0 {
        return (source.clone(), sink, 0);
    }
    let cost = grid.count().saturating_add(named);
    if spent.saturating_add(cost) <= STRIPED_MAX {
        return (source.clone(), sink, cost);
    }
    let first = |layout: &Layout| Layout::Single(layout.target_at(0));
    (first(source), first(&sink), 0)
}

#[cfg(test)]
mod tests {
    use super::{STRIPED_MAX, bounded};
    use dray_core::plan::Grid;
    use dray_core::{Layout, TargetId};
    use std::num::NonZeroU64;

    #[test]
    fn file_over_the_striping_limit_is_sent_to_one_target() {
        let grid = |size| Grid::new(size, NonZeroU64::MIN);
        let here = Layout::Single(TargetId(7));
        let striped = Layout::Striped {
            stripe_bytes: 1,
            targets: vec![TargetId(3), TargetId(4)],
        };
        let sent = |size, spent| bounded(&grid(size), &here, striped.clone(), spent);
        assert_eq!(sent(10, 0), (here.clone(), striped.clone(), 12));
        let one = (here.clone(), Layout::Single(TargetId(3)), 0);
        assert_eq!(sent(1 << 60, 0), one);
        assert_eq!(sent(10, STRIPED_MAX - 11), one);
        let single = bounded(&grid(1 << 60), &here, here.clone(), STRIPED_MAX);
        assert_eq!(single, (here.clone(), here, 0));
    }
}
