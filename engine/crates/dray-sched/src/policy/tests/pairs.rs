use super::super::{Limits, Pair, Pairs, Transfer};
use super::{NOW, decide, held, running};
use std::collections::BTreeMap;

fn one<'a>(id: &'a str, source: &'a str, sink: &'a str, submitted: u64) -> Transfer<'a> {
    Transfer {
        pair: Pair { source, sink },
        ..Transfer::new(id, submitted)
    }
}

#[test]
fn one_transfer_of_each_pair_runs() {
    type Case<'a> = (
        &'a str,
        Vec<Transfer<'a>>,
        usize,
        Vec<&'a str>,
        Vec<&'a str>,
    );
    let ab = |id, submitted| one(id, "a", "b", submitted);
    let cases: [Case<'_>; 7] = [
        ("nothing", vec![], 2, vec![], vec![]),
        (
            "one of each pair, in order of submission",
            vec![ab("2", 2), ab("1", 1), one("3", "a", "c", 3)],
            9,
            vec!["1", "3"],
            vec![],
        ),
        (
            "there and back are two pairs",
            vec![ab("1", 1), one("2", "b", "a", 2)],
            9,
            vec!["1", "2"],
            vec![],
        ),
        (
            "so many pairs and no more",
            vec![ab("1", 1), one("2", "a", "c", 2), one("3", "a", "d", 3)],
            2,
            vec!["1", "2"],
            vec![],
        ),
        (
            "who runs stays, though others were first",
            vec![one("1", "a", "c", 1), running(ab("2", 2)), ab("0", 0)],
            1,
            vec!["2"],
            vec![],
        ),
        (
            "two of one pair run by another policy's word",
            vec![running(ab("2", 2)), running(ab("1", 1))],
            9,
            vec!["1"],
            vec!["2"],
        ),
        (
            "what is held goes on first",
            vec![ab("1", 1), held(ab("2", 2), 1)],
            9,
            vec!["2"],
            vec![],
        ),
    ];
    for (name, transfers, pairs_max, run, hold) in cases {
        let decision = decide(&mut Pairs::new(pairs_max), &transfers, &Limits::of(9), NOW);
        assert_eq!(decision.run, run, "{name}");
        assert_eq!(decision.hold, hold, "{name}");
    }
}

#[test]
fn a_limit_of_one_transfer_leaves_the_turn_to_the_pair_s_next() {
    let full = Transfer {
        owner: "full",
        ..one("1", "a", "b", 1)
    };
    let transfers = [full, one("2", "a", "b", 2)];
    let rules = super::super::OwnerRules {
        running_max: Some(0),
        ..Default::default()
    };
    let limits = Limits {
        owners: BTreeMap::from([("full".to_owned(), rules)]),
        ..Limits::of(9)
    };
    assert_eq!(
        decide(&mut Pairs::new(9), &transfers, &limits, NOW).run,
        ["2"]
    );
}

#[test]
fn a_pair_with_a_long_line_lets_the_others_in() {
    let mut policy = Pairs::new(1);
    let mut served = Vec::new();
    // Each transfer starts, and ends before the next decision.
    let mut transfers = vec![
        one("a1", "a", "x", 1),
        one("a2", "a", "x", 2),
        one("a3", "a", "x", 3),
        one("b1", "b", "x", 4),
        one("c1", "c", "x", 5),
        one("b2", "b", "x", 6),
    ];
    while !transfers.is_empty() {
        let run = decide(&mut policy, &transfers, &Limits::of(9), NOW).run;
        served.extend(run.iter().copied());
        transfers.retain(|one| !run.contains(&one.id));
    }
    assert_eq!(served, ["a1", "b1", "c1", "a2", "b2", "a3"]);
}
