//! Chooses the session that ends when another transfer is to start and no slot is free.
//!
//! The plan of promised transfers counts bytes, not session slots. So promised transfers start in
//! the order of their latest start, and take a slot from a transfer that can wait: first held ones,
//! then unpromised ones with the background class first, then promised ones that have time.
//!
//! Invariant owned here: a session is never ended for a transfer that would later have to return
//! the slot. A promised transfer is released only for one in a hurry, and only if it has more time
//! by more than [`HURRY`]. Only a link that gives more than it gave at that time changes this
//! order.

use super::{Dispatcher, Shared, time};
use dray_api::Timestamp;
use dray_core::rate::Class;
use dray_core::{Result, Time, TransferId};
use dray_queue::clock;
use dray_queue::promises::Lack;
use dray_queue::promises::Mover;
use dray_sched::policy::Phase;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// A promised transfer is in a hurry if its latest start is at most this far away; another is
/// released for it only if its latest start is later by more than this. Many times the time to end
/// one session and start another. Guess, revisit.
const HURRY: Duration = Duration::from_secs(60);

/// Maximum number of sessions that are being released for promised transfers at the same time.
/// Guess, revisit.
const LEAVING_MAX: usize = 8;

/// Maximum number of promised transfers that one round starts; the round inspects all.
const BEGUN_MAX: usize = 256;

/// A transfer with a session that it could give up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sitting {
    id: TransferId,
    owner: String,
    is_held: bool,
    class: Class,
    since: Timestamp,
    /// Latest start, for a transfer that moves by plan.
    latest_start: Option<Time>,
}

/// A transfer that found no free slot.
#[derive(Debug, Clone, Copy)]
struct Newcomer<'n> {
    owner: &'n str,
    lack: Lack,
    /// See [`Sitting::latest_start`].
    latest_start: Option<Time>,
}

/// Ranks in the order in which sessions are released.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Held sessions, the longest held first.
    Held(Timestamp),
    /// Unpromised transfers, the least urgent class first, then the one that started last, which
    /// has the least to lose.
    Unpromised(Reverse<Class>, Reverse<Timestamp>),
    /// Promised transfers, the one with the most time first.
    Promised(Reverse<Time>),
}

impl Sitting {
    /// Returns the rank of this session for a newcomer; `None` if it is not released for it.
    fn rank(&self, newcomer: &Newcomer<'_>, now: Time) -> Option<Rank> {
        if newcomer.lack == Lack::OfOwner && self.owner != newcomer.owner {
            return None;
        }
        let (Some(own), Some(other)) = (self.latest_start, newcomer.latest_start) else {
            return match (self.latest_start, newcomer.latest_start) {
                (None, _) if self.is_held => Some(Rank::Held(self.since)),
                // Among unpromised transfers the policy decides.
                (None, Some(_)) => Some(Rank::Unpromised(Reverse(self.class), Reverse(self.since))),
                _ => None,
            };
        };
        let is_hurried = other <= now + HURRY;
        let has_time = own > other.max(now) + HURRY;
        (is_hurried && has_time).then_some(Rank::Promised(Reverse(own)))
    }
}

/// Returns the index of the session that is released for the newcomer.
fn gives_way(sitting: &[Sitting], newcomer: &Newcomer<'_>, now: Time) -> Option<usize> {
    let ranks = sitting.iter().enumerate();
    let ranks = ranks.filter_map(|(at, one)| Some((one.rank(newcomer, now)?, at)));
    ranks.min().map(|(_, at)| at)
}

/// Returns the sessions to release for all these newcomers, in their order. The sessions of
/// `leaving` are already released for some of the newcomers.
fn give_way(
    mut sitting: Vec<Sitting>,
    newcomers: &[Newcomer<'_>],
    mut leaving: Vec<String>,
    now: Time,
) -> Vec<TransferId> {
    let mut places = LEAVING_MAX.saturating_sub(leaving.len());
    let mut given = Vec::new();
    for newcomer in newcomers {
        let is_for = |owner: &String| newcomer.lack == Lack::InAll || *owner == newcomer.owner;
        if let Some(at) = leaving.iter().position(is_for) {
            leaving.swap_remove(at);
            continue;
        }
        if places == 0 {
            break;
        }
        if let Some(at) = gives_way(&sitting, newcomer, now) {
            given.push(sitting.swap_remove(at).id);
            places -= 1;
        }
    }
    given
}

/// Latest starts of the transfers that move by plan, by id.
pub(super) type Starts<'m> = HashMap<&'m str, Time>;

pub(super) fn starts(movers: &[Mover]) -> Starts<'_> {
    let starts = movers.iter();
    starts.map(|one| (&*one.id, one.latest_start)).collect()
}

/// Starts those of these transfers that find a free slot, in their order; returns the others, each
/// with the exhausted limit. `begin` returns true if the transfer no longer needs a slot.
fn sit_down<'m>(
    waiting: &[&'m Mover],
    lack: impl Fn(&str) -> Option<Lack>,
    mut begin: impl FnMut(&Mover) -> bool,
) -> Vec<(&'m Mover, Lack)> {
    // An owner without a free slot is checked only once per round.
    let mut lacks: HashMap<&str, Lack> = HashMap::new();
    let mut begun = 0;
    let mut seatless = Vec::new();
    for one in waiting {
        let known = lacks.get(&*one.owner).copied();
        let mut found = known.or_else(|| lack(&one.owner));
        if found.is_none() {
            if begun == BEGUN_MAX {
                continue;
            }
            begun += 1;
            if begin(one) {
                continue;
            }
            found = lack(&one.owner);
        }
        if let Some(lack) = found {
            lacks.insert(&one.owner, lack);
            seatless.push((*one, lack));
        }
    }
    seatless
}

impl Dispatcher {
    /// Starts the transfers that move by plan now, in the order of their latest start, whatever
    /// else waits.
    pub(super) fn begin_promised(&self, movers: &[Mover], starts: &Starts<'_>) {
        let shared = &self.0;
        let running: HashSet<String> = {
            let state = shared.state();
            if state.is_stopping {
                return;
            }
            state.running.keys().map(TransferId::to_string).collect()
        };
        let mut waiting: Vec<&Mover> = movers.iter().collect();
        waiting.retain(|one| !running.contains(&*one.id));
        match (shared.queue).waiting_of(waiting.iter().map(|one| &*one.id)) {
            Ok(found) => waiting.retain(|one| found.contains(&*one.id)),
            Err(error) => {
                tracing::error!("cannot look for what is promised: {error}");
                return;
            }
        }
        let lack = |owner: &str| shared.live.lack(owner);
        let seatless = sit_down(&waiting, lack, |one| {
            let begun = self.begin_waiting(&one.id);
            begun.unwrap_or_else(|error| {
                // An error in one row does not stop the others.
                tracing::error!(transfer = %one.id, "cannot begin a transfer: {error}");
                true
            })
        });
        let now = clock::now();
        let told: Vec<(&str, Lack)> = (seatless.iter())
            .map(|(one, lack)| (&*one.id, *lack))
            .collect();
        shared.queue.promises().seatless(&told, now);
        let newcomers: Vec<Newcomer<'_>> = (seatless.iter())
            .map(|(one, lack)| Newcomer {
                owner: &one.owner,
                lack: *lack,
                latest_start: Some(one.latest_start),
            })
            .collect();
        shared.make_room(&newcomers, starts, now);
    }

    /// Starts a transfer that waited when the queue was read; returns true if it no longer waits.
    fn begin_waiting(&self, id: &str) -> Result<bool> {
        let Some(chosen) = self.0.queue.waiting(id)? else {
            return Ok(true);
        };
        self.begin_one(&chosen)?;
        Ok(self.0.is_running(&chosen.id))
    }
}

impl Shared {
    /// Releases a held session if no slot is free for a transfer that the policy has chosen. One at
    /// a time.
    pub(super) fn make_room_beside_held(&self, owner: &str, starts: &Starts<'_>) {
        let Some(lack) = self.live.lack(owner) else {
            return;
        };
        if !self.state().running.values().any(|one| one.is_leaving) {
            let newcomer = Newcomer {
                owner,
                lack,
                latest_start: None,
            };
            self.make_room(&[newcomer], starts, clock::now());
        }
    }

    fn make_room(&self, newcomers: &[Newcomer<'_>], starts: &Starts<'_>, now: Timestamp) {
        if newcomers.is_empty() {
            return;
        }
        let (sitting, leaving) = {
            let state = self.state();
            let (leaving, staying): (Vec<_>, Vec<_>) =
                (state.running.values()).partition(|running| running.is_leaving);
            let sitting = staying.iter().map(|running| Sitting {
                id: running.seen.id.clone(),
                owner: running.seen.owner.clone(),
                is_held: running.seen.phase == Phase::Held,
                class: running.seen.class,
                since: running.seen.since,
                latest_start: starts.get(running.seen.id.as_str()).copied(),
            });
            let leaving = leaving.iter().map(|running| running.seen.owner.clone());
            (sitting.collect::<Vec<_>>(), leaving.collect::<Vec<_>>())
        };
        for id in give_way(sitting, newcomers, leaving, time(now)) {
            self.release(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BEGUN_MAX, HURRY, LEAVING_MAX, Newcomer, Sitting, give_way, sit_down};
    use crate::live::{Bounds, Live, Moving, Seat, Way};
    use dray_api::RateWish;
    use dray_api::Timestamp;
    use dray_core::rate::{BytesPerSecond, Class};
    use dray_core::{Time, TransferId};
    use dray_queue::promises::Lack;
    use dray_queue::promises::Mover;
    use dray_sched::broker::{Broker, Config, ResourceId, TransferKey, Wish};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const NOW: u64 = 1_000;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn sitting(id: &str, owner: &str, class: Class, since: i64) -> Sitting {
        Sitting {
            id: TransferId::new(id).expect("good"),
            owner: owner.to_owned(),
            is_held: false,
            class,
            since: Timestamp::from_ms(since),
            latest_start: None,
        }
    }

    fn promised(id: &str, owner: &str, start: u64) -> Sitting {
        Sitting {
            latest_start: Some(at(start)),
            ..sitting(id, owner, Class::Deadline, 0)
        }
    }

    fn newcomer(owner: &str, lack: Lack, start: u64) -> Newcomer<'_> {
        Newcomer {
            owner,
            lack,
            latest_start: Some(at(start)),
        }
    }

    fn words(ids: &[TransferId]) -> Vec<&str> {
        ids.iter().map(TransferId::as_str).collect()
    }

    fn ways(sitting: &[Sitting], newcomers: &[Newcomer<'_>]) -> Vec<String> {
        let ids = give_way(sitting.to_vec(), newcomers, Vec::new(), at(NOW));
        words(&ids).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_promised_takes_the_place_of_what_can_wait_the_background_first() {
        let held = Sitting {
            is_held: true,
            ..sitting("held", "alice", Class::Deadline, 1)
        };
        let all = [
            promised("tomorrow", "alice", 90_000),
            sitting("urgent", "alice", Class::Deadline, 5),
            sitting("old", "alice", Class::Background, 2),
            sitting("young", "alice", Class::Background, 3),
            held,
            promised("soon", "alice", NOW + 10),
        ];
        let one = newcomer("alice", Lack::InAll, NOW + 30);
        assert_eq!(
            ways(&all, &[one; 6]),
            ["held", "young", "old", "urgent", "tomorrow"],
            "who is due as soon keeps its own"
        );
    }

    #[test]
    fn what_is_promised_gives_way_only_to_who_is_in_a_hurry_and_never_back() {
        let tomorrow = [promised("tomorrow", "alice", 90_000)];
        let no_hurry = newcomer("alice", Lack::InAll, NOW + 3_600);
        assert!(
            ways(&tomorrow, &[no_hurry]).is_empty(),
            "it can wait itself"
        );
        let late = newcomer("alice", Lack::InAll, NOW - 5);
        assert_eq!(ways(&tomorrow, &[late]), ["tomorrow"]);
        // A transfer never takes a slot back from the one that took it, however much time passes.
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
                let given = ways(
                    &[promised("x", "a", own)],
                    &[newcomer("a", Lack::InAll, other)],
                );
                let back = ways(
                    &[promised("y", "a", other)],
                    &[newcomer("a", Lack::InAll, own)],
                );
                assert!(given.is_empty() || back.is_empty(), "{own} {other}");
            }
        }
    }

    #[test]
    fn who_has_too_many_gets_a_place_of_their_own_alone() {
        let all = [
            sitting("bobs", "bob", Class::Background, 9),
            sitting("hers", "alice", Class::Deadline, 1),
        ];
        let hers = newcomer("alice", Lack::OfOwner, NOW);
        assert_eq!(ways(&all, &[hers]), ["hers"]);
        assert_eq!(ways(&all[..1], &[hers]), [""; 0]);
        assert_eq!(ways(&all, &[newcomer("alice", Lack::InAll, NOW)]), ["bobs"]);
    }

    #[test]
    fn what_the_policy_begins_takes_the_place_of_held_ones_alone() {
        let held = |id, since| Sitting {
            is_held: true,
            ..sitting(id, "alice", Class::Background, since)
        };
        let chosen = Newcomer {
            owner: "alice",
            lack: Lack::InAll,
            latest_start: None,
        };
        let all = [
            sitting("runs", "alice", Class::Background, 1),
            Sitting {
                is_held: true,
                ..promised("promised", "alice", 90_000)
            },
            held("young", 3),
            held("old", 2),
        ];
        assert_eq!(ways(&all, &[chosen]), ["old"]);
        assert!(ways(&all[..2], &[chosen]).is_empty());
    }

    #[test]
    fn one_leaves_for_each_who_comes_and_few_at_a_time() {
        let all: Vec<Sitting> = (0..30)
            .map(|at| sitting(&format!("t{at}"), "bob", Class::Background, at))
            .collect();
        let one = newcomer("alice", Lack::InAll, NOW);
        let leaving = vec!["bob".to_owned(), "bob".to_owned()];
        let given = |count: usize| {
            let newcomers = vec![one; count];
            give_way(all.clone(), &newcomers, leaving.clone(), at(NOW)).len()
        };
        assert_eq!((given(1), given(2), given(5)), (0, 0, 3));
        assert_eq!(given(30), LEAVING_MAX - leaving.len());
    }

    fn movers(owner: &str, count: u64, start: u64) -> impl Iterator<Item = Mover> {
        (0..count).map(move |number| Mover {
            id: format!("{owner}{number}").into(),
            owner: owner.into(),
            latest_start: at(start + number),
        })
    }

    fn live(own_of_owner: u32) -> Live {
        Live::new(Bounds {
            memory: 1 << 30,
            sessions: 4_000,
            own: 2_000,
            per_owner: 4_000,
            own_of_owner,
        })
    }

    fn enter(live: &Live, one: &Mover) -> Seat {
        let id = TransferId::new(&*one.id).expect("good");
        let peer = "b.example".to_owned();
        let mut moving = Moving::new(
            id,
            one.owner.to_string(),
            peer,
            Way::In,
            RateWish::default(),
        );
        moving.is_own = true;
        live.enter(moving).expect("asked before")
    }

    #[test]
    fn who_is_at_their_bound_hides_nobody_however_many_they_have() {
        let live = live(2);
        let mut seats = Vec::new();
        let all: Vec<Mover> = movers("alice", 300, NOW)
            .chain(movers("bob", 1, 90_000))
            .collect();
        let waiting: Vec<&Mover> = all.iter().collect();
        let lack = |owner: &str| live.lack(owner);
        let seatless = sit_down(&waiting, lack, |one| {
            seats.push(enter(&live, one));
            true
        });
        let sat: Vec<&str> = (seats.iter())
            .map(|seat| seat.moving.transfer.as_str())
            .collect();
        assert_eq!(sat, ["alice0", "alice1", "bob0"]);
        assert_eq!(seatless.len(), 298, "all who find no place are told so");
        assert!(seatless.iter().all(|(_, lack)| *lack == Lack::OfOwner));
    }

    #[test]
    fn so_many_begin_in_one_look_and_the_others_are_not_told_that_there_is_no_place() {
        let live = live(2_000);
        let all: Vec<Mover> = movers("alice", 300, NOW).collect();
        let waiting: Vec<&Mover> = all.iter().collect();
        let mut seats = Vec::new();
        let seatless = sit_down(
            &waiting,
            |owner| live.lack(owner),
            |one| {
                seats.push(enter(&live, one));
                true
            },
        );
        assert_eq!((seats.len(), seatless.len()), (BEGUN_MAX, 0));
    }

    const LINK: ResourceId = ResourceId(0);
    const STEP: u64 = 20;

    /// Promised transfers on one link, and the only slot.
    struct OnePlace {
        broker: Broker,
        left: BTreeMap<u64, u64>,
        sits: Option<u64>,
        /// For each pair of a transfer that took the slot and the one that lost it: the link's rate
        /// then, and its highest rate since.
        taken: BTreeMap<(u64, u64), (u64, u64)>,
    }

    impl OnePlace {
        /// Creates promises of these numbers of bytes and due times.
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
                sits: None,
                taken: BTreeMap::new(),
            }
        }

        fn start(&self, key: u64, now: Time) -> Time {
            let start = self.broker.latest_start(TransferKey(key), now);
            start.expect("it is promised")
        }

        /// Advances one step, in which this many hundredths of the rate are used.
        fn step(&mut self, now: Time, rate: u64, hundredths: u64) {
            self.broker.set_resource(LINK, Some(BytesPerSecond(rate)));
            self.taken
                .values_mut()
                .for_each(|(_, most)| *most = rate.max(*most));
            let mut waiting: Vec<u64> = self.left.keys().copied().collect();
            waiting.retain(|key| Some(*key) != self.sits);
            waiting.sort_by_key(|key| self.start(*key, now));
            let Some(sits) = self.sits else {
                self.sits = waiting.first().copied();
                return;
            };
            let sitting = Sitting {
                latest_start: Some(self.start(sits, now)),
                ..sitting("sits", "alice", Class::Deadline, 0)
            };
            let comes = waiting.into_iter().find(|key| {
                let one = Newcomer {
                    owner: "alice",
                    lack: Lack::InAll,
                    latest_start: Some(self.start(*key, now)),
                };
                !give_way(vec![sitting.clone()], &[one], Vec::new(), now).is_empty()
            });
            if let Some(comes) = comes {
                if let Some((then, most)) = self.taken.remove(&(sits, comes)) {
                    assert!(most > then, "{comes} takes back what {sits} took at {then}");
                }
                self.taken.insert((comes, sits), (rate, rate));
                self.sits = Some(comes);
                return;
            }
            let left = self.left.entry(sits).or_default();
            *left = left.saturating_sub(rate * STEP * hundredths / 100);
            self.broker.progress(TransferKey(sits), *left);
            if *left == 0 {
                self.left.remove(&sits);
                self.sits = None;
            }
        }
    }

    proptest! {
        #[test]
        fn nobody_takes_a_place_back_unless_the_link_has_given_more_since(
            wishes in prop::collection::vec((100_u64..400_000, 10_u64..8_000), 2..6),
            steps in prop::collection::vec((10_u64..400, 1_u64..=100), 1..300),
        ) {
            let mut place = OnePlace::new(&wishes);
            for (number, (rate, hundredths)) in (0..).zip(steps) {
                place.step(at(NOW + STEP * number), rate, hundredths);
            }
        }
    }
}
