//! Chooses the sessions that end when other transfers are to start and no session slot is free.
//!
//! The plan of promised transfers counts bytes, not session slots. So promised transfers start in
//! the order of their latest start, and take a slot from a transfer that can wait: first held ones,
//! then unpromised ones with the background class first, then promised ones that have time.
//!
//! Non-goals: the plan ([`crate::broker`]), holds within the limits ([`crate::policy`]), ending a
//! session.
//!
//! Invariant owned here: a session is never ended for a transfer that would later have to return
//! the slot. A promised transfer is released only for one in a hurry, and only if it has more time
//! by more than [`HURRY`]. Only a link that gives more than it gave at that time changes this
//! order.

use dray_core::rate::Class;
use dray_core::{Time, TransferId};
use std::cmp::Reverse;
use std::time::Duration;

/// A promised transfer is in a hurry if its latest start is at most this far away; another is
/// released for it only if its latest start is later by more than this. Many times the time to end
/// one session and start another. Guess, revisit.
pub const HURRY: Duration = Duration::from_secs(60);

/// Maximum number of sessions that are being released for other transfers at the same time. Guess,
/// revisit.
pub const LEAVING_MAX: usize = 8;

/// A transfer with a session that it could give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Identifier of the transfer.
    pub id: TransferId,
    /// Owner of the transfer.
    pub owner: String,
    /// True if the session is held.
    pub is_held: bool,
    /// Class of the transfer.
    pub class: Class,
    /// Time since which it has run, or has been held.
    pub since: Time,
    /// Latest start, for a transfer that moves by plan.
    pub latest_start: Option<Time>,
}

/// The limit that leaves no slot for a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullLimit {
    /// The limit of its owner: only a session of the same owner frees a slot.
    OfOwner,
    /// The limit of all sessions.
    OfAll,
}

/// A transfer that found no free slot.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'n> {
    /// Owner of the transfer.
    pub owner: &'n str,
    /// The exhausted limit.
    pub limit: FullLimit,
    /// See [`Session::latest_start`].
    pub latest_start: Option<Time>,
}

/// Ranks in the order in which sessions are released.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Held sessions, the longest held first.
    Held(Time),
    /// Unpromised transfers, the least urgent class first, then the one that started last, which
    /// has the least to lose.
    Unpromised(Reverse<Class>, Reverse<Time>),
    /// Promised transfers, the one with the most time first.
    Promised(Reverse<Time>),
}

impl Session {
    /// Returns the rank of this session for a newcomer; `None` if it is not released for it.
    fn rank(&self, newcomer: &Newcomer<'_>, now: Time) -> Option<Rank> {
        if newcomer.limit == FullLimit::OfOwner && self.owner != newcomer.owner {
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
fn released_for(sessions: &[Session], newcomer: &Newcomer<'_>, now: Time) -> Option<usize> {
    let ranks = sessions.iter().enumerate();
    let ranks = ranks.filter_map(|(at, one)| Some((one.rank(newcomer, now)?, at)));
    ranks.min().map(|(_, at)| at)
}

/// Returns the sessions to release for all these newcomers, in their order. The sessions of the
/// owners in `leaving` are already released for some of the newcomers.
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
