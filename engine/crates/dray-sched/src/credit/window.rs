//! How many objects may be on the way to one target: as many as the way holds, several times over.
//!
//! Invariant: it never falls below what it began with.

use dray_core::Time;
use std::time::Duration;

/// Objects a target may have on the way at first: enough for its writers, its streams and what the
/// source reads ahead.
const WINDOW_FIRST: u32 = 32;

/// A window that comes in so many times as long as the way takes is enough: what is on the way is no
/// more than a quarter of it, and a pause of either end as long as the way costs nothing.
const WAYS: u32 = 4;

/// Where more than one in so many objects of a window lie at the sink on average, storage is the slower
/// part: more on the way would lie there too.
const LYING_PART: u64 = 4;

/// What a read takes at the source beside the way, where nothing else is known of it (guess, revisit).
const READ_TAKES: Duration = Duration::from_millis(2);

/// So many rounds with one window tell what it carries at best.
const TRIAL_ROUNDS: u32 = 4;

/// A window that was doubled in doubt stays when a round is so many times as fast as the best of those
/// before. What really waits for credit is twice as fast; rounds of a busy host differ by as much, but
/// seldom from their best (guess, revisit).
const TRIAL_GAIN: f64 = 1.5;

/// Rounds until a trial is made again that has brought nothing.
const TRIAL_RESTS: u32 = 64;

/// What rounds with one window have carried.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    count: u32,
    /// Objects a second, of the fastest.
    best: f64,
}

impl Rounds {
    const NONE: Self = Self {
        count: 0,
        best: 0.0,
    };

    fn add(&mut self, rate: f64) {
        self.count += 1;
        self.best = self.best.max(rate);
    }
}

/// What may be out of one target at the most. It grows as long as the way holds a large part of it, and
/// does not shrink, but for a trial that brought nothing: what was on the way once may be so again.
#[derive(Debug, Clone)]
pub(super) struct Window {
    objects: u32,
    /// What is left of what was out, and had not arrived, when this round began.
    left: u32,
    /// When this round began: the first one with the first credit.
    began: Option<Time>,
    /// Arrivals of this round, and the sum of what lay here at each of them.
    seen: (u64, u64),
    /// From the first credit to the first object: there and back, with a read.
    way: Option<Duration>,
    /// Rounds with this window.
    rounds: Rounds,
    /// Those with half of it, while it is on trial.
    trial: Option<Rounds>,
    /// No trial for so many rounds.
    rests: u32,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self {
            objects: WINDOW_FIRST,
            left: WINDOW_FIRST,
            began: None,
            seen: (0, 0),
            way: None,
            rounds: Rounds::NONE,
            trial: None,
            rests: 0,
        }
    }

    pub(super) const fn objects(&self) -> u32 {
        self.objects
    }

    /// Credit goes out.
    pub(super) fn on_grant(&mut self, now: Time) {
        self.began.get_or_insert(now);
    }

    /// Something has arrived; so many are out, and so many of them lie here, with this one. A round ends
    /// when all that was on the way at its begin is here. Where the window bounds, that takes as long as
    /// the way; where storage, the source or the line does, longer, and more on the way would only lie
    /// somewhere. Bursts may make a round short for all that: then what came in them lies here.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        (out, here): (u32, u32),
        round_trip: Option<Duration>,
    ) {
        let (arrivals, lay) = &mut self.seen;
        *arrivals += 1;
        *lay += u64::from(here);
        let began = *self.began.get_or_insert(now);
        self.way.get_or_insert_with(|| now.since(began));
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            // Of what came in a burst nothing is on the way: a few say nothing.
            self.left = out.saturating_sub(here).max(self.objects / 2);
            self.on_round(now.since(began), round_trip);
            self.seen = (0, 0);
            self.began = Some(now);
        }
    }

    fn on_round(&mut self, took: Duration, round_trip: Option<Duration>) {
        let (arrivals, lay) = self.seen;
        let rate = arrivals as f64 / took.as_secs_f64().max(1e-9);
        self.rounds.add(rate);
        self.rests = self.rests.saturating_sub(1);
        if let Some(before) = self.trial {
            if self.rounds.best >= before.best * TRIAL_GAIN {
                self.trial = None;
            } else if self.rounds.count >= TRIAL_ROUNDS {
                self.become_wide(self.objects / 2);
                self.trial = None;
                self.rests = TRIAL_RESTS;
            }
            return;
        }
        let is_idle = lay * LYING_PART <= u64::from(self.objects) * arrivals;
        let way = self.way.unwrap_or_default();
        if !is_idle || took >= way * WAYS {
            return;
        }
        // The first object has waited for the sink's first decisions too, and for a source that had only
        // just begun. What the network alone takes is known better; where that is no reason for more,
        // the source's storage may be, and only trying tells.
        let network = round_trip.map_or(way, |there_and_back| there_and_back + READ_TAKES);
        let is_doubtful = took >= network * WAYS;
        if is_doubtful && (self.rests > 0 || self.rounds.count < TRIAL_ROUNDS) {
            return;
        }
        self.trial = is_doubtful.then_some(self.rounds);
        self.become_wide(self.objects.saturating_mul(2));
        // What comes by the new one tells whether that was enough.
        self.left = self.objects;
    }

    fn become_wide(&mut self, objects: u32) {
        self.objects = objects;
        self.rounds = Rounds::NONE;
    }
}
