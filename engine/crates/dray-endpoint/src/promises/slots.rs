//! What is to move by plan and has no session to move in: the plan counts bytes, not places.

use super::{Desk, Promises, time};
use crate::live::Lack;
use dray_api::MissAnswer;
use dray_api::Timestamp;
use dray_core::Time;
use dray_sched::broker::TransferKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A promised transfer that finds no place for so long, and whose latest start is no farther away than
/// that, will be missed: a session that is given up has left in less. Guess, revisit.
const SEATLESS: Duration = Duration::from_secs(5);

/// One that found no place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seatless {
    since: Time,
    lack: Lack,
    is_told: bool,
}

/// A promised transfer that is to move now by plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mover {
    /// Which.
    pub id: Arc<str>,
    /// Whose.
    pub owner: Arc<str>,
    /// When it has to begin at the latest, moving as fast as what it passes allows; who was promised a
    /// rate: at once.
    pub latest_start: Time,
}

/// How many promises there are, and how they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// In all.
    pub held: usize,
    /// Planned to move now.
    pub moving: usize,
    /// Of which it was said that they will be missed, and still is.
    pub missing: usize,
    /// To move now, without a session.
    pub seatless: usize,
}

/// By transfer.
pub(super) type Unseated = BTreeMap<TransferKey, Seatless>;

impl Promises {
    /// All that are to move now by plan: who has to begin first comes first.
    #[must_use]
    pub fn movers(&self, now: Timestamp) -> Vec<Mover> {
        let at = time(now);
        let desk = self.desk();
        let moving = desk.held.iter().filter(|(key, _)| desk.moves(**key));
        let mut movers: Vec<Mover> = moving
            .map(|(key, held)| Mover {
                id: Arc::clone(&held.id),
                owner: Arc::clone(&held.owner),
                latest_start: desk.broker.latest_start(*key, at).unwrap_or(at),
            })
            .collect();
        drop(desk);
        // As submitted, where they have to begin at the same time.
        movers.sort_by_key(|mover| mover.latest_start);
        movers
    }

    #[cfg(test)]
    pub(crate) fn is_moving(&self, id: &str) -> bool {
        let desk = self.desk();
        desk.by_id.get(id).is_some_and(|key| desk.moves(*key))
    }

    /// How many there are, and how they stand.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let desk = self.desk();
        Standing {
            held: desk.held.len(),
            moving: desk.held.keys().filter(|key| desk.moves(**key)).count(),
            missing: desk.misses.len(),
            seatless: desk.unseated.len(),
        }
    }

    /// These are to move now and have found no place, all of them; each with why.
    pub fn seatless(&self, found: &[(&str, Lack)], now: Timestamp) {
        let at = time(now);
        let mut desk = self.desk();
        let desk = &mut *desk;
        let mut before = std::mem::take(&mut desk.unseated);
        let mut is_news = false;
        for (id, lack) in found {
            let Some(key) = desk.by_id.get(*id).copied() else {
                continue;
            };
            let old = before.remove(&key);
            let since = old.map_or(at, |old| old.since);
            let is_late =
                (desk.broker.latest_start(key, at)).is_some_and(|start| start <= at + SEATLESS);
            let was_told = old.is_some_and(|old| old.is_told);
            let is_told = was_told || is_late && at.since(since) >= SEATLESS;
            is_news |= is_told != was_told;
            let lack = *lack;
            desk.unseated.insert(
                key,
                Seatless {
                    since,
                    lack,
                    is_told,
                },
            );
        }
        desk.is_changed |= is_news || before.values().any(|old| old.is_told);
    }
}

impl Desk {
    /// Adds those that will be missed for want of a place, in the place of another cause.
    pub(super) fn add_unseated(&self, misses: &mut Vec<(TransferKey, MissAnswer)>) {
        for (key, unseated) in self.unseated.iter().filter(|(_, one)| one.is_told) {
            let Some(held) = self.held.get(key) else {
                continue;
            };
            let whose = match unseated.lack {
                Lack::OfOwner => "its owner may have (limits.per_owner_active)",
                Lack::InAll => "this endpoint may run (limits.transfers_active)",
            };
            let found = misses.iter().position(|(other, _)| other == key);
            let miss = MissAnswer {
                cause: format!(
                    "it has no session: all sessions that {whose} are taken by transfers that \
                     cannot wait longer"
                ),
                deadline: held.promise.deadline,
                earliest_finish: found.and_then(|at| misses[at].1.earliest_finish),
            };
            match found {
                Some(at) => misses[at].1 = miss,
                None => misses.push((*key, miss)),
            }
        }
    }
}
