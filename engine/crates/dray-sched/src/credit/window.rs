//! The window of one sink target: bounds the objects on the way at several times the capacity of
//! the path.
//!
//! Invariant: the window never falls below its initial size.

use dray_core::Time;
use std::time::Duration;

/// Initial window of a target: enough for its writers, its streams and the objects that the source
/// reads ahead.
const WINDOW_FIRST: u32 = 32;

/// A window that arrives in this many path times is large enough: at most a quarter of it is on the
/// way, and a pause of either end for one path time costs nothing.
const WAYS: u32 = 4;

/// If on average more than one object in this many of a window is held at the sink, storage is the
/// slower part, and additional objects would be held there too.
const LYING_PART: u64 = 4;

/// Duration of a read at the source, in addition to the network's round trip, if nothing else is
/// known (guess, revisit).
const READ_TAKES: Duration = Duration::from_millis(2);

/// Rounds after which the best speed of a window is known.
const TRIAL_ROUNDS: u32 = 4;

/// Gain in speed, against the best earlier round, that makes a tentatively doubled window
/// permanent. A transfer that waits for credit doubles its speed; rounds of a busy host differ by
/// as much, but seldom from their best (guess, revisit).
const TRIAL_GAIN: f64 = 1.5;

/// Rounds until an unsuccessful trial is repeated.
const TRIAL_RESTS: u32 = 64;

/// Throughput of the rounds with one window.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    count: u32,
    /// Objects per second of the fastest round.
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

/// Maximum credit out for one target. It grows as long as a large part of it is on the way, and
/// does not shrink, except after an unsuccessful trial: a load that occurred once may occur again.
#[derive(Debug, Clone)]
pub(super) struct Window {
    objects: u32,
    /// Objects that must still arrive of those on the way at the start of this round.
    left: u32,
    /// Start of this round; the first round starts with the first credit.
    began: Option<Time>,
    /// Arrivals in this round, and the sum of the objects held at the sink at each of them.
    seen: (u64, u64),
    /// Path time: from the first credit to the first object, a round trip with a read.
    way: Option<Duration>,
    /// Rounds with this window.
    rounds: Rounds,
    /// Rounds with half of this window, while it is on trial.
    trial: Option<Rounds>,
    /// Number of rounds until the next trial.
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

    /// Records a grant of credit.
    pub(super) fn on_grant(&mut self, now: Time) {
        self.began.get_or_insert(now);
    }

    /// Records an arrival; `out` objects are out, and `here` of them are held at the sink,
    /// including this one. A round ends when all objects on the way at its start have arrived. If
    /// the window is the limit, a round takes one path time; if storage, the source or the line is
    /// the limit, it takes longer, and additional objects would only queue. Bursts can make a round
    /// short nevertheless; the objects of a burst are then held at the sink.
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
            // After a burst few or no objects are on the way, and few objects give no evidence.
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
        // The first object also waited for the sink's first decisions and for the source to start.
        // The network's own round trip is known more precisely; where it is no reason for a larger
        // window, the source's storage may be, and only a trial tells.
        let network = round_trip.map_or(way, |there_and_back| there_and_back + READ_TAKES);
        let is_doubtful = took >= network * WAYS;
        if is_doubtful && (self.rests > 0 || self.rounds.count < TRIAL_ROUNDS) {
            return;
        }
        self.trial = is_doubtful.then_some(self.rounds);
        self.become_wide(self.objects.saturating_mul(2));
        // Arrivals under the new window show whether it was large enough.
        self.left = self.objects;
    }

    fn become_wide(&mut self, objects: u32) {
        self.objects = objects;
        self.rounds = Rounds::NONE;
    }
}
