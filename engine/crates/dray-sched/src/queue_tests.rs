use super::{Choice, Limits, OwnerRules, PRIORITY_MAX, Running, Turns, Waiting};
use dray_core::Time;
use dray_core::rate::Class;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const NOW: Time = Time::from_nanos(1_000);

fn at(nanos: u64) -> Option<Time> {
    Some(Time::from_nanos(nanos))
}

fn waiting<'a>(id: &'a str, owner: &'a str, submitted: u64) -> Waiting<'a> {
    Waiting {
        id,
        owner,
        peer: None,
        class: Class::Background,
        priority: 3,
        deadline: None,
        not_before: None,
        submitted,
    }
}

fn limits(running_max: usize) -> Limits {
    Limits {
        running_max,
        owner_max: usize::MAX,
        peer_max: usize::MAX,
        owners: BTreeMap::new(),
    }
}

fn choose<'a>(waiting: &[Waiting<'a>], limits: &Limits) -> Choice<'a> {
    Turns::default().choose(waiting, &[], limits, NOW)
}

#[test]
fn class_goes_before_priority_before_deadline_before_submission() {
    let plain = |id, submitted| waiting(id, "a", submitted);
    let queue = [
        plain("last", 9),
        plain("first of its kind", 8),
        Waiting {
            priority: 9,
            ..plain("urgent", 10)
        },
        Waiting {
            deadline: at(5_000),
            ..plain("has a deadline", 11)
        },
        Waiting {
            deadline: at(4_000),
            ..plain("has an earlier one", 12)
        },
        Waiting {
            class: Class::Deadline,
            priority: 0,
            ..plain("of a higher class", 13)
        },
        Waiting {
            class: Class::Realtime,
            priority: 0,
            ..plain("of the highest class", 14)
        },
    ];
    assert_eq!(
        choose(&queue, &limits(100)).start,
        [
            "of the highest class",
            "of a higher class",
            "urgent",
            "has an earlier one",
            "has a deadline",
            "first of its kind",
            "last",
        ]
    );
    assert_eq!(choose(&queue, &limits(2)).start.len(), 2);
    // More than the highest priority is no more.
    let queue = [
        Waiting {
            priority: PRIORITY_MAX,
            ..plain("one", 1)
        },
        Waiting {
            priority: 200,
            ..plain("two", 2)
        },
    ];
    assert_eq!(choose(&queue, &limits(1)).start, ["one"]);
}

#[test]
fn what_may_not_begin_yet_says_when_to_look_again() {
    let queue = [
        Waiting {
            not_before: at(3_000),
            ..waiting("later", "a", 1)
        },
        Waiting {
            not_before: at(2_000),
            ..waiting("soon", "a", 2)
        },
        Waiting {
            not_before: at(1_000),
            ..waiting("now", "a", 3)
        },
    ];
    let choice = choose(&queue, &limits(100));
    assert_eq!(choice.start, ["now"]);
    assert_eq!(choice.look_again, at(2_000));
    assert_eq!(choose(&[], &limits(100)), Choice::default());
}

#[test]
fn full_owners_and_peers_hold_nobody_up() {
    let with = |id, owner, peer, submitted| Waiting {
        peer: Some(peer),
        ..waiting(id, owner, submitted)
    };
    let queue = [
        with("a1", "a", "x", 1),
        with("a2", "a", "x", 2),
        with("a3", "a", "y", 3),
        with("b1", "b", "x", 4),
        with("b2", "b", "z", 5),
        with("b3", "b", "z", 6),
        waiting("c1", "c", 7),
    ];
    let running = [Running {
        owner: "b",
        peer: Some("x"),
    }];
    let limits = Limits {
        peer_max: 2,
        owner_max: 2,
        owners: [(
            "c".to_owned(),
            OwnerRules {
                weight: 1,
                running_max: Some(0),
            },
        )]
        .into(),
        ..limits(100)
    };
    let choice = Turns::default().choose(&queue, &running, &limits, NOW);
    assert_eq!(choice.start, ["a1", "b2", "a3"]);
}

/// Serves one at a time, `rounds` times; counts the starts of each owner.
fn serve(
    turns: &mut Turns,
    limits: &Limits,
    owners: &[&'static str],
    rounds: usize,
) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..rounds {
        // The first has submitted very much, and before all others.
        let queue: Vec<_> = owners
            .iter()
            .enumerate()
            .flat_map(|(at, owner)| {
                let many = if at == 0 { 50 } else { 1 };
                (0..many).map(move |n| waiting(owner, owner, at as u64 * 100 + n))
            })
            .collect();
        for id in turns.choose(&queue, &[], limits, NOW).start {
            let owner = owners.iter().find(|owner| **owner == id).expect("known");
            *counts.entry(*owner).or_default() += 1;
        }
    }
    counts
}

#[test]
fn owners_take_turns_by_weight() {
    let rules = |weight| OwnerRules {
        weight,
        running_max: None,
    };
    let limits = Limits {
        owners: [
            ("heavy".to_owned(), rules(300)),
            ("light".to_owned(), rules(100)),
            ("feather".to_owned(), rules(0)),
        ]
        .into(),
        ..limits(1)
    };
    let mut turns = Turns::default();
    let counts = serve(&mut turns, &limits, &["light", "heavy", "plain"], 500);
    assert_eq!(counts["light"], 100);
    assert_eq!(counts["plain"], 100);
    assert_eq!(counts["heavy"], 300);
    // The weight of nothing is the least, and yet something.
    let counts = serve(&mut turns, &limits, &["light", "feather"], 202);
    assert!((1..=3).contains(&counts["feather"]), "{counts:?}");
}

#[test]
fn absence_saves_no_turns() {
    let mut turns = Turns::default();
    let limits = limits(1);
    serve(&mut turns, &limits, &["busy", "other"], 100);
    // One who comes later is served at once, and then in turn.
    let counts = serve(&mut turns, &limits, &["busy", "other", "late"], 30);
    assert_eq!(counts["late"], 10);
    // One who could not begin for a while has saved nothing either.
    let held = Limits {
        owners: [(
            "other".to_owned(),
            OwnerRules {
                weight: 100,
                running_max: Some(0),
            },
        )]
        .into(),
        ..limits.clone()
    };
    serve(&mut turns, &held, &["busy", "other"], 100);
    let counts = serve(&mut turns, &limits, &["busy", "other", "new"], 30);
    assert_eq!(counts.values().collect::<Vec<_>>(), [&10, &10, &10]);
    // Nobody waits: nothing is remembered.
    turns.choose(&[], &[], &limits, NOW);
    assert_eq!(turns, Turns::default());
}

#[test]
fn a_stream_of_urgent_transfers_does_not_turn_the_others_order() {
    let mut turns = Turns::default();
    let mut counts = BTreeMap::<&str, usize>::new();
    for round in 0..60 {
        // Every second place goes to somebody above.
        let mut queue = vec![waiting("c", "c", 1), waiting("d", "d", 2)];
        if round % 2 == 0 {
            queue.push(Waiting {
                priority: 9,
                ..waiting("a", "a", 3)
            });
        }
        for id in turns.choose(&queue, &[], &limits(1), NOW).start {
            *counts.entry(id).or_default() += 1;
        }
    }
    assert_eq!(counts, [("a", 30), ("c", 15), ("d", 15)].into());
}

#[derive(Debug, Clone)]
struct Drawn {
    owner: usize,
    peer: Option<usize>,
    class: Class,
    priority: u8,
    deadline: Option<u64>,
    not_before: Option<u64>,
}

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const PEERS: [&str; 3] = ["x", "y", "z"];

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let class = prop_oneof![
        Just(Class::Realtime),
        Just(Class::Deadline),
        Just(Class::Background)
    ];
    let one = (
        0..OWNERS.len(),
        prop::option::of(0..PEERS.len()),
        class,
        0..12u8,
        prop::option::of(0..5_000u64),
        prop::option::of(0..2_000u64),
    );
    let one = one.prop_map(
        |(owner, peer, class, priority, deadline, not_before)| Drawn {
            owner,
            peer,
            class,
            priority,
            deadline,
            not_before,
        },
    );
    prop::collection::vec(one, 0..30)
}

fn queue<'a>(drawn: &[Drawn], ids: &'a [String]) -> Vec<Waiting<'a>> {
    drawn
        .iter()
        .zip(ids)
        .enumerate()
        .map(|(index, (one, id))| Waiting {
            id,
            owner: OWNERS[one.owner],
            peer: one.peer.map(|peer| PEERS[peer]),
            class: one.class,
            priority: one.priority,
            deadline: one.deadline.and_then(at),
            not_before: one.not_before.and_then(at),
            submitted: index as u64,
        })
        .collect()
}

proptest! {
    #[test]
    fn limits_are_never_exceeded_and_no_place_stays_empty(
        drawn in drawn(),
        busy in prop::collection::vec((0..4usize, prop::option::of(0..3usize)), 0..6),
        running_max in 0..12usize,
        owner_max in 0..5usize,
        peer_max in 0..5usize,
        own_max in 0..3usize,
    ) {
        let ids: Vec<_> = (0..drawn.len()).map(|n| n.to_string()).collect();
        let queue = queue(&drawn, &ids);
        let running: Vec<_> = busy
            .iter()
            .map(|(owner, peer)| Running {
                owner: OWNERS[*owner],
                peer: peer.map(|peer| PEERS[peer]),
            })
            .collect();
        let own = OwnerRules { weight: 7, running_max: Some(own_max) };
        let limits = Limits {
            running_max,
            owner_max,
            peer_max,
            owners: [("a".to_owned(), own)].into(),
        };
        let choice = Turns::default().choose(&queue, &running, &limits, NOW);
        let started: BTreeSet<_> = choice.start.iter().copied().collect();
        prop_assert_eq!(started.len(), choice.start.len(), "each once");
        let mut all = running.clone();
        all.extend(
            (queue.iter().filter(|one| started.contains(one.id)))
                .map(|one| Running { owner: one.owner, peer: one.peer }),
        );
        let of = |owner: &str| all.iter().filter(|one| one.owner == owner).count();
        let with = |peer| all.iter().filter(|one| one.peer == Some(peer)).count();
        let max_of = |owner| if owner == "a" { own_max } else { owner_max };
        if !started.is_empty() {
            prop_assert!(all.len() <= running_max);
        }
        for one in &queue {
            if started.contains(one.id) {
                prop_assert!(of(one.owner) <= max_of(one.owner));
                prop_assert!(one.peer.is_none_or(|peer| with(peer) <= peer_max));
                prop_assert!(one.not_before.is_none_or(|time| time <= NOW));
            } else {
                // What was left could not have begun.
                prop_assert!(
                    all.len() >= running_max
                        || of(one.owner) >= max_of(one.owner)
                        || one.peer.is_some_and(|peer| with(peer) >= peer_max)
                        || one.not_before.is_some_and(|time| time > NOW)
                );
            }
        }
    }

    #[test]
    fn starts_keep_to_class_and_priority_and_each_owner_s_order(
        drawn in drawn(), running_max in 0..40usize,
    ) {
        let ids: Vec<_> = (0..drawn.len()).map(|n| n.to_string()).collect();
        let queue = queue(&drawn, &ids);
        let choice = choose(&queue, &limits(running_max));
        let find = |id: &str| queue.iter().find(|one| one.id == id).expect("known");
        let level = |one: &Waiting<'_>| (one.class, PRIORITY_MAX - one.priority.min(PRIORITY_MAX));
        for pair in choice.start.windows(2) {
            prop_assert!(level(find(pair[0])) <= level(find(pair[1])));
        }
        for (index, id) in choice.start.iter().enumerate() {
            for later in &choice.start[index + 1..] {
                let (one, other) = (find(id), find(later));
                if one.owner == other.owner && level(one) == level(other) {
                    let key = |this: &Waiting<'_>| {
                        (this.deadline.map_or(u64::MAX, Time::as_nanos), this.submitted)
                    };
                    prop_assert!(key(one) < key(other));
                }
            }
        }
        let first = drawn.iter().filter_map(|one| one.not_before).filter(|time| *time > 1_000);
        prop_assert_eq!(choice.look_again, first.min().and_then(at));
    }

    #[test]
    fn nobody_waits_for_longer_than_a_round_of_all_owners(
        backlog in prop::collection::vec(1..40usize, 2..5), slots in 1..3usize,
    ) {
        // Each start ends at once; who waits must be served within a round of everybody's turns.
        let mut turns = Turns::default();
        let mut since = vec![0; backlog.len()];
        for _ in 0..30 {
            let queue: Vec<_> = backlog
                .iter()
                .enumerate()
                .flat_map(|(owner, many)| {
                    (0..*many as u64).map(move |n| waiting(OWNERS[owner], OWNERS[owner], n))
                })
                .collect();
            let choice = turns.choose(&queue, &[], &limits(slots), NOW);
            for (owner, waited) in since.iter_mut().enumerate() {
                *waited += choice.start.len();
                if choice.start.contains(&OWNERS[owner]) {
                    *waited = 0;
                }
                prop_assert!(*waited < backlog.len() + slots);
            }
        }
    }

    #[test]
    fn the_same_queue_is_chosen_from_the_same_way(drawn in drawn(), running_max in 0..40usize) {
        let ids: Vec<_> = (0..drawn.len()).map(|n| n.to_string()).collect();
        let queue = queue(&drawn, &ids);
        let mut turned = queue.clone();
        turned.reverse();
        let limits = limits(running_max);
        prop_assert_eq!(choose(&queue, &limits), choose(&turned, &limits));
    }
}
