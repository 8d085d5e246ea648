//! Rules that all policies follow: limits, holds within a class, and the time of the next decision.

use super::{Decision, Limits, Phase, Transfer, View};
use dray_core::Time;
use dray_core::rate::Class;
use std::collections::{BTreeMap, BTreeSet};

/// Counts the session slots that are free within the limits.
pub(super) struct Slots<'v, 'a> {
    limits: &'v Limits,
    pub(super) left: usize,
    of_owner: BTreeMap<&'a str, usize>,
    with_peer: BTreeMap<&'a str, usize>,
}

impl<'v, 'a> Slots<'v, 'a> {
    pub(super) fn new(limits: &'v Limits, max_running: usize) -> Self {
        Self {
            limits,
            left: limits.running_max.min(max_running),
            of_owner: BTreeMap::new(),
            with_peer: BTreeMap::new(),
        }
    }

    pub(super) fn is_owner_full(&self, owner: &str) -> bool {
        self.of_owner.get(owner).copied().unwrap_or(0) >= self.limits.owner_max(owner)
    }

    pub(super) fn is_peer_full(&self, one: &Transfer<'_>) -> bool {
        one.peer.is_some_and(|peer| {
            self.with_peer.get(peer).copied().unwrap_or(0) >= self.limits.peer_max
        })
    }

    /// Returns true if the limits allow this transfer to run.
    pub(super) fn has(&self, one: &Transfer<'_>) -> bool {
        self.left > 0 && !self.is_owner_full(one.owner) && !self.is_peer_full(one)
    }

    /// Takes a slot for `one`, even if no slot is free, because a running transfer keeps its slot
    /// unless the policy holds it.
    pub(super) fn give(&mut self, one: &Transfer<'a>) {
        self.left = self.left.saturating_sub(1);
        *self.of_owner.entry(one.owner).or_default() += 1;
        if let Some(peer) = one.peer {
            *self.with_peer.entry(peer).or_default() += 1;
        }
    }

    /// Gives free slots to transfers in the order `order`. Returns the transfers that got a slot.
    pub(super) fn fill<'s>(
        &mut self,
        order: impl Iterator<Item = &'s Transfer<'a>>,
    ) -> Vec<&'s Transfer<'a>>
    where
        'a: 's,
    {
        let mut run = Vec::new();
        for one in order {
            if self.left == 0 {
                break;
            }
            if self.has(one) {
                self.give(one);
                run.push(one);
            }
        }
        run
    }
}

/// Moves each running transfer before the first transfer of a lower class, so that it is not held
/// for a lower class. Waiting transfers keep their order.
pub(super) fn keep_above<'s, 'a>(order: &mut Vec<&'s Transfer<'a>>) {
    let is_owed =
        |one: &&Transfer<'_>| one.phase == Phase::Running && one.class < Class::Background;
    let mut owed: Vec<_> = order.iter().copied().filter(is_owed).collect();
    // Start with the lowest class, so that higher classes end up in front.
    owed.sort_by_key(|one| std::cmp::Reverse(one.class));
    for one in owed {
        let own = order.iter().position(|other| other.id == one.id);
        let below = order.iter().position(|other| other.class > one.class);
        if let (Some(own), Some(below)) = (own, below)
            && below < own
        {
            order[below..=own].rotate_right(1);
        }
    }
}

/// Builds the decision to run exactly `run`. All other running transfers are held. If more than
/// `held_max` transfers are held, those held longest give up their sessions. The next decision is
/// due when the next transfer may start.
pub(super) fn settle<'a>(view: &View<'_, 'a>, run: &[&Transfer<'a>], now: Time) -> Decision<'a> {
    let chosen: BTreeSet<&str> = run.iter().map(|one| one.id).collect();
    let others = || view.transfers.iter().filter(|one| !chosen.contains(one.id));
    let mut decision = Decision {
        run: run.iter().map(|one| one.id).collect(),
        ..Decision::default()
    };
    let mut held: Vec<_> = others().filter(|one| one.phase != Phase::Waiting).collect();
    // Transfers that are held from this decision on come last.
    held.sort_by_key(|one| {
        (
            one.phase == Phase::Running,
            one.since,
            one.submitted,
            one.id,
        )
    });
    let excess = held.len().saturating_sub(view.limits.held_max);
    decision.release = held.iter().take(excess).map(|one| one.id).collect();
    let running = others().filter(|one| one.phase == Phase::Running);
    decision.hold = running.map(|one| one.id).collect();
    decision.hold.sort_unstable();
    decision.look_again = others()
        .filter(|one| !one.is_ready(now))
        .filter_map(|one| one.not_before)
        .min();
    decision
}
