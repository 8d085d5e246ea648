//! Policies in the fluid model. The tests check promises about time and bytes, not only the choices
//! of a policy.

use super::super::{
    Conductor, Load, Orders, Report, Resource, Ruled, Scene, Switching, Transfer, TransferIndex,
    run,
};
use super::at;
use dray_core::Time;
use dray_core::rate::Class;
use dray_sched::policy::{Limits, Name, Settings};
use dray_sched::rng::Rng;
use std::time::Duration;

const MB: u64 = 1_000_000;

fn play(load: &Load, settings: &Settings, limits: Limits) -> Report {
    let mut conductor = Ruled::new(load, settings.make(), limits);
    run(load, &mut conductor).unwrap_or_else(|fault| panic!("{settings:?}: {fault}"))
}

/// Returns a random load: transfers of three owners and several pairs of endpoints on one line.
fn drawn(seed: u64) -> Load {
    let mut draw = Rng::new(seed);
    let mut load = Load::default();
    let line = load.share(Resource::steady("line", 50e6));
    for at in 0..2 + draw.below(15) {
        let arrives = Time::from_nanos(draw.below(120_000_000_000));
        let bytes = MB * (1 + draw.below(2_000));
        let names = ["a", "b", "c"];
        let mut name = || names[draw.below(3) as usize].to_owned();
        let (owner, source, sink) = (name(), name(), name());
        load.submit(Transfer {
            owner,
            source,
            sink,
            class: [Class::Realtime, Class::Background][draw.below(2) as usize],
            priority: draw.below(10) as u8,
            ..Transfer::new(&at.to_string(), arrives, bytes, &[line])
        });
    }
    load.switching.object_bytes = 1 << 20;
    load
}

#[test]
fn every_policy_uses_the_link_while_transfers_are_present() {
    for seed in 0..40 {
        let load = drawn(seed);
        for name in Name::ALL {
            for max_running in [None, Some(1), Some(3)] {
                let settings = Settings {
                    max_running,
                    ..Settings::of(name)
                };
                let report = play(&load, &settings, Limits::of(4));
                assert!(report.transfers.iter().all(|one| one.finished.is_some()));
                assert!(
                    report.idle_bytes < 1.0,
                    "{seed} {name:?}: {}",
                    report.idle_bytes
                );
            }
        }
    }
}

/// A conductor that changes the policy every few events.
struct Fickle<'l> {
    ruled: Ruled<'l>,
    draw: Rng,
}

impl Conductor for Fickle<'_> {
    fn conduct(&mut self, scene: &Scene<'_>) -> Orders {
        if self.draw.below(3) == 0 {
            let name = Name::ALL[self.draw.below(Name::ALL.len() as u64) as usize];
            let settings = Settings {
                max_running: (self.draw.below(2) == 0).then(|| 1 + self.draw.below(3) as usize),
                ..Settings::of(name)
            };
            self.ruled.change(settings.make());
        }
        self.ruled.conduct(scene)
    }
}

#[test]
fn a_change_of_policy_in_the_middle_loses_no_byte_and_no_time() {
    for seed in 0..100 {
        let load = drawn(seed);
        let policy = Settings::default().make();
        let mut fickle = Fickle {
            ruled: Ruled::new(&load, policy, Limits::of(3)),
            draw: Rng::new(seed),
        };
        let report = run(&load, &mut fickle).unwrap_or_else(|fault| panic!("{seed}: {fault}"));
        for (transfer, record) in load.transfers.iter().zip(&report.transfers) {
            assert!(record.finished.is_some(), "seed {seed}");
            let moved: f64 = record.turns.iter().map(|turn| turn.bytes).sum();
            assert!((moved - transfer.bytes as f64).abs() < 1e-3, "seed {seed}");
        }
        assert!(
            report.idle_bytes < 1.0,
            "seed {seed}: {}",
            report.idle_bytes
        );
    }
}

#[test]
fn a_higher_priority_moves_within_one_object_s_time() {
    let object_bytes = 8 * MB;
    for seed in 0..50 {
        let mut draw = Rng::new(seed);
        let mut load = Load::default();
        let line = load.share(Resource::steady("line", 50e6));
        load.switching.object_bytes = object_bytes;
        let low = load.submit(Transfer::new("low", Time::ZERO, 900 * MB, &[line]));
        let arrives = Time::from_nanos(draw.below(17_000_000_000));
        let high = load.submit(Transfer {
            priority: 4,
            ..Transfer::new("high", arrives, 50 * MB, &[line])
        });
        let report = play(&load, &Settings::of(Name::Priority), Limits::of(9));
        let object = Duration::from_secs_f64(object_bytes as f64 / 50e6);
        assert!(
            report.of(low).turns[0].to <= arrives + object,
            "seed {seed}"
        );
        let latest = arrives + object + Duration::from_secs(1);
        assert!(report.of(high).finished <= Some(latest), "seed {seed}");
        assert_eq!(report.of(low).preemptions, 1);
    }
}

#[test]
fn turns_are_as_long_as_the_quota_though_objects_are_not_cut() {
    let mut load = Load::default();
    let line = load.share(Resource::steady("line", 50e6));
    // A turn of 400 MB has two and a half objects.
    load.switching.object_bytes = 160 * MB;
    for owner in ["a", "b", "c"] {
        load.submit(Transfer {
            owner: owner.to_owned(),
            ..Transfer::new(owner, Time::ZERO, 40_000 * MB, &[line])
        });
    }
    let report = play(&load, &Settings::of(Name::RoundRobin), Limits::of(9));
    // While all three transfers are present, no transfer is ahead of another by more than a turn
    // and an object.
    for second in 0..2_300 {
        let moved = [0, 1, 2].map(|one| {
            report
                .of(TransferIndex(one))
                .bytes_at(at(f64::from(second)))
        });
        let most = moved.iter().copied().fold(0.0, f64::max);
        let least = moved.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(
            most - least <= 560.0 * MB as f64 + 1.0,
            "at {second} s: {moved:?}"
        );
    }
    for record in &report.transfers {
        // The last turn moves the bytes that remain, so do not check it.
        let turns = &record.turns[..record.turns.len() - 1];
        assert!(
            turns
                .iter()
                .all(|turn| (turn.bytes - 400e6).abs() <= 160e6 + 1.0)
        );
        let mean = turns.iter().map(|turn| turn.bytes).sum::<f64>() / turns.len() as f64;
        assert!((mean - 400e6).abs() < 4e6, "{mean}");
    }
}

#[test]
fn a_huge_overdraft_is_paid_back() {
    let mut load = Load::default();
    let line = load.share(Resource::steady("line", 50e6));
    // An object has five times the size of a turn, and cannot be interrupted.
    load.switching = Switching {
        object_bytes: 2_000 * MB,
        ..Switching::default()
    };
    let huge = load.submit(Transfer {
        owner: "huge".to_owned(),
        ..Transfer::new("huge", Time::ZERO, 6_000 * MB, &[line])
    });
    for _ in 0..100 {
        load.submit(Transfer {
            owner: "small".to_owned(),
            ..Transfer::new("small", Time::ZERO, 100 * MB, &[line])
        });
    }
    let report = play(&load, &Settings::of(Name::RoundRobin), Limits::of(9));
    // While one party moves an object of 2 GB, the other waits, then moves 2 GB in five turns. Both
    // take 40 s.
    let turns = &report.of(huge).turns;
    let times: Vec<_> = turns.iter().map(|turn| (turn.from, turn.to)).collect();
    let expected = [(0.0, 40.0), (80.0, 120.0), (160.0, 200.0)];
    assert_eq!(times, expected.map(|(from, to)| (at(from), at(to))));
}

#[test]
fn pairs_do_not_wait_for_each_other_and_those_beyond_the_bound_wait_in_line() {
    let mut load = Load::default();
    let paths = [1, 2, 3].map(|path| load.share(Resource::steady(&path.to_string(), 50e6)));
    for (at, path) in paths.iter().enumerate() {
        load.submit(Transfer {
            source: format!("source {at}"),
            sink: format!("sink {at}"),
            ..Transfer::new("", Time::ZERO, 1_000 * MB, &[*path])
        });
    }
    let max_running = |max_running| Settings {
        max_running,
        ..Settings::of(Name::Pairs)
    };
    let report = play(&load, &max_running(None), Limits::of(9));
    assert_eq!(report.ended, at(20.0));
    let report = play(&load, &max_running(Some(2)), Limits::of(9));
    let starts: Vec<_> = report.transfers.iter().map(|one| one.started).collect();
    assert_eq!(starts, [Some(at(0.0)), Some(at(0.0)), Some(at(20.0))]);
}
