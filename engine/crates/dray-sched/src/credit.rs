//! Credit per sink target. With one credit, the source may send one object to that target. So the
//! sink limits the number of objects in transit to each target: a slow target occupies only its own
//! share of the sink's buffers, and never delays a fast target (LADS, section 4).

mod window;

use dray_core::{TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;
use window::Window;

/// Minimum window of a target, however many targets there are. With a window of two, one object can
/// arrive while another object is being written.
const WINDOW_MIN: u32 = 2;

/// Maximum number of objects that the sink holds for a congested target: one object for each of
/// four writers, and one more. Further objects would not make the target faster, and would occupy
/// buffers that other targets could use.
const CONGESTED_KEPT: u32 = 5;

#[derive(Debug, Clone)]
struct Account {
    /// Number of credits that were granted and not returned.
    out: u32,
    /// Number of credits in `out` whose object has arrived and is not written yet.
    arrived: u32,
    window: Window,
    /// Number of objects that the target's writers could accept, computed when an object was last
    /// written.
    due: u32,
    /// True if the source has returned credit and has not requested any since. The source then has
    /// no objects for this target.
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

/// The sink's account of granted credit. The total credit granted and not returned never exceeds
/// the pool.
#[derive(Debug, Clone)]
pub struct CreditLedger {
    pool: u32,
    out: u32,
    targets: BTreeMap<TargetId, Account>,
    /// Round-trip time of the network. `None` before it is measured.
    round_trip: Option<Duration>,
    /// The last target that received credit. Grants continue after this target, so that a pool with
    /// fewer buffers than targets serves all of them in rotation.
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

    /// Sets the round-trip time of the network, measured with a message that the source answers
    /// immediately.
    pub const fn set_round_trip(&mut self, took: Duration) {
        self.round_trip = Some(took);
    }

    /// Adds a target. For a known target, records that the source has objects for the target again.
    pub fn add_target(&mut self, target: TargetId) {
        let known = self.targets.entry(target);
        known.or_insert_with(Account::new).is_quiet = false;
    }

    /// Handles a CREDIT message for `target`. Takes back `count` credits that the source cannot
    /// use, because unused credit would starve other targets. A `count` of zero requests credit.
    /// Returns false if the source returns more credit than it has.
    pub fn give_back(&mut self, target: TargetId, count: u32) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) if account.out >= count => {
                account.out -= count;
                self.out -= count;
                account.is_quiet = count > 0;
                // All credit of the target may be at other sources, so grant one more.
                account.due += u32::from(count == 0);
                true
            }
            _ => false,
        }
    }

    /// Returns the total number of credits granted and not returned.
    #[must_use]
    pub const fn out(&self) -> u32 {
        self.out
    }

    /// Takes back one credit of `target`, because an object has arrived. Returns false if no credit
    /// was granted: the source has sent an object without credit.
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

    /// Charges the target for an object that has arrived. The charge lasts until the buffer of the
    /// object is free again. Call this after [`CreditLedger::take_back`]. Returns true if the
    /// target is known.
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

    /// Takes back the credit of an object whose buffer is free again.
    pub fn free(&mut self, target: TargetId) {
        if let Some(account) = self.targets.get_mut(&target) {
            account.arrived = account.arrived.saturating_sub(1);
            account.due = CONGESTED_KEPT.saturating_sub(account.arrived);
        }
        self.take_back(target);
    }

    /// Returns the credit to grant now. Each target gets credit up to its window, which is at most
    /// an equal share of the pool. A congested target gets only as much as its writers can accept.
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
                // Delay a small grant, so that one message can grant several credits.
                let worth = (window / 8).max(1);
                let mut grant = window.saturating_sub(account.out).min(room);
                let mut is_worth = grant >= worth;
                if is_congested(*target) {
                    // A congested target gets one grant for each of its objects that is written, of
                    // at most `due` credits or what it lacks to `WINDOW_MIN`. The fewer arrived
                    // objects still wait to be written, the larger is `due`. Objects in transit do
                    // not count, because a target at the end of a long path stays busy only with
                    // more objects in transit.
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
