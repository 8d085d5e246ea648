//! One round of planning: records the progress of promised transfers, plans their rates, and
//! returns the events to report.

use super::answer::{Names, reason_word};
use super::link::Shown;
use super::{BrokerState, LINK, Promises, time};
use dray_api::Timestamp;
use dray_api::{MissAnswer, ReasonWord};
use dray_core::Time;
use dray_core::rate::BytesPerSecond;
use dray_sched::broker::{Rates, TransferKey};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A session counts as slow if it used less than its rate for this time. Opening a connection and
/// an occasional stall of a disk take less time. The value is estimated, not measured.
const SLOW: Duration = Duration::from_secs(5);

/// Minimum change of a planned rate that is reported, in percent of the old rate.
const TOLD_PERCENT: u64 = 5;

/// The progress of a session, as input of a round.
#[derive(Debug, Clone)]
pub struct SessionProgress<'a> {
    /// The session's number.
    pub session: u64,
    /// Id of the session's transfer, if this endpoint drives the transfer.
    pub own: Option<&'a str>,
    /// Bytes that the session has moved.
    pub moved: u64,
    /// Bytes of the transfer that are durable or on their way.
    pub done: u64,
    /// Size of the transfer in bytes, once it is listed.
    pub listed: Option<u64>,
    /// True if the session could use more than it gets.
    pub is_hungry: bool,
    /// Rate limit of the session in bytes per second; `None` without a limit.
    pub granted: Option<u64>,
}

/// The result of a round.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// The planned rate of each session that has one, in bytes per second.
    pub planned: HashMap<u64, u64>,
    /// Measured capacity of the link in bytes per second. `None` if it is unknown, or if there is
    /// no promise.
    pub link: Option<u64>,
    /// True if the plan now moves a transfer that it did not move before.
    pub has_begun: bool,
    /// Events to report.
    pub told: Vec<Report>,
}

/// An event to report to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A planned rate has changed.
    Rate {
        /// Id of the transfer.
        id: String,
        /// Owner of the transfer.
        owner: String,
        /// The old planned rate in bytes per second.
        old: u64,
        /// The new planned rate in bytes per second.
        new: u64,
        /// Reason for the rate.
        reason: ReasonWord,
    },
    /// A promise is expected to be missed. If `miss` is `None`, it is expected to be kept again.
    Miss {
        /// Id of the transfer.
        id: String,
        /// Owner of the transfer.
        owner: String,
        /// The expected miss and its cause.
        miss: Option<MissAnswer>,
    },
}

/// Recent progress of a session, to detect that the session is slow.
#[derive(Debug, Clone, Default)]
pub(super) struct Use {
    samples: VecDeque<(Time, u64)>,
    last: u64,
    told: Option<u64>,
    /// The transfer, if its session was reported to the broker as slow.
    slow: Option<TransferKey>,
}

impl Use {
    /// Records a sample and returns the bytes moved since the last round.
    fn measure(&mut self, seen: &SessionProgress<'_>, now: Time) -> u64 {
        if (self.samples.back()).is_some_and(|(at, _)| *at > now) {
            self.samples.clear();
        }
        let more = seen.moved.saturating_sub(self.last);
        self.last = seen.moved;
        if seen.is_hungry {
            self.samples.clear();
        } else {
            self.samples.push_back((now, seen.moved));
        }
        while (self.samples.get(1)).is_some_and(|(at, _)| now.since(*at) >= SLOW) {
            self.samples.pop_front();
        }
        more
    }

    /// Returns the rate that a slow session can use: its measured rate plus a tenth. Returns `None`
    /// for a session that is not known to be slow.
    fn bound(&self, now: Time) -> Option<u64> {
        let (since, moved) = *self.samples.front()?;
        let length = now.since(since);
        if length < SLOW {
            return None;
        }
        let bytes = u128::from(self.last.saturating_sub(moved)) * 1_100_000_000;
        u64::try_from(bytes / length.as_nanos().max(1)).ok()
    }

    /// Returns the transfer that was reported to the broker as slow, and the reported rate.
    pub(super) fn slow(&self) -> Option<(TransferKey, BytesPerSecond)> {
        self.slow.zip(self.told.map(BytesPerSecond))
    }

    /// Returns `None` if the broker knows the session's usable rate. Otherwise returns the new
    /// rate, or `Some(None)` if the session is no longer slow. A change of at most a tenth is not
    /// reported.
    fn news(&mut self, now: Time) -> Option<Option<u64>> {
        let bound = self.bound(now);
        let is_same = match (self.told, bound) {
            (None, None) => true,
            (Some(old), Some(new)) => old.abs_diff(new) <= old / 10,
            _ => false,
        };
        if is_same {
            return None;
        }
        self.told = bound;
        Some(bound)
    }
}

impl Promises {
    /// Runs one round. Plans again if a promise was made, has ended or has changed, or if the
    /// broker asked to be called at this time.
    pub fn replan(&self, seen: &[SessionProgress<'_>], now: Timestamp) -> Round {
        let at = time(now);
        let mut state = self.state();
        let state = &mut *state;
        // If the clock was set back, plan again: `wake_at` may be hours away.
        state.is_changed |= at < std::mem::replace(&mut state.at, at);
        state.follow(seen, at, self.places.is_measured());
        let is_due = state.wake_at.is_some_and(|wake| wake <= at);
        let mut has_begun = false;
        let told = if state.is_changed || is_due {
            state.is_changed = false;
            let rates = state.broker.rates(at);
            state.wake_at = rates.wake_at;
            has_begun = state.plan(&rates);
            self.tell(state, &rates)
        } else {
            Vec::new()
        };
        let planned = seen.iter().filter_map(|seen| {
            let key = state.by_id.get(seen.own?)?;
            Some((seen.session, state.rates.get(key)?.planned.0))
        });
        Round {
            planned: planned.collect(),
            link: state.link.rate().filter(|_| !state.held.is_empty()),
            has_begun,
            told,
        }
    }

    fn tell(&self, state: &mut BrokerState, rates: &Rates) -> Vec<Report> {
        let mut told = Vec::new();
        for rate in &rates.rates {
            let Some(held) = state.held.get(&rate.key) else {
                continue;
            };
            let old = state.told.get(&rate.key).copied().unwrap_or(0);
            let new = rate.planned.0;
            if old.abs_diff(new) > old.max(new) / 100 * TOLD_PERCENT {
                state.told.insert(rate.key, new);
                told.push(Report::Rate {
                    id: held.id.to_string(),
                    owner: held.owner.to_string(),
                    old,
                    new,
                    reason: reason_word(rate.reason),
                });
            }
        }
        let names = Names::new(&self.places, &state.held, &[]);
        let mut misses: Vec<(TransferKey, MissAnswer)> = Vec::new();
        for miss in &rates.misses {
            if let Some(held) = state.held.get(&miss.key) {
                misses.push((miss.key, names.miss(miss, held, state.at)));
            }
        }
        state.add_unseated(&mut misses);
        let missed: Vec<TransferKey> = misses.iter().map(|(key, _)| *key).collect();
        for (key, miss) in misses {
            let old = state.misses.insert(key, miss.clone());
            if old.is_some_and(|old| old.cause == miss.cause) {
                continue;
            }
            self.counts.foretold.fetch_add(1, Ordering::Relaxed);
            told.extend(state.held.get(&key).map(|held| Report::Miss {
                id: held.id.to_string(),
                owner: held.owner.to_string(),
                miss: Some(miss),
            }));
        }
        let over: Vec<TransferKey> = (state.misses.keys().copied())
            .filter(|key| !missed.contains(key))
            .collect();
        for key in over {
            state.misses.remove(&key);
            told.extend(state.held.get(&key).map(|held| Report::Miss {
                id: held.id.to_string(),
                owner: held.owner.to_string(),
                miss: None,
            }));
        }
        told
    }
}

impl BrokerState {
    /// Records the progress of the sessions since the last round.
    fn follow(&mut self, seen: &[SessionProgress<'_>], at: Time, is_measured: bool) {
        let mut moved = 0;
        let mut uses = HashMap::new();
        let shown = self.shown(seen);
        for one in seen {
            // A session that is new to this module may already have moved many bytes. Count only
            // the bytes after `one.moved`.
            let mut used = (self.uses.remove(&one.session)).unwrap_or_else(|| Use {
                last: one.moved,
                ..Use::default()
            });
            moved += used.measure(one, at);
            if let Some(key) = one.own.and_then(|id| self.by_id.get(id)).copied() {
                if let Some(bound) = used.news(at) {
                    used.slow = bound.map(|_| key);
                    self.broker.set_use(key, bound.map(BytesPerSecond));
                    self.is_changed = true;
                }
                self.progress(key, one, at);
            }
            uses.insert(one.session, used);
        }
        // These sessions have ended. An ended session no longer proves that its transfer is slow.
        for left in std::mem::replace(&mut self.uses, uses).into_values() {
            if let Some(key) = left.slow {
                self.broker.set_use(key, None);
                self.is_changed = true;
            }
        }
        self.moved = self.moved.saturating_add(moved);
        if is_measured && let Some(rate) = self.link.measure(at, self.moved, shown) {
            let link = self.broker.capacity(LINK);
            if link.is_none_or(|link| link.present().is_none()) {
                self.asks_from = Some(0);
            }
            let is_news = self.broker.measure(LINK, BytesPerSecond(rate), at);
            self.is_changed |= is_news && !self.held.is_empty();
        }
    }

    /// Records the new rates. Returns true if the plan moves a transfer that did not move before.
    fn plan(&mut self, rates: &Rates) -> bool {
        let mut has_begun = false;
        for rate in &rates.rates {
            if self.held.contains_key(&rate.key) {
                let did_move = self.moves(rate.key);
                self.rates.insert(rate.key, *rate);
                has_begun |= self.moves(rate.key) && !did_move;
            }
        }
        has_begun
    }

    /// Returns the strength of these sessions' evidence for the link's capacity.
    fn shown(&self, seen: &[SessionProgress<'_>]) -> Shown {
        let hungry = || seen.iter().filter(|seen| seen.is_hungry);
        let granted = seen.iter().filter_map(|seen| seen.granted);
        let granted = granted.fold(0u64, u64::saturating_add);
        // If the rate limits of the sessions add up to less than the link's capacity, the limits
        // are the bottleneck: a `rate_max` or a share.
        let is_open = self.link.rate().is_some_and(|rate| granted >= rate);
        if is_open && hungry().any(|seen| seen.granted.is_some()) {
            Shown::Enough
        } else if hungry().next().is_some() {
            Shown::Perhaps
        } else {
            Shown::Nothing
        }
    }

    fn progress(&mut self, key: TransferKey, seen: &SessionProgress<'_>, at: Time) {
        let Some(held) = self.held.get_mut(&key) else {
            return;
        };
        if let Some(listed) = seen.listed
            && held.bytes.is_some_and(|bytes| bytes != listed)
        {
            held.bytes = Some(listed);
            self.is_changed = true;
        }
        if seen.moved > 0 {
            self.is_changed |= held.interruptions.moves(seen.session, at);
        }
        if let Some(bytes) = held.bytes {
            self.broker.progress(key, bytes.saturating_sub(seen.done));
        }
    }
}
