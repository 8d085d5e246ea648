//! Credit per sink target: bounds the number of objects on the way to each, so that a slow target
//! holds only its own share of the sink's buffers and never delays a fast one (LADS, section 4).

mod window;

use dray_core::{TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use window::Window;

/// Minimum window of a target, whatever the number of targets: one object being written and one
/// arriving.
const WINDOW_MIN: u32 = 2;

/// Maximum number of objects of a congested target at the sink: one for each of its writers and one
/// to follow. More would not make it faster, and would hold buffers that others could use.
const CONGESTED_KEPT: u32 = 5;

#[derive(Debug, Clone)]
struct Account {
    /// Credit granted and not yet returned.
    out: u32,
    /// Part of `out` whose object has arrived and is not yet written.
    arrived: u32,
    window: Window,
    /// Additional objects its writers could take when one of its objects was last written.
    due: u32,
    /// Set when the source gave credit back and has not requested any since: it has no objects for
    /// this target.
    is_quiet: bool,
}

impl Account {
    const fn new() -> Self {
        Self {
            out: 0,
            arrived: 0,
            window: Window::new(),
            due: 0,
            is_quiet: false,
        }
    }

    /// Records the arrival of an object.
    fn on_arrival(&mut self, now: Time, round_trip: Option<Duration>) {
        self.arrived += 1;
        let out = (self.out, self.arrived);
        self.window.on_arrival(now, out, round_trip);
    }
}

/// The sink's ledger of granted credit. The sum of outstanding credit never exceeds the pool.
#[derive(Debug, Clone)]
pub struct CreditLedger {
    pool: u32,
    out: u32,
    targets: BTreeMap<TargetId, Account>,
    /// Round-trip time of the network.
    round_trip: Option<Duration>,
    /// Last target that was considered for a grant, so that a pool with fewer buffers than targets
    /// serves all of them in turn.
    turn: Option<TargetId>,
}

impl CreditLedger {
    /// Creates a ledger over a pool of `pool` buffers.
    #[must_use]
    pub const fn new(pool: u32) -> Self {
        Self {
            pool,
            out: 0,
            targets: BTreeMap::new(),
            round_trip: None,
            turn: None,
        }
    }

    /// Sets the network's round-trip time, measured by a message that waits for nothing else.
    pub const fn set_round_trip(&mut self, took: Duration) {
        self.round_trip = Some(took);
    }

    /// Adds a target, or marks it as wanted again.
    pub fn add_target(&mut self, target: TargetId) {
        let known = self.targets.entry(target);
        known.or_insert_with(Account::new).is_quiet = false;
    }

    /// Takes back `count` credits of `target` that the source cannot use. A `count` of zero means
    /// that the source can use some. Unused credit would starve the other targets. Returns false if
    /// the source returns more than it has.
    pub fn give_back(&mut self, target: TargetId, count: u32) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) if account.out >= count => {
                account.out -= count;
                self.out -= count;
                account.is_quiet = count > 0;
                // All credit of the target may be with other sources.
                account.due += u32::from(count == 0);
                true
            }
            _ => false,
        }
    }

    /// Returns the total credit out.
    #[must_use]
    pub const fn out(&self) -> u32 {
        self.out
    }

    /// Takes back one credit of `target`. Returns false if none was out: the peer sent an object
    /// without credit.
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

    /// Keeps the credit of an object that has arrived out until its buffer is free again. Call it
    /// after [`CreditLedger::take_back`]. Returns true if the target is known.
    pub fn hold(&mut self, target: TargetId, now: Time) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) => {
                account.out += 1;
                account.on_arrival(now, self.round_trip);
                self.out += 1;
                true
            }
            None => false,
        }
    }

    /// Takes back the credit of a held object.
    pub fn free(&mut self, target: TargetId) {
        if let Some(account) = self.targets.get_mut(&target) {
            account.arrived = account.arrived.saturating_sub(1);
            account.due = CONGESTED_KEPT.saturating_sub(account.arrived);
        }
        self.take_back(target);
    }

    /// Returns the credit that may be granted now: each target up to its window, which is an equal
    /// share of the pool; a congested target only as much as its writers can take.
    pub fn grants(
        &mut self,
        now: Time,
        is_congested: impl Fn(TargetId) -> bool,
    ) -> Vec<(TargetId, u32)> {
        let wanted = self.targets.values().filter(|account| !account.is_quiet);
        let count = u32::try_from(wanted.count()).unwrap_or(u32::MAX).max(1);
        let share = (self.pool / count).max(WINDOW_MIN);
        let mut grants = Vec::new();
        let turn = self.turn;
        let behind = |target: &TargetId| turn.is_some_and(|turn| *target <= turn);
        for pass in [false, true] {
            for (target, account) in &mut self.targets {
                if account.is_quiet || behind(target) != pass {
                    continue;
                }
                let room = self.pool - self.out;
                let window = share.min(account.window.objects());
                // Small top-ups wait until they are worth a message.
                let worth = (window / 8).max(1);
                let mut grant = window.saturating_sub(account.out).min(room);
                let mut is_worth = grant >= worth;
                if is_congested(*target) {
                    // Grant once per written object, by the number that has arrived: the path may
                    // be long, and objects on the path keep the target busy.
                    let due = std::mem::take(&mut account.due);
                    grant = grant.min(due.max(WINDOW_MIN.saturating_sub(account.out)));
                    is_worth = grant > 0;
                }
                if is_worth {
                    account.window.on_grant(now);
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
mod tests;
