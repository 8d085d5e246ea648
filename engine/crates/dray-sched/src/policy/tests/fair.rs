use super::super::{
    Decision, Fair, Limits, OwnerRules, PRIORITY_MAX, Phase, Policy, Transfer, View,
};
use dray_core::Time;
use dray_core::rate::Class;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const NOW: Time = Time::from_nanos(1_000);

fn at(nanos: u64) -> Option<Time> {
    Some(Time::from_nanos(nanos))
}

fn waiting<'a>(id: &'a str, owner: &'a str, submitted: u64) -> Transfer<'a> {
    Transfer {
        owner,
        since: NOW,
        ..Transfer::new(id, submitted)
    }
}

fn limits(running_max: usize) -> Limits {
    Limits::of(running_max)
}

fn fair() -> Fair {
    Fair::new(Duration::from_secs(900))
}

fn decide<'a>(fair: &mut Fair, transfers: &[Transfer<'a>], limits: &Limits) -> Decision<'a> {
    let view = View {
        transfers,
        ended: &[],
        limits,
    };
    fair.decide(&view, NOW)
}

fn choose<'a>(waiting: &[Transfer<'a>], limits: &Limits) -> Decision<'a> {
    decide(&mut fair(), waiting, limits)
}

#[test]
fn class_goes_before_priority_before_deadline_before_submission() {
    let plain = |id, submitted| waiting(id, "a", submitted);
    let queue = [
        plain("last", 9),
        plain("first of its kind", 8),
        Transfer {
            priority: 9,
            ..plain("urgent", 10)
        },
        Transfer {
            deadline: at(5_000),
            ..plain("has a deadline", 11)
        },
        Transfer {
            deadline: at(4_000),
            ..plain("has an earlier one", 12)
        },
        Transfer {
            class: Class::Deadline,
            priority: 0,
            ..plain("of a higher class", 13)
        },
        Transfer {
            class: Class::Realtime,
            priority: 0,
            ..plain("of the highest class", 14)
        },
    ];
    assert_eq!(
        choose(&queue, &limits(100)).run,
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
    assert_eq!(choose(&queue, &limits(2)).run.len(), 2);
    // Priorities above the maximum count as the maximum.
    let queue = [
        Transfer {
            priority: PRIORITY_MAX,
            ..plain("one", 1)
        },
        Transfer {
            priority: 200,
            ..plain("two", 2)
        },
    ];
    assert_eq!(choose(&queue, &limits(1)).run, ["one"]);
}

#[test]
fn a_future_start_sets_the_time_of_the_next_decision() {
    let queue = [
        Transfer {
            not_before: at(3_000),
            ..waiting("later", "a", 1)
        },
        Transfer {
            not_before: at(2_000),
            ..waiting("soon", "a", 2)
        },
        Transfer {
            not_before: at(1_000),
            ..waiting("now", "a", 3)
        },
    ];
    let choice = choose(&queue, &limits(100));
    assert_eq!(choice.run, ["now"]);
    assert_eq!(choice.look_again, at(2_000));
    assert_eq!(choose(&[], &limits(100)), Decision::default());
}

#[test]
fn full_owners_and_peers_delay_no_other() {
    let with = |id, owner, peer, submitted| Transfer {
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
    let mut queue = queue.to_vec();
    queue.push(Transfer {
        phase: Phase::Running,
        ..with("running", "b", "x", 0)
    });
    let limits = Limits {
        peer_max: 2,
        owner_max: 2,
        owners: [(
            "c".to_owned(),
            OwnerRules {
                weight: 1,
                running_max: Some(0),
                ..OwnerRules::default()
            },
        )]
        .into(),
        ..limits(100)
    };
    let choice = choose(&queue, &limits);
    assert_eq!(choice.run, ["running", "a1", "b2", "a3"]);
    assert!(choice.hold.is_empty());
}

/// Starts one transfer at a time, `rounds` times. Returns the number of starts of each owner.
fn serve(
    turns: &mut Fair,
    limits: &Limits,
    owners: &[&'static str],
    rounds: usize,
) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..rounds {
        // The first owner has submitted many transfers before all other owners.
        let queue: Vec<_> = owners
            .iter()
            .enumerate()
            .flat_map(|(at, owner)| {
                let many = if at == 0 { 50 } else { 1 };
                (0..many).map(move |n| waiting(owner, owner, at as u64 * 100 + n))
            })
            .collect();
        for id in decide(turns, &queue, limits).run {
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
        ..OwnerRules::default()
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
    let mut turns = fair();
    let counts = serve(&mut turns, &limits, &["light", "heavy", "plain"], 500);
    assert_eq!(counts["light"], 100);
    assert_eq!(counts["plain"], 100);
    assert_eq!(counts["heavy"], 300);
    // A weight of zero counts as the lowest weight, so the owner still gets turns.
    let counts = serve(&mut turns, &limits, &["light", "feather"], 202);
    assert!((1..=3).contains(&counts["feather"]), "{counts:?}");
}

#[test]
fn absence_saves_no_turns() {
    let mut turns = fair();
    let limits = limits(1);
    serve(&mut turns, &limits, &["busy", "other"], 100);
    // An owner that arrives later is served immediately, and then in turn.
    let counts = serve(&mut turns, &limits, &["busy", "other", "late"], 30);
    assert_eq!(counts["late"], 10);
    // An owner that could not start because of a limit has not saved up turns either.
    let held = Limits {
        owners: [(
            "other".to_owned(),
            OwnerRules {
                running_max: Some(0),
                ..OwnerRules::default()
            },
        )]
        .into(),
        ..limits.clone()
    };
    serve(&mut turns, &held, &["busy", "other"], 100);
    let counts = serve(&mut turns, &limits, &["busy", "other", "new"], 30);
    assert_eq!(counts.values().collect::<Vec<_>>(), [&10, &10, &10]);
    // Without waiting transfers the policy keeps no state.
    decide(&mut turns, &[], &limits);
    assert_eq!(turns, fair(), "nothing is remembered");
}

#[test]
fn a_stream_of_urgent_transfers_does_not_turn_the_others_order() {
    let mut turns = fair();
    let mut counts = BTreeMap::<&str, usize>::new();
    for round in 0..60 {
        // Every second slot goes to a transfer with a higher priority.
        let mut queue = vec![waiting("c", "c", 1), waiting("d", "d", 2)];
        if round % 2 == 0 {
            queue.push(Transfer {
                priority: 9,
                ..waiting("a", "a", 3)
            });
        }
        for id in decide(&mut turns, &queue, &limits(1)).run {
            *counts.entry(id).or_default() += 1;
        }
    }
    assert_eq!(counts, [("a", 30), ("c", 15), ("d", 15)].into());
}

#[test]
fn activities_of_an_owner_take_turns_by_weight() {
    let own = OwnerRules {
        activities: [("bulk".to_owned(), 50), ("physics".to_owned(), 150)].into(),
        ..OwnerRules::default()
    };
    let limits = Limits {
        owners: [("a".to_owned(), own)].into(),
        ..limits(1)
    };
    let mut turns = fair();
    let mut counts = BTreeMap::<&str, usize>::new();
    for _ in 0..600 {
        let of = |id, owner, activity, submitted| Transfer {
            activity,
            ..waiting(id, owner, submitted)
        };
        let queue = [
            of("bulk", "a", "bulk", 1),
            of("bulk too", "a", "bulk", 2),
            of("physics", "a", "physics", 3),
            of("none", "a", "", 4),
            of("b", "b", "", 5),
        ];
        for id in decide(&mut turns, &queue, &limits).run {
            *counts.entry(id).or_default() += 1;
        }
    }
    // Each owner gets half of the 600 starts. Of the half of owner a, `bulk` gets a sixth,
    // transfers without an activity a third, and `physics` a half.
    let expected = [("b", 300), ("bulk", 50), ("none", 100), ("physics", 150)];
    for (id, count) in expected {
        assert!(counts[id].abs_diff(count) <= 1, "{counts:?}");
    }
}

#[test]
fn the_longest_waiting_transfer_gets_one_start_per_patience() {
    let mut turns = fair();
    let mut starts = Vec::new();
    for minute in 1..=60 {
        let now = NOW + Duration::from_secs(60 * minute);
        // Each minute one slot is free, and a new urgent transfer arrives.
        let low = |id, submitted| Transfer {
            priority: 0,
            ..waiting(id, "patient", submitted)
        };
        let mut queue = vec![
            low("first", 1),
            low("second", 2),
            Transfer {
                class: Class::Realtime,
                since: now,
                ..waiting("urgent", "hasty", 3)
            },
        ];
        queue.retain(|one| !starts.contains(&(one.id, 16)) && !starts.contains(&(one.id, 31)));
        let limits = limits(1);
        let view = View {
            transfers: &queue,
            ended: &[],
            limits: &limits,
        };
        let run = turns.decide(&view, now).run;
        assert_eq!(run.len(), 1);
        if run[0] != "urgent" {
            starts.push((run[0], minute));
        }
    }
    assert_eq!(starts, [("first", 16), ("second", 31)]);
}

#[test]
fn held_transfers_precede_waiting_ones() {
    let queue = [
        waiting("waiting", "a", 1),
        Transfer {
            phase: Phase::Held,
            ..waiting("held", "a", 2)
        },
        Transfer {
            phase: Phase::Running,
            ..waiting("running", "a", 3)
        },
    ];
    assert_eq!(choose(&queue, &limits(2)).run, ["running", "held"]);
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

fn queue<'a>(drawn: &[Drawn], ids: &'a [String]) -> Vec<Transfer<'a>> {
    drawn
        .iter()
        .zip(ids)
        .enumerate()
        .map(|(index, (one, id))| Transfer {
            peer: one.peer.map(|peer| PEERS[peer]),
            class: one.class,
            priority: one.priority,
            deadline: one.deadline.and_then(at),
            not_before: one.not_before.and_then(at),
            ..waiting(id, OWNERS[one.owner], index as u64)
        })
        .collect()
}

proptest! {
    #[test]
    fn limits_are_never_exceeded_and_no_slot_stays_empty(
        drawn in drawn(),
        busy in prop::collection::vec((0..4usize, prop::option::of(0..3usize)), 0..6),
        running_max in 0..12usize,
        owner_max in 0..5usize,
        peer_max in 0..5usize,
        own_max in 0..3usize,
    ) {
        let ids: Vec<_> = (0..drawn.len()).map(|n| n.to_string()).collect();
        let mut queue = queue(&drawn, &ids);
        let busy_ids: Vec<_> = (0..busy.len()).map(|n| format!("busy {n}")).collect();
        queue.extend(busy.iter().zip(&busy_ids).map(|((owner, peer), id)| Transfer {
            peer: peer.map(|peer| PEERS[peer]),
            phase: Phase::Running,
            ..waiting(id, OWNERS[*owner], 0)
        }));
        let own = OwnerRules { running_max: Some(own_max), ..OwnerRules::default() };
        let limits = Limits {
            owner_max,
            peer_max,
            owners: [("a".to_owned(), own)].into(),
            ..Limits::of(running_max)
        };
        let choice = choose(&queue, &limits);
        let started: BTreeSet<_> = choice.run.iter().copied().collect();
        prop_assert_eq!(started.len(), choice.run.len(), "each once");
        let all: Vec<_> = queue.iter().filter(|one| started.contains(one.id)).collect();
        let of = |owner: &str| all.iter().filter(|one| one.owner == owner).count();
        let with = |peer| all.iter().filter(|one| one.peer == Some(peer)).count();
        let max_of = |owner| if owner == "a" { own_max } else { owner_max };
        if started.len() > busy.len() {
            prop_assert!(all.len() <= running_max);
        }
        for one in &queue {
            if one.phase == Phase::Running {
                prop_assert!(started.contains(one.id), "what runs goes on");
            } else if started.contains(one.id) {
                prop_assert!(of(one.owner) <= max_of(one.owner));
                prop_assert!(one.peer.is_none_or(|peer| with(peer) <= peer_max));
                prop_assert!(one.not_before.is_none_or(|time| time <= NOW));
            } else {
                // A transfer still waits only if a limit or its `not_before` prevents its start.
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
        let level = |one: &Transfer<'_>| (one.class, PRIORITY_MAX - one.priority.min(PRIORITY_MAX));
        for pair in choice.run.windows(2) {
            prop_assert!(level(find(pair[0])) <= level(find(pair[1])));
        }
        for (index, id) in choice.run.iter().enumerate() {
            for later in &choice.run[index + 1..] {
                let (one, other) = (find(id), find(later));
                if one.owner == other.owner && level(one) == level(other) {
                    let key = |this: &Transfer<'_>| {
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
    fn no_owner_waits_longer_than_a_round_of_all_owners(
        backlog in prop::collection::vec(1..40usize, 2..5), slots in 1..3usize,
    ) {
        // Each transfer ends immediately after its start. Every waiting owner must be served within
        // one round of turns.
        let mut turns = fair();
        let mut since = vec![0; backlog.len()];
        for _ in 0..30 {
            let queue: Vec<_> = backlog
                .iter()
                .enumerate()
                .flat_map(|(owner, many)| {
                    (0..*many as u64).map(move |n| waiting(OWNERS[owner], OWNERS[owner], n))
                })
                .collect();
            let choice = decide(&mut turns, &queue, &limits(slots));
            for (owner, waited) in since.iter_mut().enumerate() {
                *waited += choice.run.len();
                if choice.run.contains(&OWNERS[owner]) {
                    *waited = 0;
                }
                prop_assert!(*waited < backlog.len() + slots);
            }
        }
    }

    #[test]
    fn the_same_view_gives_the_same_decision(drawn in drawn(), running_max in 0..40usize) {
        let ids: Vec<_> = (0..drawn.len()).map(|n| n.to_string()).collect();
        let queue = queue(&drawn, &ids);
        let mut turned = queue.clone();
        turned.reverse();
        let limits = limits(running_max);
        prop_assert_eq!(choose(&queue, &limits), choose(&turned, &limits));
    }
}
