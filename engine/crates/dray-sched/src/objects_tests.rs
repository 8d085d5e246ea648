use super::{Assignment, Limits, Objects, Work, grid};
use dray_core::options::Order;
use dray_core::{ByteRange, FileIndex, Layout, RangeSet, TargetId};
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMITS: Limits = Limits {
    pack_bytes_max: 10,
    segments_max: 4,
    reads_max: 4,
    pieces_max: 1 << 10,
};

fn work(index: u64, size: u64, source: u32, sink: u32) -> Work {
    Work {
        index: FileIndex(index),
        grid: grid(size, 10),
        source: Layout::Single(TargetId(source)),
        sink: Layout::Single(TargetId(sink)),
        wanted: RangeSet::full(size),
        ordered_window: None,
    }
}

fn drain(objects: &mut Objects) -> Vec<Assignment> {
    let mut taken = Vec::new();
    while let Some(assignment) = objects.pick() {
        objects.read_ended(assignment.source);
        taken.push(assignment);
    }
    taken
}

#[test]
fn small_files_travel_together_and_large_files_take_turns() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100);
    for index in 0..3 {
        objects.add(work(index, 3, 0, 0));
    }
    objects.add(work(3, 30, 0, 0));
    objects.add(work(4, 30, 0, 0));
    let taken = drain(&mut objects);
    assert_eq!(taken[0].parts.len(), 3, "three small files in one block");
    let order: Vec<u64> = taken[1..].iter().map(|a| a.parts[0].0.0).collect();
    assert_eq!(order, [3, 4, 3, 4, 3, 4]);
    assert!(objects.is_idle());
}

#[test]
fn what_a_pack_failed_with_goes_alone() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100);
    for index in 0..3 {
        objects.add(work(index, 3, 0, 0));
    }
    let pack = drain(&mut objects).remove(0);
    for (index, range) in pack.parts {
        objects.go_alone(index);
        objects.put_back(index, range);
    }
    let again = drain(&mut objects);
    let parts: Vec<_> = again.iter().flat_map(|taken| &taken.parts).collect();
    assert_eq!((again.len(), parts.len()), (3, 3));
    assert!(parts.iter().all(|(_, range)| range.length == 3));
}

#[test]
fn a_sink_target_without_credit_is_walked_around() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.add(work(0, 50, 0, 0));
    objects.add(work(1, 50, 0, 1));
    objects.grant(TargetId(1), 100);
    assert!(drain(&mut objects).iter().all(|a| a.sink == TargetId(1)));
    objects.grant(TargetId(0), 2);
    assert_eq!(drain(&mut objects).len(), 2);
}

#[test]
fn file_order_waits_for_the_first_file() {
    let mut objects = Objects::new(Order::File, LIMITS);
    objects.add(work(0, 50, 0, 0));
    objects.add(work(1, 50, 0, 1));
    objects.grant(TargetId(1), 100);
    assert_eq!(drain(&mut objects), []);
    objects.grant(TargetId(0), 100);
    let order: Vec<u64> = drain(&mut objects).iter().map(|a| a.parts[0].0.0).collect();
    assert_eq!(order, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn a_slow_source_target_never_holds_all_readers() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 1000);
    objects.add(work(0, 1000, 0, 0));
    objects.add(work(1, 1000, 1, 0));
    let mut reading = BTreeMap::<TargetId, u32>::new();
    for _ in 0..100 {
        let Some(assignment) = objects.pick() else {
            break;
        };
        // Target 0 never answers; target 1 answers at once.
        if assignment.source == TargetId(1) {
            objects.read_ended(TargetId(1));
        }
        *reading.entry(assignment.source).or_default() += 1;
    }
    assert_eq!(reading[&TargetId(0)], 4, "its own readers and no more");
    assert_eq!(reading[&TargetId(1)], 96);
}

#[test]
fn an_ordered_sink_gets_a_window_of_objects_in_order() {
    let mut objects = Objects::new(Order::Random { seed: 3 }, LIMITS);
    objects.grant(TargetId(0), 100);
    objects.add(Work {
        ordered_window: Some(2),
        ..work(0, 50, 0, 0)
    });
    let first = drain(&mut objects);
    let offsets: Vec<u64> = first.iter().map(|a| a.parts[0].1.offset).collect();
    assert_eq!(offsets, [0, 10]);
    objects.settled(FileIndex(0));
    assert_eq!(drain(&mut objects)[0].parts[0].1.offset, 20);
}

#[test]
fn holes_close_what_lies_in_them() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100);
    objects.add(work(0, 100, 0, 0));
    // One of its objects is being read.
    let first = objects.pick().expect("an object");
    assert_eq!(first.parts, [(FileIndex(0), ByteRange::between(0, 10))]);
    let hole = |objects: &mut Objects, from, to, most| {
        let taken = objects.take_open(FileIndex(0), ByteRange::between(from, to), most);
        taken
            .iter()
            .map(|run| (run.offset, run.end()))
            .collect::<Vec<_>>()
    };
    assert_eq!(hole(&mut objects, 40, 60, 9), [(40, 60)]);
    assert_eq!(hole(&mut objects, 0, 80, 1), [(10, 40)]);
    assert_eq!(hole(&mut objects, 0, 80, 9), [(60, 80)]);
    assert_eq!(drain(&mut objects).len(), 2);
}

#[test]
fn a_file_in_order_gives_up_only_the_begin_of_a_hole() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.add(Work {
        ordered_window: Some(2),
        ..work(0, 100, 0, 0)
    });
    let mut taken = |from| {
        let hole = ByteRange::between(from, 70);
        objects.take_open(FileIndex(0), hole, 9).bytes()
    };
    assert_eq!(taken(30), 40);
    assert_eq!(taken(20), 10);
    assert_eq!(taken(10), 10);
    assert_eq!(taken(5), 5);
    assert_eq!(taken(1), 4);
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Layout),
        Just(Order::File),
        any::<u64>().prop_map(|seed| Order::Random { seed })
    ]
}

#[test]
fn objects_at_random_leave_few_pieces() {
    let limits = Limits {
        pieces_max: 64,
        reads_max: u32::MAX,
        ..LIMITS
    };
    let mut objects = Objects::new(Order::Random { seed: 1 }, limits);
    objects.grant(TargetId(0), 10_000);
    objects.add(work(0, 100_000, 0, 0));
    let mut open = RangeSet::full(100_000);
    let mut most = 0;
    while let Some(assignment) = objects.pick() {
        for (_, range) in assignment.parts {
            open.remove(range);
        }
        most = most.max(open.run_count());
    }
    assert!(open.is_empty() && (8..=17).contains(&most), "{most}");
}

proptest! {
    /// Every byte of every file goes exactly once, whatever the order, the layouts, the failures.
    #[test]
    fn every_object_goes_once(
        order in orders(),
        files in prop::collection::vec((0..120u64, 0..3u32, 0..3u32, any::<bool>()), 1..12),
        fail in prop::collection::vec(any::<bool>(), 64),
    ) {
        let mut objects = Objects::new(order, LIMITS);
        let mut missing = BTreeMap::new();
        for (index, (size, source, sink, striped)) in files.iter().enumerate() {
            let mut work = work(index as u64, *size, *source, *sink);
            if *striped {
                work.sink = Layout::Striped {
                    stripe_bytes: 20,
                    targets: vec![TargetId(*sink), TargetId(1), TargetId(2)],
                };
            }
            missing.insert(FileIndex(index as u64), work.wanted.clone());
            objects.add(work);
        }
        let mut fail = fail.into_iter();
        for target in 0..3 {
            objects.grant(TargetId(target), 10_000);
        }
        let mut reading = Vec::new();
        loop {
            while let Some(assignment) = objects.pick() {
                prop_assert!(!assignment.parts.is_empty());
                reading.push(assignment);
            }
            prop_assert!(reading.len() <= 3 * LIMITS.reads_max as usize);
            let Some(assignment) = reading.pop() else { break };
            objects.read_ended(assignment.source);
            for (index, range) in assignment.parts {
                objects.settled(index);
                prop_assert!(range.length <= 10);
                let missing = missing.get_mut(&index).expect("known");
                if fail.next().unwrap_or(false) {
                    objects.put_back(index, range);
                } else {
                    prop_assert_eq!(missing.remove(range), range.length, "sent twice");
                }
            }
        }
        prop_assert!(missing.values().all(RangeSet::is_empty), "left over: {missing:?}");
        prop_assert!(objects.is_idle());
    }
}
