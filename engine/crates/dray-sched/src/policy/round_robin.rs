//! Turns of so many bytes.

use super::{Decision, Places, Policy, Transfer, View, keep_above, settle};
use dray_core::Time;
use std::collections::BTreeMap;

/// Who takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnsOf {
    /// Each owner.
    #[default]
    Owners,
    /// Each pair of endpoints.
    Pairs,
}

/// Round robin by accumulated quota, as the prose of Liu et al. (2010) has it: each party is
/// served until its quota is used up. What it moves beyond that, for nothing stops in the middle of an
/// object and nobody looks at each of them, is taken off its next turns. (Their figure 6 moves one
/// file a visit and saves nothing.) Absence saves no quota; who was alone owes nobody what it moved, and
/// who leaves with a debt finds it again unless as many turns have gone by.
#[derive(Debug, Clone)]
pub struct RoundRobin {
    at_once: usize,
    quota: i64,
    turns_of: TurnsOf,
    /// Bytes each may still move; below zero what it has moved too much.
    accounts: BTreeMap<Party, i64>,
    /// Whose turn it is, or was last.
    current: Option<Party>,
    /// What each transfer had moved when it was looked at last.
    seen: BTreeMap<String, u64>,
    /// Whether nobody else was there then.
    is_alone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Owner(String),
    Pair(String, String),
}

impl RoundRobin {
    /// So many transfers at once; a quota of nothing counts as a byte.
    #[must_use]
    pub fn new(at_once: usize, quota: u64, turns_of: TurnsOf) -> Self {
        Self {
            at_once,
            quota: i64::try_from(quota).unwrap_or(i64::MAX).max(1),
            turns_of,
            accounts: BTreeMap::new(),
            current: None,
            seen: BTreeMap::new(),
            is_alone: false,
        }
    }

    fn party(&self, one: &Transfer<'_>) -> Party {
        match self.turns_of {
            TurnsOf::Owners => Party::Owner(one.owner.to_owned()),
            TurnsOf::Pairs => Party::Pair(one.pair.source.to_owned(), one.pair.sink.to_owned()),
        }
    }

    fn balance(&self, party: &Party) -> i64 {
        self.accounts.get(party).copied().unwrap_or(0)
    }

    /// Takes what was moved since the last look off the accounts.
    fn charge(&mut self, view: &View<'_, '_>) {
        for one in view.transfers.iter().chain(view.ended) {
            // What it moved before it was ever seen was under another policy.
            let seen = self.seen.get(one.id).copied().unwrap_or(one.served);
            let moved = i64::try_from(one.served.saturating_sub(seen)).unwrap_or(i64::MAX);
            if moved > 0 {
                let balance = self.accounts.entry(self.party(one)).or_insert(0);
                *balance = balance.saturating_sub(moved);
            }
        }
        if let Some(current) = self.current.as_ref().filter(|_| self.is_alone)
            && let Some(balance) = self
                .accounts
                .get_mut(current)
                .filter(|balance| **balance <= 0)
        {
            // One turn after the other was its own.
            *balance = self.quota - balance.saturating_neg() % self.quota;
        }
        let present = view.transfers.iter();
        self.seen = present.map(|one| (one.id.to_owned(), one.served)).collect();
    }

    /// How many times the quota must be added until there is something to use up.
    fn rounds(&self, party: &Party) -> i64 {
        let balance = self.balance(party);
        if balance >= 0 {
            1
        } else {
            1 + balance.saturating_neg() / self.quota
        }
    }

    /// Its place in the ring: those behind whose turn it is, then those before, then itself.
    fn place<'p>(&self, party: &'p Party) -> (bool, &'p Party) {
        (Some(party) <= self.current.as_ref(), party)
    }

    /// Gives the next turn: rounds go by until the account of somebody in the ring is above zero.
    fn advance(&mut self, ring: &[Party]) {
        let Some(next) = ring.iter().min_by_key(|party| self.rounds(party)) else {
            return;
        };
        let rounds = self.rounds(next);
        for party in ring {
            self.accounts.entry(party.clone()).or_insert(0);
        }
        let mut accounts = std::mem::take(&mut self.accounts);
        for (party, balance) in &mut accounts {
            // In the last round nobody behind the next one is visited.
            let is_visited = self.place(party) <= self.place(next);
            let visits = if is_visited { rounds } else { rounds - 1 };
            *balance = balance.saturating_add(self.quota.saturating_mul(visits));
        }
        self.accounts = accounts;
        self.current = Some(next.clone());
    }
}

impl Policy for RoundRobin {
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        self.charge(view);
        let mut lines: BTreeMap<Party, Vec<&Transfer<'a>>> = BTreeMap::new();
        for one in view.transfers.iter().filter(|one| one.is_ready(now)) {
            lines.entry(self.party(one)).or_default().push(one);
        }
        // Whose turn is over, or who has nothing left, goes behind all others.
        let mut ring: Vec<Party> = lines.keys().cloned().collect();
        ring.sort_by(|one, other| self.place(one).cmp(&self.place(other)));
        let goes_on = self
            .current
            .as_ref()
            .is_some_and(|current| lines.contains_key(current) && self.balance(current) > 0);
        // Nobody but the current one has anything saved.
        self.accounts.retain(|party, balance| {
            *balance < 0 || (goes_on && Some(party) == self.current.as_ref())
        });
        if !goes_on {
            self.advance(&ring);
        }
        self.accounts
            .retain(|party, balance| *balance < 0 || lines.contains_key(party));
        self.is_alone = ring.len() == 1;
        // Places that the current one cannot fill go to those who have moved least too much.
        let mut order: Vec<&Party> = ring.iter().collect();
        order.sort_by_key(|party| (Some(*party) != self.current.as_ref(), self.rounds(party)));
        let mut transfers = Vec::new();
        for party in order {
            let line = lines.get_mut(party).map(std::mem::take).unwrap_or_default();
            let from = transfers.len();
            transfers.extend(line);
            transfers[from..].sort_by_key(|one| one.age());
        }
        keep_above(&mut transfers);
        let mut places = Places::new(view.limits, self.at_once);
        let run = places.fill(transfers.iter().copied());
        let mut decision = settle(view, &run, now);
        let mut counts: BTreeMap<Party, i64> = BTreeMap::new();
        for one in &run {
            *counts.entry(self.party(one)).or_default() += 1;
        }
        if decision.run.len() < transfers.len() {
            decision.look_after = run
                .iter()
                .map(|one| {
                    let party = self.party(one);
                    let balance = self.balance(&party);
                    let balance = if balance > 0 { balance } else { self.quota };
                    // Together they use it up, whichever is first.
                    let part = (balance / counts.get(&party).copied().unwrap_or(1)).max(1);
                    (one.id, one.served.saturating_add(part.unsigned_abs()))
                })
                .collect();
        }
        decision
    }
}
