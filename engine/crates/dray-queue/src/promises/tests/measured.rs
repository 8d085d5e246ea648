//! Promises from measured rates, and notices about slow transfers.

use super::*;

#[test]
fn rates_follow_the_plan_and_are_told() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    let look = promises.replan(&[moves(7, "one", 0, true)], noon());
    let planned = look.planned[&7];
    assert!((60 * MEGA..62 * MEGA).contains(&planned), "{planned}");
    let Some(Report::Rate { id, old, new, .. }) = look.told.first() else {
        panic!("{:?}", look.told);
    };
    assert_eq!((id.as_str(), *old, *new), ("one", 0, planned));
    let view = promises.view("one");
    assert_eq!((view.is_promised, view.planned), (true, Some(planned)));
    assert_ne!(view.reason, Some(ReasonWord::Suspended));
    // The transfer has moved more bytes than planned, so a lower rate is enough for the remaining
    // bytes.
    let look = promises.replan(&[moves(7, "one", 4_000 * MEGA, true)], at(50));
    assert!(
        (40 * MEGA..42 * MEGA).contains(&look.planned[&7]),
        "{look:?}"
    );
    let (early, late) = promises.eta("one", at(50)).expect("known");
    assert!(early < at(75) && late == Some(at(101)), "{early} {late:?}");
    promises.end(1, Some(true));
    assert!(!promises.is_promised("one"));
    assert_eq!(
        promises
            .counts
            .kept
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[test]
fn who_is_slow_by_itself_is_foretold_once_with_the_cause() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    let mut told = Vec::new();
    // The transfer moves 20 MB/s, although its permitted rate is higher.
    for tenth in 0..100 {
        let now = noon().after(Duration::from_millis(tenth * 200));
        let look = promises.replan(&[moves(7, "one", tenth * 4 * MEGA, false)], now);
        let misses = look.told.into_iter().filter_map(|told| match told {
            Report::Miss { miss, .. } => Some((tenth, miss)),
            Report::Rate { .. } => None,
        });
        told.extend(misses);
    }
    let [(when, Some(miss))] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert!((20..40).contains(when), "{when}");
    assert!(miss.cause.contains("does not reach the rate"), "{miss:?}");
    let earliest = miss.earliest_finish.expect("known");
    assert!(earliest > at(250) && earliest < at(320), "{earliest}");
    assert_eq!(
        promises.view("one").miss.map(|miss| miss.cause),
        Some(miss.cause.clone())
    );
    // The transfer now uses its whole rate, so it may meet its deadline again.
    let look = promises.replan(&[moves(7, "one", 480 * MEGA, true)], at(21));
    assert!(
        matches!(
            look.told.as_slice(),
            [Report::Miss { miss: None, .. }, ..] | [.., Report::Miss { miss: None, .. }]
        ),
        "{look:?}"
    );
}

/// Returns a session of a transfer that another endpoint drives. The session has moved `moved`
/// bytes.
fn strangers(moved: u64) -> SessionProgress<'static> {
    SessionProgress {
        session: 1,
        own: None,
        moved,
        done: 0,
        listed: None,
        is_hungry: true,
        granted: None,
    }
}

/// Runs a session of another endpoint's transfer that uses the whole link for five seconds.
fn fill_link(promises: &Promises) {
    for second in 0..5 {
        promises.replan(&[strangers(second * 80 * MEGA)], at(second));
    }
}

#[test]
fn a_link_that_is_measured_can_be_promised_of() {
    let promises = promises(None, &[]);
    fill_link(&promises);
    assert_eq!(promises.take_news(), Some(0));
    assert_eq!(promises.take_news(), None);
    let wanted = due(9_000, 106);
    assert!(promises.take(&[ask(1, "one", &wanted)], at(5)).is_err());
    assert!(take(&promises, 1, "one", &due(7_000, 106)));
}

#[test]
fn a_session_that_comes_back_has_not_moved_all_of_it_just_now() {
    let promises = promises(None, &[]);
    fill_link(&promises);
    // The session is held, and then resumes.
    promises.replan(&[], at(5));
    promises.replan(&[strangers(900_000 * MEGA)], at(6));
    promises.replan(&[strangers(900_080 * MEGA)], at(7));
    assert!(!take(&promises, 1, "one", &due(9_000, 107)));
}

#[test]
fn who_has_no_gate_or_a_low_one_does_not_teach_that_the_link_gives_less() {
    for granted in [None, Some(10 * MEGA)] {
        let promises = promises(None, &[]);
        let session = |moved, granted| SessionProgress {
            session: 1,
            own: None,
            moved,
            done: 0,
            listed: None,
            is_hungry: true,
            granted,
        };
        for second in 0..5 {
            promises.replan(&[session(second * 80 * MEGA, None)], at(second));
        }
        // This session lists a tree, or has a low `rate_max` of its own.
        for second in 5..200 {
            let moved = (400 + 10 * (second - 5)) * MEGA;
            promises.replan(&[session(moved, granted)], at(second));
        }
        assert_eq!(promises.measured(), Some(80 * MEGA), "{granted:?}");
        // A session that wants more than it gets is strong evidence of a lower capacity, because
        // its rate limit is not below the estimated capacity of the link.
        for second in 200..300 {
            let moved = (2_340 + 40 * (second - 199)) * MEGA;
            promises.replan(&[session(moved, Some(90 * MEGA))], at(second));
        }
        let measured = promises.measured().expect("known");
        assert!((40 * MEGA..42 * MEGA).contains(&measured), "{measured}");
    }
}

#[test]
fn a_change_does_not_forget_who_is_slow() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    let round = |tenth: u64| {
        let now = noon().after(Duration::from_millis(tenth * 200));
        promises.replan(&[moves(7, "one", tenth * 4 * MEGA, false)], now)
    };
    (0..50).for_each(|tenth| drop(round(tenth)));
    assert!(promises.view("one").miss.is_some());
    let withdrawn = |look: &crate::promises::Round| {
        let told = look.told.iter();
        told.filter(|told| matches!(told, Report::Miss { .. }))
            .count()
            > 0
    };
    let accepted = due(6_000, 102);
    assert!(promises.change(&ask(1, "one", &accepted), at(10)).is_ok());
    assert!(!withdrawn(&round(51)));
    assert!(promises.view("one").miss.is_some());
    let refused = due(6_000, 12);
    assert!(promises.change(&ask(1, "one", &refused), at(11)).is_err());
    assert!(promises.view("one").miss.is_some());
    assert!(!withdrawn(&round(56)));
    assert_eq!(promises.counts.foretold.load(Ordering::Relaxed), 1);
    let row = Promise {
        id: "one".to_owned(),
        key: 1,
        bytes: Some(6_000 * MEGA),
        deadline: Some(at(102)),
        rate_min: None,
        resources: vec!["link".to_owned()],
    };
    promises.restore(vec![(row, ask(1, "one", &accepted))], None, at(12));
    assert!(!withdrawn(&round(61)));
    assert!(promises.view("one").miss.is_some());
}
