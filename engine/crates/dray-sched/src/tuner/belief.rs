//! What is believed of how throughput depends on one number.
//!
//! A hypothesis is a knee and a price: throughput grows in proportion up to the knee, and beyond it each
//! further one costs all of them something. Whatever else moves it, a neighbour above all, is a level
//! that each hypothesis follows; so only what changes when the number changes tells hypotheses apart. What
//! comes through in one window makes some of them likelier. The number said next is the one that is
//! expected to carry most, and a little more is given for what would tell them apart; beliefs fade, so
//! that old ones are tried again.

/// What a number that is too large costs all of them, at twice the knee.
const PRICES: [f64; 4] = [0.01, 0.1, 0.4, 1.0];

/// Noise of one window, of its logarithm; and the likelihood of what no hypothesis explains, such as a
/// neighbour who comes or goes.
const NOISE: f64 = 0.35;
const STRANGE: f64 = 0.05;

/// How much of what a window differs by is the level's (the rest is noise of one window).
const FOLLOWS: f64 = 0.6;

/// How far from where it was before the knee is expected, of its logarithm.
const EXPECTED: f64 = 0.3;

/// What of the evidence is left a window later.
const FADES: f64 = 0.99;

/// Less likely than so many times the likeliest does not count.
const WEIGHT_MIN: f64 = 1e-5;

/// What telling hypotheses apart is worth.
const CURIOSITY: f64 = 0.5;

/// It is worth twice as much after so many windows in which nothing changed, and so on so many times.
const BORED_AFTER: f64 = 10.0;
const BORED_MOST: f64 = 2.0;

/// What twice as many must carry more, to be worth it.
const THRIFT: f64 = 0.01;

/// Neighbours on the grid of numbers are so many times each other.
const GRID: f64 = 1.15;

/// Knees beyond what may be said, as times of it: it may be that more never helps or always would.
const BEYOND: [f64; 2] = [1.4, 2.0];

/// For how many hypotheses those count whose knee is never reached.
const BEYOND_COUNT: f64 = 16.0;

#[derive(Debug, Clone)]
struct Hypothesis {
    knee: f64,
    price: f64,
    /// Logarithm of the level, once there was a window.
    level: f64,
    /// Logarithm of its likelihood.
    evidence: f64,
}

impl Hypothesis {
    /// What comes through, as a part of one at level 1.
    fn carries(&self, number: f64) -> f64 {
        let beyond = (number / self.knee - 1.0).max(0.0);
        number.min(self.knee) / (1.0 + self.price * beyond)
    }
}

/// A number that may be said, and what comes through with it by each hypothesis.
#[derive(Debug, Clone)]
struct Number {
    number: u64,
    carried: Vec<f64>,
    logarithms: Vec<f64>,
}

impl Number {
    fn new(number: u64, hypotheses: &[Hypothesis]) -> Self {
        let carried = hypotheses.iter().map(|one| one.carries(number as f64));
        let carried: Vec<f64> = carried.collect();
        Self {
            number,
            logarithms: carried.iter().map(|carried| carried.ln()).collect(),
            carried,
        }
    }
}

/// What might be said next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub(super) number: u64,
    /// What it is worth more than what is in force, as a part.
    pub(super) gain: f64,
}

/// See the module's head.
#[derive(Debug, Clone)]
pub(super) struct Belief {
    numbers: Vec<Number>,
    hypotheses: Vec<Hypothesis>,
    has_level: bool,
    /// What was in force last, and for how many windows.
    last: u64,
    still: u32,
}

impl Belief {
    /// Of a number that is at least and at most so large.
    pub(super) fn new((least, most): (u64, u64)) -> Self {
        let mut numbers = Vec::new();
        let mut next = least;
        while next < most {
            numbers.push(next);
            next = ((next as f64 * GRID).round() as u64).max(next + 1);
        }
        numbers.push(most);
        let beyond = BEYOND.map(|times| most as f64 * times);
        let knees = numbers.iter().map(|number| *number as f64).chain(beyond);
        let of = |knee| {
            PRICES.map(|price| Hypothesis {
                knee,
                price,
                level: 0.0,
                evidence: 0.0,
            })
        };
        let hypotheses: Vec<Hypothesis> = knees.flat_map(of).collect();
        let numbers = numbers.into_iter();
        Self {
            numbers: numbers
                .map(|number| Number::new(number, &hypotheses))
                .collect(),
            hypotheses,
            has_level: false,
            last: 0,
            still: 0,
        }
    }

    /// Expects the best near this number, where it was before.
    pub(super) fn expect(&mut self, number: u64) {
        for one in &mut self.hypotheses {
            let off = (one.knee / number as f64).ln() / EXPECTED;
            one.evidence = -off * off / 2.0;
        }
    }

    /// What came through in a window with this number.
    pub(super) fn learn(&mut self, number: u64, rate: f64) {
        let seen = rate.max(1.0).ln();
        self.still = if number == self.last {
            self.still.saturating_add(1)
        } else {
            0
        };
        self.last = number;
        for one in &mut self.hypotheses {
            let level = seen - one.carries(number as f64).ln();
            if !self.has_level {
                one.level = level;
            }
            let off = (level - one.level) / NOISE;
            one.level += FOLLOWS * (level - one.level);
            let likely = (-off * off / 2.0).exp() + STRANGE;
            one.evidence = FADES * one.evidence + likely.ln();
        }
        self.has_level = true;
        let most = (self.hypotheses.iter()).fold(f64::MIN, |most, one| most.max(one.evidence));
        for one in &mut self.hypotheses {
            one.evidence -= most;
        }
    }

    /// A window in which another number changed: the level is another one, and nothing else is told.
    pub(super) const fn lose_level(&mut self) {
        self.has_level = false;
    }

    /// What carries most, and what is expected of it when `now` is in force; at most so many.
    pub(super) fn best(&self, now: u64, most: u64) -> Choice {
        self.choose(now, most, most, 0.0)
    }

    /// The same, with something for what would be learnt. `ceiling`: more will never be said.
    pub(super) fn next(&self, now: u64, most: u64, ceiling: u64) -> Choice {
        let bored = f64::from(self.still) / BORED_AFTER;
        self.choose(
            now,
            most,
            ceiling,
            CURIOSITY * (1.0 + bored.min(BORED_MOST)),
        )
    }

    fn choose(&self, now: u64, most: u64, ceiling: u64, curiosity: f64) -> Choice {
        // Where a knee lies that is never reached makes no difference: they count as a few together.
        let is_beyond = |one: &Hypothesis| one.knee > ceiling as f64;
        let beyond = self.hypotheses.iter().filter(|one| is_beyond(one)).count();
        let times_beyond = (BEYOND_COUNT / beyond.max(1) as f64).min(1.0);
        let here = Number::new(now, &self.hypotheses);
        // The place of each that counts, its weight, and the best that it could carry of what may be said.
        let live: Vec<(usize, f64, f64)> = (self.hypotheses.iter().enumerate())
            .map(|(at, one)| {
                let times = if is_beyond(one) { times_beyond } else { 1.0 };
                let peak = one.carries(one.knee.min(most as f64));
                (at, times * one.evidence.exp(), peak)
            })
            .filter(|(_, weight, _)| *weight >= WEIGHT_MIN)
            .collect();
        let all: f64 = live.iter().map(|(_, weight, _)| weight).sum();
        let worth = |there: &Number| {
            let (mut mean, mut first, mut second) = (0.0, 0.0, 0.0);
            for &(at, weight, peak) in &live {
                let times = there.logarithms[at] - here.logarithms[at];
                mean += weight * there.carried[at] / peak;
                first += weight * times;
                second += weight * times * times;
            }
            let (mean, first, second) = (mean / all, first / all, second / all);
            let apart = (second - first * first).max(0.0).sqrt();
            mean + curiosity * apart - THRIFT * (there.number as f64).log2()
        };
        let highest = Number::new(most, &self.hypotheses);
        let allowed = self.numbers.iter().filter(|there| there.number <= most);
        let now_is_worth = worth(&here);
        let mut choice = Choice {
            number: now.min(most),
            gain: 0.0,
        };
        for there in allowed.chain([&highest]) {
            let gain = worth(there) - now_is_worth;
            if gain > choice.gain {
                choice = Choice {
                    number: there.number,
                    gain,
                };
            }
        }
        choice
    }
}
