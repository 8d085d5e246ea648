use super::super::{Limits, Phase, Priority, Transfer};
use super::{decide, held, running};
use dray_core::Time;
use dray_core::rate::Class;
use std::time::Duration;

const AGING: Duration = Duration::from_secs(100);

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn one(id: &str, priority: u8) -> Transfer<'_> {
    Transfer {
        priority,
        since: at(1_000),
        ..Transfer::new(id, u64::from(priority))
    }
}

/// A case: name, transfers, time in seconds, transfers that must run, and transfers that must be
/// held.
type Case<'a> = (&'a str, Vec<Transfer<'a>>, u64, Vec<&'a str>, Vec<&'a str>);

fn assert_decisions(cases: Vec<Case<'_>>) {
    for (name, transfers, now, run, hold) in cases {
        let mut policy = Priority::new(1, AGING);
        let decision = decide(&mut policy, &transfers, &Limits::of(9), at(now));
        assert_eq!(decision.run, run, "{name}");
        assert_eq!(decision.hold, hold, "{name}");
    }
}

#[test]
fn the_highest_priority_runs_and_equals_keep_their_order() {
    assert_decisions(vec![
        ("nothing", vec![], 1_000, vec![], vec![]),
        (
            "the highest",
            vec![one("b", 5), one("a", 9)],
            1_000,
            vec!["a"],
            vec![],
        ),
        (
            "more than 9 is 9, and then the order of submission",
            vec![one("b", 200), one("a", 9)],
            1_000,
            vec!["a"],
            vec![],
        ),
        (
            "a higher one takes the place",
            vec![running(one("low", 3)), one("high", 4)],
            1_000,
            vec!["high"],
            vec!["low"],
        ),
        (
            "an equal one does not",
            vec![
                running(one("b", 3)),
                Transfer {
                    submitted: 0,
                    ..one("a", 3)
                },
            ],
            1_000,
            vec!["b"],
            vec![],
        ),
        (
            "what is held goes before what never began",
            vec![
                one("b", 3),
                held(
                    Transfer {
                        submitted: 99,
                        ..one("a", 3)
                    },
                    1_000,
                ),
            ],
            1_000,
            vec!["a"],
            vec![],
        ),
    ]);
}

#[test]
fn waiting_raises_a_transfer_and_a_class_is_above_any_priority() {
    let realtime = Transfer {
        class: Class::Realtime,
        ..one("realtime", 0)
    };
    assert_decisions(vec![
        (
            "what has waited has risen, one step in each hundred seconds",
            vec![running(one("a", 5)), one("b", 3)],
            1_299,
            vec!["a"],
            vec![],
        ),
        (
            "and takes the place when it is above",
            vec![running(one("a", 5)), one("b", 3)],
            1_300,
            vec!["b"],
            vec!["a"],
        ),
        (
            "a class is worth more than nine steps",
            vec![one("urgent", 9), realtime],
            1_000,
            vec!["realtime"],
            vec![],
        ),
    ]);
}

#[test]
fn the_next_decision_is_due_when_a_waiting_transfer_rises_above() {
    let transfers = [running(one("a", 5)), one("b", 3), one("c", 1)];
    let decision = decide(
        &mut Priority::new(1, AGING),
        &transfers,
        &Limits::of(9),
        at(1_000),
    );
    assert_eq!(decision.look_again, Some(at(1_300)));
    let later = Transfer {
        not_before: Some(at(5_000)),
        ..one("later", 9)
    };
    let transfers = [running(one("a", 5)), later.clone()];
    let decision = decide(
        &mut Priority::new(1, AGING),
        &transfers,
        &Limits::of(9),
        at(1_000),
    );
    assert_eq!(decision.look_again, Some(at(5_000)));
    // The time before `not_before` does not count as waiting.
    let lower = Transfer {
        priority: 4,
        ..later
    };
    let transfers = [running(one("a", 5)), lower];
    let decision = decide(
        &mut Priority::new(1, AGING),
        &transfers,
        &Limits::of(9),
        at(5_000),
    );
    assert_eq!(decision.run, ["a"]);
    assert_eq!(decision.look_again, Some(at(5_200)));
}

/// Runs two transfers with priorities `low` and `high` on one slot until the time `until`. Returns
/// each change of the running transfer with its time.
fn play(low: u8, high: u8, until: u64) -> Vec<(u64, &'static str)> {
    let mut policy = Priority::new(1, AGING);
    let mut transfers = [one("low", low), one("high", high)].map(|one| Transfer {
        since: at(0),
        ..one
    });
    let (mut now, mut story) = (at(0), Vec::new());
    while now < at(until) {
        let decision = decide(&mut policy, &transfers, &Limits::of(9), now);
        for one in &mut transfers {
            let phase = match (decision.run.contains(&one.id), one.phase) {
                (true, _) => Phase::Running,
                (false, Phase::Waiting) => Phase::Waiting,
                (false, _) => Phase::Held,
            };
            if phase != one.phase {
                (one.phase, one.since) = (phase, now);
                if phase == Phase::Running {
                    story.push((now.as_nanos() / 1_000_000_000, one.id));
                }
            }
        }
        now = decision.look_again.expect("one of them waits");
    }
    story
}

#[test]
fn a_risen_transfer_keeps_its_slot_for_one_aging() {
    // The low transfer rises by eight steps, runs for one `aging`, and must then rise again.
    assert_eq!(
        play(2, 9, 2_000),
        [
            (0, "high"),
            (800, "low"),
            (900, "high"),
            (1_700, "low"),
            (1_800, "high")
        ]
    );
    // Transfers of equal priority alternate: each runs until the other has risen by one step.
    assert_eq!(
        play(3, 3, 350),
        [(0, "high"), (100, "low"), (200, "high"), (300, "low")]
    );
}
