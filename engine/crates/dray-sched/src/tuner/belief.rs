//! Belief about how throughput depends on one number, the value of a knob (for example the number
//! of streams).
//!
//! A hypothesis consists of a knee and a price. Throughput grows in proportion to the number up to
//! the knee. Beyond the knee each further unit slows all units, as given by the price. A level
//! contains all other influences on throughput, mainly the traffic of other users of the network.
//! Each hypothesis tracks its own level. So only a change of throughput that follows a change of
//! the number can distinguish hypotheses.
//!
//! Each measured window changes the evidence for the hypotheses. The tuner next uses the number
//! with the highest sum of its expected throughput and a small bonus. A number gets this bonus if
//! measuring it distinguishes hypotheses. Evidence fades, so that numbers tested long ago are tried
//! again.

/// For each price: the loss of throughput at twice the knee.
const PRICES: [f64; 4] = [0.01, 0.1, 0.4, 1.0];

/// Standard deviation of one window, in the logarithm of the throughput.
const NOISE: f64 = 0.35;
/// Likelihood of a window that no hypothesis explains, for example because another transfer starts
/// or ends.
const STRANGE: f64 = 0.05;

/// Fraction of a window's deviation that changes the level. The rest counts as noise.
const FOLLOWS: f64 = 0.6;

/// Standard deviation of ln(knee) around a remembered number. The knee is the number beyond which
/// throughput no longer grows.
const EXPECTED: f64 = 0.3;

/// Fraction of the evidence that remains after one window.
const FADES: f64 = 0.99;

/// Minimum likelihood of a hypothesis, relative to the likeliest hypothesis. Less likely hypotheses
/// are ignored.
const WEIGHT_MIN: f64 = 1e-5;

/// Weight of the bonus for distinguishing hypotheses, relative to throughput.
const CURIOSITY: f64 = 0.5;

/// While the number does not change, the bonus for distinguishing hypotheses grows. It grows by its
/// initial value in this many windows.
const BORED_AFTER: f64 = 10.0;
/// Maximum number of times that the bonus grows by its initial value.
const BORED_MOST: f64 = 2.0;

/// Minimum relative gain that justifies doubling the number.
const THRIFT: f64 = 0.01;

/// Ratio between neighbouring numbers of the grid.
const GRID: f64 = 1.15;

/// Knees above the maximum number, as multiples of the maximum. They stand for throughput that
/// grows over the whole allowed range.
const BEYOND: [f64; 2] = [1.4, 2.0];

/// Hypotheses whose knee is above the ceiling together count as at most this many hypotheses.
const BEYOND_COUNT: f64 = 16.0;

#[derive(Debug, Clone)]
struct Hypothesis {
    knee: f64,
    price: f64,
    /// Logarithm of the level. Valid after the first measured window.
    level: f64,
    /// Logarithm of the likelihood of this hypothesis.
    evidence: f64,
}

impl Hypothesis {
    /// Returns the expected throughput of `number` units, relative to one unit at level 1.
    fn carries(&self, number: f64) -> f64 {
        let beyond = (number / self.knee - 1.0).max(0.0);
        number.min(self.knee) / (1.0 + self.price * beyond)
    }
}

/// A permitted number, and the throughput that each hypothesis predicts for it.
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

/// A candidate for the next number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub(super) number: u64,
    /// Expected relative gain in throughput over the number in force.
    pub(super) gain: f64,
}

/// The belief about one number. The module documentation describes it.
#[derive(Debug, Clone)]
pub(super) struct Belief {
    numbers: Vec<Number>,
    hypotheses: Vec<Hypothesis>,
    has_level: bool,
    /// Number of the last window.
    last: u64,
    /// Number of windows since `last` has changed.
    still: u32,
}

impl Belief {
    /// Creates a belief about a number between `least` and `most`.
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

    /// Makes hypotheses with a knee near `number` more likely, because the optimum was there
    /// before.
    pub(super) fn expect(&mut self, number: u64) {
        for one in &mut self.hypotheses {
            let off = (one.knee / number as f64).ln() / EXPECTED;
            one.evidence = -off * off / 2.0;
        }
    }

    /// Updates the evidence with the throughput `rate` of a window with this number.
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

    /// Records a window in which another tuned number has changed. The level of the throughput is
    /// then unknown, so the window says nothing about the number of this belief.
    pub(super) const fn lose_level(&mut self) {
        self.has_level = false;
    }

    /// Returns the best number up to `most`, and its expected gain over `now`.
    pub(super) fn best(&self, now: u64, most: u64) -> Choice {
        self.choose(now, most, most, 0.0)
    }

    /// As [`Self::best`], with a bonus for numbers that distinguish hypotheses. Numbers above
    /// `ceiling` will never be used.
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
        // All hypotheses whose knee is above the ceiling have the same effect, so limit their total
        // weight.
        let is_beyond = |one: &Hypothesis| one.knee > ceiling as f64;
        let beyond = self.hypotheses.iter().filter(|one| is_beyond(one)).count();
        let times_beyond = (BEYOND_COUNT / beyond.max(1) as f64).min(1.0);
        let here = Number::new(now, &self.hypotheses);
        // For each hypothesis with enough weight: its index, its weight, and the highest throughput
        // that it predicts for up to `most` streams.
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
