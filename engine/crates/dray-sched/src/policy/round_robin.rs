//! Policy `round_robin`: turns of a number of bytes.

use super::{
    Candidates, Decision, Entry, Lines, MaxRunning, Policy, Slots, Transfer, View, keep_above,
    settle,
};
use dray_core::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry = Entry {
    description: "Owners, or pairs of endpoints, take turns; a turn is `quota` bytes.",
    precedence: "other owners' transfers move first",
    max_running: MaxRunning::Default(1),
    candidates: |settings, load| {
        let lines = match settings.round_robin_by {
            RoundRobinBy::Owners => Lines::Ages,
            RoundRobinBy::Pairs => Lines::Pairs,
        };
        Some(Candidates::first(lines, load.running_max))
    },
    make: |settings| {
        let (running_max, by) = (settings.running_max(), settings.round_robin_by);
        Box::new(RoundRobin::new(running_max, settings.quota, by))
    },
};

/// Parties among which turns rotate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundRobinBy {
    /// Owners take turns.
    #[default]
    Owners,
    /// Pairs of endpoints take turns.
    Pairs,
}

/// Round robin by accumulated quota, as described in the text of Liu et al. (2010). A party is an
/// owner or a pair of endpoints ([`RoundRobinBy`]). Each party is served until it has used up its
/// quota. (The algorithm in Figure 6 of the paper is different: it moves one file per turn, and
/// parties accumulate no quota.)
///
/// A party can exceed its quota, because a transfer stops only between objects and is not checked
/// after each object. The excess is deducted from its next turns. A party that is absent does not
/// accumulate quota. A party that was alone has no debt for the bytes of that time. A party that
/// leaves with a debt still has the debt when it returns, unless enough turns have passed in the
/// meantime to pay the debt.
#[derive(Debug, Clone)]
pub struct RoundRobin {
    max_running: usize,
    quota: i64,
    round_robin_by: RoundRobinBy,
    /// Number of bytes that each party may still move. Negative if the party has exceeded its
    /// quota.
    accounts: BTreeMap<Party, i64>,
    /// The party whose turn it is, or was last.
    current: Option<Party>,
    /// Number of bytes that each transfer had moved at the last decision.
    seen: BTreeMap<String, u64>,
    /// True if only one party was present at the last decision.
    is_alone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Owner(String),
    Pair(String, String),
}

impl RoundRobin {
    /// Creates the policy with a maximum number of concurrent transfers. A quota of zero counts as
    /// one byte.
    #[must_use]
    pub fn new(max_running: usize, quota: u64, round_robin_by: RoundRobinBy) -> Self {
        Self {
            max_running,
            quota: i64::try_from(quota).unwrap_or(i64::MAX).max(1),
            round_robin_by,
            accounts: BTreeMap::new(),
            current: None,
            seen: BTreeMap::new(),
            is_alone: false,
        }
    }

    fn party(&self, one: &Transfer<'_>) -> Party {
        match self.round_robin_by {
            RoundRobinBy::Owners => Party::Owner(one.owner.to_owned()),
            RoundRobinBy::Pairs => {
                Party::Pair(one.pair.source.to_owned(), one.pair.sink.to_owned())
            }
        }
    }

    fn balance(&self, party: &Party) -> i64 {
        self.accounts.get(party).copied().unwrap_or(0)
    }

    /// Charges the bytes moved since the last decision to the accounts of the parties.
    fn charge(&mut self, view: &View<'_, '_>) {
        for one in view.transfers.iter().chain(view.ended) {
            // Do not charge bytes that moved before this policy first saw the transfer.
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
            // The party was alone and had consecutive turns, so it has no debt.
            *balance = self.quota - balance.saturating_neg() % self.quota;
        }
        let present = view.transfers.iter();
        self.seen = present.map(|one| (one.id.to_owned(), one.served)).collect();
    }

    /// Returns the number of turns after which the balance of the party is positive.
    fn rounds(&self, party: &Party) -> i64 {
        let balance = self.balance(party);
        if balance >= 0 {
            1
        } else {
            1 + balance.saturating_neg() / self.quota
        }
    }

    /// Sort key for the rotation: the parties after the current party, then the parties before the
    /// current party, then the current party.
    fn place<'p>(&self, party: &'p Party) -> (bool, &'p Party) {
        (Some(party) <= self.current.as_ref(), party)
    }

    /// Starts the next turn: adds quotas round by round until the balance of a party in the ring is
    /// positive.
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
            // The last round ends at the party `next`, so the parties behind `next` get no quota in
            // that round.
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
        // A party whose turn has ended, or that has no transfers, goes behind all other parties.
        let mut ring: Vec<Party> = lines.keys().cloned().collect();
        ring.sort_by(|one, other| self.place(one).cmp(&self.place(other)));
        let goes_on = self
            .current
            .as_ref()
            .is_some_and(|current| lines.contains_key(current) && self.balance(current) > 0);
        // Only the current party may keep a positive balance.
        self.accounts.retain(|party, balance| {
            *balance < 0 || (goes_on && Some(party) == self.current.as_ref())
        });
        if !goes_on {
            self.advance(&ring);
        }
        self.accounts
            .retain(|party, balance| *balance < 0 || lines.contains_key(party));
        self.is_alone = ring.len() == 1;
        // Slots that the current party cannot use go to the other parties, the smallest debt first.
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
        let mut slots = Slots::new(view.limits, self.max_running);
        let run = slots.fill(transfers.iter().copied());
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
                    // Divide the balance among the party's running transfers, so that the next
                    // decision is made before these transfers together exceed the balance.
                    let part = (balance / counts.get(&party).copied().unwrap_or(1)).max(1);
                    (one.id, one.served.saturating_add(part.unsigned_abs()))
                })
                .collect();
        }
        decision
    }
}
