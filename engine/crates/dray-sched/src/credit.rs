//! Credit per sink target: how many objects may be on the way to each, so that a slow target holds
//! only its own share of the sink's buffers and a fast one never waits behind it (LADS, section 4).

use dray_core::{TargetId, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Fewest objects a target may have on the way, whatever the number of targets: one being written
/// and one arriving.
const WINDOW_MIN: u32 = 2;

/// Objects of a congested target that may lie at the sink: one for each of its writers and one to
/// follow. What waits behind them makes it no faster and holds buffers that others could use.
const CONGESTED_KEPT: u32 = 5;

/// Objects a target may have on the way at first: enough for its writers, its streams and what the
/// source reads ahead.
const WINDOW_FIRST: u32 = 32;

/// A window that comes in so many times as long as the way takes is enough: what is on the way is no
/// more than a quarter of it, and a pause of either end as long as the way costs nothing.
const WAYS: u32 = 4;

/// So many measures of the way come before any round. The first has in it what the sink had to decide,
/// those with a window full of objects before them what these take: so one is taken with little on it.
const MEASURES_ALONE: u32 = 2;

/// Objects on the way that are little: one that follows does not wait long for them.
const LITTLE: u32 = WINDOW_FIRST / 4;

/// Where more than one in so many objects of a window lie at the sink on average, storage is the slower
/// part: more on the way would lie there too.
const LYING_PART: u64 = 4;

/// How long the way takes: from a grant to an object that needed it, there and back with a read.
/// Each measure is too long by what the sink decided first, or by what the source had to send before,
/// and none is too short: so the least of them counts.
#[derive(Debug, Clone, Default)]
struct Way {
    /// Granted since the begin.
    granted: u64,
    /// Of them, what was no longer on the way at the last arrival.
    used: u64,
    /// Grants of which nothing was used yet: what had been granted before, and when.
    open: VecDeque<(u64, Time)>,
    least: Option<Duration>,
    measures: u32,
}

impl Way {
    /// Whether a grant had better wait until little is before it, so that it measures the way alone.
    const fn is_vague(&self) -> bool {
        self.measures > 0 && self.measures < MEASURES_ALONE
    }

    fn on_grant(&mut self, count: u32, now: Time) {
        self.open.push_back((self.granted, now));
        self.granted += u64::from(count);
    }

    /// An object has arrived, and so much credit is on the way still. Whichever credit it had, as many
    /// as are used now have reached a source.
    fn on_arrival(&mut self, on_the_way: u32, now: Time) {
        let used = self.granted.saturating_sub(u64::from(on_the_way));
        if used != self.used + 1 {
            // Some went back, or was of a source that has gone and may never have had it.
            self.open.clear();
        }
        self.used = used;
        while let Some((_, at)) = self.open.front().filter(|(before, _)| *before < used) {
            let measured = now.since(*at);
            self.least = Some(self.least.map_or(measured, |least| least.min(measured)));
            self.measures = self.measures.saturating_add(1);
            self.open.pop_front();
        }
    }
}

#[derive(Debug, Clone)]
struct Account {
    /// Granted and not yet returned.
    out: u32,
    /// Of them, what has arrived and is not written.
    arrived: u32,
    /// What may be out at the most. It grows as long as the way holds a large part of it, and never
    /// shrinks: what was on the way once may be so again.
    window: u32,
    /// What is left of what was out, and had not arrived, when this round began.
    round: u32,
    /// When this round began: the first one with the first credit.
    round_at: Option<Time>,
    /// Arrivals of this round, and the sum of what lay here at each of them.
    round_seen: (u64, u64),
    way: Way,
    /// What its writers could take besides when one of its objects was written last.
    due: u32,
    /// The source gave credit back and has not asked since: nothing of this target is wanted.
    is_quiet: bool,
}

impl Account {
    fn new() -> Self {
        Self {
            out: 0,
            arrived: 0,
            window: WINDOW_FIRST,
            round: WINDOW_FIRST,
            round_at: None,
            round_seen: (0, 0),
            way: Way::default(),
            due: 0,
            is_quiet: false,
        }
    }

    /// Something has arrived. A round ends when all that was on the way at its begin is here. Where the
    /// window bounds, that takes as long as the way; where storage, the source or the line does, longer,
    /// and more on the way would only lie somewhere. Bursts may make a round short for all that: then
    /// what came in them lies here.
    fn on_arrival(&mut self, now: Time) {
        self.arrived += 1;
        let (arrivals, lay) = &mut self.round_seen;
        *arrivals += 1;
        *lay += u64::from(self.arrived);
        let began = *self.round_at.get_or_insert(now);
        let was_vague = self.way.is_vague();
        self.way
            .on_arrival(self.out.saturating_sub(self.arrived), now);
        if was_vague || self.way.is_vague() {
            // A round that begins with little on the way says nothing.
            self.round = self.window;
            self.round_at = Some(now);
            self.round_seen = (0, 0);
            return;
        }
        self.round = self.round.saturating_sub(1);
        if self.round == 0 {
            // Of what came in a burst nothing is on the way: a few say nothing.
            self.round = self.out.saturating_sub(self.arrived).max(self.window / 2);
            let is_idle = *lay * LYING_PART <= u64::from(self.window) * *arrivals;
            self.round_seen = (0, 0);
            let ways = self.way.least.map(|way| way * WAYS);
            if is_idle && ways.is_some_and(|ways| now.since(began) < ways) {
                self.window = self.window.saturating_mul(2);
                // What comes by the new one tells whether that was enough.
                self.round = self.window;
            }
            self.round_at = Some(now);
        }
    }
}

/// The sink's ledger of granted credit. The sum of what is out never exceeds the pool.
#[derive(Debug, Clone)]
pub struct CreditLedger {
    pool: u32,
    out: u32,
    targets: BTreeMap<TargetId, Account>,
    /// The target that was looked at last, so that a pool with fewer buffers than targets goes round.
    turn: Option<TargetId>,
    /// Several sources share it.
    is_shared: bool,
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
            is_shared: false,
        }
    }

    /// Whether several sources have its credit: one with nothing to send may keep what another waits
    /// for, so no grant is put off there.
    pub const fn share(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// Makes a target known, or wanted again.
    pub fn add_target(&mut self, target: TargetId) {
        let known = self.targets.entry(target);
        known.or_insert_with(Account::new).is_quiet = false;
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
                // One that asks may find all of it out with others.
                account.due += u32::from(count == 0);
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
    pub fn hold(&mut self, target: TargetId, now: Time) -> bool {
        match self.targets.get_mut(&target) {
            Some(account) => {
                account.out += 1;
                account.on_arrival(now);
                self.out += 1;
                true
            }
            None => false,
        }
    }

    /// Takes back the credit of an object that was held.
    pub fn free(&mut self, target: TargetId) {
        if let Some(account) = self.targets.get_mut(&target) {
            account.arrived = account.arrived.saturating_sub(1);
            account.due = CONGESTED_KEPT.saturating_sub(account.arrived);
        }
        self.take_back(target);
    }

    /// What may be granted now: every target up to its window, the window being an equal share of
    /// the pool; of a congested one no more than its writers can take.
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
        let is_shared = self.is_shared;
        let behind = |target: &TargetId| turn.is_some_and(|turn| *target <= turn);
        for pass in [false, true] {
            for (target, account) in &mut self.targets {
                if account.is_quiet || behind(target) != pass {
                    continue;
                }
                let room = self.pool - self.out;
                let window = share.min(account.window);
                // Small top-ups wait until they are worth a message.
                let worth = (window / 8).max(1);
                let mut grant = window.saturating_sub(account.out).min(room);
                let on_the_way = account.out.saturating_sub(account.arrived);
                let waits = !is_shared && account.way.is_vague() && on_the_way > LITTLE;
                let mut is_worth = grant >= worth && !waits;
                if is_congested(*target) {
                    // Once for each that is written, and by what has arrived: the way here may be
                    // long, and what is on it keeps the target busy.
                    let due = std::mem::take(&mut account.due);
                    grant = grant.min(due.max(WINDOW_MIN.saturating_sub(account.out)));
                    is_worth = grant > 0;
                }
                if is_worth {
                    account.round_at.get_or_insert(now);
                    account.way.on_grant(grant, now);
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
    use super::{CreditLedger, Way};
    use dray_core::{TargetId, Time};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_slow_target_holds_its_share_only() {
        let mut ledger = CreditLedger::new(64);
        ledger.add_target(TargetId(0));
        ledger.add_target(TargetId(1));
        assert_eq!(
            ledger.grants(Time::ZERO, |_| false),
            [(TargetId(0), 32), (TargetId(1), 32)]
        );
        for _ in 0..4 {
            assert!(ledger.take_back(TargetId(1)));
        }
        assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(1), 4)]);
        assert!(
            !ledger.take_back(TargetId(9)),
            "an unknown target has no credit"
        );
    }

    #[test]
    fn a_congested_target_holds_what_its_writers_can_take() {
        let mut ledger = CreditLedger::new(64);
        ledger.add_target(TargetId(0));
        ledger.add_target(TargetId(1));
        let congested = |target| target == TargetId(1);
        assert_eq!(
            ledger.grants(Time::ZERO, congested),
            [(TargetId(0), 32), (TargetId(1), 2)],
            "none at all would be for ever"
        );
        for _ in 0..2 {
            assert!(ledger.take_back(TargetId(1)) && ledger.hold(TargetId(1), Time::ZERO));
        }
        assert_eq!(ledger.grants(Time::ZERO, congested), []);
        // Four more find a writer: they go there once, not again with each look.
        ledger.free(TargetId(1));
        assert_eq!(ledger.grants(Time::ZERO, congested), [(TargetId(1), 4)]);
        assert_eq!(ledger.grants(Time::ZERO, congested), []);
        for _ in 0..4 {
            assert!(ledger.take_back(TargetId(1)) && ledger.hold(TargetId(1), Time::ZERO));
        }
        ledger.free(TargetId(1));
        assert_eq!(ledger.grants(Time::ZERO, congested), [(TargetId(1), 1)]);
        assert_eq!(ledger.out(), 37);
        assert_eq!(
            ledger.grants(Time::ZERO, |_| false),
            [(TargetId(1), 27)],
            "well again"
        );
    }

    #[test]
    fn a_long_way_is_filled_for_a_congested_target_too() {
        let mut ledger = CreditLedger::new(32);
        ledger.add_target(TargetId(0));
        // Each that arrives is written at once, while what was granted since is on its way.
        let mut on_the_way = 0;
        for _ in 0..100 {
            on_the_way += ledger
                .grants(Time::ZERO, |_| true)
                .iter()
                .map(|(_, count)| count)
                .sum::<u32>();
            assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), Time::ZERO));
            ledger.free(TargetId(0));
            on_the_way -= 1;
        }
        assert!(on_the_way > 28, "{on_the_way}");
    }

    /// Grants all it may, and gives the most that may be out after so many objects have come: by a way
    /// that takes so many milliseconds there and back, one each millisecond at the most.
    fn window_after(objects: u32, way: u64) -> u32 {
        let mut ledger = CreditLedger::new(1024);
        ledger.add_target(TargetId(0));
        let at = |milliseconds: u64| Time::from_nanos(milliseconds * 1_000_000);
        // When what was granted arrives.
        let mut to_come = std::collections::VecDeque::new();
        let mut now = 1;
        for _ in 0..objects {
            let granted: u32 = ledger
                .grants(at(now), |_| false)
                .iter()
                .map(|(_, n)| n)
                .sum();
            to_come.extend(std::iter::repeat_n(now + way, granted as usize));
            now = to_come
                .pop_front()
                .expect("some is on the way")
                .max(now + 1);
            assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), at(now)));
            ledger.free(TargetId(0));
        }
        ledger.grants(at(now), |_| false);
        ledger.out()
    }

    #[test]
    fn a_window_stays_where_what_came_lies_at_the_sink() {
        let mut ledger = CreditLedger::new(1024);
        ledger.add_target(TargetId(0));
        let at = |milliseconds: u64| Time::from_nanos(milliseconds * 1_000_000);
        let mut here = 0;
        for burst in 1..200 {
            ledger.grants(at(10 * burst), |_| false);
            // All of it at once, as after a pause of a host that both ends share.
            while ledger.out() > here {
                assert!(
                    ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), at(10 * burst + 9))
                );
                here += 1;
            }
            for _ in 0..here {
                ledger.free(TargetId(0));
            }
            here = 0;
        }
        ledger.grants(at(10_000), |_| false);
        assert_eq!(ledger.out(), 32);
    }

    #[test]
    fn what_the_sink_does_before_the_first_object_is_no_way() {
        // It decided for 400 ms; then each credit is used 5 ms after it was granted, or as soon as the
        // line has carried what goes before it, one object each millisecond.
        let at = |milliseconds: u64| Time::from_nanos(milliseconds * 1_000_000);
        let mut ledger = CreditLedger::new(1024);
        ledger.add_target(TargetId(0));
        let mut to_come = std::collections::VecDeque::new();
        let (mut now, mut first) = (1, 400);
        for _ in 0..10_000 {
            let grants = ledger.grants(at(now), |_| false);
            let granted: u32 = grants.iter().map(|(_, count)| count).sum();
            to_come.extend(std::iter::repeat_n(now + 5 + first, granted as usize));
            first = 0;
            now = to_come
                .pop_front()
                .expect("some is on the way")
                .max(now + 1);
            assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), at(now)));
            ledger.free(TargetId(0));
        }
        let window = ledger.out();
        assert!(window <= 64, "{window} are far more than the way holds");
    }

    #[test]
    fn the_second_grant_waits_for_little_on_the_way_but_not_where_sources_share() {
        for (is_shared, arrivals) in [(false, 24), (true, 4)] {
            let mut ledger = CreditLedger::new(1024);
            ledger.share(is_shared);
            ledger.add_target(TargetId(0));
            assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(0), 32)]);
            for _ in 0..arrivals {
                assert_eq!(ledger.grants(Time::ZERO, |_| false), []);
                assert!(ledger.take_back(TargetId(0)) && ledger.hold(TargetId(0), Time::ZERO));
                ledger.free(TargetId(0));
            }
            let grants = ledger.grants(Time::ZERO, |_| false);
            assert_eq!(grants, [(TargetId(0), arrivals)]);
        }
    }

    #[test]
    fn credit_of_a_source_that_has_gone_makes_no_way_short() {
        let at = |milliseconds: u64| Time::from_nanos(milliseconds * 1_000_000);
        let mut way = Way::default();
        way.on_grant(8, at(0));
        way.on_arrival(7, at(100));
        way.on_grant(8, at(110));
        // Seven of the first never come: the next that does may have one of them.
        way.on_arrival(7, at(111));
        assert_eq!(way.least, Some(Duration::from_millis(100)));
        way.on_grant(8, at(120));
        for left in (7..15).rev() {
            way.on_arrival(left, at(180));
        }
        assert_eq!(way.least, Some(Duration::from_millis(60)));
    }

    #[test]
    fn a_window_grows_to_several_times_what_the_way_holds() {
        assert_eq!(window_after(0, 0), 32);
        // As it is seen just before a small top-up, or after it.
        for (way, least, most) in [(1, 29, 32), (7, 29, 32), (20, 80, 256), (60, 240, 512)] {
            let window = window_after(10_000, way);
            assert!((least..=most).contains(&window), "{window} for {way} ms");
        }
        assert!(window_after(10_000, 500) >= 896, "up to the pool");
    }

    #[test]
    fn credit_nobody_uses_goes_to_those_who_can() {
        let mut ledger = CreditLedger::new(4);
        ledger.add_target(TargetId(0));
        assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(0), 4)]);
        ledger.add_target(TargetId(1));
        assert_eq!(ledger.grants(Time::ZERO, |_| false), [], "the pool is out");
        assert!(ledger.give_back(TargetId(0), 4));
        assert!(ledger.give_back(TargetId(1), 0), "asks");
        assert_eq!(ledger.grants(Time::ZERO, |_| false), [(TargetId(1), 4)]);
        assert!(ledger.take_back(TargetId(1)));
        ledger.add_target(TargetId(0));
        assert_eq!(
            ledger.grants(Time::ZERO, |_| false),
            [(TargetId(0), 1)],
            "wanted again"
        );
    }

    #[test]
    fn a_pool_smaller_than_its_targets_goes_round() {
        let mut ledger = CreditLedger::new(2);
        let mut served = std::collections::BTreeSet::new();
        for target in 0..5 {
            ledger.add_target(TargetId(target));
        }
        for _ in 0..10 {
            for (target, count) in ledger.grants(Time::ZERO, |_| false) {
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
                    _ => for (target, count) in ledger.grants(Time::ZERO, |target| target.0 % 3 == 0) {
                        *out.entry(target).or_default() += count;
                    },
                }
                prop_assert_eq!(ledger.out(), out.values().sum::<u32>());
                prop_assert!(ledger.out() <= pool);
            }
        }
    }
}
