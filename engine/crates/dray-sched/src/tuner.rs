//! Finds, while a transfer runs, the best number of streams, readers and writers, and the best
//! object size.
//!
//! For each of these numbers, a `belief` describes how the throughput depends on the number. The
//! tuner measures throughput in windows of fixed length. Every window in which the number has
//! changed makes the belief more certain. The tuner then chooses the value with the highest
//! expected throughput, or a value whose measurement makes the belief most certain. The tuner
//! changes one number at a time, and only numbers that affect the stage which limits the transfer.
//! Increases come in small steps, and the tuner reverts them at the first error. A number that the
//! other end has refused becomes the `ceiling`.
//!
//! [`threads`] applies the tuner to the storage of one end. [`dtl::Dtl`] is the rule of Liu and
//! others, for comparison. [`Remembered`] is the best known setting for a pair of endpoints.
//!
//! Non-goals: opening streams, starting threads, measuring, and choosing rates. A transfer that a
//! rate limit holds back is not tuned.
//!
//! Invariants: each setting is within the bounds, and never above a number at which errors occurred
//! twice; the same samples give the same settings.

mod belief;
mod ceiling;
pub mod dtl;
pub mod memory;
pub mod threads;

use belief::Belief;
use ceiling::Ceiling;
use std::time::Duration;

/// Time over which the throughput of one setting is measured. The value is an estimate that fits
/// the four network paths of the simulator.
const WINDOW: Duration = Duration::from_millis(750);

/// Time for which the old setting, or the slow start of a new stream, still affects throughput
/// after a change. The value is an estimate that fits the four network paths of the simulator.
const SETTLES: Duration = Duration::from_millis(500);

/// Time after a decrease in which errors of the old setting may still arrive.
const LATE_ERRORS: Duration = Duration::from_millis(500);

/// Minimum expected gain of an increase, as a fraction. A smaller gain cannot be distinguished from
/// noise.
const GAIN_MIN: f64 = 0.01;

/// Minimum number of windows before the tuner reports the setting as found. Only windows in which
/// some knob could have affected the bottleneck count. After fewer windows the setting is a guess,
/// and no better than the remembered setting. This number of windows takes longer than the ten
/// seconds between two reports of the other end. So at least one report about the other end's
/// bottleneck has arrived by then. The value is estimated, not measured.
const FOUND_WINDOWS: u32 = 14;

/// A parameter of the transfer that the tuner can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// Number of data streams.
    Streams,
    /// Number of readers per source target.
    Readers,
    /// Number of writers per sink target.
    Writers,
    /// Object size in bytes, for files that begin later.
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

/// Values of all knobs of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Number of data streams.
    pub streams: u32,
    /// Number of readers per source target.
    pub readers: u32,
    /// Number of writers per sink target.
    pub writers: u32,
    /// Object size in bytes, for files that begin later.
    pub object_bytes: u64,
}

impl Setting {
    /// A setting with the maximum value of each knob.
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

    /// Returns a setting with the smaller value of each knob.
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

/// Bounds of a setting. A knob is not tuned if its two bounds are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Lower bounds. A value of 0 counts as 1.
    pub least: Setting,
    /// Upper bounds. A value below `least` counts as `least`.
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
    /// Storage of the source.
    Read,
    /// Network between the two ends.
    Network,
    /// Storage of the sink.
    Write,
    /// A stage that no knob affects: listing, a rate limit, or the end of the transfer.
    Other,
}

/// Number of errors by kind of operation. An error is counted if overload can be its cause: the
/// operation was refused, timed out or was broken off. Other errors, such as a missing permission,
/// are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Errors {
    /// Number of streams that were refused or broke.
    pub streams: u32,
    /// Number of reads that failed.
    pub reads: u32,
    /// Number of writes that failed.
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

/// Measurements since the previous sample. The tuner gets a few samples per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Number of bytes that arrived at the sink.
    pub bytes: u64,
    /// Length of the sample.
    pub took: Duration,
    /// Errors during the sample.
    pub errors: Errors,
    /// Bottleneck during most of the sample. `None` if it is unknown.
    pub bottleneck: Option<Bottleneck>,
}

/// Results of the tuner for a pair of endpoints. The caller stores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Best known setting.
    pub setting: Setting,
    /// Highest values that did not fail, or [`Setting::UNBOUNDED`] for a knob that never failed.
    /// The caller's bounds are not included, because they may be different next time.
    pub most: Setting,
}

/// Number of bytes and length of the current window.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    bytes: u64,
    took: Duration,
}

impl Window {
    /// Adds a sample. If the window is full, returns its throughput in bytes per second and starts
    /// a new window.
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
    /// True if another value was in force before. If false, the tuner only knows that the current
    /// value works.
    was_moved: bool,
    /// True if the bounds allow more than one value.
    can_move: bool,
}

/// The tuner. The module documentation describes it.
#[derive(Debug, Clone)]
pub struct Tuner {
    known: [Known; 4],
    /// Setting in force.
    now: Setting,
    wanted: Setting,
    /// Knob that was changed last.
    moved: Option<Knob>,
    has_begun: bool,
    settles: Duration,
    late_errors: Duration,
    window: Window,
    /// Number of windows in which some knob could have affected the bottleneck. Other windows
    /// contain no information about the setting.
    windows: u32,
    bottleneck: Option<Bottleneck>,
    /// Upper limits at the start, before any error in this transfer.
    began: Setting,
    recalled: Option<Remembered>,
}

impl Tuner {
    /// Creates a tuner that starts with `start`. This setting must be known to cause no errors.
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

    /// Creates a tuner that starts near the remembered setting, and never exceeds a value that
    /// failed.
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

    /// Returns the best known setting, which may differ from the setting in force, and the highest
    /// values that did not fail.
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

    /// Returns [`Self::remembered`] if it is worth storing for the next transfer of the pair: the
    /// tuner has judged enough windows, or a value failed.
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

    /// Returns true if errors have reduced the maximum of the knob below its initial value.
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
        // An earlier transfer may have had a larger maximum, and a larger best value. If the best
        // value of this transfer equals its maximum, this transfer did not test the larger value.
        // So remember the larger value.
        let is_bounded = best == self.began.at(knob) && before > best;
        match is_bounded && !self.has_failed(knob) {
            true => before.min(self.recalled().most.at(knob)),
            false => best,
        }
    }

    /// Handles a sample. Returns the setting to use from now on.
    pub fn told(&mut self, sample: &Sample) -> Setting {
        for known in &mut self.known {
            known.ceiling.elapse(sample.took);
        }
        self.hear_errors(sample);
        self.late_errors = self.late_errors.saturating_sub(sample.took);
        self.has_begun |= sample.bytes > 0;
        if !self.has_begun || sample.took.is_zero() || sample.bottleneck == Some(Bottleneck::Other)
        {
            // The sample contains no information about the setting.
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

    /// Changes the setting in force step by step to the wanted setting. Decreases are immediate.
    /// Increases are small, because the other end may refuse additional streams. Returns true if
    /// the setting has changed.
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

    /// Decreases a knob immediately if errors occurred at its current value.
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

    /// Evaluates a full window with the throughput `rate` in bytes per second.
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

/// Returns the knobs that can affect a bottleneck, in the order in which they are tried.
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
