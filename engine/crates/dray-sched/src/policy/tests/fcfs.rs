use super::super::{Fcfs, Limits, Transfer};
use super::{NOW, decide, held, running};
use dray_core::Time;
use std::time::Duration;

fn one(id: &str, submitted: u64) -> Transfer<'_> {
    Transfer {
        owner: if id.len() > 1 { "many" } else { "few" },
        ..Transfer::new(id, submitted)
    }
}

#[test]
fn transfers_run_in_the_order_of_submission_within_the_limits() {
    type Case<'a> = (
        &'a str,
        Vec<Transfer<'a>>,
        usize,
        Vec<&'a str>,
        Vec<&'a str>,
    );
    let urgent = Transfer {
        priority: 9,
        ..one("u", 9)
    };
    let cases: [Case<'_>; 6] = [
        ("nothing", vec![], 3, vec![], vec![]),
        (
            "in order of submission, whatever the priority",
            vec![urgent.clone(), one("b", 2), one("a", 1)],
            2,
            vec!["a", "b"],
            vec![],
        ),
        (
            "what runs goes on, even if others were first",
            vec![running(one("b", 2)), one("a", 1), one("c", 3)],
            2,
            vec!["b", "a"],
            vec![],
        ),
        (
            "what is held has its place in the order",
            vec![held(one("c", 3), 1), one("b", 2), one("d", 4)],
            2,
            vec!["b", "c"],
            vec![],
        ),
        (
            "more run than may: the last is held",
            vec![
                running(one("b", 2)),
                running(one("a", 1)),
                running(one("c", 3)),
            ],
            2,
            vec!["a", "b"],
            vec!["c"],
        ),
        (
            "a full owner holds nobody up",
            vec![one("aa", 1), one("bb", 2), one("c", 3)],
            2,
            vec!["aa", "c"],
            vec![],
        ),
    ];
    for (name, transfers, max_running, run, hold) in cases {
        let limits = Limits {
            owner_max: if name.contains("owner") { 1 } else { 9 },
            ..Limits::of(9)
        };
        let decision = decide(&mut Fcfs::new(max_running), &transfers, &limits, NOW);
        assert_eq!(decision.run, run, "{name}");
        assert_eq!(decision.hold, hold, "{name}");
        assert_eq!(decision.look_again, None, "{name}");
    }
}

#[test]
fn a_future_start_is_decided_in_time() {
    let later = |id, seconds| Transfer {
        not_before: Some(NOW + Duration::from_secs(seconds)),
        ..one(id, 1)
    };
    let transfers = [later("a", 20), later("b", 10), later("c", 0)];
    let decision = decide(&mut Fcfs::new(9), &transfers, &Limits::of(9), NOW);
    assert_eq!(decision.run, ["c"]);
    assert_eq!(decision.look_again, Some(NOW + Duration::from_secs(10)));
    let past = decide(&mut Fcfs::new(9), &transfers, &Limits::of(9), Time::ZERO);
    assert!(past.run.is_empty());
}
