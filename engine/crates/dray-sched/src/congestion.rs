//! Which storage targets are congested, told by how long their reads or writes take compared with those
//! of their siblings, and how many may be under way on each (LADS, section 4).
//!
//! A target is *slow* while its operations take several times as long as the median target's, per
//! object and per byte alike: small objects cost more per byte and large ones more each, and neither is
//! a fault of the target. A slow one gets half as many under way, round by round, never none. What is
//! left under way is the probe: rounds that are no longer slow double the number again.
//!
//! Non-goals: what is done with the number; who is asked instead.
//!
//! Invariants: no target is ever told to stand still; without a sibling nobody is congested.

use dray_core::{TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// What one operation weighs in the average: one in four follows a congestion that moves within ten
/// objects, and is not led astray by a single late one (guess, revisit).
const WEIGHT: u64 = 4;

/// So many times the median is slow, and not so any more below the second number. Between both nothing
/// changes, which keeps a target at the border from flapping (guess, revisit).
const SLOW_TIMES: u64 = 3;
const FAIR_TIMES: u64 = 2;

/// What takes less is never slow: page caches differ by as much, and nobody waits for them.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// An operation under way for so many times what is usual says that its target is slow before it ends.
const LATE_TIMES: u64 = 8;

/// An operation under way for so many times what is usual, and for so long, may never end.
const STUCK_TIMES: u64 = 32;
const STUCK_MIN: Duration = Duration::from_secs(5);

/// Fair rounds in a row before more may be under way: at first, and at the most after it was wrong.
const PATIENCE_MIN: u32 = 2;
const PATIENCE_MAX: u32 = 32;

/// An operation of a target that has not done any under way for less than this is not late: it may be
/// larger than all of the others.
const LATE_FIRST_MIN: Duration = Duration::from_secs(1);

/// What an operation has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes in all.
    pub bytes: u64,
    /// Files: a pack of many small ones takes long because of them, not because its target is slow.
    pub files: usize,
}

/// How a target does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// Like its siblings, as far as is known.
    Fair,
    /// Several times slower than its siblings.
    Congested,
    /// Nothing has come of what is under way for many times what is usual.
    Stuck,
}

/// Moving averages of what an operation costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Nanoseconds of one, of a pack those of one file.
    each: u64,
    /// Nanoseconds of one, a pack as a whole.
    whole: u64,
    /// Nanoseconds of 4 KiB.
    page: u64,
}

impl Cost {
    fn of(took: Duration, moved: Moved) -> Self {
        let whole = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        // As 128 bits, which no product of two 64 bit numbers leaves.
        let page = u128::from(whole) * 4096 / u128::from(moved.bytes.max(1));
        Self {
            each: (whole / moved.files.max(1) as u64).max(1),
            whole,
            page: u64::try_from(page).unwrap_or(u64::MAX).max(1),
        }
    }

    fn learn(&mut self, sample: Self) {
        let mix = |old: u64, new: u64| old - old / WEIGHT + new / WEIGHT;
        self.each = mix(self.each, sample.each);
        self.whole = mix(self.whole, sample.whole);
        self.page = mix(self.page, sample.page);
    }

    /// Whether it is at least so many times the other, by both measures.
    fn is_times(self, times: u64, other: Self) -> bool {
        self.each >= other.each.saturating_mul(times)
            && self.page >= other.page.saturating_mul(times)
    }
}

#[derive(Debug, Default)]
struct Target {
    /// Operations under way, by when they began.
    under_way: BTreeMap<Time, u32>,
    count: u32,
    cost: Option<Cost>,
    /// How many may be under way while it is congested.
    bound: Option<u32>,
    /// Operations that ended in this round.
    ended: u32,
    fair_rounds: u32,
    patience: u32,
    /// Whether its bound was raised of late, which may have been too early.
    was_raised: bool,
}

impl Target {
    /// Half as many; and longer until the next attempt with more, if the last was wrong.
    fn slow_round(&mut self, most: u32) {
        self.patience = match std::mem::take(&mut self.was_raised) {
            true => (self.patience * 2).min(PATIENCE_MAX),
            false => self.patience.max(PATIENCE_MIN),
        };
        let now = self.bound.unwrap_or(most).min(self.count.max(1));
        self.bound = Some((now / 2).max(1));
        self.fair_rounds = 0;
        self.ended = 0;
    }

    fn fair_round(&mut self, most: u32) {
        self.fair_rounds = self.fair_rounds.saturating_add(1);
        match self.bound {
            None => {
                self.patience = (self.patience / 2).max(PATIENCE_MIN);
                self.was_raised &= self.patience > PATIENCE_MIN;
            }
            Some(bound) if self.fair_rounds >= self.patience => {
                self.fair_rounds = 0;
                self.was_raised = true;
                self.bound = Some(bound * 2).filter(|more| *more < most);
            }
            Some(_) => {}
        }
    }

    fn oldest(&self, now: Time) -> Duration {
        let first = self.under_way.keys().next();
        first.map_or(Duration::ZERO, |began| now.since(*began))
    }
}

/// What is known of the targets of one end.
#[derive(Debug)]
pub struct Congestion {
    /// How many may be under way on a target that is not congested.
    most: u32,
    targets: BTreeMap<TargetId, Target>,
    /// The median target's costs.
    usual: Option<Cost>,
    /// Operations that ended since the median was taken.
    ended: usize,
    /// When late ones are looked for again.
    look_at: Time,
}

impl Congestion {
    /// Nothing is known yet. `most` may be under way on each target.
    #[must_use]
    pub const fn new(most: u32) -> Self {
        Self {
            most,
            targets: BTreeMap::new(),
            usual: None,
            ended: 0,
            look_at: Time::ZERO,
        }
    }

    /// From now on so many may be under way on each target that is not congested.
    pub const fn set_most(&mut self, most: u32) {
        self.most = most;
    }

    /// A read or write of `target` begins.
    pub fn began(&mut self, target: TargetId, now: Time) {
        let target = self.targets.entry(target).or_default();
        *target.under_way.entry(now).or_default() += 1;
        target.count += 1;
    }

    /// One that began at `began` has ended. `moved`: nothing when its time says nothing about the target
    /// (it failed, or found a hole).
    pub fn ended(&mut self, target: TargetId, began: Time, moved: Option<Moved>, now: Time) {
        let Some(known) = self.targets.get_mut(&target) else {
            return;
        };
        if let Some(count) = known.under_way.get_mut(&began) {
            *count -= 1;
            known.count = known.count.saturating_sub(1);
            if *count == 0 {
                known.under_way.remove(&began);
            }
        }
        let Some(moved) = moved.filter(|moved| moved.bytes > 0) else {
            return;
        };
        let sample = Cost::of(now.since(began), moved);
        match &mut known.cost {
            Some(cost) => cost.learn(sample),
            None => known.cost = Some(sample),
        }
        known.ended += 1;
        // One more was under way until just now.
        let is_round = known.ended > known.count.min(self.most);
        self.ended += 1;
        if self.ended >= self.targets.len() {
            self.ended = 0;
            self.usual = self.median();
        }
        if is_round {
            self.judge(target);
        }
    }

    /// How many may be under way on a target now; never none.
    #[must_use]
    pub fn bound(&self, target: TargetId) -> u32 {
        let bound = self.targets.get(&target).and_then(|target| target.bound);
        bound.unwrap_or(self.most).min(self.most).max(1)
    }

    /// How a target does.
    #[must_use]
    pub fn pace(&self, target: TargetId, now: Time) -> Pace {
        let Some(target) = self.targets.get(&target) else {
            return Pace::Fair;
        };
        if self.targets.len() > 1 && self.is_late(target, STUCK_TIMES, STUCK_MIN, now) {
            Pace::Stuck
        } else if target.bound.is_some() {
            Pace::Congested
        } else {
            Pace::Fair
        }
    }

    /// Looks for operations that should have ended long ago. Cheap when asked often.
    pub fn look(&mut self, now: Time) {
        let Some(usual) = self.usual else {
            return;
        };
        if now < self.look_at || self.targets.len() < 2 {
            return;
        }
        self.look_at = now + Duration::from_nanos(usual.whole).max(SLOW_MIN);
        let late: Vec<TargetId> = self
            .targets
            .iter()
            .filter(|(_, target)| target.bound.is_none_or(|bound| bound > 1))
            .filter(|(_, target)| self.is_late(target, LATE_TIMES, SLOW_MIN, now))
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            if let Some(target) = self.targets.get_mut(&id) {
                target.slow_round(self.most);
            }
        }
    }

    /// Whether the oldest operation takes much longer than the target itself and its siblings need.
    fn is_late(&self, target: &Target, times: u64, least: Duration, now: Time) -> bool {
        let Some(usual) = self.usual else {
            return false;
        };
        let own = target.cost.map(|cost| cost.whole);
        let least = own.map_or(least.max(LATE_FIRST_MIN), |_| least);
        let longer = usual.whole.max(own.unwrap_or(0));
        target.oldest(now) >= Duration::from_nanos(longer.saturating_mul(times)).max(least)
    }

    fn judge(&mut self, target: TargetId) {
        let Some((usual, known)) = self.usual.zip(self.targets.get_mut(&target)) else {
            return;
        };
        let Some(cost) = known.cost else {
            return;
        };
        known.ended = 0;
        let is_felt = Duration::from_nanos(cost.each) >= SLOW_MIN;
        if is_felt && cost.is_times(SLOW_TIMES, usual) {
            known.slow_round(self.most);
        } else if !is_felt || !cost.is_times(FAIR_TIMES, usual) {
            known.fair_round(self.most);
        } else {
            known.fair_rounds = 0;
        }
    }

    /// The lower middle of the targets that are known, so that of two the faster is the measure.
    fn median(&self) -> Option<Cost> {
        let costs = || self.targets.values().filter_map(|target| target.cost);
        let middle = |mut values: Vec<u64>| {
            let at = values.len().checked_sub(1)? / 2;
            Some(*values.select_nth_unstable(at).1)
        };
        Some(Cost {
            each: middle(costs().map(|cost| cost.each).collect())?,
            whole: middle(costs().map(|cost| cost.whole).collect())?,
            page: middle(costs().map(|cost| cost.page).collect())?,
        })
    }
}

#[cfg(test)]
#[path = "congestion_tests.rs"]
mod tests;
