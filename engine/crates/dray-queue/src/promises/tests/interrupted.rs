//! The cause of a missed deadline after an interruption.

use super::*;

/// Returns the causes of the misses that a round reports.
fn causes(look: &crate::promises::Round) -> Vec<String> {
    let told = look.told.iter();
    told.filter_map(|told| match told {
        Report::Miss { miss, .. } => miss.as_ref().map(|miss| miss.cause.clone()),
        Report::Rate { .. } => None,
    })
    .collect()
}

/// Runs a round in each second of a range, without a session. Returns the reported causes.
fn without_session(promises: &Promises, seconds: std::ops::Range<u64>) -> Vec<String> {
    seconds
        .flat_map(|second| causes(&promises.replan(&[], at(second))))
        .collect()
}

#[test]
fn an_interruption_that_takes_the_spare_time_is_the_cause_of_the_miss() {
    let promises = link();
    // The transfer needs 60 s of its 100 s.
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    for second in 0..10 {
        promises.replan(&[moves(7, "one", second * 100 * MEGA, true)], at(second));
    }
    promises.interrupted(1, at(10));
    // A list of sessions that is older than the break does not end the interruption.
    let stale = promises.replan(&[moves(7, "one", 900 * MEGA, true)], at(10));
    assert_eq!(causes(&stale), Vec::<String>::new());
    let told = without_session(&promises, 11..75);
    let since = format!("has been interrupted since {}", at(10));
    assert!(
        matches!(told.as_slice(), [cause] if cause.contains(&since)),
        "{told:?}"
    );
    // The next session moves data again, but too late.
    let told = causes(&promises.replan(&[moves(8, "one", 10 * MEGA, true)], at(75)));
    assert!(
        matches!(told.as_slice(), [cause] if cause.contains("was interrupted for 1 min 5 s;")),
        "{told:?}"
    );
    // The new promise takes the interruption into account.
    assert!(
        promises
            .change(&ask(1, "one", &due(6_000, 301)), at(76))
            .is_ok()
    );
    promises.replan(&[moves(8, "one", 20 * MEGA, true)], at(77));
    assert_eq!(promises.view("one").miss, None);
}

#[test]
fn a_short_interruption_is_not_the_cause_of_a_lower_rate() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    promises.replan(&[moves(7, "one", 10 * MEGA, true)], noon());
    promises.interrupted(1, at(1));
    assert_eq!(without_session(&promises, 1..5), Vec::<String>::new());
    // After the interruption, the session moves 20 MB/s, although its permitted rate is higher.
    let told: Vec<String> = (25..75)
        .flat_map(|fifth| {
            let now = noon().after(Duration::from_millis(fifth * 200));
            let moved = (fifth - 24) * 4 * MEGA;
            causes(&promises.replan(&[moves(8, "one", moved, false)], now))
        })
        .collect();
    assert!(
        matches!(told.as_slice(), [cause] if cause.contains("does not reach the rate")),
        "{told:?}"
    );
}

#[test]
fn interruptions_survive_a_restore_and_count_together() {
    let promises = link();
    let wanted = due(6_000, 101);
    assert!(take(&promises, 1, "one", &wanted));
    promises.replan(&[moves(7, "one", 100 * MEGA, true)], at(1));
    for (session, begin) in [(8, 2), (9, 32)] {
        promises.interrupted(1, at(begin));
        let row = Promise {
            id: "one".to_owned(),
            key: 1,
            bytes: Some(6_000 * MEGA),
            deadline: Some(at(101)),
            rate_min: None,
            resources: vec!["link".to_owned()],
        };
        promises.restore(vec![(row, ask(1, "one", &wanted))], None, at(begin));
        without_session(&promises, begin..begin + 28);
        promises.replan(&[moves(session, "one", 100 * MEGA, true)], at(begin + 28));
        // The row of a rolled back write still describes the interruption.
        promises.interrupted(1, at(begin));
    }
    let cause = promises.view("one").miss.expect("missed").cause;
    assert!(
        cause.contains("was interrupted 2 times, for 56 s in all"),
        "{cause}"
    );
}
