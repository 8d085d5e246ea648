//! The choice between settings, for calls of one kind: first by rule, then by what they carry.
//!
//! Settings stand in a row: thread to single, thread to multiple, the same with calls cut into 2, 4, ...
//! pieces, at most as many as connections. What is in force is compared with another now and then: with a
//! neighbour, or with whole calls. A window goes by as before, one with the other, one as before again. What
//! carried clearly more than both, twice in a row, comes into force. How often is looked depends on what
//! looking costs: a hundredth of what is carried, and less the longer nothing comes of it.

use super::{Direction, Flow, Mapping};
use crate::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// A window is this long at least, and has so many calls of each thread, or of each connection where
/// threads have several open: chance is below the margin then.
const WINDOW_MIN: Duration = Duration::from_millis(100);
const WINDOW_CALLS_MIN: u64 = 8;
const WINDOW_CALLS_EACH: u64 = 4;

/// A window that lasts longer says nothing: there is too little to do.
const WINDOW_MAX: Duration = Duration::from_secs(10);

/// A look is over after so many times what the window before it took; and after half of that window if it
/// carries less than half.
const LOOK_TIMES: f64 = 2.0;
const HALF: f64 = 0.5;

/// More than this carries clearly more (guess, revisit).
const MARGIN: f64 = 1.04;

/// Times that another has to carry clearly more.
const WINS: u32 = 2;

/// What looking around may cost of what is carried.
const COST_MAX: f64 = 0.01;

/// Windows until another setting is looked at: where the rule has nothing to go by, which is into how many
/// pieces a write is best cut that has to be durable; where it is Mulconn's; and at most, so that what
/// changed is found.
const PATIENCE_GUESSED: f64 = 2.0;
const PATIENCE_RULED: f64 = 32.0;
const PATIENCE_MAX: f64 = 1000.0;

/// Threads have to be in calls for this share of the time: else connections are not what bounds, and
/// what comes through says nothing of them.
const BUSY_MIN: f64 = 0.5;

/// How calls of a kind go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// To which connection.
    pub mapping: Mapping,
    /// Into how many pieces a call is cut, that go at once; 1 leaves it whole.
    pub pieces: usize,
}

/// What came through in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    /// Bytes per second.
    rate: f64,
    seconds: f64,
}

/// Another setting that is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    rung: usize,
    /// With what is in force, just before.
    before: Seen,
    /// How often in a row it has carried clearly more.
    wins: u32,
}

/// What happens while windows pass.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The setting is in force, and nothing else is tried.
    Holds,
    /// Another is in its place for a window.
    Tries(Look),
    /// The setting is back, for comparison with what the other carried.
    Checks(Look, Seen),
}

/// The choice for calls of one kind.
#[derive(Debug)]
pub struct Choice {
    flow: Flow,
    connections: usize,
    rungs: Vec<Setting>,
    /// What is in force.
    at: usize,
    phase: Phase,
    /// Windows since each rung was tried, and until it is.
    waited: Vec<f64>,
    patience: Vec<f64>,
    /// Threads, as the rule has been told.
    threads: usize,
    window: Window,
}

#[derive(Debug, Default)]
struct Window {
    began: Option<Time>,
    bytes: u64,
    calls: u64,
    callers: BTreeSet<u64>,
    /// Threads that are in calls, since when it was added up, and seconds of all of them together.
    inside: Vec<u64>,
    since: Time,
    busy: f64,
    /// Calls that are open.
    open: u64,
    /// Calls of the setting before that have to end before the window begins.
    to_settle: u64,
}

impl Window {
    fn tick(&mut self, now: Time) {
        let passed = now.since(self.since.max(self.began.unwrap_or(now)));
        self.busy += passed.as_secs_f64() * as_f64(self.inside.len() as u64);
        self.since = now;
    }

    fn begin(&mut self, is_changed: bool) {
        self.began = None;
        self.bytes = 0;
        self.calls = 0;
        self.busy = 0.0;
        self.callers = self.inside.iter().copied().collect();
        self.to_settle = if is_changed { self.open } else { 0 };
    }
}

impl Choice {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(flow: Flow, connections: usize) -> Self {
        let multiple = |pieces| Setting {
            mapping: Mapping::ThreadToMultiple,
            pieces,
        };
        let mut rungs = vec![
            Setting {
                mapping: Mapping::ThreadToSingle,
                pieces: 1,
            },
            multiple(1),
        ];
        if flow.waits {
            let powers = (1..).map(|power| 1_usize << power);
            let less = powers.take_while(|pieces| *pieces < connections);
            let all = Some(connections).filter(|pieces| *pieces > 1);
            rungs.extend(less.chain(all).map(multiple));
        }
        let mut choice = Self {
            flow,
            connections,
            at: 0,
            phase: Phase::Holds,
            waited: vec![0.0; rungs.len()],
            patience: vec![0.0; rungs.len()],
            rungs,
            threads: 0,
            window: Window::default(),
        };
        choice.follow_rule(1);
        choice
    }

    /// What is in force, or tried.
    #[must_use]
    pub fn setting(&self) -> Setting {
        match self.phase {
            Phase::Tries(look) => self.rungs[look.rung],
            Phase::Holds | Phase::Checks(..) => self.rungs[self.at],
        }
    }

    /// The rule: what carries most where nothing but the connections bounds.
    fn ruled(&self, threads: usize) -> usize {
        let is_enough = threads >= self.connections;
        match (self.flow.direction, self.flow.waits) {
            (Direction::Write, _) if is_enough => 0,
            (Direction::Read, _) if is_enough => 1,
            (_, false) => 1,
            (_, true) => {
                let pieces = self
                    .connections
                    .div_ceil(threads.max(1))
                    .next_power_of_two();
                let fits = |rung: &Setting| rung.pieces <= pieces;
                self.rungs.iter().rposition(fits).unwrap_or(1)
            }
        }
    }

    /// Connections that a rung keeps at work, where nothing else bounds.
    fn at_work(&self, rung: usize) -> usize {
        let setting = self.rungs[rung];
        match (setting.mapping, self.flow.waits) {
            (Mapping::ThreadToMultiple, false) => self.connections,
            _ => (self.threads * setting.pieces).min(self.connections),
        }
    }

    fn follow_rule(&mut self, threads: usize) {
        if threads == self.threads {
            return;
        }
        let was = (self.threads > 0).then(|| self.ruled(self.threads));
        self.threads = threads;
        let rung = self.ruled(threads);
        if was != Some(rung) {
            self.at = rung;
            self.expect();
        }
    }

    /// What is to be expected of the rungs beside the one in force, before any of them was tried.
    fn expect(&mut self) {
        let own = as_f64(self.at_work(self.at).max(1) as u64);
        let is_guess = self.flow
            == (Flow {
                direction: Direction::Write,
                waits: true,
            });
        for rung in 0..self.rungs.len() {
            let share = as_f64(self.at_work(rung) as u64) / own;
            self.patience[rung] = if is_guess && rung > 0 {
                PATIENCE_GUESSED
            } else {
                patience(share, 1.0).max(PATIENCE_RULED)
            };
            self.waited[rung] = 0.0;
        }
        self.phase = Phase::Holds;
    }

    pub(super) fn enter(&mut self, caller: u64, now: Time) {
        self.window.tick(now);
        self.window.inside.push(caller);
        self.window.callers.insert(caller);
        // A thread more is seen at once; that there are fewer, at the end of a window.
        let seen = self.window.callers.len();
        if seen > self.threads {
            self.follow_rule(seen);
        }
    }

    pub(super) fn leave(&mut self, caller: u64, now: Time) {
        self.window.tick(now);
        let at = self
            .window
            .inside
            .iter()
            .position(|inside| *inside == caller);
        if let Some(at) = at {
            self.window.inside.swap_remove(at);
        }
    }

    pub(super) fn took(&mut self) {
        self.window.open += 1;
    }

    pub(super) fn ended(&mut self, moved: Option<u64>, now: Time) {
        self.window.open = self.window.open.saturating_sub(1);
        if self.window.to_settle > 0 {
            self.window.to_settle -= 1;
            return;
        }
        self.window.tick(now);
        let Some(began) = self.window.began else {
            self.window.began = Some(now);
            return;
        };
        self.window.bytes += moved.unwrap_or(0);
        self.window.calls += 1;
        let length = now.since(began);
        if length > WINDOW_MAX {
            self.void();
        } else if length >= WINDOW_MIN && self.is_enough(length.as_secs_f64()) {
            self.judge(length.as_secs_f64());
        }
    }

    fn is_enough(&self, seconds: f64) -> bool {
        let each = if self.flow.waits {
            self.threads
        } else {
            self.threads.max(self.connections)
        };
        let calls = WINDOW_CALLS_MIN.max(each as u64 * WINDOW_CALLS_EACH);
        let is_over = match self.phase {
            Phase::Tries(look) => {
                let before = look.before;
                let is_poor = as_f64(self.window.bytes) < before.rate * seconds * HALF;
                seconds >= before.seconds * if is_poor { HALF } else { LOOK_TIMES }
            }
            _ => false,
        };
        is_over || self.window.calls >= calls * self.setting().pieces as u64
    }

    fn void(&mut self) {
        let was = self.setting();
        self.phase = Phase::Holds;
        self.window.begin(was != self.setting());
    }

    fn judge(&mut self, seconds: f64) {
        let threads = self.window.callers.len();
        let is_busy = self.window.busy >= BUSY_MIN * seconds * as_f64(threads as u64);
        if !is_busy || self.connections < 2 {
            return self.void();
        }
        let rate = as_f64(self.window.bytes) / seconds;
        let was = self.setting();
        self.step(Seen { rate, seconds });
        self.follow_rule(threads);
        self.window.begin(was != self.setting());
    }

    fn step(&mut self, seen: Seen) {
        self.phase = match self.phase {
            Phase::Holds => {
                for waited in &mut self.waited {
                    *waited += 1.0;
                }
                let look = |rung| {
                    Phase::Tries(Look {
                        rung,
                        before: seen,
                        wins: 0,
                    })
                };
                self.due().map_or(Phase::Holds, look)
            }
            Phase::Tries(look) => Phase::Checks(look, seen),
            Phase::Checks(look, tried) => self.compare(look, tried, seen),
        };
    }

    fn compare(&mut self, look: Look, tried: Seen, after: Seen) -> Phase {
        let Look { rung, before, wins } = look;
        let own = before.rate.max(after.rate).max(1.0);
        if tried.rate > own * MARGIN {
            if wins + 1 < WINS {
                return Phase::Tries(Look {
                    rung,
                    before: after,
                    wins: wins + 1,
                });
            }
            let was = std::mem::replace(&mut self.at, rung);
            self.expect();
            self.patience[was] = patience(own / tried.rate, 1.0).max(PATIENCE_RULED);
            return Phase::Holds;
        }
        let lasted = tried.seconds / before.seconds;
        self.waited[rung] = 0.0;
        self.patience[rung] = (self.patience[rung] * 2.0)
            .min(PATIENCE_MAX)
            .max(patience(tried.rate / own, lasted));
        Phase::Holds
    }

    /// What is to be looked at now: a neighbour, or whole calls; of them what has waited longest.
    fn due(&self) -> Option<usize> {
        let below = self.at.checked_sub(1);
        let above = Some(self.at + 1).filter(|rung| *rung < self.rungs.len());
        let whole = Some(1).filter(|rung| *rung < self.at);
        let found = below.into_iter().chain(above).chain(whole);
        let is_due = |rung: &usize| self.waited[*rung] >= self.patience[*rung];
        found
            .filter(is_due)
            .max_by(|one, other| self.waited[*one].total_cmp(&self.waited[*other]))
    }
}

/// Windows to wait until what carries such a share is looked at for `lasted` windows: that costs a
/// hundredth then.
fn patience(share: f64, lasted: f64) -> f64 {
    ((1.0 - share) * lasted / COST_MAX).clamp(0.0, PATIENCE_MAX)
}

fn as_f64(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "for shares and rates; not so exact"
    )]
    let count = count as f64;
    count
}
