//! Finds the number of streams, readers and writers of a transfer, and the size of its objects,
//! while it runs.
//!
//! For each number a `belief` describes how throughput depends on it; every window in which the
//! number changed makes the belief firmer. The next setting is the one with the highest expected
//! throughput, or the one that reveals most. The tuner moves only numbers that affect the stage
//! which bounds the transfer, one number at a time. Increases come in small steps, and the tuner
//! takes them back at the first error: a number that the far side refused is the `ceiling` from
//! then on.
//!
//! [`threads`] applies the tuner to the storage of one end. [`dtl::Dtl`] is the rule of Liu and
//! others, for comparison. [`Remembered`] is the best known setting for a pair of endpoints.
//!
//! Non-goals: opening streams, starting threads, measuring; rates (a transfer with a closed gate is
//! not tuned).
//!
//! Invariants: each setting is within the bounds, and never above a number at which errors came
//! twice; the same samples give the same settings.

mod belief;
mod ceiling;
pub mod dtl;
pub mod memory;
pub mod threads;

use belief::Belief;
use ceiling::Ceiling;
use std::time::Duration;

/// Time over which the throughput of one setting is measured (guess, by the simulator's four
/// paths).
const WINDOW: Duration = Duration::from_millis(750);

/// Time after a change during which throughput still reflects the old setting, or a new stream's
/// slow start (guess, by the same).
const SETTLES: Duration = Duration::from_millis(500);

/// Time after a step back during which errors of the old setting may still arrive.
const LATE_ERRORS: Duration = Duration::from_millis(500);

/// Minimum expected gain of a step up, as a fraction; a smaller gain is noise.
const GAIN_MIN: f64 = 0.01;

/// Minimum number of windows, in a stage that a setting affects, before the found setting counts.
/// With fewer it is a guess, no better than the remembered one. More windows than fit between two
/// reports of the other end on its bottleneck, ten seconds apart (guess, revisit).
const FOUND_WINDOWS: u32 = 14;

/// A number that the tuner can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// Data streams.
    Streams,
    /// Readers per source target.
    Readers,
    /// Writers per sink target.
    Writers,
    /// Bytes of an object, for files that begin.
    ObjectBytes,
}

impl Knob {
    /// All knobs.
    pub const ALL: [Self; 4] = [
        Self::Streams,
        Self::Readers,
        Self::Writers,
        Self::ObjectBytes,
    ];

    const fn place(self) -> usize {
        match self {
            Self::Streams => 0,
            Self::Readers => 1,
            Self::Writers => 2,
            Self::ObjectBytes => 3,
        }
    }
}

/// The numbers a transfer runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Data streams.
    pub streams: u32,
    /// Readers of each source target.
    pub readers: u32,
    /// Writers of each sink target.
    pub writers: u32,
    /// Bytes of an object, for files that begin.
    pub object_bytes: u64,
}

impl Setting {
    /// The maximum value of each number.
    pub const UNBOUNDED: Self = Self {
        streams: u32::MAX,
        readers: u32::MAX,
        writers: u32::MAX,
        object_bytes: u64::MAX,
    };

    /// Returns the value of a knob.
    #[must_use]
    pub const fn at(&self, knob: Knob) -> u64 {
        match knob {
            Knob::Streams => self.streams as u64,
            Knob::Readers => self.readers as u64,
            Knob::Writers => self.writers as u64,
            Knob::ObjectBytes => self.object_bytes,
        }
    }

    /// Returns the setting with one knob changed.
    #[must_use]
    pub fn with(mut self, knob: Knob, value: u64) -> Self {
        let count = u32::try_from(value).unwrap_or(u32::MAX);
        match knob {
            Knob::Streams => self.streams = count,
            Knob::Readers => self.readers = count,
            Knob::Writers => self.writers = count,
            Knob::ObjectBytes => self.object_bytes = value,
        }
        self
    }

    /// Returns the minimum of both settings, knob by knob.
    fn least_of(self, other: &Self) -> Self {
        Knob::ALL.into_iter().fold(self, |setting, knob| {
            setting.with(knob, setting.at(knob).min(other.at(knob)))
        })
    }

    fn within(self, bounds: &Bounds) -> Self {
        Knob::ALL.into_iter().fold(self, |setting, knob| {
            let (least, most) = bounds.of(knob);
            setting.with(knob, setting.at(knob).clamp(least, most))
        })
    }
}

/// Bounds of a setting. A knob whose two bounds are equal is not tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Lower bounds; a 0 counts as 1.
    pub least: Setting,
    /// Upper bounds; a value below `least` counts as `least`.
    pub most: Setting,
}

impl Bounds {
    fn of(&self, knob: Knob) -> (u64, u64) {
        let least = self.least.at(knob).max(1);
        (least, self.most.at(knob).max(least))
    }
}

/// The stage that limits a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The source's storage.
    Read,
    /// The network between both ends.
    Network,
    /// The sink's storage.
    Write,
    /// Not a stage that a setting affects: a listing, a rate limit, the end of the transfer.
    Other,
}

/// Errors by kind of operation. Only errors that indicate overload count: refused, timed out,
/// broken off; not a file that may not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Errors {
    /// Streams that were refused or broke.
    pub streams: u32,
    /// Failed reads.
    pub reads: u32,
    /// Failed writes.
    pub writes: u32,
}

impl Errors {
    const fn of(self, knob: Knob) -> u32 {
        match knob {
            Knob::Streams => self.streams,
            Knob::Readers => self.reads,
            Knob::Writers => self.writes,
            Knob::ObjectBytes => 0,
        }
    }
}

/// Measurements since the last sample; a few samples come each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Bytes that arrived at the sink.
    pub bytes: u64,
    /// Length of the sample.
    pub took: Duration,
    /// Errors during the sample.
    pub errors: Errors,
    /// Bottleneck during most of the sample, if known.
    pub bottleneck: Option<Bottleneck>,
}

/// Findings of a tuner for a pair of endpoints, to be stored by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Best known setting.
    pub setting: Setting,
    /// Highest values that have not failed; [`Setting::UNBOUNDED`] where nothing failed. The
    /// caller's bounds are not remembered, because they can differ next time.
    pub most: Setting,
}

/// Bytes over time, until the window is full.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    bytes: u64,
    took: Duration,
}

impl Window {
    /// Adds a sample. Returns bytes per second once the window is full, and starts a new window.
    fn add(&mut self, sample: &Sample) -> Option<f64> {
        self.bytes = self.bytes.saturating_add(sample.bytes);
        self.took = self.took.saturating_add(sample.took);
        if self.took < WINDOW {
            return None;
        }
        let rate = self.bytes as f64 / self.took.as_secs_f64();
        *self = Self::default();
        Some(rate)
    }
}

/// State of one knob.
#[derive(Debug, Clone)]
struct Known {
    belief: Belief,
    ceiling: Ceiling,
    /// Set once another value was in force: before that, the tuner knows only that this value
    /// works.
    was_moved: bool,
    /// Set when more than one value is allowed.
    can_move: bool,
}

/// The tuner; see the module documentation.
#[derive(Debug, Clone)]
pub struct Tuner {
    known: [Known; 4],
    /// Setting in force.
    now: Setting,
    wanted: Setting,
    /// Knob that was moved last.
    moved: Option<Knob>,
    has_begun: bool,
    settles: Duration,
    late_errors: Duration,
    window: Window,
    /// Windows judged while moving some knob could help; other windows compare nothing.
    windows: u32,
    bottleneck: Option<Bottleneck>,
    /// Upper limits before anything failed in this transfer.
    began: Setting,
    recalled: Option<Remembered>,
}

impl Tuner {
    /// Starts with a setting that is known to be harmless.
    #[must_use]
    pub fn new(bounds: &Bounds, start: Setting) -> Self {
        let start = start.within(bounds);
        let known = |knob| Known {
            belief: Belief::new(bounds.of(knob)),
            ceiling: Ceiling::new(bounds.of(knob), start.at(knob)),
            was_moved: false,
            can_move: bounds.of(knob).0 < bounds.of(knob).1,
        };
        Self {
            known: Knob::ALL.map(known),
            now: start,
            wanted: start,
            moved: None,
            has_begun: false,
            settles: SETTLES,
            late_errors: Duration::ZERO,
            window: Window::default(),
            windows: 0,
            bottleneck: None,
            began: Setting::UNBOUNDED.within(bounds),
            recalled: None,
        }
    }

    /// Starts near the best setting found before, and never above a value that failed.
    #[must_use]
    pub fn recall(bounds: &Bounds, remembered: &Remembered) -> Self {
        let most = Knob::ALL.into_iter().fold(bounds.most, |most, knob| {
            most.with(knob, most.at(knob).min(remembered.most.at(knob)))
        });
        let mut tuner = Self::new(&Bounds { most, ..*bounds }, remembered.setting);
        tuner.recalled = Some(*remembered);
        for knob in Knob::ALL {
            let number = tuner.now.at(knob);
            let known = tuner.known_mut(knob);
            known.belief.expect(number);
            known.was_moved = true;
        }
        tuner
    }

    /// Returns the setting in force.
    #[must_use]
    pub const fn setting(&self) -> Setting {
        self.now
    }

    /// Returns the best known setting and the values that failed; not the setting being tried.
    #[must_use]
    pub fn remembered(&self) -> Remembered {
        let of = |value: &dyn Fn(Knob) -> u64| {
            Knob::ALL
                .into_iter()
                .fold(self.now, |setting, knob| setting.with(knob, value(knob)))
        };
        Remembered {
            setting: of(&|knob| self.best(knob)),
            most: of(&|knob| match self.has_failed(knob) {
                true => self.known(knob).ceiling.most(),
                false => self.recalled().most.at(knob),
            }),
        }
    }

    /// Returns [`Self::remembered`] if it is worth keeping for the next transfer of the pair: the
    /// tuner judged enough windows, or something failed.
    #[must_use]
    pub fn found(&self) -> Option<Remembered> {
        let is_seen = self.windows >= FOUND_WINDOWS;
        let has_failed = Knob::ALL.into_iter().any(|knob| self.has_failed(knob));
        (is_seen || has_failed).then(|| self.remembered())
    }

    fn recalled(&self) -> Remembered {
        self.recalled.unwrap_or(Remembered {
            setting: self.now,
            most: Setting::UNBOUNDED,
        })
    }

    /// Returns true if errors lowered the knob's maximum below the initial one.
    const fn has_failed(&self, knob: Knob) -> bool {
        self.known(knob).ceiling.most() < self.began.at(knob)
    }

    fn best(&self, knob: Knob) -> u64 {
        let (now, known) = (self.now.at(knob), self.known(knob));
        let best = match known.was_moved {
            true => known.belief.best(now, known.ceiling.tried()).number,
            false => now,
        };
        let before = self.recalled().setting.at(knob);
        // This transfer may have a lower bound than an earlier one, which is no evidence against
        // the larger number.
        let is_bounded = best == self.began.at(knob) && before > best;
        match is_bounded && !self.has_failed(knob) {
            true => before.min(self.recalled().most.at(knob)),
            false => best,
        }
    }

    /// Takes a sample and returns the setting to use from now on.
    pub fn told(&mut self, sample: &Sample) -> Setting {
        for known in &mut self.known {
            known.ceiling.elapse(sample.took);
        }
        self.hear_errors(sample);
        self.late_errors = self.late_errors.saturating_sub(sample.took);
        self.has_begun |= sample.bytes > 0;
        if !self.has_begun || sample.took.is_zero() || sample.bottleneck == Some(Bottleneck::Other)
        {
            // The sample says nothing about the setting.
            self.window = Window::default();
            return self.now;
        }
        self.bottleneck = sample.bottleneck;
        if self.walk() {
            return self.now;
        }
        if !self.settles.is_zero() {
            self.settles = self.settles.saturating_sub(sample.took);
            return self.now;
        }
        if let Some(rate) = self.window.add(sample) {
            self.judge(rate);
            self.walk();
        }
        self.now
    }

    const fn known(&self, knob: Knob) -> &Known {
        &self.known[knob.place()]
    }

    const fn known_mut(&mut self, knob: Knob) -> &mut Known {
        &mut self.known[knob.place()]
    }

    /// Moves towards the wanted setting: down immediately, up by a few at a time, so that few
    /// streams meet the first refusal. Returns true if anything changed.
    fn walk(&mut self) -> bool {
        let before = self.now;
        for knob in Knob::ALL {
            let (value, wanted) = (self.now.at(knob), self.wanted.at(knob));
            let next = match knob {
                Knob::ObjectBytes => wanted,
                _ => wanted.min(value + (value / 6).max(2)),
            };
            self.now = self.now.with(knob, next);
        }
        let has_changed = self.now != before;
        if has_changed {
            self.settle();
        }
        has_changed
    }

    fn settle(&mut self) {
        self.settles = SETTLES;
        self.window = Window::default();
    }

    /// Steps back immediately from values at which errors came.
    fn hear_errors(&mut self, sample: &Sample) {
        if !self.late_errors.is_zero() {
            return;
        }
        for knob in Knob::ALL {
            let errors = sample.errors.of(knob);
            let value = self.now.at(knob);
            if errors == 0 || !self.known_mut(knob).ceiling.erred(value, errors) {
                continue;
            }
            let most = self.known(knob).ceiling.now();
            self.now = self.now.with(knob, value.min(most));
            self.wanted = self.wanted.with(knob, self.wanted.at(knob).min(most));
            self.settle();
            self.late_errors = LATE_ERRORS;
        }
    }

    /// Judges a full window of throughput `rate`.
    fn judge(&mut self, rate: f64) {
        let may_help = tried(self.bottleneck)
            .iter()
            .any(|knob| self.known(*knob).can_move);
        self.windows = self.windows.saturating_add(may_help.into());
        for knob in Knob::ALL {
            let value = self.now.at(knob);
            let moved = self.moved;
            let known = self.known_mut(knob);
            known.ceiling.ran_clean(value);
            if moved.is_some_and(|moved| moved != knob) {
                known.belief.lose_level();
            }
            known.belief.learn(value, rate);
        }
        self.moved = None;
        let mut best = (GAIN_MIN, None);
        for knob in tried(self.bottleneck) {
            let (now, known) = (self.now.at(*knob), self.known(*knob));
            let ceiling = known.ceiling.now();
            let most = ceiling.min(now.saturating_mul(2));
            let choice = known.belief.next(now, most, ceiling);
            if choice.gain > best.0 && choice.number != now {
                best = (choice.gain, Some((*knob, choice.number)));
            }
        }
        if let Some((knob, number)) = best.1 {
            self.wanted = self.now.with(knob, number);
            self.moved = Some(knob);
            self.known_mut(knob).was_moved = true;
        }
    }
}

/// Returns the knobs that may help against a bottleneck, in order.
const fn tried(bottleneck: Option<Bottleneck>) -> &'static [Knob] {
    match bottleneck {
        Some(Bottleneck::Network) => &[Knob::Streams],
        Some(Bottleneck::Read) => &[Knob::Readers, Knob::ObjectBytes],
        Some(Bottleneck::Write) => &[Knob::Writers, Knob::ObjectBytes],
        Some(Bottleneck::Other) => &[],
        None => &Knob::ALL,
    }
}

#[cfg(test)]
mod tests;
