use super::borders::common_step;
use super::{
    Extent, LAYOUT_EXTENTS_MAX, LAYOUT_STRIPES_MAX, LAYOUT_TARGETS_MAX, Layout, StripeTable,
};
use crate::{ByteRange, TargetId};
use proptest::collection::vec;
use proptest::prelude::*;

fn extent(end: u64, stripe_bytes: u64, targets: &[u32]) -> Extent {
    let targets = targets.iter().copied().map(TargetId).collect();
    Extent {
        end,
        stripe_bytes,
        targets,
    }
}

fn targets_of(layout: &Layout, size: u64) -> Vec<u32> {
    (0..size).map(|at| layout.target_at(at).0).collect()
}

#[test]
fn stripes_are_dealt_in_turn() {
    let layout = Layout::Striped {
        stripe_bytes: 4,
        targets: vec![TargetId(7), TargetId(9)],
    };
    assert_eq!(
        targets_of(&layout, 12),
        [7, 7, 7, 7, 9, 9, 9, 9, 7, 7, 7, 7]
    );
}

#[test]
fn every_stripe_of_a_table_has_its_own_target() {
    let layout = Layout::of_stripes(2, [5, 5, 8, 5].map(TargetId));
    assert_eq!(targets_of(&layout, 10), [5, 5, 5, 5, 8, 8, 5, 5, 5, 5]);
    assert_eq!(
        layout.target_at(2 * 4 + 4),
        TargetId(8),
        "the table repeats"
    );
    assert_eq!(
        Layout::of_stripes(2, [TargetId(5); 3]),
        Layout::Single(TargetId(5))
    );
    assert_eq!(Layout::of_stripes(2, []), Layout::Single(TargetId(0)));
}

#[test]
fn extents_have_their_own_stripes_counted_from_the_beginning_of_the_file() {
    let layout = Layout::of_extents([
        extent(4, 4, &[1]),
        extent(10, 2, &[2, 3]),
        extent(20, 5, &[4, 5, 6]),
    ]);
    let found = targets_of(&layout, 26);
    let expected = [
        1, 1, 1, 1, 2, 2, 3, 3, 2, 2, 6, 6, 6, 6, 6, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 6,
    ];
    assert_eq!(found, expected);
    let empty = Layout::of_extents([extent(0, 1, &[1]), extent(5, 0, &[1]), extent(5, 1, &[])]);
    assert_eq!(empty, Layout::Single(TargetId(0)));
}

#[test]
fn layouts_over_the_bounds_repeat_or_end_early() {
    let count = LAYOUT_STRIPES_MAX + 1;
    let long = Layout::of_stripes(1, (0..count).map(|stripe| TargetId(stripe as u32 % 3)));
    let Layout::Table(table) = &long else {
        panic!("{long:?}")
    };
    assert_eq!(table.stripes().len(), LAYOUT_STRIPES_MAX);
    assert!(long.memory_bytes() <= 2 * LAYOUT_STRIPES_MAX as u64 + 12);

    let many = LAYOUT_TARGETS_MAX as u32 + 5;
    let wide = Layout::of_stripes(1, (0..many).map(TargetId));
    assert_eq!(wide.targets().count(), LAYOUT_TARGETS_MAX);

    let ends = 1..=LAYOUT_EXTENTS_MAX as u64 + 5;
    let deep = Layout::of_extents(ends.map(|end| extent(end, 1, &[end as u32])));
    let Layout::Composite(extents) = &deep else {
        panic!("{deep:?}")
    };
    assert_eq!(extents.len(), LAYOUT_EXTENTS_MAX);
    assert_eq!(deep.target_at(1 << 40), TargetId(LAYOUT_EXTENTS_MAX as u32));
}

#[test]
fn step_divides_the_stripes_that_are_within_the_file() {
    const MIB: u64 = 1 << 20;
    let progressive = Layout::of_extents([
        extent(4 * MIB, MIB, &[0]),
        extent(256 * MIB, MIB, &[0, 1, 2, 3]),
        extent(u64::MAX, 4 * MIB, &[4, 5, 6, 7]),
    ]);
    assert_eq!(progressive.step(4 * MIB), 0, "one target, no border");
    assert_eq!(progressive.step(5 * MIB), 4 * MIB, "one border");
    assert_eq!(progressive.step(1 << 40), MIB);
    let striped = Layout::Striped {
        stripe_bytes: 3 * MIB,
        targets: vec![TargetId(0), TargetId(1)],
    };
    assert_eq!(striped.step(3 * MIB), 0);
    assert_eq!(striped.step(3 * MIB + 1), 3 * MIB);
    assert_eq!(common_step(3 * MIB, 4 * MIB), MIB);
    assert_eq!(common_step(0, 4 * MIB), 4 * MIB);
}

#[test]
fn shares_of_a_long_file_are_in_proportion() {
    let layout = Layout::of_stripes(1, [0, 1, 1, 1].map(TargetId));
    let size = 1 << 30;
    let shares = layout.shares(size);
    assert_eq!(
        shares,
        [(TargetId(0), size / 4), (TargetId(1), size / 4 * 3)]
    );
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let target = || (0..5u32).prop_map(TargetId);
    let piece = (1..40u64, 1..12u64, vec(target(), 1..5));
    prop_oneof![
        target().prop_map(Layout::Single),
        (1..30u64, vec(target(), 1..6)).prop_map(|(stripe_bytes, targets)| Layout::Striped {
            stripe_bytes,
            targets
        }),
        (1..30u64, vec(target(), 1..30)).prop_map(|(bytes, all)| Layout::of_stripes(bytes, all)),
        vec(piece, 1..5).prop_map(|pieces| {
            let mut end = 0;
            Layout::of_extents(pieces.into_iter().map(|(length, stripe_bytes, targets)| {
                end += length;
                Extent {
                    end,
                    stripe_bytes,
                    targets,
                }
            }))
        }),
    ]
}

proptest! {
    #[test]
    fn runs_cover_a_range_once_and_stay_on_one_target(
        layout in any_layout(),
        offset in 0..50u64,
        length in 0..150u64,
    ) {
        let mut at = offset;
        for (part, target) in layout.runs(ByteRange { offset, length }) {
            prop_assert_eq!(part.offset, at);
            prop_assert!(part.length > 0);
            for byte in part.offset..part.end() {
                prop_assert_eq!(layout.target_at(byte), target);
            }
            at = part.end();
        }
        prop_assert_eq!(at, offset + length);
    }

    #[test]
    fn borders_are_multiples_of_the_step(layout in any_layout(), size in 0..200u64) {
        let step = layout.step(size);
        for (part, _) in layout.runs(ByteRange { offset: 0, length: size }) {
            let is_border = part.end() < size;
            prop_assert!(!is_border || (step > 0 && part.end().is_multiple_of(step)));
        }
    }

    #[test]
    fn simplified_layout_agrees_with_the_layout(layout in any_layout(), size in 1..400u64) {
        let simple = layout.simplified();
        prop_assert!(simple.is_simple());
        for byte in 0..size {
            prop_assert_eq!(simple.target_at(byte), layout.target_at(byte));
        }
        let shares: u64 = layout.shares(size).iter().map(|(_, bytes)| bytes).sum();
        prop_assert_eq!(shares, size);
    }

    #[test]
    fn tables_with_impossible_parts_are_refused(
        bytes in 0..3u64,
        targets in vec((0..9u32).prop_map(TargetId), 0..3),
        stripes in vec(0..4u16, 0..4),
    ) {
        let fits = bytes > 0
            && !targets.is_empty()
            && !stripes.is_empty()
            && stripes.iter().all(|at| usize::from(*at) < targets.len());
        prop_assert_eq!(StripeTable::new(bytes, targets, stripes).is_some(), fits);
    }
}
