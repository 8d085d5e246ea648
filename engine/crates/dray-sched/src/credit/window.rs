//! The window of one sink target. It limits the number of objects in transit to several times the
//! capacity of the path.
//!
//! Invariant: the window never falls below its initial size.

use dray_core::Time;
use std::time::Duration;

/// Initial window in objects: enough for the target's writers, the streams, and the objects that
/// the source reads ahead.
const WINDOW_FIRST: u32 = 32;

/// A path time is the duration of one round trip and one read. The window is large enough if the
/// arrival of all its objects takes at least this many path times in total. At most a quarter of
/// the window is then in transit, so a pause of one path time at either end costs nothing.
const WAYS: u32 = 4;

/// If on average more than 1 / `LYING_PART` of a window is held at the sink, storage is the slower
/// part. The sink would hold additional objects too, so the window does not grow.
const LYING_PART: u64 = 4;

/// Assumed duration of a read at the source, added to the round trip of the network. The value is
/// estimated, not measured.
const READ_TAKES: Duration = Duration::from_millis(2);

/// Number of rounds ([`Window::on_arrival`]) that show the best throughput of a window.
const TRIAL_ROUNDS: u32 = 4;

/// A window that is doubled on trial stays doubled if the throughput of its best round is at least
/// this many times that of the best round before the trial. If the transfer waited for credit, a
/// doubled window doubles the throughput. On a busy host, single rounds differ by this factor even
/// with equal windows, but the best rounds seldom do. The value is estimated, not measured.
const TRIAL_GAIN: f64 = 1.5;

/// Number of rounds between an unsuccessful trial and the next trial.
const TRIAL_RESTS: u32 = 64;

/// Throughput of the rounds with one size of the window.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    count: u32,
    /// Throughput of the fastest round, in objects per second.
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

/// Maximum credit of one target, in objects. The window grows as long as a large part of it is in
/// transit. It shrinks only after a trial of a larger size that did not increase the rate. It does
/// not shrink when the load falls, because the load may rise again.
#[derive(Debug, Clone)]
pub(super) struct Window {
    objects: u32,
    /// Number of objects that must still arrive before this round ends.
    left: u32,
    /// Start of this round. The first round starts with the first grant.
    began: Option<Time>,
    /// Number of objects that have arrived in this round. The second number adds up, over these
    /// arrivals, how many objects were at the sink when the object arrived.
    seen: (u64, u64),
    /// Path time: the time from the first grant to the first arrival, which is a round trip and a
    /// read.
    way: Option<Duration>,
    /// Rounds with the current size of the window.
    rounds: Rounds,
    /// Rounds with half of the current size, if the current size is on trial.
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

    /// Records a grant of credit, which starts the first round.
    pub(super) fn on_grant(&mut self, now: Time) {
        self.began.get_or_insert(now);
    }

    /// Records the arrival of an object. `out` is the number of credits granted and not returned.
    /// `here` is the number of objects held at the sink, including this one.
    ///
    /// A round ends when all objects that were in transit at its start have arrived. If the window
    /// limits the throughput, a round takes one path time (see [`WAYS`]). If storage, the source or
    /// the network limits the throughput, a round takes longer, and additional objects would only
    /// wait in queues. So the window grows only after a short round. A burst of arrivals can also
    /// make a round short, but then many objects are held at the sink, and the window does not
    /// grow.
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
            // After a burst only a few objects are in transit, and their arrival would say nothing
            // about the window. So let the round end after at least half a window.
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
        // The path time `way` includes the sink's first decisions and the start of the source, so
        // it may be too long. The round trip of the network plus one read (`network`) is more
        // precise. A round of the window (`took`) of at least `WAYS` times `network` usually means
        // that the window is large enough. But if slow reads at the source make the round long, a
        // larger window helps. Only a trial with a larger window shows whether it does.
        let network = round_trip.map_or(way, |there_and_back| there_and_back + READ_TAKES);
        let is_doubtful = took >= network * WAYS;
        if is_doubtful && (self.rests > 0 || self.rounds.count < TRIAL_ROUNDS) {
            return;
        }
        self.trial = is_doubtful.then_some(self.rounds);
        self.become_wide(self.objects.saturating_mul(2));
        // Wait until a whole new window has arrived, which shows whether the new size is enough.
        self.left = self.objects;
    }

    fn become_wide(&mut self, objects: u32) {
        self.objects = objects;
        self.rounds = Rounds::NONE;
    }
}
