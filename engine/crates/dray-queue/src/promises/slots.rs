//! Promised transfers that have no session although the plan moves them now. Such transfers exist
//! because the plan only divides bytes, and does not count session slots.

use super::{BrokerState, Promises, time};
use dray_api::MissAnswer;
use dray_api::Timestamp;
use dray_core::Time;
use dray_sched::broker::TransferKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time after which a promised transfer without a session is reported as a miss, if its latest
/// start is at most this time ahead. A session that gives up its slot for the transfer ends within
/// this time. The value is estimated, not measured.
const SEATLESS: Duration = Duration::from_secs(5);

/// The exhausted limit, because of which this endpoint can start no further session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The maximum number of sessions of the owner.
    OfOwner,
    /// The maximum number of sessions of the endpoint.
    InAll,
}

/// A promised transfer that has no session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seatless {
    since: Time,
    lack: Lack,
    is_told: bool,
}

/// A promised transfer that the plan moves now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mover {
    /// Id of the transfer.
    pub id: Arc<str>,
    /// Owner of the transfer.
    pub owner: Arc<str>,
    /// Latest start that still meets the deadline, if the transfer then moves as fast as its
    /// resources permit. For a promise of a rate, it is the present time.
    pub latest_start: Time,
}

/// Numbers of promises, in all and by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Number of all promises.
    pub held: usize,
    /// Number of promised transfers that the plan moves now.
    pub moving: usize,
    /// Number of promises that are at present expected to be missed.
    pub missing: usize,
    /// Number of promised transfers that the plan moves now and that have no session.
    pub seatless: usize,
}

/// Promised transfers without a session, by key.
pub(super) type Unseated = BTreeMap<TransferKey, Seatless>;

impl Promises {
    /// Returns all transfers that the plan moves now, sorted by their latest start.
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
        // The sort is stable, so transfers with the same latest start stay in the order of
        // submission.
        movers.sort_by_key(|mover| mover.latest_start);
        movers
    }

    #[cfg(test)]
    pub(crate) fn is_moving(&self, id: &str) -> bool {
        let state = self.state();
        state.by_id.get(id).is_some_and(|key| state.moves(*key))
    }

    /// Returns the numbers of promises, in all and by state.
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

    /// Records all transfers that the plan moves now and that have no session, each with the
    /// exhausted limit. `found` replaces the list of the previous call.
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
    /// Adds a miss for each transfer that will miss its promise because it has no session. The
    /// missing session replaces any other cause that was found for the same transfer.
    pub(super) fn add_unseated(&self, misses: &mut Vec<(TransferKey, MissAnswer)>) {
        for (key, unseated) in self.unseated.iter().filter(|(_, one)| one.is_told) {
            let Some(held) = self.held.get(key) else {
                continue;
            };
            let whose = match unseated.lack {
                Lack::OfOwner => "the owner may have (`limits.per_owner_active`)",
                Lack::InAll => "this endpoint may run (`limits.transfers_active`)",
            };
            let found = misses.iter().position(|(other, _)| other == key);
            let miss = MissAnswer {
                cause: format!(
                    "the transfer has no session: all sessions that {whose} are used by transfers \
                        that cannot wait longer"
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
