//! Detects congested storage targets (LADS, section 4). The module compares the duration of reads
//! or writes on each target with the durations on the other targets of the same end. It limits the
//! number of concurrent operations on a congested target.
//!
//! A target is *slow* while its operations take several times as long as those of the median
//! target, both per file and per byte. Both measures are needed: on every target, small objects
//! take more time per byte, and large objects take more time per file. A slow target is *fair*
//! again when its operations take less than a lower multiple of the median. Each target is judged
//! in rounds: a round ends after as many operations as run concurrently on the target. Each slow
//! round halves the bound on concurrent operations, down to one operation. The operations that
//! remain show whether the target has recovered: after several fair rounds, the bound doubles
//! again.
//!
//! Non-goals: enforcing the bound; choosing another target.
//!
//! Invariants: the bound of a target is never zero; a target without other targets at its end is
//! never congested.

use dray_core::{TargetId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Divisor for the weight of one operation in the moving average. With a weight of a quarter, the
/// average follows a change within ten objects, and a single late operation has little effect. The
/// value is estimated, not measured.
const WEIGHT: u64 = 4;

/// A target becomes slow at `SLOW_TIMES` times the median cost, and fair again below `FAIR_TIMES`
/// times the median. Between these two costs the state of the target does not change, so the state
/// does not alternate. Both values are estimated, not measured.
const SLOW_TIMES: u64 = 3;
const FAIR_TIMES: u64 = 2;

/// Operations shorter than this never count as slow: page caches cause differences of this size,
/// and these do not delay a transfer.
const SLOW_MIN: Duration = Duration::from_millis(2);

/// A target counts as slow if an operation has been under way for this many times the usual
/// duration. The usual duration is the average duration on this target, or on the median target if
/// that is longer.
const LATE_TIMES: u64 = 8;

/// A target counts as stuck if an operation has been under way for at least [`STUCK_MIN`] and for
/// this many times the usual duration ([`LATE_TIMES`]).
const STUCK_TIMES: u64 = 32;
const STUCK_MIN: Duration = Duration::from_secs(5);

/// Initial number of consecutive fair rounds before the bound rises.
const PATIENCE_MIN: u32 = 2;
/// The number of fair rounds doubles, up to this maximum, each time the bound has risen too early.
const PATIENCE_MAX: u32 = 32;

/// Minimum time before an operation counts as late on a target that has not completed an operation
/// yet. The first operation of such a target may be larger than all others.
const LATE_FIRST_MIN: Duration = Duration::from_secs(1);

/// Amount of data that one operation has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Total number of bytes.
    pub bytes: u64,
    /// Number of files. A pack of many small files takes long because of their number, not because
    /// the target is slow.
    pub files: usize,
}

/// Speed of a target compared with the other targets of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// As fast as the other targets, as far as is known.
    Fair,
    /// Several times slower than the other targets.
    Congested,
    /// An operation has been under way for many times the usual duration, and may never end.
    Stuck,
}

/// State of one target, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The target.
    pub target: TargetId,
    /// Number of operations under way.
    pub under_way: u32,
    /// Average duration of an operation. `None` if no operation has ended yet.
    pub service: Option<Duration>,
    /// Maximum number of concurrent operations. `None` if the target is not congested.
    pub bound: Option<u32>,
    /// Speed compared with the other targets.
    pub pace: Pace,
}

/// Moving averages of the cost of an operation.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Nanoseconds per file.
    each: u64,
    /// Nanoseconds per operation. A pack counts as one operation.
    whole: u64,
    /// Nanoseconds per 4 KiB.
    page: u64,
}

impl Cost {
    fn of(took: Duration, moved: Moved) -> Self {
        let whole = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        // Use 128 bits, because the product of two 64-bit numbers may not fit in 64 bits.
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

    /// Returns true if this cost is at least `times` times the other cost, both per file and per
    /// byte.
    fn is_times(self, times: u64, other: Self) -> bool {
        self.each >= other.each.saturating_mul(times)
            && self.page >= other.page.saturating_mul(times)
    }
}

#[derive(Debug, Default)]
struct TargetState {
    /// Number of operations under way, by their start time.
    under_way: BTreeMap<Time, u32>,
    count: u32,
    cost: Option<Cost>,
    /// Maximum number of concurrent operations. `None` if the target is not congested.
    bound: Option<u32>,
    /// Number of operations that have ended in this round.
    ended: u32,
    fair_rounds: u32,
    patience: u32,
    /// True if the last change of the bound was an increase, which may have been too early.
    was_raised: bool,
}

impl TargetState {
    /// Halves the bound. If the last change of the bound was an increase, it was too early, so the
    /// number of fair rounds before the next increase doubles.
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

/// State of all targets at one end of a transfer.
#[derive(Debug)]
pub struct Congestion {
    /// Maximum number of concurrent operations on a target that is not congested.
    most: u32,
    targets: BTreeMap<TargetId, TargetState>,
    /// Median of the costs over all targets.
    usual: Option<Cost>,
    /// Number of operations that have ended since the median was computed.
    ended: usize,
    /// Time of the next check for late operations.
    look_at: Time,
}

impl Congestion {
    /// Creates an empty state. `most` is the maximum number of concurrent operations on each
    /// target.
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

    /// Sets the maximum number of concurrent operations on targets that are not congested.
    pub const fn set_most(&mut self, most: u32) {
        self.most = most;
    }

    /// Records the start of a read or write on `target`.
    pub fn began(&mut self, target: TargetId, now: Time) {
        let target = self.targets.entry(target).or_default();
        *target.under_way.entry(now).or_default() += 1;
        target.count += 1;
    }

    /// Records the end of an operation that began at `began`. Pass `None` as `moved` if the
    /// duration says nothing about the target, because the operation failed or found a hole.
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
        // The operation that has just ended was part of the round, so compare with `>`.
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

    /// Returns the maximum number of concurrent operations on a target, at least 1.
    #[must_use]
    pub fn bound(&self, target: TargetId) -> u32 {
        let bound = self.targets.get(&target).and_then(|target| target.bound);
        bound.unwrap_or(self.most).min(self.most).max(1)
    }

    /// Returns true if at least one target is congested.
    #[must_use]
    pub fn has_congested(&self) -> bool {
        self.targets.values().any(|target| target.bound.is_some())
    }

    /// Returns the speed of a target compared with the other targets.
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

    /// Returns the state of each target that has had operations.
    #[must_use]
    pub fn loads(&self, now: Time) -> Vec<Load> {
        let load = |(target, state): (&TargetId, &TargetState)| Load {
            target: *target,
            under_way: state.count,
            service: state.cost.map(|cost| Duration::from_nanos(cost.whole)),
            bound: state.bound,
            pace: self.pace(*target, now),
        };
        self.targets.iter().map(load).collect()
    }

    /// Checks for operations that should have ended long ago. Cheap enough to call often.
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

    /// Returns true if the oldest operation in progress on a target takes much longer than usual,
    /// compared with this target and with the median target.
    fn is_late(&self, target: &TargetState, times: u64, least: Duration, now: Time) -> bool {
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

    /// Returns the median cost over the targets. With an even number of targets this is the lower
    /// middle value, so of two targets the faster one is the reference.
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
mod tests;
