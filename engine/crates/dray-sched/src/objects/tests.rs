use super::{Assignment, Dataset, Limits, Objects, Work, grid};
use crate::congestion::Moved;
use dray_core::options::Order;
use dray_core::{ByteRange, FileIndex, Layout, RangeSet, TargetId, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMITS: Limits = Limits {
    pack_bytes_max: 10,
    segments_max: 4,
    reads_max: 4,
    pieces_max: 1 << 10,
    striped_max: 64,
};

fn work(index: u64, size: u64, source: u32, sink: u32) -> Work {
    Work {
        index: FileIndex(index),
        grid: grid(size, 10),
        source: Layout::Single(TargetId(source)),
        sink: Layout::Single(TargetId(sink)),
        wanted: RangeSet::full(size),
        ordered_window: None,
        dataset: None,
    }
}

fn read_ended(objects: &mut Objects, source: TargetId) {
    objects.read_ended(source, Time::ZERO, ten_bytes(), Time::ZERO);
}

#[expect(clippy::unnecessary_wraps, reason = "what is asked for may be nothing")]
fn ten_bytes() -> Option<Moved> {
    Some(Moved {
        bytes: 10,
        files: 1,
    })
}

fn drain(objects: &mut Objects) -> Vec<Assignment> {
    let mut taken = Vec::new();
    while let Some(assignment) = objects.pick(Time::ZERO) {
        read_ended(objects, assignment.source);
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
    assert_eq!(order, [3, 4, 3, 3, 4, 4], "the last of a file goes at once");
    assert!(objects.is_idle());
}

#[test]
fn files_of_a_failed_pack_are_sent_in_separate_objects() {
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
        let Some(assignment) = objects.pick(Time::ZERO) else {
            break;
        };
        // Reads on target 0 never end. Reads on target 1 end immediately.
        if assignment.source == TargetId(1) {
            read_ended(&mut objects, TargetId(1));
        }
        *reading.entry(assignment.source).or_default() += 1;
    }
    assert_eq!(reading[&TargetId(0)], 4, "its own readers and no more");
    assert_eq!(reading[&TargetId(1)], 96);
}

/// Reads until the time `until` (in ms). Target 0 takes ten times as long as the others. Returns
/// the number of picks per target, and the maximum number of concurrent reads on target 0 from the
/// time `from` on.
fn read_for(objects: &mut Objects, from: u64, until: u64) -> (BTreeMap<TargetId, u32>, usize) {
    let (mut picked, mut most) = (BTreeMap::new(), 0);
    let mut under_way: BTreeMap<(u64, u64), (TargetId, Time)> = BTreeMap::new();
    let (mut now, mut number) = (0, 0);
    while now < until {
        let time = Time::ZERO + Duration::from_millis(now);
        while let Some(assignment) = objects.pick(time) {
            let took = if assignment.source == TargetId(0) {
                100
            } else {
                10
            };
            number += 1;
            under_way.insert((now + took, number), (assignment.source, time));
            *picked.entry(assignment.source).or_default() += 1;
        }
        if now >= from {
            let slow = under_way.values().filter(|(target, _)| target.0 == 0);
            most = most.max(slow.count());
        }
        let Some(((then, _), (target, began))) = under_way.pop_first() else {
            break;
        };
        now = then;
        let time = Time::ZERO + Duration::from_millis(now);
        objects.read_ended(target, began, ten_bytes(), time);
    }
    (picked, most)
}

#[test]
fn a_congested_source_target_holds_one_buffer_and_never_stands_still() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 1 << 20);
    for target in 0..3 {
        objects.add(work(target.into(), 1 << 20, target, 0));
    }
    let (picked, most) = read_for(&mut objects, 1000, 10_000);
    assert_eq!(most, 1);
    let slow = picked[&TargetId(0)];
    assert!((95..130).contains(&slow), "{slow} in ten seconds");
    assert!(picked[&TargetId(1)] > 3900, "{picked:?}");
}

#[test]
fn without_others_a_congested_target_has_all_its_readers() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 1 << 20);
    objects.add(work(0, 1 << 20, 0, 0));
    objects.add(work(1, 5000, 1, 0));
    let (picked, most) = read_for(&mut objects, 5000, 10_000);
    assert_eq!((picked[&TargetId(1)], most), (500, 4));
}

#[test]
fn a_file_of_a_target_that_is_given_up_is_read_elsewhere_once() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100);
    objects.add(Work {
        dataset: Some(Dataset(1)),
        ..work(0, 50, 0, 0)
    });
    let stuck = objects.pick(Time::ZERO).expect("an object");
    objects.move_source(FileIndex(0), Layout::Single(TargetId(1)));
    for (index, range) in stuck.parts {
        objects.put_back(index, range);
    }
    let taken = drain(&mut objects);
    assert!(taken.iter().all(|one| one.source == TargetId(1)));
    let mut offsets: Vec<u64> = taken.iter().map(|one| one.parts[0].1.offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 10, 20, 30, 40]);
    assert!(objects.is_idle());
}

/// Adds one file for each entry (dataset, number of objects) of `sizes`. All files have the same
/// source target and the same sink target. Returns the datasets in the order of their completion.
fn completed(sizes: &[(u64, u64)]) -> Vec<u64> {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 10_000);
    let mut left = BTreeMap::<u64, u64>::new();
    let mut of = BTreeMap::new();
    for (number, (dataset, size)) in sizes.iter().enumerate() {
        *left.entry(*dataset).or_default() += size;
        of.insert(FileIndex(number as u64), *dataset);
        objects.add(Work {
            dataset: Some(Dataset(*dataset)),
            ..work(number as u64, *size, 0, 0)
        });
    }
    let mut completed = Vec::new();
    for (index, range) in drain(&mut objects)
        .into_iter()
        .flat_map(|taken| taken.parts)
    {
        let dataset = of[&index];
        let left = left.get_mut(&dataset).expect("known");
        *left -= range.length;
        if *left == 0 {
            completed.push(dataset);
        }
    }
    assert!(objects.is_idle());
    completed
}

#[test]
fn the_dataset_nearest_to_complete_goes_first() {
    let mut files = vec![(0, 100); 40];
    files.extend([(1, 30); 20]);
    files.extend([(2, 20); 10]);
    assert_eq!(completed(&files), [2, 1, 0]);
    let mut small = vec![(0, 9); 400];
    small.extend([(1, 9); 80]);
    assert_eq!(completed(&small), [1, 0]);
}

#[test]
fn small_files_of_datasets_fill_their_packs() {
    let limits = Limits {
        pack_bytes_max: 1000,
        segments_max: 500,
        ..LIMITS
    };
    let mut objects = Objects::new(Order::Layout, limits);
    objects.grant(TargetId(0), 100);
    for index in 0..1000 {
        objects.add(Work {
            grid: grid(1, 1000),
            dataset: Some(Dataset(index / 100)),
            ..work(index, 1, 0, 0)
        });
    }
    let files: Vec<usize> = drain(&mut objects)
        .iter()
        .map(|pack| pack.parts.len())
        .collect();
    assert_eq!(files, [500, 500], "more than are called up at once");
}

#[test]
fn a_dataset_is_as_far_from_complete_as_what_was_announced_of_it() {
    let next = |announced: u64, is_listing: bool| {
        let mut objects = Objects::new(Order::Layout, LIMITS);
        objects.grant(TargetId(0), 100);
        objects.announced(Dataset(2), announced);
        objects.set_listing(is_listing.then_some(Dataset(2)));
        for (index, dataset, size) in [(0, 1, 40), (1, 2, 20)] {
            objects.add(Work {
                dataset: Some(Dataset(dataset)),
                ..work(index, size, 0, 0)
            });
        }
        objects.pick(Time::ZERO).expect("an object").parts[0].0.0
    };
    assert_eq!(next(0, false), 1);
    assert_eq!(next(0, true), 0, "nobody knows how much it has");
    assert_eq!(next(100, false), 0, "most of it is not decided");
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.announced(Dataset(2), 100);
    objects.decided(Dataset(2), 100);
    assert_eq!(objects.datasets.of(Dataset(2)), (false, 0));
}

#[test]
fn a_large_dataset_is_not_passed_for_ever() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100_000);
    let in_set = |index, dataset, size| Work {
        dataset: Some(Dataset(dataset)),
        ..work(index, size, 0, 0)
    };
    for index in 0..100 {
        objects.add(in_set(index, 0, 1000));
    }
    // Add a smaller dataset before each pick.
    let mut of_the_first = 0;
    for step in 0..1000 {
        objects.add(in_set(1000 + step, 1 + step, 20));
        let taken = objects.pick(Time::ZERO).expect("an object");
        read_ended(&mut objects, taken.source);
        of_the_first += u32::from(taken.parts[0].0.0 < 100);
    }
    assert!(of_the_first >= 200, "{of_the_first} of 1000");
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
fn a_hole_takes_the_open_ranges_inside_it() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100);
    objects.add(work(0, 100, 0, 0));
    // The first object of the file is being read.
    let first = objects.pick(Time::ZERO).expect("an object");
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
    while let Some(assignment) = objects.pick(Time::ZERO) {
        for (_, range) in assignment.parts {
            open.remove(range);
        }
        most = most.max(open.run_count());
    }
    assert!(open.is_empty() && (8..=17).contains(&most), "{most}");
}

proptest! {
    /// Every byte of every file is sent exactly once, for all orders, layouts and failures.
    #[test]
    fn every_object_is_sent_once(
        order in orders(),
        files in prop::collection::vec((0..120u64, 0..3u32, 0..3u32, any::<bool>(), 0..4u64), 1..12),
        fail in prop::collection::vec(any::<bool>(), 64),
        striped_max in 0..200u64,
    ) {
        let mut objects = Objects::new(order, Limits { striped_max, ..LIMITS });
        let mut missing = BTreeMap::new();
        for (index, (size, source, sink, striped, dataset)) in files.iter().enumerate() {
            let mut work = work(index as u64, *size, *source, *sink);
            work.dataset = (*dataset > 0).then_some(Dataset(*dataset));
            if *striped {
                work.sink = Layout::Striped {
                    stripe_bytes: 20,
                    targets: vec![TargetId(*sink), TargetId(1), TargetId(2)],
                };
                work.source = Layout::of_stripes(10, [*source, 2, 0, 2, 1].map(TargetId));
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
            while let Some(assignment) = objects.pick(Time::ZERO) {
                prop_assert!(!assignment.parts.is_empty());
                prop_assert!(objects.striped <= striped_max + 4 * files.len() as u64 + 16);
                reading.push(assignment);
            }
            prop_assert!(reading.len() <= 3 * LIMITS.reads_max as usize);
            let Some(assignment) = reading.pop() else { break };
            read_ended(&mut objects, assignment.source);
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
        prop_assert_eq!(objects.striped, 0);
    }
}

#[test]
fn a_striped_file_waits_in_a_window_of_objects() {
    let mut objects = Objects::new(
        Order::Layout,
        Limits {
            striped_max: 160,
            ..LIMITS
        },
    );
    let stripes = (0..100_000u32).map(|stripe| TargetId(stripe % 7));
    objects.add(Work {
        sink: Layout::of_stripes(10, stripes),
        ..work(0, 1_000_000, 0, 0)
    });
    assert_eq!(objects.striped, 10, "a sixteenth of the maximum");
    for target in 0..7 {
        objects.grant(TargetId(target), 1 << 20);
    }
    let hole = ByteRange::between(500_000, 700_000);
    let taken = objects.take_open(FileIndex(0), hole, 9);
    assert_eq!(taken.bytes(), 200_000, "also beyond the window");
    assert!(objects.is_open(FileIndex(0), ByteRange::between(0, 500_000)));
    let mut sent = taken;
    for assignment in std::iter::from_fn(|| {
        let next = objects.pick(Time::ZERO)?;
        objects.read_ended(next.source, Time::ZERO, ten_bytes(), Time::ZERO);
        assert!(objects.striped <= 10);
        Some(next)
    }) {
        for (_, range) in assignment.parts {
            assert_eq!(sent.insert(range), range.length);
        }
    }
    assert_eq!(sent, RangeSet::full(1_000_000));
    assert!(objects.is_idle());
}

#[test]
fn picks_go_round_the_source_targets_and_the_sink_targets() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    for pair in 0..6 {
        objects.add(work(pair, 1000, pair as u32 % 3, pair as u32 / 3));
    }
    objects.grant(TargetId(0), 5);
    objects.grant(TargetId(1), 100);
    let pairs: Vec<(u32, u32)> = (0..9)
        .map(|_| objects.pick(Time::ZERO).expect("an object"))
        .map(|taken| (taken.source.0, taken.sink.0))
        .collect();
    let expected = [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (1, 1),
        (2, 1),
        (0, 0),
        (1, 0),
        (2, 1),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn a_target_that_does_not_block_gets_only_enough_readers() {
    let mut objects = Objects::new(Order::Layout, LIMITS);
    objects.grant(TargetId(0), 100);
    objects.add(work(0, 100, 0, 0));
    objects.add(work(1, 100, 1, 0));
    objects.set_enough(TargetId(0), Some(1));
    let mut reads = BTreeMap::new();
    while let Some(assignment) = objects.pick(Time::ZERO) {
        *reads.entry(assignment.source).or_insert(0) += 1;
    }
    let expected = BTreeMap::from([(TargetId(0), 1), (TargetId(1), LIMITS.reads_max)]);
    assert_eq!(reads, expected);
    objects.set_enough(TargetId(0), None);
    let more = std::iter::from_fn(|| objects.pick(Time::ZERO)).count();
    assert_eq!(more, 3, "it makes wait again");
}
