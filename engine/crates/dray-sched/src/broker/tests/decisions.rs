use super::{MEGA, at, background, broker, due, foretold, is_accepted, rate, uses};
use crate::broker::{
    Answer, Broker, Cause, Config, Obstacle, Reason, Refusal, ResourceId, TransferKey, Wish,
};
use dray_core::Time;
use dray_core::rate::{BytesPerSecond, Class};

const NOW: Time = Time::ZERO;

fn refused(answer: Answer) -> Refusal {
    match answer {
        Answer::Refused(refusal) => refusal,
        Answer::Accepted(grants) => panic!("accepted: {grants:?}"),
    }
}

fn takes(broker: &mut Broker, wish: Wish) {
    let answer = broker.admit(&[wish], NOW);
    assert!(is_accepted(&answer), "{answer:?}");
}

fn given(broker: &mut Broker, key: u64) -> u64 {
    let given = broker.rates(NOW).given(TransferKey(key));
    given.expect("bounded").0
}

#[test]
fn a_deadline_gets_what_it_needs_and_the_rest_goes_by_class() {
    let mut broker = broker(&[1_000]);
    takes(&mut broker, background(1, 100_000, &[0]));
    assert_eq!(given(&mut broker, 1), 1_000 * MEGA, "nothing is idle");
    takes(&mut broker, due(2, 10_000, 100, &[0]));
    let rates = broker.rates(NOW);
    let of = |key| &rates.rates[key];
    let planned = of(1).planned.0;
    // The planned rate is 100 MB/s plus the excess of `padded`.
    assert!((100 * MEGA..101 * MEGA).contains(&planned), "{planned}");
    let spare = 1_000 * MEGA - planned;
    let background = rates.given(TransferKey(1)).expect("bounded").0;
    assert!(background.abs_diff(spare / 9) <= 2, "{background}");
    assert_eq!(
        rates.given(TransferKey(2)),
        Some(BytesPerSecond(1_000 * MEGA - background))
    );
    assert_eq!((of(0).reason, of(1).reason), (Reason::Spare, Reason::Spare));
}

#[test]
fn every_change_of_a_rate_is_reported_once_with_the_former_rate() {
    let mut broker = broker(&[1_000]);
    takes(&mut broker, background(1, 100_000, &[0]));
    let first = broker.rates(NOW).changes;
    assert_eq!(first.len(), 1);
    assert_eq!(
        (first[0].old, first[0].new),
        (Some(rate(0)), Some(rate(1_000)))
    );
    assert_eq!(broker.rates(NOW).changes, []);
    takes(&mut broker, due(2, 99_000, 100, &[0]));
    let changes = broker.rates(NOW).changes;
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[0].old, Some(rate(1_000)));
    assert!(changes[0].new < Some(rate(10)));
    broker.end(TransferKey(2));
    assert_eq!(broker.rates(NOW).changes[0].new, Some(rate(1_000)));
}

#[test]
fn a_minimum_rate_is_granted_immediately_and_until_the_end() {
    let mut broker = broker(&[100]);
    let mut stream = background(1, 0, &[0]);
    stream.class = Class::Realtime;
    stream.bytes = None;
    stream.floor = rate(60);
    stream.ceiling = Some(rate(60));
    takes(&mut broker, stream.clone());
    // The reserved rate has no end, so no capacity is ever left for a second reservation.
    let mut second = stream.clone();
    second.key = TransferKey(2);
    second.floor = rate(41);
    let refusal = refused(broker.would(&[second.clone()], NOW));
    assert_eq!(
        refusal.obstacle,
        Obstacle::Resource(ResourceId(0), vec![TransferKey(1)])
    );
    assert_eq!(refusal.rate_needed, Some(rate(41)));
    let there_is = refusal.rate_there_is.expect("some").0;
    assert!((39_900_000..=40_000_000).contains(&there_is), "{there_is}");
    assert_eq!(refusal.offer, None, "a rate has no later");
    takes(&mut broker, due(3, 3_900, 100, &[0]));
    takes(&mut broker, background(4, 1_000, &[0]));
    assert_eq!(given(&mut broker, 1), 60 * MEGA);
    assert!(given(&mut broker, 3) >= 39 * MEGA);
}

#[test]
fn an_impossible_request_is_refused_with_a_reason_and_a_possible_offer() {
    let mut broker = broker(&[100, 1_000]);
    takes(&mut broker, due(1, 7_000, 100, &[0, 1]));
    takes(&mut broker, due(2, 90_000, 1_000, &[1]));
    // The first transfer still has 3,000 MB to move until 100 s.
    let wish = due(3, 4_000, 50, &[0, 1]);
    let refusal = refused(broker.admit(std::slice::from_ref(&wish), NOW));
    assert_eq!(refusal.key, TransferKey(3));
    assert_eq!(
        refusal.obstacle,
        Obstacle::Resource(ResourceId(0), vec![TransferKey(1)])
    );
    assert_eq!(refusal.rate_needed, Some(rate(80)));
    assert!(
        broker.wish(TransferKey(3)).is_none(),
        "nothing was taken on"
    );
    let offer = refusal.offer.expect("there is one");
    // The two transfers together need slightly more than 110 s of the first resource.
    assert!((at(110)..=at(122)).contains(&offer[0].1), "{offer:?}");
    let mut again = wish;
    again.deadline = Some(offer[0].1);
    assert!(is_accepted(&broker.admit(&[again], NOW)));
    assert_eq!(foretold(&broker, NOW), []);
}

#[test]
fn a_refusal_names_the_limiting_resource() {
    let broker = broker(&[100]);
    let obstacle = |wish: Wish| refused(broker.would(&[wish], NOW)).obstacle;
    let mut slow = due(1, 1_000, 100, &[0]);
    slow.ceiling = Some(rate(5));
    assert_eq!(obstacle(slow), Obstacle::Ceiling);
    let mut above = background(1, 1, &[0]);
    (above.floor, above.ceiling) = (rate(2), Some(rate(1)));
    assert_eq!(obstacle(above), Obstacle::Ceiling);
    let alone = due(1, 20_000, 100, &[0]);
    assert_eq!(obstacle(alone), Obstacle::Resource(ResourceId(0), vec![]));
    let mut over = due(1, 1, 10, &[0]);
    over.not_before = Some(at(10));
    assert_eq!(obstacle(over.clone()), Obstacle::Window);
    // A transfer of unknown size gets no promise, but its deadline must not have passed either.
    over.bytes = None;
    assert_eq!(obstacle(over.clone()), Obstacle::Window);
    (over.not_before, over.deadline) = (None, Some(NOW));
    assert_eq!(obstacle(over.clone()), Obstacle::Window);
    over.deadline = Some(at(1));
    assert!(matches!(broker.would(&[over], NOW), Answer::Accepted(_)));
    assert_eq!(
        obstacle(due(1, 1, 10, &[0, 7])),
        Obstacle::Unknown(ResourceId(7))
    );
    let mut twice = Broker::new(Config {
        transfers_max: 1,
        ..Config::default()
    });
    twice.set_resource(ResourceId(0), Some(rate(100)));
    takes(&mut twice, background(1, 1, &[0]));
    let answer = twice.would(&[background(2, 1, &[0])], NOW);
    assert_eq!(refused(answer).obstacle, Obstacle::Full(1));
    let mut broker = broker;
    takes(&mut broker, background(1, 1, &[0]));
    let answer = broker.would(&[background(1, 1, &[0])], NOW);
    assert_eq!(refused(answer).obstacle, Obstacle::Taken);
}

#[test]
fn a_set_of_requests_is_admitted_completely_or_refused() {
    let mut broker = broker(&[100]);
    let set = [
        due(1, 4_000, 100, &[0]),
        due(2, 4_000, 100, &[0]),
        due(3, 4_000, 100, &[0]),
    ];
    let refusal = refused(broker.admit(&set, NOW));
    assert_eq!(refusal.key, TransferKey(3), "the first two would fit");
    assert_eq!(
        refusal.obstacle,
        Obstacle::Resource(ResourceId(0), vec![TransferKey(1), TransferKey(2)])
    );
    assert!(set.iter().all(|wish| broker.wish(wish.key).is_none()));
    let offer = refusal.offer.expect("later all fit");
    let later = set.map(|mut wish| {
        let of_wish = offer.iter().find(|(key, _)| *key == wish.key);
        wish.deadline = of_wish.map(|(_, deadline)| *deadline);
        wish
    });
    assert!(is_accepted(&broker.admit(&later, NOW)));
}

#[test]
fn a_reservation_ahead_is_kept_free_and_used_until_then() {
    let mut broker = broker(&[100]);
    let mut ahead = due(1, 4_500, 150, &[0]);
    ahead.not_before = Some(at(100));
    takes(&mut broker, ahead);
    assert_eq!(given(&mut broker, 1), 0);
    // The transfer fits into the time before the reservation and the capacity during it.
    takes(&mut broker, due(2, 9_900, 100, &[0]));
    let refusal = refused(broker.would(&[due(3, 600, 150, &[0])], NOW));
    assert!(refusal.offer.is_some());
    assert_eq!(given(&mut broker, 2), 100 * MEGA);
}

#[test]
fn without_a_size_nothing_is_promised_until_there_is_one() {
    let mut broker = broker(&[100]);
    let mut wish = due(1, 0, 100, &[0]);
    wish.bytes = None;
    let Answer::Accepted(grants) = broker.admit(std::slice::from_ref(&wish), NOW) else {
        panic!("refused");
    };
    assert!(!grants[0].is_promised);
    assert_eq!(given(&mut broker, 1), 100 * MEGA, "it runs all the same");
    let mut too_much = wish.clone();
    too_much.bytes = Some(20_000 * MEGA);
    assert_eq!(broker.change(&too_much, NOW), None);
    assert_eq!(
        broker.wish(wish.key).map(|(_, is_promised)| is_promised),
        Some(false)
    );
    wish.bytes = Some(9_000 * MEGA);
    let grant = broker.change(&wish, NOW).expect("fits");
    assert_eq!((grant.is_promised, grant.latest), (true, Some(at(100))));
}

#[test]
fn a_loss_of_capacity_breaks_the_fewest_promises_and_reports_them() {
    let mut broker = broker(&[100]);
    for (key, megas, deadline) in [
        (1, 1_000, 100),
        (2, 5_000, 150),
        (3, 1_000, 160),
        (4, 2_000, 170),
    ] {
        takes(&mut broker, due(key, megas, deadline, &[0]));
    }
    assert_eq!(foretold(&broker, NOW), []);
    broker.set_resource(ResourceId(0), Some(rate(40)));
    let rates = broker.rates(NOW);
    assert_eq!(rates.misses.len(), 1, "{:?}", rates.misses);
    let miss = &rates.misses[0];
    let kept = vec![TransferKey(1), TransferKey(3), TransferKey(4)];
    assert_eq!(miss.key, TransferKey(2));
    assert_eq!(miss.cause, Cause::Resource(ResourceId(0), kept));
    // 9,000 MB at 40 MB/s take 225 s.
    let earliest = miss.earliest.expect("some day").as_nanos() / super::SECOND;
    assert!((220..=230).contains(&earliest), "{earliest}");
    // The lost transfer continues at the spare rate. When the capacity is enough again, the
    // transfer is promised again.
    assert!(rates.given(TransferKey(2)) > Some(rate(0)));
    broker.set_resource(ResourceId(0), Some(rate(100)));
    assert_eq!(foretold(&broker, NOW), []);
}

#[test]
fn a_realtime_promise_is_not_broken_for_another_class() {
    let mut broker = broker(&[100]);
    let mut precious = due(1, 6_000, 100, &[0]);
    precious.class = Class::Realtime;
    takes(&mut broker, precious);
    takes(&mut broker, due(2, 3_000, 100, &[0]));
    broker.set_resource(ResourceId(0), Some(rate(70)));
    let lost: Vec<u64> = foretold(&broker, NOW)
        .iter()
        .map(|miss| miss.key.0)
        .collect();
    assert_eq!(lost, [2]);
}

#[test]
fn a_transfer_below_its_rate_is_predicted_late_and_delays_no_other() {
    let mut broker = broker(&[100]);
    takes(&mut broker, due(1, 5_000, 100, &[0]));
    takes(&mut broker, background(2, 5_000, &[0]));
    broker.set_use(TransferKey(1), Some(rate(20)));
    let rates = broker.rates(NOW);
    assert_eq!(rates.misses[0].cause, Cause::Slow);
    assert_eq!(rates.misses[0].earliest, Some(at(250)));
    assert_eq!(rates.given(TransferKey(2)), Some(rate(80)));
}

#[test]
fn a_missed_promise_is_reported_and_frees_its_capacity() {
    let mut broker = broker(&[100]);
    takes(&mut broker, due(1, 5_000, 100, &[0]));
    let misses = foretold(&broker, at(100));
    assert_eq!((misses.len(), &misses[0].cause), (1, &Cause::Over));
    // The broker accepts another promise in place of the missed one.
    assert!(
        broker
            .take_on(&[due(2, 9_900, 200, &[0])], at(100))
            .is_some()
    );
}

#[test]
fn answers_are_the_same_after_a_restart() {
    let mut before = broker(&[100, 80]);
    for (key, megas, deadline) in [(1, 3_000, 100), (2, 2_000, 60), (3, 900, 30)] {
        takes(&mut before, due(key, megas, deadline, &[0, 1]));
    }
    takes(&mut before, background(4, 1_000, &[1]));
    let rates = before.rates(NOW);
    let mut after = broker(&[100, 80]);
    let rows: Vec<Wish> = (1..=4)
        .map(|key| before.wish(TransferKey(key)).expect("there").0.clone())
        .collect();
    after.restore(rows);
    assert_eq!(after.rates(NOW), rates);
    for (megas, deadline) in [(1_000, 40), (3_000, 100), (100, 20), (9_000, 300)] {
        let wish = [due(9, megas, deadline, &[0, 1])];
        assert_eq!(after.would(&wish, NOW), before.would(&wish, NOW));
    }
}

#[test]
fn an_eta_is_between_the_best_and_the_worst_of_times() {
    let mut broker = broker(&[100]);
    takes(&mut broker, background(1, 1_000, &[0]));
    takes(&mut broker, background(2, 500, &[0]));
    let eta = broker.eta(TransferKey(1), NOW).expect("known");
    // The two transfers run concurrently for ten seconds, then one runs alone.
    assert_eq!((eta.early, eta.late), (at(15), Some(at(15))));
    for seconds in 0..100 {
        let megas = if seconds % 5 == 0 { 50 } else { 100 };
        broker.measure(ResourceId(0), rate(megas), at(seconds));
    }
    let eta = broker.eta(TransferKey(1), at(100)).expect("known");
    assert_eq!((eta.early, eta.late), (at(115), Some(at(130))));
    assert_eq!(broker.eta(TransferKey(9), NOW), None);
}

#[test]
fn a_resource_without_a_rate_gives_no_promise_and_no_limit() {
    let mut broker = Broker::new(Config::default());
    broker.set_resource(ResourceId(0), None);
    let wish = Wish::new(TransferKey(1), MEGA, &uses(&[0])).due(at(1));
    let Answer::Accepted(grants) = broker.admit(&[wish], NOW) else {
        panic!("refused");
    };
    assert!(!grants[0].is_promised);
    assert_eq!(broker.rates(NOW).given(TransferKey(1)), None);
}

#[test]
fn a_change_keeps_the_prediction_and_a_weight_requests_no_new_promise() {
    let mut broker = broker(&[100]);
    takes(&mut broker, due(1, 6_000, 100, &[0]));
    broker.set_use(TransferKey(1), Some(rate(20)));
    assert_eq!(foretold(&broker, NOW)[0].cause, Cause::Slow);
    assert!(broker.change(&due(1, 6_000, 110, &[0]), NOW).is_some());
    assert_eq!(foretold(&broker, NOW)[0].cause, Cause::Slow);
    // It is too late for a new promise, so the change of class and weight must not request a new
    // promise.
    broker.weigh(TransferKey(1), Class::Realtime, 7);
    let (wish, is_promised) = broker.wish(TransferKey(1)).expect("there");
    assert_eq!((wish.class, wish.weight), (Class::Realtime, 7));
    assert!(is_promised);
}

#[test]
fn a_grant_has_the_present_rate_and_the_first_promised_rate() {
    let mut broker = broker(&[100]);
    let mut later = due(1, 1_000, 300, &[0]);
    later.not_before = Some(at(200));
    let grants = broker.take_on(&[later], NOW).expect("fits");
    assert_eq!(grants[0].present, rate(0));
    assert!(grants[0].rate >= rate(10), "{grants:?}");
    let grants = broker.take_on(&[due(2, 1_000, 100, &[0])], NOW);
    let grants = grants.expect("fits");
    assert_eq!(grants[0].present, grants[0].rate);
}

#[test]
fn one_computation_of_the_free_capacity_gives_all_earliest_finishes() {
    let mut broker = broker(&[200]);
    // The broker keeps one promise and gives up two. The resource is free after the first transfer.
    for (key, megas, deadline) in [(1, 1_000, 20), (2, 9_000, 110), (3, 9_250, 111)] {
        takes(&mut broker, due(key, megas, deadline, &[0]));
    }
    broker.set_resource(ResourceId(0), Some(rate(50)));
    let misses = foretold(&broker, NOW);
    let found = misses.iter().filter_map(|miss| {
        let others = Cause::Resource(ResourceId(0), vec![TransferKey(1)]);
        assert_eq!(miss.cause, others);
        Some((miss.key.0, miss.earliest?.since(NOW).as_secs()))
    });
    // At 50 MB/s, both lost transfers have to wait until the first transfer has moved its 1,000 MB.
    let found: Vec<_> = found.collect();
    let [(2, 199..=200), (3, 204..=205)] = found.as_slice() else {
        panic!("{found:?}");
    };
}

#[test]
fn unusable_spare_rate_passes_to_the_next_promised_transfer() {
    let mut broker = Broker::new(Config::default());
    for (since, megas) in [(0, 90), (50, 110), (100, 100)] {
        let _ = broker.measure(ResourceId(0), rate(megas), at(since));
    }
    broker.restore([due(1, 1_000, 300, &[0]), due(2, 1_000, 400, &[0])]);
    // The source of the first transfer is slow, so a higher rate would be useless.
    broker.set_use(TransferKey(1), Some(rate(11)));
    let rates = broker.rates(at(101));
    let planned = |key| {
        let found = rates.rates.iter().find(|rate| rate.key == TransferKey(key));
        found.expect("there").planned.0 / MEGA
    };
    assert!(planned(1) <= 11, "{rates:?}");
    assert!(planned(2) > 50, "{rates:?}");
}

#[test]
fn spare_rate_goes_to_the_earliest_deadline_when_capacities_change() {
    let mut broker = Broker::new(Config::default());
    for (since, megas) in [(0, 150), (50, 250), (100, 200)] {
        let _ = broker.measure(ResourceId(0), rate(megas), at(since));
    }
    // The second transfer needs nearly all that its ceiling permits, so the first cannot get the
    // whole capacity.
    let mut second = due(2, 9_500, 201, &[0]);
    second.ceiling = Some(rate(100));
    broker.restore([
        due(1, 5_000, 200, &[0]),
        second,
        background(3, 100_000, &[0]),
    ]);
    let rates = broker.rates(at(101));
    let given = |key| rates.given(TransferKey(key)).expect("bounded").0 / MEGA;
    assert!((90..=100).contains(&given(2)), "{rates:?}");
    assert!(given(1) + given(2) >= 199 && given(3) == 0, "{rates:?}");
    assert_eq!(rates.misses, []);
}

#[test]
fn the_latest_start_leaves_time_for_every_byte() {
    let mut broker = broker(&[100, 30]);
    let take = |broker: &mut Broker, wish: Wish| {
        assert!(broker.take_on(&[wish], at(10)).is_some());
    };
    take(&mut broker, due(1, 1_000, 500, &[0]));
    take(&mut broker, due(2, 300, 500, &[0, 1]));
    let mut slow = due(3, 200, 500, &[0]);
    slow.ceiling = Some(rate(10));
    take(&mut broker, slow);
    let starts = |broker: &Broker, key| broker.latest_start(TransferKey(key), at(10));
    assert_eq!(starts(&broker, 1), Some(at(490)));
    assert_eq!(starts(&broker, 2), Some(at(490)), "the slower of both");
    assert_eq!(starts(&broker, 3), Some(at(480)), "its own bound");
    assert_eq!(starts(&broker, 4), None);
    // A fraction of a nanosecond is rounded up.
    broker.progress(TransferKey(1), 1_000 * MEGA + 1);
    assert!(starts(&broker, 1) < Some(at(490)));
    // A transfer must start immediately if it has a floor, has no known resource, or uses a
    // resource of zero capacity.
    let mut owed = background(5, 100, &[1]);
    owed.floor = rate(1);
    owed.not_before = Some(at(20));
    take(&mut broker, owed);
    assert_eq!(starts(&broker, 5), Some(at(20)));
    broker.set_resource(ResourceId(7), None);
    broker.restore([due(6, 100, 500, &[7])]);
    assert_eq!(starts(&broker, 6), Some(at(10)));
    broker.set_resource(ResourceId(0), Some(rate(0)));
    assert_eq!(starts(&broker, 1), Some(at(10)));
}
