//! Chooses the sessions to end when other transfers must start and no session slot is free.
//!
//! The plan reserves bytes for promised transfers, but no session slots. The *latest start* of a
//! promised transfer is the last moment at which it can start and still keep its promise. Promised
//! transfers start in the order of their latest starts. If no slot is free, a promised transfer
//! takes the slot of a transfer that can wait. The first choice is a transfer that the policy holds
//! (it has a session, but moves no data). The second choice is a transfer without a promise,
//! background class first. The last choice is a promised transfer whose latest start is much later.
//!
//! Non-goals: making the plan ([`crate::broker`]), deciding which transfers to hold
//! ([`crate::policy`]), ending a session.
//!
//! Invariant owned here: if session A ends to give its slot to transfer B, B never has to give the
//! slot back to A. A promised transfer gives up its slot only for an urgent promised transfer, and
//! only if its own latest start is later by more than [`HURRY`]. The order of the latest starts
//! changes only if the capacity of a link increases.

use dray_core::rate::Class;
use dray_core::{Time, TransferId};
use std::cmp::Reverse;
use std::time::Duration;

/// A promised transfer is urgent if its latest start is at most this far away. Another promised
/// transfer gives up its slot only if its latest start is later than that of the urgent transfer by
/// more than this time. Ending one session and starting another takes much less time. The value is
/// an estimate.
pub const HURRY: Duration = Duration::from_secs(60);

/// Maximum number of sessions that are being ended for other transfers at the same time. The value
/// is an estimate.
pub const LEAVING_MAX: usize = 8;

/// A session that could end to free its slot for another transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Identifier of the transfer.
    pub id: TransferId,
    /// Owner of the transfer.
    pub owner: String,
    /// True if the transfer is held.
    pub is_held: bool,
    /// Class of the transfer.
    pub class: Class,
    /// Time since which the transfer has run or has been held.
    pub since: Time,
    /// Latest start of a promised transfer. `None` for other transfers.
    pub latest_start: Option<Time>,
}

/// The limit that prevents a transfer from getting a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullLimit {
    /// The limit of the owner's sessions. Only a session of the same owner can free a slot.
    OfOwner,
    /// The limit of all sessions.
    OfAll,
}

/// A transfer that must start and found no free slot.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'n> {
    /// Owner of the transfer.
    pub owner: &'n str,
    /// The limit that is reached.
    pub limit: FullLimit,
    /// See [`Session::latest_start`].
    pub latest_start: Option<Time>,
}

/// Order in which sessions are ended, the lowest rank first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Held transfers. The one held longest comes first.
    Held(Time),
    /// Running transfers without a promise. The lowest class comes first. Within a class, the
    /// transfer that was started last comes first, because the least work is lost.
    Unpromised(Reverse<Class>, Reverse<Time>),
    /// Promised transfers. The one with the latest start comes first.
    Promised(Reverse<Time>),
}

impl Session {
    /// Returns the rank of this session, or `None` if it must not end for `newcomer`.
    fn rank(&self, newcomer: &Newcomer<'_>, now: Time) -> Option<Rank> {
        if newcomer.limit == FullLimit::OfOwner && self.owner != newcomer.owner {
            return None;
        }
        let (Some(own), Some(other)) = (self.latest_start, newcomer.latest_start) else {
            return match (self.latest_start, newcomer.latest_start) {
                (None, _) if self.is_held => Some(Rank::Held(self.since)),
                // This session ends only for a promised newcomer, because the policy decides
                // between transfers without promises.
                (None, Some(_)) => Some(Rank::Unpromised(Reverse(self.class), Reverse(self.since))),
                _ => None,
            };
        };
        let is_hurried = other <= now + HURRY;
        let has_time = own > other.max(now) + HURRY;
        (is_hurried && has_time).then_some(Rank::Promised(Reverse(own)))
    }
}

/// Returns the index of the session to end for `newcomer`.
fn released_for(sessions: &[Session], newcomer: &Newcomer<'_>, now: Time) -> Option<usize> {
    let ranks = sessions.iter().enumerate();
    let ranks = ranks.filter_map(|(at, one)| Some((one.rank(newcomer, now)?, at)));
    ranks.min().map(|(_, at)| at)
}

/// Returns the sessions to end for the newcomers, in the order of the newcomers. `leaving` contains
/// the owners of sessions that are already ending, which free slots for some of the newcomers.
#[must_use]
pub fn release(
    mut sessions: Vec<Session>,
    newcomers: &[Newcomer<'_>],
    mut leaving: Vec<String>,
    now: Time,
) -> Vec<TransferId> {
    let mut left = LEAVING_MAX.saturating_sub(leaving.len());
    let mut released = Vec::new();
    for newcomer in newcomers {
        let is_for =
            |owner: &String| newcomer.limit == FullLimit::OfAll || *owner == newcomer.owner;
        if let Some(at) = leaving.iter().position(is_for) {
            leaving.swap_remove(at);
            continue;
        }
        if left == 0 {
            break;
        }
        if let Some(at) = released_for(&sessions, newcomer, now) {
            released.push(sessions.swap_remove(at).id);
            left -= 1;
        }
    }
    released
}

#[cfg(test)]
mod tests;
