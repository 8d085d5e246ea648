mod ruled;

use super::fill::RemainingCapacity;
use super::{
    Conductor, Event, Fault, Knowledge, Load, Orders, Record, Resource, ResourceIndex, Scene,
    Switching, Transfer, TransferIndex, TransferView, Wrong, run,
};
use dray_core::Time;
use dray_sched::rng::Rng;
use std::time::Duration;

fn at(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as u64)
}

/// A conductor that runs transfers one after the other, in the order of arrival.
struct InOrder;

impl Conductor for InOrder {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        let order: Vec<&TransferView<'_>> = scene.present.iter().collect();
        Orders {
            rates: RemainingCapacity::new(scene).in_order(&order),
            ..Orders::default()
        }
    }
}

/// A conductor that runs all transfers concurrently. The weight of a transfer is its floor, or 1
/// without a floor.
struct Together;

impl Conductor for Together {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        let wishes = scene.present.iter().map(|seen| {
            let floor = seen.transfer.floor;
            (seen, if floor > 0.0 { floor } else { 1.0 })
        });
        Orders {
            rates: RemainingCapacity::new(scene).by_weight(&wishes.collect::<Vec<_>>()),
            ..Orders::default()
        }
    }
}

/// A conductor that returns the orders of a function.
struct Scripted<F: FnMut(&Scene<'_>) -> Orders>(F);

impl<F: FnMut(&Scene<'_>) -> Orders> Conductor for Scripted<F> {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        (self.0)(scene)
    }
}

fn line(capacity: f64) -> (Load, ResourceIndex) {
    let mut load = Load::default();
    let line = load.share(Resource::steady("line", capacity));
    (load, line)
}

fn rates(pairs: &[(usize, f64)]) -> Orders {
    Orders {
        rates: pairs
            .iter()
            .map(|(at, rate)| (TransferIndex(*at), *rate))
            .collect(),
        ..Orders::default()
    }
}

fn finished(record: &Record) -> f64 {
    record.finished.expect("it ends").as_nanos() as f64 / 1e9
}

#[test]
fn what_comes_first_is_done_first_and_at_the_exact_time() {
    let (mut load, line) = line(100.0);
    let first = load.submit(Transfer::new("a", at(0.0), 1_000, &[line]));
    let second = load.submit(Transfer::new("b", at(4.0), 300, &[line]));
    let late = load.submit(Transfer::new("c", at(20.0), 100, &[line]));
    let report = run(&load, &mut InOrder).expect("sound");
    assert_eq!(report.of(first).finished, Some(at(10.0)));
    assert_eq!(report.of(second).finished, Some(at(13.0)));
    assert_eq!(report.of(second).started, Some(at(10.0)));
    assert_eq!(report.of(second).seconds(), Some(9.0));
    assert_eq!(report.of(late).finished, Some(at(21.0)));
    assert_eq!(report.ended, at(21.0));
    assert_eq!(report.idle_seconds, 0.0);
    assert_eq!(report.resources[0].used_bytes, 1_400.0);
    assert_eq!(report.resources[0].offered_bytes, 2_100.0);
    assert_eq!(report.of(first).bytes_at(at(5.0)), 500.0);
    assert_eq!(report.of(second).bytes_at(at(5.0)), 0.0);
    assert_eq!(report.of(second).bytes_at(at(99.0)), 300.0);
}

#[test]
fn shares_follow_weights_ceilings_and_the_narrowest_place() {
    let mut load = Load::default();
    let wide = load.share(Resource::steady("wide", 100.0));
    let narrow = load.share(Resource::steady("narrow", 30.0));
    let one = |name, floor, ceiling, resources: &[ResourceIndex]| Transfer {
        floor,
        ceiling,
        ..Transfer::new(name, Time::ZERO, 6_000, resources)
    };
    load.submit(one("twice", 2.0, None, &[wide, narrow]));
    load.submit(one("once", 1.0, None, &[wide, narrow]));
    load.submit(one("bounded", 1.0, Some(20.0), &[wide]));
    load.submit(one("rest", 1.0, None, &[wide]));
    let mut seen = Vec::new();
    let mut watched = Scripted(|scene: &Scene<'_>| {
        let orders = Together.conduct(scene);
        seen.push(orders.rates.clone());
        orders
    });
    let report = run(&load, &mut watched).expect("sound");
    let rates: Vec<f64> = seen[0].iter().map(|(_, rate)| rate.round()).collect();
    assert_eq!(rates, [20.0, 10.0, 20.0, 50.0]);
    assert!(report.idle_seconds < 1e-6, "{}", report.idle_seconds);
}

#[test]
fn a_change_of_capacity_applies_immediately_and_is_reported() {
    let (mut load, line) = line(100.0);
    load.resources[0].changes = vec![(at(5.0), 50.0), (at(9.0), 0.0), (at(11.0), 200.0)];
    let only = load.submit(Transfer::new("a", at(0.0), 1_000, &[line]));
    let report = run(&load, &mut InOrder).expect("sound");
    // The transfer moves 500 bytes in 5 s, 200 bytes in 4 s, none for 2 s, and 300 bytes in 1.5 s.
    assert_eq!(report.of(only).finished, Some(at(12.5)));
    assert_eq!(report.of(only).preemptions, 1);
    // A conductor that does not know the changes keeps its order, and the transfer gets the
    // available rate.
    load.knowledge = Knowledge::Assumed;
    let report = run(&load, &mut InOrder).expect("sound");
    // From 11 s on, the available rate is half of the order.
    assert_eq!(report.of(only).finished, Some(at(14.0)));
    assert_eq!(report.of(only).preemptions, 0);
}

#[test]
fn orders_above_an_unknown_capacity_shrink_in_proportion() {
    let (mut load, line) = line(90.0);
    load.resources[0].changes = vec![(at(0.0), 45.0)];
    load.knowledge = Knowledge::Assumed;
    load.submit(Transfer::new("a", at(0.0), 300, &[line]));
    load.submit(Transfer::new("b", at(0.0), 300, &[line]));
    let mut conductor = Scripted(|scene: &Scene<'_>| match scene.present {
        [_, _] => rates(&[(0, 60.0), (1, 30.0)]),
        [other] => rates(&[(other.index.0, 90.0)]),
        _ => Orders::default(),
    });
    let report = run(&load, &mut conductor).expect("sound");
    assert_eq!(finished(&report.transfers[0]), 10.0);
    assert_eq!(report.transfers[1].bytes_at(at(10.0)), 150.0);
}

#[test]
fn a_held_transfer_ends_its_object_and_a_start_costs_its_latency() {
    let (mut load, line) = line(100.0);
    load.switching = Switching {
        object_bytes: 400,
        begin: Duration::from_secs(1),
        resume: Duration::from_secs(2),
    };
    let low = load.submit(Transfer::new("low", at(0.0), 2_000, &[line]));
    let high = load.submit(Transfer {
        priority: 9,
        ..Transfer::new("high", at(6.0), 600, &[line])
    });
    let mut by_priority = Scripted(|scene: &Scene<'_>| {
        let highest = scene
            .present
            .iter()
            .max_by_key(|seen| seen.transfer.priority);
        rates(&highest.map_or(vec![], |seen| vec![(seen.index.0, 100.0)]))
    });
    let report = run(&load, &mut by_priority).expect("sound");
    // The transfer begins at 1 s and is stopped at 6 s with 500 bytes. It completes its second
    // object at 9 s.
    let low = report.of(low);
    assert_eq!(low.turns[0].to, at(9.0));
    assert_eq!(low.turns[0].bytes, 800.0);
    assert_eq!(low.preemptions, 1);
    // The start latency of the transfer `high` ends before 9 s. From then on, `high` moves 600
    // bytes. The transfer `low` resumes with a latency of two seconds.
    assert_eq!(report.of(high).finished, Some(at(15.0)));
    assert_eq!(finished(low), 29.0);
    assert_eq!(low.turns[1].from, at(15.0));
    assert_eq!(
        report.idle_seconds, 0.0,
        "what switching costs is no idleness"
    );
}

#[test]
fn a_transfer_resumed_before_it_stopped_continues() {
    let (mut load, line) = line(100.0);
    load.switching = Switching {
        object_bytes: 400,
        begin: Duration::ZERO,
        resume: Duration::from_secs(100),
    };
    let only = load.submit(Transfer::new("a", at(0.0), 1_000, &[line]));
    let mut conductor = Scripted(|scene: &Scene<'_>| match scene.now.as_nanos() {
        0 => Orders {
            look_again: Some(at(1.0)),
            ..rates(&[(0, 100.0)])
        },
        1_000_000_000 => Orders {
            look_again: Some(at(2.0)),
            ..Orders::default()
        },
        _ if scene.present.is_empty() => Orders::default(),
        _ => rates(&[(0, 100.0)]),
    });
    let report = run(&load, &mut conductor).expect("sound");
    assert_eq!(report.of(only).finished, Some(at(10.0)));
    assert_eq!(report.of(only).preemptions, 0);
    assert_eq!(report.of(only).turns.len(), 1);
}

#[test]
fn the_conductor_is_asked_after_the_bytes_and_at_the_time_it_named() {
    let (mut load, line) = line(100.0);
    let one = load.submit(Transfer::new("a", at(0.0), 1_000, &[line]));
    let mut asked = Vec::new();
    let mut conductor = Scripted(|scene: &Scene<'_>| {
        let seen = scene
            .present
            .first()
            .map(|seen| (seen.served, seen.left(), seen.has_begun));
        asked.push((scene.now, scene.events.to_vec(), seen));
        match asked.len() {
            1 => Orders {
                look_after: vec![(one, 250)],
                look_again: Some(at(9.0)),
                ..rates(&[(0, 100.0)])
            },
            2 => Orders {
                look_again: Some(at(4.0)),
                ..rates(&[(0, 50.0)])
            },
            _ => rates(&scene.present.iter().map(|_| (0, 100.0)).collect::<Vec<_>>()),
        }
    });
    run(&load, &mut conductor).expect("sound");
    let seconds = |time| at(time);
    assert_eq!(
        asked,
        [
            (
                seconds(0.0),
                vec![Event::Arrival(one)],
                Some((0.0, 1_000.0, false))
            ),
            (
                seconds(2.5),
                vec![Event::Served(one)],
                Some((250.0, 750.0, true))
            ),
            (seconds(4.0), vec![Event::Wake], Some((325.0, 675.0, true))),
            (seconds(10.75), vec![Event::Finish(one)], None),
        ]
    );
}

#[test]
fn a_refused_transfer_leaves_and_idleness_is_counted() {
    let (mut load, line) = line(100.0);
    let refused = load.submit(Transfer::new("a", at(0.0), 1_000, &[line]));
    let taken = load.submit(Transfer::new("b", at(0.0), 1_000, &[line]));
    let later = load.submit(Transfer {
        not_before: Some(at(30.0)),
        ..Transfer::new("c", at(0.0), 100, &[line])
    });
    let mut conductor = Scripted(|scene: &Scene<'_>| {
        let may = |seen: &&TransferView<'_>| {
            seen.transfer
                .not_before
                .is_none_or(|time| time <= scene.now)
        };
        let is_first = scene.now == Time::ZERO;
        let rest = scene
            .present
            .iter()
            .filter(may)
            .filter(|seen| seen.index != refused);
        Orders {
            refuse: is_first.then_some(refused).into_iter().collect(),
            look_again: (scene.now < at(30.0)).then(|| at(30.0)),
            ..rates(&rest.map(|seen| (seen.index.0, 50.0)).collect::<Vec<_>>())
        }
    });
    let report = run(&load, &mut conductor).expect("sound");
    assert!(report.of(refused).is_refused && report.of(refused).finished.is_none());
    assert_eq!(report.of(taken).finished, Some(at(20.0)));
    assert_eq!(report.of(later).finished, Some(at(32.0)));
    // Half of the line was idle while a transfer that could have used it was present.
    assert_eq!((report.idle_seconds, report.idle_bytes), (22.0, 1_100.0));
}

fn fault(load: &Load, orders: &Orders) -> Fault {
    let mut conductor = Scripted(|_: &Scene<'_>| orders.clone());
    run(load, &mut conductor).expect_err("it cannot be")
}

#[test]
fn impossible_orders_end_the_run() {
    let (mut load, line) = line(100.0);
    let bounded = Transfer {
        ceiling: Some(60.0),
        ..Transfer::new("a", at(0.0), 1_000, &[line])
    };
    load.submit(bounded);
    load.submit(Transfer::new("b", at(0.0), 1_000, &[line]));
    load.submit(Transfer::new("comes later", at(5.0), 1_000, &[line]));
    load.submit(Transfer {
        not_before: Some(at(7.0)),
        ..Transfer::new("begins later", at(0.0), 1_000, &[line])
    });
    let index = TransferIndex;
    let what = |orders: &Orders| fault(&load, orders).what;
    assert_eq!(
        what(&rates(&[(0, 60.0), (1, 41.0)])),
        Wrong::Overdrawn {
            resource: line,
            ordered: 101.0,
            capacity: 100.0
        }
    );
    assert_eq!(what(&rates(&[(0, 61.0)])), Wrong::BadRate(index(0), 61.0));
    assert_eq!(what(&rates(&[(0, -1.0)])), Wrong::BadRate(index(0), -1.0));
    assert_eq!(what(&rates(&[(2, 1.0)])), Wrong::NotThere(index(2)));
    assert_eq!(what(&rates(&[(3, 1.0)])), Wrong::NotThere(index(3)));
    assert_eq!(what(&rates(&[(9, 1.0)])), Wrong::NotThere(index(9)));
    assert_eq!(what(&rates(&[(1, 1.0), (1, 1.0)])), Wrong::Twice(index(1)));
    let refused = Orders {
        refuse: vec![index(1)],
        ..rates(&[(1, 1.0)])
    };
    assert_eq!(what(&refused), Wrong::NotThere(index(1)));
    let again = Orders {
        look_again: Some(at(0.0)),
        ..Orders::default()
    };
    assert_eq!(what(&again), Wrong::AsksAtOnce);
    let after = Orders {
        look_after: vec![(index(0), 0)],
        ..Orders::default()
    };
    assert_eq!(what(&after), Wrong::AsksAtOnce);
    let twice = Orders {
        look_after: vec![(index(0), 5), (index(0), 6)],
        ..Orders::default()
    };
    assert_eq!(what(&twice), Wrong::Twice(index(0)));
    let stuck = fault(&load, &Orders::default());
    assert_eq!(stuck.at, at(5.0), "the last arrival was waited for");
    assert_eq!(stuck.what, Wrong::Stuck((0..4).map(index).collect()));
    assert!(stuck.to_string().starts_with("at 5.000 s: Stuck"));
}

#[test]
fn a_conductor_that_never_ends_is_found() {
    let (mut load, line) = line(100.0);
    load.submit(Transfer::new("a", at(0.0), 1_000, &[line]));
    let mut conductor = Scripted(|scene: &Scene<'_>| Orders {
        look_again: Some(scene.now + Duration::from_nanos(1)),
        ..Orders::default()
    });
    let fault = run(&load, &mut conductor).expect_err("it never ends");
    assert_eq!(fault.what, Wrong::Endless);
}

/// Returns a random load: many transfers on several resources whose capacities change.
fn drawn(seed: u64) -> Load {
    let mut draw = Rng::new(seed);
    let mut load = Load::default();
    for name in 0..1 + draw.below(4) {
        let mut resource = Resource::steady(&name.to_string(), 1e6 + draw.below(1_000_000) as f64);
        let mut time = 0;
        for _ in 0..draw.below(5) {
            time += draw.below(20_000_000_000);
            let capacity = 5e5 + draw.below(1_000_000) as f64;
            resource.changes.push((Time::from_nanos(time), capacity));
        }
        load.share(resource);
    }
    let count = load.resources.len() as u64;
    for name in 0..1 + draw.below(20) {
        let mut resources = vec![ResourceIndex(draw.below(count) as usize)];
        let other = ResourceIndex(draw.below(count) as usize);
        if other != resources[0] {
            resources.push(other);
        }
        let arrives = Time::from_nanos(draw.below(30_000_000_000));
        let bytes = draw.below(10_000_000);
        let ceiling = (draw.below(3) == 0).then(|| 1e5 + draw.below(500_000) as f64);
        load.submit(Transfer {
            ceiling,
            floor: draw.below(5) as f64,
            ..Transfer::new(&name.to_string(), arrives, bytes, &resources)
        });
    }
    if draw.below(2) == 0 {
        load.switching = Switching {
            object_bytes: draw.below(1 << 20),
            begin: Duration::from_millis(draw.below(500)),
            resume: Duration::from_millis(draw.below(500)),
        };
    }
    load
}

#[test]
fn every_byte_is_moved_once_and_nothing_is_overdrawn() {
    for seed in 0..300 {
        let load = drawn(seed);
        let conductors: [&mut dyn Conductor; 2] = [&mut InOrder, &mut Together];
        for conductor in conductors {
            let report = run(&load, conductor).unwrap_or_else(|fault| panic!("{seed}: {fault}"));
            let mut used = vec![0.0; load.resources.len()];
            for (transfer, record) in load.transfers.iter().zip(&report.transfers) {
                let bytes = transfer.bytes as f64;
                let moved: f64 = record.turns.iter().map(|turn| turn.bytes).sum();
                assert!(
                    (moved - bytes).abs() < 1e-3,
                    "seed {seed}: {moved} of {bytes}"
                );
                assert!(record.curve.windows(2).all(|pair| pair[0].0 < pair[1].0));
                assert!(record.curve.windows(2).all(|pair| pair[0].1 <= pair[1].1));
                let end = record.finished.expect("all end");
                assert_eq!(record.bytes_at(end), bytes, "seed {seed}");
                assert!(record.started >= Some(transfer.arrives));
                for resource in &transfer.resources {
                    used[resource.0] += bytes;
                }
            }
            for (resource, used) in report.resources.iter().zip(used) {
                assert!(
                    (resource.used_bytes - used).abs() < 1.0,
                    "seed {seed}: {resource:?}"
                );
                assert!(
                    resource.used_bytes <= resource.offered_bytes + 1.0,
                    "seed {seed}"
                );
            }
            assert!(
                report.idle_bytes < 1.0,
                "seed {seed}: both are work-conserving"
            );
        }
        let again = run(&load, &mut Together).expect("sound");
        assert!(
            again == run(&load, &mut Together).expect("sound"),
            "seed {seed} replays"
        );
    }
}
