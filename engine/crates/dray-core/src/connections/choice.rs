//! Chooses a setting for calls of one kind. The first choice follows Mulconn's rule. Later choices
//! follow measured throughput.
//!
//! The possible settings form an ordered list. The first setting is [`Mapping::ThreadToSingle`].
//! The second is [`Mapping::ThreadToMultiple`] with whole calls. The others are
//! [`Mapping::ThreadToMultiple`] with calls cut into 2, 4, ... pieces, up to the number of
//! connections.
//!
//! From time to time the current setting is compared with a neighbour in the list, or with the
//! second setting. A comparison has three windows: the current setting, the other setting, and the
//! current setting again. The other setting wins the comparison if its throughput is clearly higher
//! than the throughput in both windows of the current setting. A setting that wins two comparisons
//! in a row becomes the current setting.
//!
//! Comparisons may cost at most a hundredth of the throughput. The interval between comparisons
//! grows while they find no better setting.

use super::{Direction, Flow, Mapping};
use crate::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// Minimum length of a window. Shorter windows would measure differences by chance that exceed
/// [`MARGIN`].
const WINDOW_MIN: Duration = Duration::from_millis(100);
/// Minimum number of calls in a window.
const WINDOW_CALLS_MIN: u64 = 8;
/// Minimum number of calls in a window for each thread. If threads have several open calls and
/// there are more connections than threads, the minimum applies to each connection instead.
const WINDOW_CALLS_EACH: u64 = 4;

/// Maximum length of a window. A longer window is discarded, because there is too little work to
/// compare settings.
const WINDOW_MAX: Duration = Duration::from_secs(10);

/// A trial of another setting ends at the latest after this multiple of the length of the window
/// before the trial.
const LOOK_TIMES: f64 = 2.0;
/// A trial already ends after this fraction of the length of the window before it, if its
/// throughput is less than this fraction of the throughput in that window.
const HALF: f64 = 0.5;

/// Another setting counts as clearly better if its throughput exceeds that of the current setting
/// by this factor. The value is estimated, not measured.
const MARGIN: f64 = 1.04;

/// Number of consecutive comparisons that another setting must win.
const WINS: u32 = 2;

/// Maximum cost of comparisons, as a fraction of the total throughput.
const COST_MAX: f64 = 0.01;

/// Number of windows before a trial of another setting, for writes whose threads wait for the
/// server's answer. For these writes, the setting that `ruled` returns is only a guess.
const PATIENCE_GUESSED: f64 = 2.0;
/// Minimum number of windows before a trial of another setting, except for [`PATIENCE_GUESSED`].
const PATIENCE_RULED: f64 = 32.0;
/// Maximum number of windows before a trial, so that a change of the server is found.
const PATIENCE_MAX: f64 = 1000.0;

/// Minimum fraction of time that threads spend in calls. Below it the connections are not the
/// bottleneck, and the throughput cannot be used to compare settings.
const BUSY_MIN: f64 = 0.5;

/// Setting for calls of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Mapping of threads to connections.
    pub mapping: Mapping,
    /// Number of concurrent pieces of a call. With 1 the call is not cut.
    pub pieces: usize,
}

/// Throughput of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    /// Bytes per second.
    rate: f64,
    seconds: f64,
}

/// A comparison with another setting.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    rung: usize,
    /// Throughput of the current setting in the window before the trial.
    before: Seen,
    /// Number of consecutive comparisons that the tried setting has won.
    wins: u32,
}

/// Phase of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The current setting is used. No comparison is under way.
    Holds,
    /// Another setting is tried for one window.
    Tries(Look),
    /// The current setting is used again. Its throughput is then compared with that of the tried
    /// setting.
    Checks(Look, Seen),
}

/// Chooses the setting for calls of one kind.
#[derive(Debug)]
pub struct Choice {
    flow: Flow,
    connections: usize,
    rungs: Vec<Setting>,
    /// Index of the current setting.
    at: usize,
    phase: Phase,
    /// For each setting, the number of windows since the last trial of the setting.
    waited: Vec<f64>,
    /// For each setting, the number of windows to wait between two trials of the setting.
    patience: Vec<f64>,
    /// Number of threads for which the rule was last applied.
    threads: usize,
    window: Window,
}

#[derive(Debug, Default)]
struct Window {
    began: Option<Time>,
    bytes: u64,
    calls: u64,
    callers: BTreeSet<u64>,
    /// Threads that are in a call now. A thread can occur several times.
    inside: Vec<u64>,
    /// Time of the last update of `busy`.
    since: Time,
    /// Total seconds that all threads spent in calls.
    busy: f64,
    /// Number of open calls.
    open: u64,
    /// Number of calls of the previous setting that must end before the window begins.
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
    /// Creates a choice that has no measurements yet.
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

    /// Returns the setting to use for the next call: during a trial the tried setting, otherwise
    /// the current setting.
    #[must_use]
    pub fn setting(&self) -> Setting {
        match self.phase {
            Phase::Tries(look) => self.rungs[look.rung],
            Phase::Holds | Phase::Checks(..) => self.rungs[self.at],
        }
    }

    /// Returns the index of the setting that Mulconn's rule selects. This setting has the highest
    /// throughput if the connections are the only bottleneck.
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

    /// Returns the number of connections that a setting keeps busy if the connections are the only
    /// bottleneck.
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

    /// Sets, for each setting, the number of windows to wait before the first trial of the setting.
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
        // A new thread is counted immediately. A thread that has stopped is subtracted at the end
        // of a window.
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

    /// Returns the index of the setting to try now, or `None` if no trial is due. The candidates
    /// are the two neighbours of the current setting, and the setting that does not cut calls into
    /// pieces. If several candidates are due, returns the candidate whose last trial is longest
    /// ago.
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

/// Returns the number of windows to wait before a setting is tried again. The last trial took
/// `lasted` windows and had the fraction `share` of the current throughput. The wait limits the
/// cost of trials to [`COST_MAX`].
fn patience(share: f64, lasted: f64) -> f64 {
    ((1.0 - share) * lasted / COST_MAX).clamp(0.0, PATIENCE_MAX)
}

fn as_f64(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "shares and rates need no exact integers"
    )]
    let count = count as f64;
    count
}
