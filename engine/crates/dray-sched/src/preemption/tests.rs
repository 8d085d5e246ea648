use super::{FullLimit, HURRY, LEAVING_MAX, Newcomer, Session, release};
use crate::broker::{Broker, Config, ResourceId, TransferKey, Wish};
use dray_core::rate::{BytesPerSecond, Class};
use dray_core::{Time, TransferId};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const NOW: u64 = 1_000;

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn session(id: &str, owner: &str, class: Class, since: u64) -> Session {
    Session {
        id: TransferId::new(id).expect("good"),
        owner: owner.to_owned(),
        is_held: false,
        class,
        since: at(since),
        latest_start: None,
    }
}

fn promised(id: &str, owner: &str, start: u64) -> Session {
    Session {
        latest_start: Some(at(start)),
        ..session(id, owner, Class::Deadline, 0)
    }
}

fn newcomer(owner: &str, limit: FullLimit, start: u64) -> Newcomer<'_> {
    Newcomer {
        owner,
        limit,
        latest_start: Some(at(start)),
    }
}

fn words(ids: &[TransferId]) -> Vec<&str> {
    ids.iter().map(TransferId::as_str).collect()
}

fn released(sessions: &[Session], newcomers: &[Newcomer<'_>]) -> Vec<String> {
    let ids = release(sessions.to_vec(), newcomers, Vec::new(), at(NOW));
    words(&ids).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_promised_transfer_takes_the_slot_of_the_one_that_can_wait_longest() {
    let held = Session {
        is_held: true,
        ..session("held", "alice", Class::Deadline, 1)
    };
    let all = [
        promised("tomorrow", "alice", 90_000),
        session("urgent", "alice", Class::Deadline, 5),
        session("old", "alice", Class::Background, 2),
        session("young", "alice", Class::Background, 3),
        held,
        promised("soon", "alice", NOW + 10),
    ];
    let one = newcomer("alice", FullLimit::OfAll, NOW + 30);
    assert_eq!(
        released(&all, &[one; 6]),
        ["held", "young", "old", "urgent", "tomorrow"],
        "an equally urgent transfer keeps its slot"
    );
}

#[test]
fn a_promised_transfer_is_released_only_for_a_hurried_one_and_never_returns() {
    let tomorrow = [promised("tomorrow", "alice", 90_000)];
    let no_hurry = newcomer("alice", FullLimit::OfAll, NOW + 3_600);
    assert!(
        released(&tomorrow, &[no_hurry]).is_empty(),
        "the newcomer can wait too"
    );
    let late = newcomer("alice", FullLimit::OfAll, NOW - 5);
    assert_eq!(released(&tomorrow, &[late]), ["tomorrow"]);
    // If transfer A has lost its slot to transfer B, A never takes the slot back from B, at any
    // later time.
    let hurry = HURRY.as_secs();
    for own in [
        NOW - 5,
        NOW,
        NOW + 1,
        NOW + hurry,
        NOW + 2 * hurry,
        NOW + 3 * hurry,
    ] {
        for other in [
            NOW - 5,
            NOW,
            NOW + hurry - 1,
            NOW + hurry,
            NOW + 2 * hurry + 1,
        ] {
            let given = released(
                &[promised("x", "a", own)],
                &[newcomer("a", FullLimit::OfAll, other)],
            );
            let back = released(
                &[promised("y", "a", other)],
                &[newcomer("a", FullLimit::OfAll, own)],
            );
            assert!(given.is_empty() || back.is_empty(), "{own} {other}");
        }
    }
}

#[test]
fn an_owner_at_the_limit_gets_only_an_own_slot() {
    let all = [
        session("bobs", "bob", Class::Background, 9),
        session("hers", "alice", Class::Deadline, 1),
    ];
    let hers = newcomer("alice", FullLimit::OfOwner, NOW);
    assert_eq!(released(&all, &[hers]), ["hers"]);
    assert_eq!(released(&all[..1], &[hers]), [""; 0]);
    assert_eq!(
        released(&all, &[newcomer("alice", FullLimit::OfAll, NOW)]),
        ["bobs"]
    );
}

#[test]
fn an_unpromised_transfer_takes_only_the_slot_of_a_held_one() {
    let held = |id, since| Session {
        is_held: true,
        ..session(id, "alice", Class::Background, since)
    };
    let chosen = Newcomer {
        owner: "alice",
        limit: FullLimit::OfAll,
        latest_start: None,
    };
    let all = [
        session("runs", "alice", Class::Background, 1),
        Session {
            is_held: true,
            ..promised("promised", "alice", 90_000)
        },
        held("young", 3),
        held("old", 2),
    ];
    assert_eq!(released(&all, &[chosen]), ["old"]);
    assert!(released(&all[..2], &[chosen]).is_empty());
}

#[test]
fn one_session_is_released_for_each_newcomer_and_few_at_a_time() {
    let all: Vec<Session> = (0..30)
        .map(|at| session(&format!("t{at}"), "bob", Class::Background, at))
        .collect();
    let one = newcomer("alice", FullLimit::OfAll, NOW);
    let leaving = vec!["bob".to_owned(), "bob".to_owned()];
    let given = |count: usize| {
        let newcomers = vec![one; count];
        release(all.clone(), &newcomers, leaving.clone(), at(NOW)).len()
    };
    assert_eq!((given(1), given(2), given(5)), (0, 0, 3));
    assert_eq!(given(30), LEAVING_MAX - leaving.len());
}

const LINK: ResourceId = ResourceId(0);
const STEP: u64 = 20;

/// Promised transfers on one link with one session slot.
struct OneSlot {
    broker: Broker,
    left: BTreeMap<u64, u64>,
    holder: Option<u64>,
    /// For each pair of transfers of which the first took the slot from the second: the rate of the
    /// link when the slot was taken, and the highest rate of the link since.
    taken: BTreeMap<(u64, u64), (u64, u64)>,
}

impl OneSlot {
    /// Creates promises with these pairs of size in bytes and deadline in seconds.
    fn new(wishes: &[(u64, u64)]) -> Self {
        let mut broker = Broker::new(Config::default());
        broker.set_resource(LINK, Some(BytesPerSecond(100)));
        let numbered = (0..).zip(wishes);
        let promised = numbered.clone().map(|(key, (bytes, due))| {
            Wish::new(TransferKey(key), *bytes, &[LINK]).due(at(NOW + due))
        });
        broker.restore(promised);
        Self {
            broker,
            left: numbered.map(|(key, (bytes, _))| (key, *bytes)).collect(),
            holder: None,
            taken: BTreeMap::new(),
        }
    }

    fn start(&self, key: u64, now: Time) -> Time {
        let start = self.broker.latest_start(TransferKey(key), now);
        start.expect("the transfer is promised")
    }

    /// Simulates one step. The transfer with the slot uses `hundredths` percent of the rate.
    fn step(&mut self, now: Time, rate: u64, hundredths: u64) {
        self.broker.set_resource(LINK, Some(BytesPerSecond(rate)));
        self.taken
            .values_mut()
            .for_each(|(_, most)| *most = rate.max(*most));
        let mut waiting: Vec<u64> = self.left.keys().copied().collect();
        waiting.retain(|key| Some(*key) != self.holder);
        waiting.sort_by_key(|key| self.start(*key, now));
        let Some(holder) = self.holder else {
            self.holder = waiting.first().copied();
            return;
        };
        let current = Session {
            latest_start: Some(self.start(holder, now)),
            ..session("holder", "alice", Class::Deadline, 0)
        };
        let comes = waiting.into_iter().find(|key| {
            let one = Newcomer {
                owner: "alice",
                limit: FullLimit::OfAll,
                latest_start: Some(self.start(*key, now)),
            };
            !release(vec![current.clone()], &[one], Vec::new(), now).is_empty()
        });
        if let Some(comes) = comes {
            if let Some((then, most)) = self.taken.remove(&(holder, comes)) {
                assert!(
                    most > then,
                    "{comes} takes back what {holder} took at {then}"
                );
            }
            self.taken.insert((comes, holder), (rate, rate));
            self.holder = Some(comes);
            return;
        }
        let left = self.left.entry(holder).or_default();
        *left = left.saturating_sub(rate * STEP * hundredths / 100);
        self.broker.progress(TransferKey(holder), *left);
        if *left == 0 {
            self.left.remove(&holder);
            self.holder = None;
        }
    }
}

proptest! {
    #[test]
    fn no_transfer_takes_a_slot_back_unless_the_link_got_faster(
        wishes in prop::collection::vec((100_u64..400_000, 10_u64..8_000), 2..6),
        steps in prop::collection::vec((10_u64..400, 1_u64..=100), 1..300),
    ) {
        let mut slot = OneSlot::new(&wishes);
        for (number, (rate, hundredths)) in (0..).zip(steps) {
            slot.step(at(NOW + STEP * number), rate, hundredths);
        }
    }
}
