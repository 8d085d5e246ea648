//! Credit per sink target: how many objects may be on the way to each, so that a slow target holds
//! only its own share of the sink's buffers and a fast one never waits behind it (LADS, section 4).

use dray_core::TargetId;
use std::collections::BTreeMap;

/// Fewest objects a target may have on the way, whatever the number of targets: one being written
/// and one arriving.
const WINDOW_MIN: u32 = 2;

#[derive(Debug, Default, Clone)]
struct Account {
    /// Granted and not yet returned.
    out: u32,
    /// The source gave credit back and has not asked since: nothing of this target is wanted.
    is_quiet: bool,
}

/// The sink's ledger of granted credit. The sum of what is out never exceeds the pool.
#[derive(Debug, Clone)]
pub struct CreditLedger {
    pool: u32,
    out: u32,
    targets: BTreeMap<TargetId, Account>,
    /// The target that was looked at last, so that a pool with fewer buffers than targets goes round.
    turn: Option<TargetId>,
}

impl CreditLedger {
    /// A ledger over a pool of `pool` buffers.
    #[must_use]
    pub const fn new(pool: u32) -> Self {
        Self {
            pool,
            out: 0,
            targets: BTreeMap::new(),
            turn: None,
        }
    }

    /// Makes a target known, or wanted again.
    pub fn add_target(&mut self, target: TargetId) {
        self.targets.entry(target).or_default().is_quiet = false;
    }

    /// The source has no use for `count` credits of `target`, or, with none, has use for some.
    /// Credit that nobody can use would starve the other targets. Returns false when it gives back
    /// what it does not have.
    pub fn give_back(&mut self, target: TargetId, count: u32) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) if account.out >= count => {
                account.out -= count;
                self.out -= count;
                account.is_quiet = count > 0;
                true
            }
            _ => false,
        }
    }

    /// Credit out in all.
    #[must_use]
    pub const fn out(&self) -> u32 {
        self.out
    }

    /// Takes back one credit of `target`. Returns false when none was out: the peer sent without.
    pub fn take_back(&mut self, target: TargetId) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) if account.out > 0 => {
                account.out -= 1;
                self.out -= 1;
                account.is_quiet = false;
                true
            }
            _ => false,
        }
    }

    /// An object that has arrived keeps its credit out until its buffer is free again: call after
    /// [`CreditLedger::take_back`]. Returns whether the target is known.
    pub fn hold(&mut self, target: TargetId) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) => {
                account.out += 1;
                self.out += 1;
                true
            }
            None => false,
        }
    }

    /// What may be granted now: every target up to its window, the window being an equal share of
    /// the pool.
    pub fn grants(&mut self) -> Vec<(TargetId, u32)> {
        let wanted = self.targets.values().filter(|account| !account.is_quiet);
        let count = u32::try_from(wanted.count()).unwrap_or(u32::MAX).max(1);
        let window = (self.pool / count).max(WINDOW_MIN);
        // Small top-ups wait until they are worth a message.
        let worth = (window / 8).max(1);
        let mut grants = Vec::new();
        let turn = self.turn;
        let behind = |target: &TargetId| turn.is_some_and(|turn| *target <= turn);
        for pass in [false, true] {
            for (target, account) in &mut self.targets {
                if account.is_quiet || behind(target) != pass {
                    continue;
                }
                let room = self.pool - self.out;
                let grant = window.saturating_sub(account.out).min(room);
                if grant >= worth {
                    account.out += grant;
                    self.out += grant;
                    self.turn = Some(*target);
                    grants.push((*target, grant));
                }
            }
        }
        grants
    }
}

#[cfg(test)]
mod tests {
    use super::CreditLedger;
    use dray_core::TargetId;
    use proptest::prelude::*;

    #[test]
    fn a_slow_target_holds_its_share_only() {
        let mut ledger = CreditLedger::new(64);
        ledger.add_target(TargetId(0));
        ledger.add_target(TargetId(1));
        assert_eq!(ledger.grants(), [(TargetId(0), 32), (TargetId(1), 32)]);
        for _ in 0..4 {
            assert!(ledger.take_back(TargetId(1)));
        }
        assert_eq!(ledger.grants(), [(TargetId(1), 4)]);
        assert!(
            !ledger.take_back(TargetId(9)),
            "an unknown target has no credit"
        );
    }

    #[test]
    fn credit_nobody_uses_goes_to_those_who_can() {
        let mut ledger = CreditLedger::new(4);
        ledger.add_target(TargetId(0));
        assert_eq!(ledger.grants(), [(TargetId(0), 4)]);
        ledger.add_target(TargetId(1));
        assert_eq!(ledger.grants(), [], "the pool is out");
        assert!(ledger.give_back(TargetId(0), 4));
        assert!(ledger.give_back(TargetId(1), 0), "asks");
        assert_eq!(ledger.grants(), [(TargetId(1), 4)]);
        assert!(ledger.take_back(TargetId(1)));
        ledger.add_target(TargetId(0));
        assert_eq!(ledger.grants(), [(TargetId(0), 1)], "wanted again");
    }

    #[test]
    fn a_pool_smaller_than_its_targets_goes_round() {
        let mut ledger = CreditLedger::new(2);
        let mut served = std::collections::BTreeSet::new();
        for target in 0..5 {
            ledger.add_target(TargetId(target));
        }
        for _ in 0..10 {
            for (target, count) in ledger.grants() {
                served.insert(target);
                for _ in 0..count {
                    assert!(ledger.take_back(target));
                }
            }
        }
        assert_eq!(served.len(), 5);
    }

    proptest! {
        #[test]
        fn credit_out_never_exceeds_the_pool(
            pool in 2..300u32,
            steps in prop::collection::vec((0..4u8, 0..12u32), 0..300),
        ) {
            let mut ledger = CreditLedger::new(pool);
            let mut out = std::collections::BTreeMap::<TargetId, u32>::new();
            for (kind, target) in steps {
                let target = TargetId(target);
                match kind {
                    0 => ledger.add_target(target),
                    1 => {
                        let had = out.get(&target).copied().unwrap_or(0);
                        prop_assert_eq!(ledger.take_back(target), had > 0);
                        if had > 0 { out.insert(target, had - 1); }
                    }
                    2 => {
                        let had = out.get(&target).copied().unwrap_or(0);
                        prop_assert!(!ledger.give_back(target, had + 1));
                        if ledger.give_back(target, had) && had > 0 { out.insert(target, 0); }
                    }
                    _ => for (target, count) in ledger.grants() {
                        *out.entry(target).or_default() += count;
                    },
                }
                prop_assert_eq!(ledger.out(), out.values().sum::<u32>());
                prop_assert!(ledger.out() <= pool);
            }
        }
    }
}
