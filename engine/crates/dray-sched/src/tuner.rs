//! How many streams, readers and writers a transfer runs with, and how large its objects are, found
//! while it runs.
//!
//! For each number there is a [`belief`] of how throughput depends on it, which every window in which the
//! number changed makes firmer. What is said next is what is expected to carry most, or what would tell
//! most; only what the stage that bounds the transfer can use is moved, one number at a time. More of
//! anything comes a few at a time, and goes back at the first error: what the far side refused is the
//! [`ceiling`] from then on.
//!
//! [`threads`] has what an end does with one for its own storage. [`dtl::Dtl`] is the rule of Liu and
//! others, to compare with. What was best for a pair of endpoints is [`Remembered`].
//!
//! Non-goals: opening streams, starting threads, measuring; rates (whose gate is shut is not tuned).
//!
//! Invariants: what is said lies within the bounds, and never above a number at which errors came
//! twice; the same samples give the same settings.

mod belief;
mod ceiling;
pub mod dtl;
pub mod memory;
pub mod threads;

use belief::Belief;
use ceiling::Ceiling;
use std::time::Duration;

/// How much of a trial is one side's turn (guess, by the simulator's four paths).
const WINDOW: Duration = Duration::from_millis(750);

/// What comes in the first moments after a change is the old setting's, or a new stream's slow start
/// (guess, by the same).
const SETTLES: Duration = Duration::from_millis(500);

/// So long after a step back errors of before it may still come in.
const LATE_ERRORS: Duration = Duration::from_millis(500);

/// What a step up must promise, as a part; a step that promises less is noise.
const GAIN_MIN: f64 = 0.01;

/// With fewer windows of a stage that a setting changes what was found is a guess: what was known before
/// is as good. More than fit between two words of the other end on what bounds it, ten seconds (guess,
/// revisit).
const FOUND_WINDOWS: u32 = 14;

/// One thing that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// Data streams.
    Streams,
    /// Readers of a source target.
    Readers,
    /// Writers of a sink target.
    Writers,
    /// Bytes of an object of files that begin.
    ObjectBytes,
}

impl Knob {
    /// All of them.
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

/// What a transfer runs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Data streams.
    pub streams: u32,
    /// Readers of each source target.
    pub readers: u32,
    /// Writers of each sink target.
    pub writers: u32,
    /// Bytes of an object, of files that begin.
    pub object_bytes: u64,
}

impl Setting {
    /// As much of each as can be said.
    pub const UNBOUNDED: Self = Self {
        streams: u32::MAX,
        readers: u32::MAX,
        writers: u32::MAX,
        object_bytes: u64::MAX,
    };

    /// What a knob stands at.
    #[must_use]
    pub const fn at(&self, knob: Knob) -> u64 {
        match knob {
            Knob::Streams => self.streams as u64,
            Knob::Readers => self.readers as u64,
            Knob::Writers => self.writers as u64,
            Knob::ObjectBytes => self.object_bytes,
        }
    }

    /// The same with one knob elsewhere.
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

    /// The smaller of each.
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

/// What may be said at the least and at the most. A knob whose two are the same is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At the least; a 0 counts as 1.
    pub least: Setting,
    /// At the most; less than the least counts as the least.
    pub most: Setting,
}

impl Bounds {
    fn of(&self, knob: Knob) -> (u64, u64) {
        let least = self.least.at(knob).max(1);
        (least, self.most.at(knob).max(least))
    }
}

/// What holds a transfer up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The source's storage.
    Read,
    /// The way between both.
    Network,
    /// The sink's storage.
    Write,
    /// Nothing that a setting changes: a listing, a rate, the end.
    Other,
}

/// Errors by what they are errors of. Such as say "too many" count: refused, timed out, broken off; not
/// a file that may not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Errors {
    /// Streams that were refused or broke.
    pub streams: u32,
    /// Reads.
    pub reads: u32,
    /// Writes.
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

/// What happened since the last one; a few each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Bytes that came through: the sink has them.
    pub bytes: u64,
    /// In so much time.
    pub took: Duration,
    /// Errors in it.
    pub errors: Errors,
    /// What held the transfer up most of that time, when that is known.
    pub bottleneck: Option<Bottleneck>,
}

/// What a tuner has found for a pair of endpoints, for whoever keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// The best it knows.
    pub setting: Setting,
    /// Above lies what has failed; [`Setting::UNBOUNDED`] where nothing did. Bounds are the caller's, and
    /// another time they are others: they are not remembered.
    pub most: Setting,
}

/// Bytes over time, until there is enough.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    bytes: u64,
    took: Duration,
}

impl Window {
    /// Bytes per second once it is full; then it begins anew.
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

/// What is known of one number.
#[derive(Debug, Clone)]
struct Known {
    belief: Belief,
    ceiling: Ceiling,
    /// Whether another number was ever in force: without, nothing is known but that this one works.
    was_moved: bool,
    /// Whether there is another number that may be said.
    can_move: bool,
}

/// See the module's head.
#[derive(Debug, Clone)]
pub struct Tuner {
    known: [Known; 4],
    /// In force.
    now: Setting,
    wanted: Setting,
    /// The number that was moved last.
    moved: Option<Knob>,
    has_begun: bool,
    settles: Duration,
    late_errors: Duration,
    window: Window,
    /// Windows that were judged while a number that may move could help: others compare nothing.
    windows: u32,
    bottleneck: Option<Bottleneck>,
    /// At the most, before anything failed here.
    began: Setting,
    recalled: Option<Remembered>,
}

impl Tuner {
    /// Begins with a setting that is known to do no harm.
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

    /// Begins with what was found before: near the best, and never above what failed.
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

    /// In force now.
    #[must_use]
    pub const fn setting(&self) -> Setting {
        self.now
    }

    /// The best that it knows, and what failed; not what is just being tried.
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

    /// The same, if it is worth keeping for the next transfer of the pair: when enough was seen of the path,
    /// or something failed.
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

    /// Whether less may be said than at the beginning.
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
        // This transfer may have less than an earlier one: that tells nothing against the larger number.
        let is_bounded = best == self.began.at(knob) && before > best;
        match is_bounded && !self.has_failed(knob) {
            true => before.min(self.recalled().most.at(knob)),
            false => best,
        }
    }

    /// Takes what happened and says what to run with from now on.
    pub fn told(&mut self, sample: &Sample) -> Setting {
        for known in &mut self.known {
            known.ceiling.elapse(sample.took);
        }
        self.hear_errors(sample);
        self.late_errors = self.late_errors.saturating_sub(sample.took);
        self.has_begun |= sample.bytes > 0;
        if !self.has_begun || sample.took.is_zero() || sample.bottleneck == Some(Bottleneck::Other)
        {
            // It says nothing about the setting.
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

    /// Goes towards what is wanted: down at once, up by a few at a time, so that the first refusal is
    /// met by a few streams. Whether anything changed.
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

    /// Goes back at once from where errors come.
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

    /// A window is full.
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

/// What may help against a bottleneck, in turn.
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
#[path = "tuner_tests.rs"]
mod tests;
