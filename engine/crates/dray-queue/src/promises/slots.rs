//! Promised transfers that should move by plan but have no session: the plan counts bytes, not
//! session slots.

use super::{BrokerState, Promises, time};
use dray_api::MissAnswer;
use dray_api::Timestamp;
use dray_core::Time;
use dray_sched::broker::TransferKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A promised transfer without a session for this long, whose latest start is at most this far
/// away, counts as missed: a session that is given up ends in less time. Guess, revisit.
const SEATLESS: Duration = Duration::from_secs(5);

/// The limit that permits no further session that this endpoint drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The limit of the owner's sessions.
    OfOwner,
    /// The limit of all sessions.
    InAll,
}

/// A transfer that found no session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seatless {
    since: Time,
    lack: Lack,
    is_told: bool,
}

/// A promised transfer that is to move now by plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mover {
    /// Id of the transfer.
    pub id: Arc<str>,
    /// Owner of the transfer.
    pub owner: Arc<str>,
    /// Latest time to start if the transfer then moves as fast as its resources permit. The present
    /// for a promise of a rate.
    pub latest_start: Time,
}

/// The number of promises, and of those in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// All promises.
    pub held: usize,
    /// Promised transfers that are planned to move now.
    pub moving: usize,
    /// Promises that are currently reported as expected misses.
    pub missing: usize,
    /// Promised transfers that are to move now and have no session.
    pub seatless: usize,
}

/// Promised transfers without a session, by key.
pub(super) type Unseated = BTreeMap<TransferKey, Seatless>;

impl Promises {
    /// Returns all transfers that are to move now by plan, the one with the earliest latest start
    /// first.
    #[must_use]
    pub fn movers(&self, now: Timestamp) -> Vec<Mover> {
        let at = time(now);
        let state = self.state();
        let moving = state.held.iter().filter(|(key, _)| state.moves(**key));
        let mut movers: Vec<Mover> = moving
            .map(|(key, held)| Mover {
                id: Arc::clone(&held.id),
                owner: Arc::clone(&held.owner),
                latest_start: state.broker.latest_start(*key, at).unwrap_or(at),
            })
            .collect();
        drop(state);
        // The sort is stable: with equal latest starts the order of submission stays.
        movers.sort_by_key(|mover| mover.latest_start);
        movers
    }

    #[cfg(test)]
    pub(crate) fn is_moving(&self, id: &str) -> bool {
        let state = self.state();
        state.by_id.get(id).is_some_and(|key| state.moves(*key))
    }

    /// Returns the number of promises, and of those in each state.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let state = self.state();
        Standing {
            held: state.held.len(),
            moving: state.held.keys().filter(|key| state.moves(**key)).count(),
            missing: state.misses.len(),
            seatless: state.unseated.len(),
        }
    }

    /// Takes the complete list of transfers that are to move now and found no session, each with
    /// the exhausted limit.
    pub fn seatless(&self, found: &[(&str, Lack)], now: Timestamp) {
        let at = time(now);
        let mut state = self.state();
        let state = &mut *state;
        let mut before = std::mem::take(&mut state.unseated);
        let mut is_news = false;
        for (id, lack) in found {
            let Some(key) = state.by_id.get(*id).copied() else {
                continue;
            };
            let old = before.remove(&key);
            let since = old.map_or(at, |old| old.since);
            let is_late =
                (state.broker.latest_start(key, at)).is_some_and(|start| start <= at + SEATLESS);
            let was_told = old.is_some_and(|old| old.is_told);
            let is_told = was_told || is_late && at.since(since) >= SEATLESS;
            is_news |= is_told != was_told;
            let lack = *lack;
            state.unseated.insert(
                key,
                Seatless {
                    since,
                    lack,
                    is_told,
                },
            );
        }
        state.is_changed |= is_news || before.values().any(|old| old.is_told);
    }
}

impl BrokerState {
    /// Adds the transfers that will be missed because they have no session; this replaces another
    /// cause.
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
