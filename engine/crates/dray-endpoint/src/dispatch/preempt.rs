//! Starts promised transfers. If no slot is free for a promised transfer, ends a session that
//! `dray_sched::preemption` chooses.
//!
//! Invariant owned here: an owner without a free slot does not delay the promised transfers of
//! another owner.

use super::{Dispatcher, DispatcherInner, time};
use dray_api::Timestamp;
use dray_core::{Result, Time, TransferId};
use dray_queue::clock;
use dray_queue::promises::Lack;
use dray_queue::promises::Mover;
use dray_sched::policy::Phase;
use dray_sched::preemption::{self, FullLimit, Newcomer, Session};
use std::collections::{HashMap, HashSet};

/// Maximum number of promised transfers that one round starts. Further transfers start in the next
/// rounds.
const BEGUN_MAX: usize = 256;

/// Latest starts of the promised transfers in the plan, by id.
pub(super) type Starts<'m> = HashMap<&'m str, Time>;

pub(super) fn starts(movers: &[Mover]) -> Starts<'_> {
    let starts = movers.iter();
    starts.map(|one| (&*one.id, one.latest_start)).collect()
}

/// Starts the transfers of `waiting` that find a free slot, in the given order. Returns the
/// transfers that find none, each with the limit that is exhausted. `lack` returns the exhausted
/// limit of an owner. `begin` returns true if the transfer is no longer waiting.
fn begin_each<'m>(
    waiting: &[&'m Mover],
    lack: impl Fn(&str) -> Option<Lack>,
    mut begin: impl FnMut(&Mover) -> bool,
) -> Vec<(&'m Mover, Lack)> {
    // The exhausted limit of each owner. An owner without a free slot is checked only once per
    // round.
    let mut lacks: HashMap<&str, Lack> = HashMap::new();
    let mut begun = 0;
    let mut without_slot = Vec::new();
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
            without_slot.push((*one, lack));
        }
    }
    without_slot
}

const fn full_limit(lack: Lack) -> FullLimit {
    match lack {
        Lack::OfOwner => FullLimit::OfOwner,
        Lack::InAll => FullLimit::OfAll,
    }
}

impl Dispatcher {
    /// Starts the promised transfers that the plan of promises moves now, in the order of their
    /// latest starts. Waiting transfers without a promise have no influence.
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
                tracing::error!("cannot look up promised transfers: {error}");
                return;
            }
        }
        let lack = |owner: &str| shared.live.lack(owner);
        let without_slot = begin_each(&waiting, lack, |one| {
            let begun = self.begin_waiting(&one.id);
            begun.unwrap_or_else(|error| {
                // An error of one transfer does not stop the other transfers.
                tracing::error!(transfer = %one.id, "cannot start a transfer: {error}");
                true
            })
        });
        let now = clock::now();
        let lacking: Vec<(&str, Lack)> = (without_slot.iter())
            .map(|(one, lack)| (&*one.id, *lack))
            .collect();
        shared.queue.promises().seatless(&lacking, now);
        let newcomers: Vec<Newcomer<'_>> = (without_slot.iter())
            .map(|(one, lack)| Newcomer {
                owner: &one.owner,
                limit: full_limit(*lack),
                latest_start: Some(one.latest_start),
            })
            .collect();
        shared.free_slots(&newcomers, starts, now);
    }

    /// Starts a transfer if it is still waiting. Returns true if the transfer is no longer waiting.
    fn begin_waiting(&self, id: &str) -> Result<bool> {
        let Some(chosen) = self.0.queue.waiting(id)? else {
            return Ok(true);
        };
        self.begin_one(&chosen)?;
        Ok(self.0.is_running(&chosen.id))
    }
}

impl DispatcherInner {
    /// Releases one held session if no slot is free for a transfer of `owner` that the policy has
    /// chosen. Does nothing while another released session has not ended.
    pub(super) fn free_slot_of_held(&self, owner: &str, starts: &Starts<'_>) {
        let Some(lack) = self.live.lack(owner) else {
            return;
        };
        if !self.state().running.values().any(|one| one.is_leaving) {
            let newcomer = Newcomer {
                owner,
                limit: full_limit(lack),
                latest_start: None,
            };
            self.free_slots(&[newcomer], starts, clock::now());
        }
    }

    fn free_slots(&self, newcomers: &[Newcomer<'_>], starts: &Starts<'_>, now: Timestamp) {
        if newcomers.is_empty() {
            return;
        }
        let (sessions, leaving) = {
            let state = self.state();
            let (leaving, staying): (Vec<_>, Vec<_>) =
                (state.running.values()).partition(|running| running.is_leaving);
            let sessions = staying.iter().map(|running| Session {
                id: running.view.id.clone(),
                owner: running.view.owner.clone(),
                is_held: running.view.phase == Phase::Held,
                class: running.view.class,
                since: time(running.view.since),
                latest_start: starts.get(running.view.id.as_str()).copied(),
            });
            let leaving = leaving.iter().map(|running| running.view.owner.clone());
            (sessions.collect::<Vec<_>>(), leaving.collect::<Vec<_>>())
        };
        for id in preemption::release(sessions, newcomers, leaving, time(now)) {
            self.release(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BEGUN_MAX, begin_each};
    use crate::live::{Bounds, Live, Moving, SessionSlot, Way};
    use dray_api::RateWish;
    use dray_core::{Time, TransferId};
    use dray_queue::promises::Lack;
    use dray_queue::promises::Mover;
    use std::time::Duration;

    const NOW: u64 = 1_000;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
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

    fn enter(live: &Live, one: &Mover) -> SessionSlot {
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
        live.enter(moving).expect("there is a free slot")
    }

    #[test]
    fn an_owner_at_the_limit_does_not_delay_another() {
        let live = live(2);
        let mut slots = Vec::new();
        let all: Vec<Mover> = movers("alice", 300, NOW)
            .chain(movers("bob", 1, 90_000))
            .collect();
        let waiting: Vec<&Mover> = all.iter().collect();
        let lack = |owner: &str| live.lack(owner);
        let without_slot = begin_each(&waiting, lack, |one| {
            slots.push(enter(&live, one));
            true
        });
        let begun: Vec<&str> = (slots.iter())
            .map(|slot| slot.moving.transfer.as_str())
            .collect();
        assert_eq!(begun, ["alice0", "alice1", "bob0"]);
        assert_eq!(
            without_slot.len(),
            298,
            "every transfer without a slot is reported"
        );
        assert!(without_slot.iter().all(|(_, lack)| *lack == Lack::OfOwner));
    }

    #[test]
    fn one_round_begins_a_limited_number_and_reports_no_full_limit_for_the_rest() {
        let live = live(2_000);
        let all: Vec<Mover> = movers("alice", 300, NOW).collect();
        let waiting: Vec<&Mover> = all.iter().collect();
        let mut slots = Vec::new();
        let without_slot = begin_each(
            &waiting,
            |owner| live.lack(owner),
            |one| {
                slots.push(enter(&live, one));
                true
            },
        );
        assert_eq!((slots.len(), without_slot.len()), (BEGUN_MAX, 0));
    }
}
