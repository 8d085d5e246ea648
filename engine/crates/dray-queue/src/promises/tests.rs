//! Tests of promises, planned rates and reports of missed promises.

mod interrupted;
mod measured;

use super::{
    Ask, NotAdmitted, Promise, Promises, Report, RootRate, SessionProgress, Settings, Share,
    TierRate,
};
use crate::promises::Lack;
use dray_api::Timestamp;
use dray_api::{ReasonWord, Request, Route};
use dray_core::ErrorKind;
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MEGA: u64 = 1_000_000;

fn promises(rate: Option<u64>, shares: &[Share]) -> Promises {
    let root = |name: &str, rate| RootRate {
        name: name.to_owned(),
        rate,
    };
    Promises::new(&Settings {
        transfers_max: 100_000,
        rate,
        roots: vec![root("data", None), root("tape", Some(20 * MEGA))],
        tiers: vec![TierRate {
            name: "burst".to_owned(),
            fast: vec!["nvme".to_owned()],
            slow: vec!["disks".to_owned(), "mirror".to_owned()],
            rate: 10 * MEGA,
        }],
        shares: shares.to_vec(),
    })
}

fn share(owner: &str, rate_min: Option<u64>, rate_max: Option<u64>) -> Share {
    Share {
        peer: None,
        owner: Some(owner.to_owned()),
        weight: 100,
        rate_min,
        rate_max,
    }
}

/// Returns the promises of an endpoint with a link of 100 megabytes per second.
fn link() -> Promises {
    promises(Some(100 * MEGA), &[])
}

fn noon() -> Timestamp {
    Timestamp::parse("2030-01-01T12:00:00Z").expect("a time")
}

fn at(seconds: u64) -> Timestamp {
    noon().after(Duration::from_secs(seconds))
}

fn request(megas: u64, more: Value) -> Request {
    let mut body = json!({
        "sources": [{"url": "dray://b.example/data/x"}],
        "destination": {"url": "/data/x"},
        "bytes_expected": megas * MEGA,
    });
    body.as_object_mut()
        .expect("an object")
        .extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_value(body).expect("good")
}

fn due(megas: u64, seconds: u64) -> Request {
    request(megas, json!({"deadline": at(seconds)}))
}

/// The route of every [`request`].
static ROUTE: LazyLock<Route> =
    LazyLock::new(|| Route::parse(&request(1, json!({})), |_| false).expect("good"));

fn ask<'a>(key: u64, id: &'a str, request: &'a Request) -> Ask<'a> {
    Ask {
        key,
        id,
        owner: "alice",
        request,
        route: &ROUTE,
        source: 0,
        bytes: request.bytes_stated(),
        done: 0,
    }
}

fn take(promises: &Promises, key: u64, id: &str, request: &Request) -> bool {
    let given = promises.take(&[ask(key, id, request)], noon());
    given.is_ok_and(|given| given[0].promise.is_some())
}

fn refused(promises: &Promises, asks: &[Ask<'_>]) -> Box<NotAdmitted> {
    let asked = promises.take(asks, noon()).expect_err("it does not fit");
    promises.explain(&asked, noon())
}

fn moves(session: u64, id: &str, moved: u64, is_hungry: bool) -> SessionProgress<'_> {
    SessionProgress {
        session,
        own: Some(id),
        moved,
        done: moved,
        listed: None,
        is_hungry,
        granted: Some(u64::MAX),
    }
}

#[test]
fn what_does_not_fit_is_refused_with_an_offer_that_is_taken() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    let wanted = due(5_000, 101);
    let refused = refused(&promises, &[ask(2, "two", &wanted)]);
    assert_eq!(refused.error.kind, ErrorKind::NotAdmitted);
    let answer = &refused.answers[0];
    let obstacle = answer.obstacle.clone().expect("named");
    assert_eq!(obstacle.resource.as_deref(), Some("link"));
    assert_eq!(
        (obstacle.promises, obstacle.transfers),
        (1, vec!["one".to_owned()])
    );
    // The request needs 50 MB/s, and 40 MB/s are free.
    let needed = answer.rate_needed.expect("known");
    assert!((50 * MEGA..51 * MEGA).contains(&needed), "{needed}");
    let available = answer.rate_available.expect("known");
    assert!((39 * MEGA..40 * MEGA).contains(&available), "{available}");
    let earliest = answer.earliest_finish.expect("offered");
    assert!(earliest > at(110) && earliest < at(130), "{earliest}");
    let said = refused.error.to_string();
    assert!(
        said.contains("promised to another") && said.contains(&earliest.to_string()),
        "{said}"
    );
    let again = request(5_000, json!({"deadline": earliest}));
    assert!(take(&promises, 2, "two", &again));
    assert!(promises.is_promised("two"));
}

#[test]
fn every_offer_is_admitted_when_it_is_submitted() {
    let promises = link();
    let mut refusals = 0;
    for key in 1..14 {
        let id = format!("t{key}");
        // Pseudo-random sizes, so that small and large transfers are mixed.
        let megas = 200 + key * 7_919 % 3_000;
        let request = due(megas, 20 + key * 104_729 % 40);
        let dry = promises.would(&[ask(key, &id, &request)], noon());
        let taken = promises.take(&[ask(key, &id, &request)], noon());
        assert_eq!(dry.is_ok(), taken.is_ok(), "{id}");
        let (Err(dry), Err(asked)) = (dry, taken) else {
            continue;
        };
        let taken = promises.explain(&asked, noon());
        refusals += 1;
        assert_eq!(dry.answers, taken.answers, "{id}");
        let earliest = taken.answers[0].earliest_finish.expect("offered");
        let again = self::request(megas, json!({"deadline": earliest}));
        assert!(take(&promises, key, &id, &again), "{id}: {earliest}");
        if key % 3 == 0 {
            promises.end(key, None);
        }
    }
    assert!(refusals > 3, "{refusals}");
}

#[test]
fn a_set_is_taken_whole_or_not_at_all() {
    let promises = link();
    let (one, two) = (due(6_000, 101), due(5_000, 101));
    let set = [ask(1, "one", &one), ask(2, "two", &two)];
    let refused = refused(&promises, &set);
    assert_eq!(refused.at, 1);
    assert!(refused.answers[0].reasons[0].contains("refuses"));
    assert!(!promises.is_promised("one") && !promises.is_promised("two"));
    let later = refused.answers.iter();
    let later: Vec<Request> = later
        .zip([6_000, 5_000])
        .map(|(answer, megas)| request(megas, json!({"deadline": answer.earliest_finish})))
        .collect();
    let set = [ask(1, "one", &later[0]), ask(2, "two", &later[1])];
    assert!(promises.take(&set, noon()).is_ok());
    assert!(promises.is_promised("one") && promises.is_promised("two"));
}

#[test]
fn best_effort_is_taken_without_a_promise_and_told_why() {
    let promises = link();
    let late = request(
        6_000,
        json!({"deadline": at(2), "admission": "best_effort"}),
    );
    let given = promises.take(&[ask(1, "one", &late)], noon());
    let given = given.expect("taken").pop().expect("one");
    assert!(given.promise.is_none());
    assert!(!given.answer.reasons.is_empty(), "{given:?}");
    assert!(!promises.is_promised("one"));
}

#[test]
fn an_unknown_rate_or_size_is_refused_with_the_reason() {
    let promises = promises(None, &[]);
    let wanted = due(1, 1_000);
    let given = promises.take(&[ask(1, "one", &wanted)], noon());
    let given = given.expect("taken").pop().expect("one");
    assert!(given.promise.is_none());
    let said = given.answer.reasons.join(" ");
    assert!(said.contains("set `rate`"), "{said}");
    let mut unsized_ = due(1, 1_000);
    unsized_.bytes_expected = None;
    let given = link().take(&[ask(1, "one", &unsized_)], noon());
    let given = given.expect("taken").pop().expect("one");
    let said = given.answer.reasons.join(" ");
    assert!(
        given.promise.is_none() && said.contains("bytes_expected"),
        "{said}"
    );
}

#[test]
fn a_root_and_a_floor_of_others_bound_what_is_promised() {
    let promises = link();
    let mut tape = due(3_000, 101);
    tape.destination.url = "/tape/x".to_owned();
    let route = Route::parse(&tape, |_| false).expect("good");
    let wanted = Ask {
        route: &route,
        ..ask(1, "one", &tape)
    };
    let refused = refused(&promises, &[wanted]);
    let obstacle = refused.answers[0].obstacle.clone().expect("named");
    assert_eq!(obstacle.resource.as_deref(), Some("root:tape"));
    let owed = self::promises(Some(100 * MEGA), &[share("bob", Some(50 * MEGA), None)]);
    assert!(!take(&owed, 1, "one", &due(6_000, 101)));
    assert!(take(&owed, 1, "one", &due(4_000, 101)));
}

#[test]
fn demotions_and_restarts_share_the_rate_of_their_tier() {
    let promises = link();
    let between = |key: u64, name: &'static str, megas, from: &str, to: &str| {
        let wanted = Request {
            sources: serde_json::from_value(json!([{"url": format!("/{from}/x")}])).expect("good"),
            destination: serde_json::from_value(json!({"url": format!("/{to}/x")})).expect("good"),
            ..due(megas, 101)
        };
        let route = Route::parse(&wanted, |_| false).expect("good");
        let wanted = Ask {
            route: &route,
            ..ask(key, name, &wanted)
        };
        let refused = promises.take(&[wanted], noon()).err();
        let explained = refused.map(|refused| promises.explain(&refused, noon()));
        explained.map(|told| told.answers[0].obstacle.clone().expect("named").resource)
    };
    // 100 seconds at 10 MB/s are 1000 MB. The demotion takes 600 MB of them.
    assert_eq!(between(1, "out", 600, "nvme", "disks"), None);
    let tier = Some(Some("tier:burst".to_owned()));
    assert_eq!(between(2, "in", 600, "disks", "nvme"), tier);
    assert_eq!(between(3, "replica", 600, "nvme", "mirror"), tier);
    assert_eq!(between(4, "in", 300, "disks", "nvme"), None);
    // A transfer between two slow roots does not use the fast devices.
    assert_eq!(between(5, "other", 600, "disks", "mirror"), None);
}

#[test]
fn who_asks_for_more_and_is_refused_keeps_what_was_promised() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    let planned = |now| {
        let look = promises.replan(&[moves(7, "one", 0, true)], now);
        look.planned.get(&7).copied().unwrap_or(0)
    };
    assert!(planned(noon()) >= 60 * MEGA);
    let sooner = due(6_000, 30);
    let asked = promises.change(&ask(1, "one", &sooner), noon());
    let asked = asked.expect_err("no link is that fast");
    assert!(promises.explain(&asked, noon()).answers.len() == 1);
    assert!(planned(at(1)) >= 60 * MEGA, "{}", planned(at(1)));
}

#[test]
fn what_an_owner_may_have_at_most_is_promised_once_and_not_to_each() {
    let promises = promises(
        Some(1_000 * MEGA),
        &[share("alice", None, Some(100 * MEGA))],
    );
    let wanted = due(6_000, 101);
    assert!(take(&promises, 1, "one", &wanted));
    let refused = refused(&promises, &[ask(2, "two", &wanted)]);
    let obstacle = refused.answers[0].obstacle.clone().expect("named");
    assert_eq!(obstacle.resource.as_deref(), Some("owner:alice"));
    let said = refused.error.to_string();
    assert!(
        said.contains("the share of alice (95.4 MiB/s) is promised to another"),
        "{said}"
    );
    assert!(
        said.contains("another transfer in the requested time (one);"),
        "{said}"
    );
    let bobs = Ask {
        owner: "bob",
        ..ask(2, "two", &wanted)
    };
    assert!(promises.take(&[bobs], noon()).is_ok());
    // This row is from an older version, which stored no owner as a resource.
    let row = Promise {
        id: "one".to_owned(),
        key: 1,
        bytes: Some(6_000 * MEGA),
        deadline: Some(at(101)),
        rate_min: None,
        resources: vec!["link".to_owned()],
    };
    promises.restore(vec![(row, ask(1, "one", &wanted))], None, noon());
    assert!(promises.is_promised("one"));
    assert!(!take(&promises, 2, "two", &wanted));
    assert!(take(&promises, 2, "two", &due(3_000, 101)));
}

#[test]
fn what_is_planned_for_later_does_not_move_before() {
    let promises = link();
    let later = request(
        6_000,
        json!({"not_before": at(3_600), "deadline": at(4_000)}),
    );
    assert!(take(&promises, 1, "later", &later));
    assert!(!promises.is_moving("later"));
    assert!(take(&promises, 2, "now", &due(6_000, 101)));
    assert!(promises.is_moving("now"));
    // After a restart the result is the same, also before the first round.
    let row = |id: &str, key, deadline| Promise {
        id: id.to_owned(),
        key,
        bytes: Some(6_000 * MEGA),
        deadline: Some(deadline),
        rate_min: None,
        resources: vec!["link".to_owned()],
    };
    let now = due(6_000, 101);
    let rows = vec![
        (row("late", 2, at(4_000)), ask(2, "late", &later)),
        (row("soon", 3, at(101)), ask(3, "soon", &now)),
    ];
    promises.restore(rows, None, noon());
    assert!(promises.is_moving("soon") && !promises.is_moving("late"));
    // The plan moves the transfer when the time of its `not_before` has come.
    assert!(!promises.replan(&[], at(3_599)).has_begun);
    assert!(promises.replan(&[], at(3_601)).has_begun);
    assert!(promises.is_moving("late"));
}

#[test]
fn why_best_effort_has_no_promise_is_not_searched_for_where_others_wait() {
    let promises = link();
    let late = request(
        6_000,
        json!({"deadline": at(2), "admission": "best_effort"}),
    );
    let given = promises.take(&[ask(1, "one", &late)], noon());
    let given = given.expect("taken").pop().expect("one");
    assert!(given.promise.is_none());
    assert_eq!(given.answer.earliest_finish, None);
    assert!(
        given.answer.reasons[0].contains("POST /v1/admission"),
        "{given:?}"
    );
    let dry = promises.would(&[ask(1, "one", &late)], noon());
    let dry = dry.expect("taken").pop().expect("one");
    assert!(dry.answer.earliest_finish.is_some(), "{dry:?}");
}

#[test]
fn what_was_undone_leaves_no_rate_to_who_comes_after() {
    let promises = link();
    assert!(take(&promises, 1, "one", &due(6_000, 101)));
    promises.replan(&[moves(7, "one", 0, true)], noon());
    promises.restore(Vec::new(), None, noon());
    let later = request(
        6_000,
        json!({"not_before": at(3_600), "deadline": at(4_000)}),
    );
    let row = Promise {
        id: "late".to_owned(),
        key: 1,
        bytes: Some(6_000 * MEGA),
        deadline: Some(at(4_000)),
        rate_min: None,
        resources: vec!["link".to_owned()],
    };
    promises.restore(vec![(row, ask(1, "late", &later))], None, noon());
    assert!(!promises.is_moving("late"));
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_the_plans() {
    let promises = promises(None, &[]);
    let other = |moved| SessionProgress {
        session: 1,
        own: None,
        moved,
        done: 0,
        listed: None,
        is_hungry: true,
        granted: None,
    };
    for second in 3_600..3_605 {
        promises.replan(&[other((second - 3_600) * 80 * MEGA)], at(second));
    }
    assert!(take(&promises, 1, "one", &due(6_000, 3_710)));
    let look = promises.replan(&[moves(7, "one", 0, true)], at(3_605));
    let before = look.planned[&7];
    // The clock is set back by an hour. Half of the bytes have moved, so the planned rate falls.
    promises.replan(&[moves(7, "one", 3_000 * MEGA, true)], at(5));
    let look = promises.replan(&[moves(7, "one", 3_000 * MEGA, true)], at(6));
    assert!(look.planned[&7] < before / 10, "{look:?}");
    for second in 6..10 {
        let moved = (3_000 + (second - 6) * 160) * MEGA;
        promises.replan(&[moves(7, "one", moved, true)], at(second));
    }
    assert!(promises.measured() >= Some(160 * MEGA));
}

#[test]
fn who_finds_no_place_until_its_latest_start_is_told_so() {
    let promises = link();
    // Each transfer needs two seconds of the link. One is due in 20 seconds, the other in a day.
    assert!(take(&promises, 1, "soon", &due(200, 21)));
    assert!(take(&promises, 2, "later", &due(200, 86_400)));
    let movers = promises.movers(noon());
    let ids: Vec<&str> = movers.iter().map(|mover| &*mover.id).collect();
    assert_eq!(ids, ["soon", "later"], "{movers:?}");
    let begun = super::time(at(18));
    assert_eq!(movers[0].latest_start, begun);
    let told = |seconds: u64| {
        let lacks = [("soon", Lack::InAll), ("later", Lack::OfOwner)];
        promises.seatless(&lacks, at(seconds));
        let told = promises.replan(&[], at(seconds)).told;
        told.into_iter()
            .filter_map(|told| match told {
                Report::Miss { id, miss, .. } => Some((id, miss.map(|miss| miss.cause))),
                Report::Rate { .. } => None,
            })
            .collect::<Vec<_>>()
    };
    for seconds in [0, 6, 12] {
        assert_eq!(told(seconds), [], "{seconds}: there is time yet");
    }
    let said = told(14);
    assert_eq!(said.len(), 1, "{said:?}");
    let (id, cause) = &said[0];
    let cause = cause.as_ref().expect("a miss");
    assert!(
        id == "soon" && cause.contains("transfers_active"),
        "{said:?}"
    );
    assert!(promises.view("soon").miss.is_some());
    assert_eq!(told(15), [], "it is said once");
    // The transfer now has a session.
    promises.seatless(&[], at(16));
    let look = promises.replan(&[], at(16));
    let is_over =
        |told: &Report| matches!(told, Report::Miss { id, miss: None, .. } if id == "soon");
    assert!(look.told.iter().any(is_over), "{:?}", look.told);
}

#[test]
fn promises_are_listed_to_their_owner_by_their_deadlines() {
    let promises = link();
    assert!(take(&promises, 1, "later", &due(200, 86_400)));
    assert!(take(&promises, 2, "soon", &due(200, 21)));
    let floor = request(1, json!({"rate_min": MEGA}));
    assert!(take(&promises, 3, "floor", &floor));
    let request = due(100, 600);
    let bobs = Ask {
        owner: "bob",
        ..ask(4, "bobs", &request)
    };
    assert!(promises.take(&[bobs], noon()).is_ok());
    let (seen, hidden) = promises.list(Some("alice"), noon());
    let ids: Vec<&str> = seen.iter().map(|one| one.transfer.as_str()).collect();
    assert_eq!((ids, hidden), (vec!["soon", "later", "floor"], 1));
    // 200 megabytes need two seconds of the link, and a transfer needs a second to settle.
    assert_eq!(seen[0].latest_start, at(18));
    assert_eq!(seen[0].deadline, Some(at(21)));
    assert_eq!(seen[0].bytes, Some(200 * MEGA));
    assert!(seen[0].resources.contains(&"link".to_owned()), "{seen:?}");
    assert_eq!(seen[2].rate_min, Some(MEGA));
    let (all, hidden) = promises.list(None, noon());
    assert_eq!((all.len(), hidden), (4, 0));
    promises.end(2, None);
    let (seen, _) = promises.list(Some("alice"), noon());
    assert_eq!(seen.len(), 2, "{seen:?}");
}
