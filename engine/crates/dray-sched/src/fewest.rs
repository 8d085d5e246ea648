//! The fewest reads of a storage target that carry what more of them would.
//!
//! Over a long way each read takes the time there and back, so many under way carry more. Over a short one
//! two keep it busy; what is read beside them waits for nothing but a processor, and leaves its cache before
//! it is written. How long the way is shows in the first read: where that takes long, as many go at once as
//! may be, since too few would cost a far source most. Then the number is halved as long as as much comes,
//! or doubled as long as much more does.
//!
//! [`crate::tuner::threads`] looks for the number in windows of 750 ms, among storage that refuses and
//! neighbours that come and go. This one is done after a hundred reads, which over a short way is a tenth of
//! a second, and knows nothing but halves and doubles.
//!
//! Non-goals: starting threads; which target is slow ([`crate::congestion`]); storage that makes nobody
//! wait ([`crate::waits`]).
//!
//! Invariants: never more than may be, never fewer than two (one, where no more may be).

use dray_core::Time;
use std::time::Duration;

/// One that is read while another is handed on.
const LEAST: u32 = 2;

/// A way over which the first read takes longer is no short one. It opens the file, and so goes there and
/// back several times; within a host that takes 2 to 15 ms.
const SHORT: Duration = Duration::from_millis(30);

/// Reads that tell what a number carries, and of a larger number two each (guess, revisit).
const SPAN_READS: u32 = 16;

/// Of fewer, half a span is enough that carries so much less.
const FEWER_FAIL: f64 = 0.75;

/// Fewer stay while they carry so much of the best that was seen since it began to look. Spans of one number
/// differ by a tenth on a busy host; half of what a way holds carries half.
const FEWER_KEEP: f64 = 0.9;

/// More stay where they carry so many times as much.
const MORE_KEEP: f64 = 1.2;

/// Fewer than so much of what a long way holds are not tried.
const HELD_PART: f64 = 0.75;

/// Spans until it looks anew, after a look that changed something; twice as many after each that did not,
/// up to the second number. A look in vain costs half a span with half of what it carries.
const RESTS_MIN: u32 = 8;
const RESTS_MAX: u32 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Fewer,
    More,
}

impl Look {
    const fn other(self) -> Self {
        match self {
            Self::Fewer => Self::More,
            Self::More => Self::Fewer,
        }
    }
}

/// One number after the other is tried, in one direction.
#[derive(Debug, Clone, Copy)]
struct Trial {
    look: Look,
    /// The number that is in force if this one brings nothing.
    before: u32,
    /// Whether the other direction was looked at just now.
    is_second: bool,
}

/// How many reads one target has under way. See the module's head.
#[derive(Debug, Clone)]
pub struct Fewest {
    count: u32,
    most: u32,
    /// When the first read began, and how long it took.
    start: Time,
    way: Option<Duration>,
    /// Reads that began under another number, or with the first of all: they say nothing of this one.
    passed_over: u32,
    /// Since when this span counts, and what came in it.
    began: Option<Time>,
    reads: u32,
    bytes: u64,
    trial: Option<Trial>,
    /// Where it looks first, the next time.
    next: Look,
    /// Bytes a second, the best since it began to look.
    best: f64,
    /// Reads that the way holds, as of the last span.
    held: f64,
    rests: u32,
    patience: u32,
}

impl Fewest {
    /// `first` at first, no more than `most`, one at the least; the first of them is under way from now on.
    #[must_use]
    pub fn new(first: u32, most: u32, now: Time) -> Self {
        let most = most.max(1);
        let count = first.clamp(1, most);
        Self {
            count,
            most,
            start: now,
            way: None,
            // The connections begin to carry with these.
            passed_over: count,
            began: None,
            reads: 0,
            bytes: 0,
            trial: None,
            next: Look::Fewer,
            best: 0.0,
            held: 0.0,
            rests: 0,
            patience: RESTS_MIN,
        }
    }

    /// So many reads may be under way.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// A read has ended with so many bytes; `others` are under way.
    pub fn ended(&mut self, bytes: u64, others: u32, now: Time) {
        if self.passed_over > 0 {
            self.passed_over -= 1;
            if self.way.is_none() {
                self.on_first(now.since(self.start));
            }
            return;
        }
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        self.reads += 1;
        self.bytes += bytes;
        let took = now.since(began);
        let span = SPAN_READS.max(2 * self.count);
        if self.reads < span / 2 || took == Duration::ZERO {
            return;
        }
        let rate = self.bytes as f64 / took.as_secs_f64();
        let is_fewer = self.trial.is_some_and(|trial| trial.look == Look::Fewer);
        let has_failed = is_fewer && rate < self.best * FEWER_FAIL;
        if self.reads < span && !has_failed {
            return;
        }
        self.held = self.held_by_way(self.reads, took);
        (self.began, self.reads, self.bytes) = (Some(now), 0, 0);
        let before = self.count;
        self.on_span(rate);
        if self.count != before {
            self.passed_over = others;
            self.began = None;
        }
    }

    /// The first read of all has come: it tells whether the way is long.
    const fn on_first(&mut self, took: Duration) {
        self.way = Some(took);
        if took.as_nanos() > SHORT.as_nanos() && self.count < self.most {
            self.count = self.most;
            self.passed_over = self.most;
        }
    }

    /// Reads that a long way holds at the pace of so many in a time (Little's law). Of a short one nothing
    /// is known: what opening the file takes is in its first read.
    fn held_by_way(&self, reads: u32, took: Duration) -> f64 {
        let way = self.way.filter(|way| *way > SHORT).unwrap_or_default();
        f64::from(reads) * way.as_secs_f64() / took.as_secs_f64()
    }

    fn on_span(&mut self, rate: f64) {
        let Some(trial) = self.trial else {
            match self.rests {
                0 => {
                    self.best = rate;
                    self.try_next(self.next, false);
                }
                _ => self.rests -= 1,
            }
            return;
        };
        let is_kept = match trial.look {
            Look::Fewer => rate >= self.best * FEWER_KEEP,
            Look::More => rate >= self.best * MORE_KEEP,
        };
        if is_kept {
            self.best = self.best.max(rate);
            self.patience = RESTS_MIN;
            // What lies behind was in force a moment ago.
            self.try_next(trial.look, true);
        } else {
            self.count = trial.before;
            self.turn(trial.look, trial.is_second);
        }
    }

    /// Tries the next number that way, if there is one.
    fn try_next(&mut self, look: Look, is_second: bool) {
        let count = match look {
            Look::Fewer => (self.count / 2).max(LEAST.min(self.most)),
            Look::More => self.count.saturating_mul(2).min(self.most),
        };
        // With fewer the way would not be full.
        let is_too_few = look == Look::Fewer && f64::from(count) < self.held * HELD_PART;
        if count == self.count || is_too_few {
            self.turn(look, is_second);
        } else {
            let before = self.count;
            self.trial = Some(Trial {
                look,
                before,
                is_second,
            });
            self.count = count;
        }
    }

    /// That way there is no more to be had: it looks the other way, if it has not, or rests.
    fn turn(&mut self, looked: Look, is_second: bool) {
        self.trial = None;
        self.next = looked.other();
        if is_second {
            self.rests = self.patience;
            self.patience = RESTS_MAX.min(self.patience * 2);
        } else {
            self.try_next(self.next, true);
        }
    }
}

#[cfg(test)]
#[path = "fewest_tests.rs"]
mod tests;
