//! Measures the time that the choice of an object takes. The source makes this choice for every
//! object.

use dray_core::options::Order;
use dray_core::{FileIndex, Layout, RangeSet, TargetId, Time};
use dray_sched::congestion::Moved;
use dray_sched::objects::{Limits, Objects, Work, grid};
use std::time::Instant;

const FILES: u64 = 100_000;
const OBJECT: u64 = 1 << 20;

fn seconds(targets: u32, objects_each: u64) -> (u64, f64) {
    let limits = Limits {
        pack_bytes_max: OBJECT,
        segments_max: 4096,
        reads_max: 4,
        pieces_max: 1 << 16,
        striped_max: 1 << 18,
    };
    let mut objects = Objects::new(Order::Layout, limits);
    for target in 0..targets {
        objects.grant(TargetId(target), u32::MAX);
    }
    let began = Instant::now();
    for index in 0..FILES {
        // The size is one byte more than whole objects, so that no file counts as small.
        let size = objects_each * OBJECT + 1;
        objects.add(Work {
            index: FileIndex(index),
            grid: grid(size, OBJECT),
            source: Layout::Single(TargetId(index as u32 % targets)),
            sink: Layout::Single(TargetId((index as u32 / targets) % targets)),
            wanted: RangeSet::full(size),
            ordered_window: None,
            dataset: None,
        });
    }
    let mut picks = 0;
    while let Some(assignment) = objects.pick(Time::ZERO) {
        let moved = Moved {
            bytes: OBJECT,
            files: 1,
        };
        objects.read_ended(assignment.source, Time::ZERO, Some(moved), Time::ZERO);
        for (index, _) in &assignment.parts {
            objects.settled(*index);
        }
        picks += 1;
    }
    (picks, began.elapsed().as_secs_f64())
}

/// Run with `cargo test --release -p dray-sim --test picks -- --ignored --nocapture`.
#[test]
#[ignore = "measures; wants a release build"]
fn a_choice_among_many_files_is_cheap() {
    for (targets, each) in [(1, 1), (8, 1), (8, 9)] {
        let (picks, seconds) = seconds(targets, each);
        let rate = picks as f64 / seconds;
        println!("{FILES} files, {targets} targets at each end: {picks} picks, {rate:.0} a second");
        assert_eq!(picks, FILES * (each + 1));
        assert!(rate > 1_000.0, "a choice costs more than a small file does");
    }
}
