//! Tests of the policies: one file of cases for each policy, and a simulation for all of them.

mod fair;
mod fcfs;
mod pairs;
mod priority;
mod round_robin;
mod world;

use super::{Decision, Limits, Name, Phase, Policy, Scheduler, Settings, Transfer, View, settle};
use dray_core::Time;

const NOW: Time = Time::from_nanos(3_600_000_000_000);

fn decide<'a>(
    policy: &mut dyn Policy,
    transfers: &[Transfer<'a>],
    limits: &Limits,
    now: Time,
) -> Decision<'a> {
    let view = View {
        transfers,
        ended: &[],
        limits,
    };
    policy.decide(&view, now)
}

fn running(one: Transfer<'_>) -> Transfer<'_> {
    Transfer {
        phase: Phase::Running,
        ..one
    }
}

fn held(one: Transfer<'_>, seconds: u64) -> Transfer<'_> {
    Transfer {
        phase: Phase::Held,
        since: Time::from_nanos(seconds * 1_000_000_000),
        ..one
    }
}

#[test]
fn the_longest_held_are_released_when_too_many_are_held() {
    let transfers = [
        held(Transfer::new("a", 1), 30),
        held(Transfer::new("b", 2), 10),
        held(Transfer::new("c", 3), 20),
        running(Transfer::new("d", 4)),
        running(Transfer::new("e", 5)),
        Transfer::new("f", 6),
    ];
    let decide = |held_max, run: &[&Transfer<'static>]| {
        let limits = Limits {
            held_max,
            ..Limits::of(1)
        };
        let view = View {
            transfers: &transfers,
            ended: &[],
            limits: &limits,
        };
        settle(&view, run, NOW)
    };
    let none = decide(5, &[&transfers[5]]);
    assert_eq!((none.run, none.hold), (vec!["f"], vec!["d", "e"]));
    assert!(none.release.is_empty());
    assert_eq!(decide(3, &[&transfers[5]]).release, ["b", "c"]);
    // A newly held transfer is the last one to give up its session.
    assert_eq!(decide(0, &[&transfers[1]]).release, ["c", "a", "d", "e"]);
}

#[test]
fn names_are_read_as_they_are_written() {
    for name in Name::ALL {
        assert_eq!(Name::parse(name.as_str()), Some(name));
        // The API and the configuration use the same name.
        let written = serde_json::to_value(name).expect("JSON");
        assert_eq!(written, name.as_str());
    }
    assert_eq!(Name::parse("Fair"), None);
    assert_eq!(Settings::default().name, Name::Fair);
}

#[test]
fn a_change_to_the_same_settings_forgets_nothing() {
    let owned = |id, owner| Transfer {
        owner,
        ..Transfer::new(id, 1)
    };
    let transfers = [owned("a", "a"), owned("b", "b")];
    let limits = Limits::of(1);
    let view = View {
        transfers: &transfers,
        ended: &[],
        limits: &limits,
    };
    let mut scheduler = Scheduler::default();
    let mut next = |settings: &Settings| {
        scheduler.change(settings.clone());
        scheduler.decide(&view, Time::ZERO).run[0]
    };
    let fair = Settings::of(Name::Fair);
    assert_eq!((next(&fair), next(&fair)), ("a", "b"), "they take turns");
    let fcfs = Settings::of(Name::Fcfs);
    assert_eq!((next(&fcfs), next(&fcfs)), ("a", "a"));
    assert_eq!((next(&fair), next(&fair)), ("a", "b"), "from the beginning");
}
