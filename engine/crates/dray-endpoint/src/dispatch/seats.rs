//! Who gives up a session when another is to begin and no place is free.
//!
//! The plan of what is promised counts bytes, not places. So what is promised begins in the order of its
//! latest start, and takes a place from whoever can wait: held ones first, then what nobody was
//! promised, the background before the rest, then what is promised and has time.
//!
//! Invariant owned here: nobody gives up a session to somebody who would give it back: what is
//! promised gives way only to what is in a hurry, by more than that hurry.

use super::choose::Seen;
use super::{Dispatcher, Shared, time};
use crate::live::Lack;
use crate::moment::Moment;
use crate::queue::QueuedTransfer;
use dray_core::rate::Class;
use dray_core::{Time, TransferId};
use dray_sched::policy::Phase;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

/// A promised transfer is in a hurry when its latest start is no farther away than this; another gives
/// way that has so much more time. Many times what it takes to end a session and to begin one. Guess,
/// revisit.
const HURRY: Duration = Duration::from_secs(60);

/// Sessions that are given up for what is promised at the same time. Guess, revisit.
const LEAVING_MAX: usize = 8;

/// What has a session and could give it up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sitting {
    id: TransferId,
    owner: String,
    is_held: bool,
    class: Class,
    since: Moment,
    /// Of what the plan has moving: when it would have to begin at the latest.
    latest_start: Option<Time>,
}

/// Who has found no place.
#[derive(Debug, Clone, Copy)]
struct Newcomer<'n> {
    owner: &'n str,
    lack: Lack,
    /// See [`Sitting::latest_start`].
    latest_start: Option<Time>,
}

/// In the order in which they give way.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The longest held first.
    Held(Moment),
    /// What is owed least, then what began last: it has least to lose.
    Unpromised(Reverse<Class>, Reverse<Moment>),
    /// Who has most time.
    Promised(Reverse<Time>),
}

impl Sitting {
    /// Where it stands among those that give way to a newcomer; `None` when it does not.
    fn rank(&self, newcomer: &Newcomer<'_>, now: Time) -> Option<Rank> {
        if newcomer.lack == Lack::OfOwner && self.owner != newcomer.owner {
            return None;
        }
        let (Some(own), Some(other)) = (self.latest_start, newcomer.latest_start) else {
            return match (self.latest_start, newcomer.latest_start) {
                (None, _) if self.is_held => Some(Rank::Held(self.since)),
                // Among those to whom nothing is promised the policy decides.
                (None, Some(_)) => Some(Rank::Unpromised(Reverse(self.class), Reverse(self.since))),
                _ => None,
            };
        };
        let is_hurried = other <= now + HURRY;
        let has_time = own > other.max(now) + HURRY;
        (is_hurried && has_time).then_some(Rank::Promised(Reverse(own)))
    }
}

/// Who of them gives way.
fn gives_way(sitting: &[Sitting], newcomer: &Newcomer<'_>, now: Time) -> Option<usize> {
    let ranks = sitting.iter().enumerate();
    let ranks = ranks.filter_map(|(at, one)| Some((one.rank(newcomer, now)?, at)));
    ranks.min().map(|(_, at)| at)
}

/// Who gives way to all of these, in their order. `leaving` have done so already, for some of them.
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

impl Dispatcher {
    /// Begins what the plan has moving now, whoever waits besides: who has to begin first.
    pub(super) fn begin_promised(&self) {
        let shared = &self.0;
        let mut promised = match shared.queue.promised_runnable() {
            Ok(promised) => promised,
            Err(error) => {
                tracing::error!("cannot look for what is promised: {error}");
                return;
            }
        };
        promised.retain(|one| !shared.is_running(&one.id));
        let now = Moment::now();
        let ids: Vec<TransferId> = promised.iter().map(|one| one.id.clone()).collect();
        let ids: Vec<&str> = ids.iter().map(TransferId::as_str).collect();
        let starts = shared.queue.promises().latest_starts(&ids, now);
        let start = |one: &QueuedTransfer| starts.get(one.id.as_str()).copied();
        promised.sort_by_key(|one| (start(one).is_none(), start(one), one.seq));
        let mut seatless: Vec<(&QueuedTransfer, Lack)> = Vec::new();
        for one in &promised {
            // Asked before its rows are read: there may be many.
            if shared.live.lack(&one.owner).is_none()
                && let Err(error) = self.begin_one(one)
            {
                // What one row has against it holds nobody else up.
                tracing::error!(transfer = %one.id, "cannot begin a transfer: {error}");
                continue;
            }
            if let Some(lack) = shared.live.lack(&one.owner)
                && !shared.is_running(&one.id)
            {
                seatless.push((one, lack));
            }
        }
        let told: Vec<(&str, Lack)> = (seatless.iter())
            .map(|(one, lack)| (one.id.as_str(), *lack))
            .collect();
        shared.queue.promises().seatless(&told, now);
        let newcomers: Vec<Newcomer<'_>> = (seatless.iter())
            .map(|(one, lack)| Newcomer {
                owner: &one.owner,
                lack: *lack,
                latest_start: Some(start(one).unwrap_or_else(|| time(now))),
            })
            .collect();
        shared.make_room(&newcomers, now);
    }
}

impl Shared {
    /// There is no place for a transfer that the policy has chosen: one that is held gives up its own.
    /// One at a time.
    pub(super) fn make_room_beside_held(&self, owner: &str) {
        let Some(lack) = self.live.lack(owner) else {
            return;
        };
        if !self.state().running.values().any(|one| one.is_leaving) {
            let newcomer = Newcomer {
                owner,
                lack,
                latest_start: None,
            };
            self.make_room(&[newcomer], Moment::now());
        }
    }

    fn make_room(&self, newcomers: &[Newcomer<'_>], now: Moment) {
        if newcomers.is_empty() {
            return;
        }
        let (seen, leaving) = {
            let state = self.state();
            let (leaving, staying): (Vec<_>, Vec<_>) =
                (state.running.values()).partition(|running| running.is_leaving);
            let seen = staying.iter().map(|running| running.seen.clone());
            let leaving = leaving.iter().map(|running| running.seen.owner.clone());
            (seen.collect::<Vec<Seen>>(), leaving.collect::<Vec<_>>())
        };
        // Asked without the state's lock: promises may be planning.
        let promises = self.queue.promises();
        let moving = seen.iter().map(|one| one.id.as_str());
        let moving: Vec<&str> = moving.filter(|id| promises.is_moving(id)).collect();
        let starts: HashMap<&str, Time> = promises.latest_starts(&moving, now);
        let sitting = seen.iter().map(|one| Sitting {
            id: one.id.clone(),
            owner: one.owner.clone(),
            is_held: one.phase == Phase::Held,
            class: one.class,
            since: one.since,
            latest_start: starts.get(one.id.as_str()).copied(),
        });
        for id in give_way(sitting.collect(), newcomers, leaving, time(now)) {
            self.let_go(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HURRY, LEAVING_MAX, Newcomer, Sitting, give_way};
    use crate::live::Lack;
    use crate::moment::Moment;
    use dray_core::rate::Class;
    use dray_core::{Time, TransferId};
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
            since: Moment::from_ms(since),
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
        // Nobody's place is taken back by whom it was taken from, however time goes by.
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
}
