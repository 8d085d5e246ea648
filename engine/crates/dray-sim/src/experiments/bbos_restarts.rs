//! Restarts from a fast tier: compares the hit ratio of the policy BBOS with those of other orders
//! of victims (section 5.3.4 of the BBOS dissertation, Figures 5.7 and 5.8). It also measures the
//! hit ratio of BBOS if the MTBF is only estimated. The module [`model`] simulates the tier. The
//! shipped code chooses the versions to remove from the tier.

pub mod model;

use super::rounded;
use dray_sched::rng::Rng;
use dray_sched::tiers::failures::Prior;
use dray_sched::tiers::victims::Order;
use model::{Application, Belief, CHECKPOINT, Outcome, Scenario, unit};
use serde_json::{Value, json};

/// Capacity of the fast tier in bytes. The dissertation does not state the capacity. Its other
/// results allow 1.9 to 2.2 TB, and with 2.02 TB all loads are whole numbers of checkpoints within
/// 0.2 %.
pub const CAPACITY: u64 = 2_020_000_000_000;

/// Period in seconds (section 5.3.1).
const PERIOD: f64 = 3_800.0;
/// Longest period of an application in Figure 5.8, in seconds.
const HOUR: f64 = 3_600.0;

/// Loads of Figure 5.7: bytes written per period as a multiple of the capacity.
pub const LOADS: [f64; 3] = [1.7, 1.9, 2.1];

/// Maxima of the random MTBF in Figure 5.7 in minutes.
pub const SPANS: [u64; 3] = [20, 50, 100];

/// Number of runs of each case with other random numbers.
const SEEDS: u64 = 100;

/// Number of periods in a run.
const PERIODS: usize = 5;
/// Number of first periods that are not counted.
const WARM: usize = 2;

/// Number of periods of the runs with an estimated MTBF.
const LEARNING: usize = 24;

/// Number of runs with an estimated MTBF.
const LEARNING_SEEDS: u64 = 30;

/// Maximum loss of the hit ratio because of the estimate, after the learning time.
pub const LOSS_MAX: f64 = 0.02;

/// Number of versions that an application retains: the BBOS dissertation assumes "three or more
/// versions".
const RETAINED: u64 = 3;

/// Versions that an application of Figure 5.8 retains. The text about the figure allows two
/// readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retained {
    /// Three versions.
    Three,
    /// The versions of an hour: one, two or three.
    OneHour,
}

/// A case of Figure 5.8.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Ratio of the applications with periods of 60, 30 and 20 minutes.
    pub ratio: &'static str,
    /// Number of applications with a period of 60, 30 and 20 minutes, in this order. Both mixes
    /// write 48 checkpoints in an hour, which is 1.9 times the capacity of the fast tier.
    pub applications: [usize; 3],
    /// Hit ratio in the dissertation with the version-aware order, and without.
    pub paper: [f64; 2],
}

/// The cases of Figure 5.8.
pub const MIXES: [Mix; 2] = [
    Mix {
        ratio: "1:1:1",
        applications: [8, 8, 8],
        paper: [0.964, 0.801],
    },
    Mix {
        ratio: "5:2:1",
        applications: [20, 8, 4],
        paper: [0.925, 0.717],
    },
];

/// Policies of Figure 5.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// BBOS.
    Bbos,
    /// Least recently used, where restarts count as uses.
    Lru,
    /// First written, first removed. It is also LRU if only writes count as uses, as in the BBOS
    /// dissertation: "based only on the order of the written time".
    Fifo,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Bbos, Self::Lru, Self::Fifo];

    const fn order(self) -> Order {
        match self {
            Self::Bbos => Order::Bbos,
            Self::Lru => Order::Lru,
            Self::Fifo => Order::Fifo,
        }
    }
}

/// A case of Figure 5.7.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Bytes written per period as a multiple of the capacity.
    pub load: f64,
    /// Maximum of the random MTBF in minutes.
    pub span: u64,
}

/// Returns applications that write once per period, in random order. The times of their writes are
/// evenly distributed over the period. Each MTBF is a random whole number of minutes from 1 to the
/// maximum of the case.
#[must_use]
pub fn even(case: &Case, seed: u64) -> Vec<Application> {
    let mut draw = Rng::new(seed << 16 ^ case.span << 8 ^ (case.load * 10.0) as u64);
    let count = (case.load * CAPACITY as f64 / CHECKPOINT as f64).round() as usize;
    let mut slots: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        slots.swap(last, draw.below(last as u64 + 1) as usize);
    }
    let applications = slots.into_iter().map(|slot| Application {
        period: PERIOD,
        offset: PERIOD * slot as f64 / count as f64,
        mtbf: minutes(&mut draw, case.span),
        retained: RETAINED,
    });
    applications.collect()
}

/// Returns the applications of a mix, each with a random first checkpoint in its period.
#[must_use]
pub fn mixed(mix: &Mix, retained: Retained, seed: u64) -> Vec<Application> {
    let mut draw = Rng::new(seed ^ 0x0508);
    let mut applications = Vec::new();
    for (per_hour, count) in (1u32..).zip(mix.applications) {
        for _ in 0..count {
            let period = HOUR / f64::from(per_hour);
            applications.push(Application {
                period,
                offset: period * unit(&mut draw),
                mtbf: minutes(&mut draw, 100),
                retained: match retained {
                    Retained::Three => RETAINED,
                    Retained::OneHour => u64::from(per_hour),
                },
            });
        }
    }
    applications
}

fn minutes(draw: &mut Rng, span: u64) -> f64 {
    60.0 * (1 + draw.below(span)) as f64
}

/// Runs a case of Figure 5.7.
#[must_use]
pub fn figure_7(case: &Case, policy: Policy, seed: u64) -> Outcome {
    model::run(&Scenario {
        applications: &even(case, seed),
        capacity: CAPACITY,
        order: policy.order(),
        belief: Belief::Truth,
        counts_restarts: true,
        window: PERIOD,
        windows: PERIODS,
        seed,
    })
}

/// Runs a case of Figure 5.8.
#[must_use]
pub fn figure_8(mix: &Mix, retained: Retained, order: Order, seed: u64) -> Outcome {
    model::run(&Scenario {
        applications: &mixed(mix, retained, seed),
        capacity: CAPACITY,
        order,
        belief: Belief::Truth,
        counts_restarts: true,
        window: HOUR,
        windows: PERIODS,
        seed,
    })
}

/// Runs a case of Figure 5.7 at 1.9 S for many periods.
#[must_use]
pub fn learning(span: u64, belief: Belief, seed: u64) -> Outcome {
    let case = Case { load: 1.9, span };
    model::run(&Scenario {
        applications: &even(&case, seed),
        capacity: CAPACITY,
        order: Order::Bbos,
        belief,
        counts_restarts: true,
        window: PERIOD,
        windows: LEARNING,
        seed,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns a value that the given fraction of the values does not exceed.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * (sorted.len() - 1) as f64).round() as usize;
    sorted[at]
}

/// Returns the quantiles 10 %, 50 % and 90 %.
fn spread(values: &[f64]) -> [f64; 3] {
    [0.1, 0.5, 0.9].map(|part| rounded(quantile(values, part)))
}

/// Results of one case of Figure 5.7.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// Mean hit ratios over all runs, by policy.
    pub ratios: [f64; 3],
    /// Mean expected hit ratio of a tier that always has the newest versions of the applications
    /// that fail most often, as many as fit.
    pub best_fixed: f64,
    /// Mean upper bound of the hit ratio of any policy.
    pub bound: f64,
    /// Hit ratios of applications that fail at the end of each run, by policy.
    pub at_end: [Vec<f64>; 3],
    /// Number of checkpoints that waited for space, in all runs.
    pub stalls: u64,
}

/// Returns the results of one case of Figure 5.7.
#[must_use]
pub fn cell(case: &Case, seeds: u64) -> Cell {
    let mut found = Cell::default();
    let (mut bounds, mut fixed) = (Vec::new(), Vec::new());
    for (at, policy) in Policy::ALL.into_iter().enumerate() {
        let mut ratios = Vec::new();
        for seed in 0..seeds {
            let outcome = figure_7(case, policy, seed);
            ratios.push(outcome.ratio(WARM));
            found.at_end[at].push(outcome.counts.last().map_or(0.0, |last| last.at_end));
            found.stalls += outcome.stalls;
            if policy == Policy::Bbos {
                let [from, until] = [WARM, PERIODS].map(|count| PERIOD * count as f64);
                bounds.push(outcome.bound(from, until, CAPACITY));
                fixed.push(best_fixed(&even(case, seed)));
            }
        }
        found.ratios[at] = mean(&ratios);
    }
    found.bound = mean(&bounds);
    found.best_fixed = mean(&fixed);
    found
}

fn best_fixed(applications: &[Application]) -> f64 {
    let mut rates: Vec<f64> = applications.iter().map(|each| 1.0 / each.mtbf).collect();
    rates.sort_by(|left, right| right.total_cmp(left));
    let fit = (CAPACITY / CHECKPOINT) as usize;
    rates.iter().take(fit).sum::<f64>() / rates.iter().sum::<f64>()
}

/// Returns the cases of Figure 5.7, row by row.
#[must_use]
pub fn cases() -> Vec<Case> {
    let of = |load| SPANS.map(|span| Case { load, span });
    LOADS.into_iter().flat_map(of).collect()
}

/// For each repetition of Figure 5.7, divides the hit ratio of BBOS by the hit ratio of FIFO in
/// each of the nine cases, and returns the largest quotient. A repetition runs each case once, and
/// measures at the end of the run.
#[must_use]
pub fn largest_quotients(cells: &[Cell]) -> Vec<f64> {
    let [bbos, _, fifo] = [0, 1, 2];
    let repetitions = cells.first().map_or(0, |cell| cell.at_end[bbos].len());
    let largest = |run: usize| {
        let quotients = cells
            .iter()
            .map(|cell| cell.at_end[bbos][run] / cell.at_end[fifo][run]);
        quotients.fold(0.0, f64::max)
    };
    (0..repetitions).map(largest).collect()
}

fn figure_7_results() -> Value {
    let (mut rows, mut cells) = (Vec::new(), Vec::new());
    for case in cases() {
        let cell = cell(&case, SEEDS);
        let [bbos, lru, fifo] = cell.ratios;
        rows.push(json!({
            "load": case.load,
            "span_minutes": case.span,
            "bbos": rounded(bbos),
            "lru_with_restarts": rounded(lru),
            "fifo": rounded(fifo),
            "bbos_of_fifo": rounded(bbos / fifo),
            "best_fixed": rounded(cell.best_fixed),
            "bound": rounded(cell.bound),
            "fifo_single": spread(&cell.at_end[2]),
            "stalls": cell.stalls,
        }));
        cells.push(cell);
    }
    let largest = largest_quotients(&cells);
    let reached = |bound: f64| {
        largest.iter().filter(|each| **each >= bound).count() as f64 / largest.len() as f64
    };
    let of_means = cells.iter().map(|cell| cell.ratios[0] / cell.ratios[2]);
    json!({
        "rows": rows,
        "paper": { "largest_quotients": [3.1, 3.4] },
        "largest_quotient": {
            "of_means": rounded(of_means.fold(0.0, f64::max)),
            "single_runs": spread(&largest),
            "reaches_3_1": rounded(reached(3.1)),
            "reaches_3_4": rounded(reached(3.4)),
        },
    })
}

/// Returns two mean hit ratios of a mix: with victims chosen by version and MTBF, and with victims
/// chosen by MTBF only.
#[must_use]
pub fn mix_ratios(mix: &Mix, retained: Retained, seeds: u64) -> [f64; 2] {
    [Order::Bbos, Order::MtbfOnly].map(|order| {
        let ratios: Vec<f64> = (0..seeds)
            .map(|seed| figure_8(mix, retained, order, seed).ratio(WARM))
            .collect();
        mean(&ratios)
    })
}

fn figure_8_results() -> Value {
    let rows = MIXES.map(|mix| {
        let [aware, only] = mix_ratios(&mix, Retained::Three, SEEDS);
        let [aware_hour, only_hour] = mix_ratios(&mix, Retained::OneHour, SEEDS);
        json!({
            "ratio": mix.ratio,
            "applications": mix.applications,
            "version_aware": rounded(aware),
            "mtbf_only": rounded(only),
            "one_hour": {
                "version_aware": rounded(aware_hour),
                "mtbf_only": rounded(only_hour),
            },
            "paper": { "version_aware": mix.paper[0], "mtbf_only": mix.paper[1] },
        })
    });
    json!({ "rows": rows })
}

/// Hit ratios with the true and with the estimated MTBF, by period.
#[derive(Debug, Clone, Default)]
pub struct Learned {
    /// Mean hit ratio with the true MTBF.
    pub truth: Vec<f64>,
    /// Mean hit ratio with the estimate.
    pub estimate: Vec<f64>,
    /// Regret: mean number of restarts from the slow tier that a tier with the true MTBFs would
    /// have avoided, from the start until the end of the period.
    pub regret: Vec<f64>,
    /// Mean number of restarts in a period.
    pub restarts: f64,
}

impl Learned {
    /// Returns the number of periods after which the estimate never loses more than [`LOSS_MAX`].
    #[must_use]
    pub fn periods(&self) -> usize {
        let losses = self.truth.iter().zip(&self.estimate);
        let last = losses
            .enumerate()
            .filter(|(_, (truth, estimate))| *truth - *estimate > LOSS_MAX)
            .map(|(at, _)| at + 1)
            .max();
        last.unwrap_or(0)
    }
}

/// Compares the estimate with the truth.
#[must_use]
pub fn learned(span: u64, prior: Prior, seeds: u64) -> Learned {
    let mut found = Learned::default();
    let beliefs = [Belief::Truth, Belief::Estimate(prior)];
    let runs: Vec<[Outcome; 2]> = (0..seeds)
        .map(|seed| beliefs.map(|belief| learning(span, belief, seed)))
        .collect();
    let mut regret = 0.0;
    for period in 0..LEARNING {
        let ratio = |which: usize| {
            let counts = runs.iter().map(|run| &run[which].counts[period]);
            let (hits, restarts) = counts.fold((0, 0), |(hits, restarts), count| {
                (hits + count.hits, restarts + count.restarts)
            });
            (hits as f64, restarts as f64)
        };
        let [(truth, restarts), (estimate, _)] = [ratio(0), ratio(1)];
        found.truth.push(truth / restarts);
        found.estimate.push(estimate / restarts);
        regret += (truth - estimate) / seeds as f64;
        found.regret.push(regret);
        found.restarts += restarts / seeds as f64 / LEARNING as f64;
    }
    found
}

fn learning_results() -> Value {
    let rows = SPANS.map(|span| {
        let found = learned(span, Prior::default(), LEARNING_SEEDS);
        let of = |values: &[f64]| values.iter().copied().map(rounded).collect::<Vec<f64>>();
        json!({
            "span_minutes": span,
            "restarts_per_period": rounded(found.restarts),
            "truth": of(&found.truth),
            "estimate": of(&found.estimate),
            "regret_restarts": of(&found.regret),
            "learned_after_periods": found.periods(),
        })
    });
    json!({ "seeds": LEARNING_SEEDS, "periods": LEARNING, "rows": rows })
}

/// Returns the results of all runs.
#[must_use]
pub fn results() -> Value {
    json!({
        "capacity_bytes": CAPACITY,
        "checkpoint_bytes": CHECKPOINT,
        "period_seconds": PERIOD,
        "periods": PERIODS,
        "periods_not_counted": WARM,
        "seeds": SEEDS,
        "figure_5_7": figure_7_results(),
        "figure_5_8": figure_8_results(),
        "estimate": learning_results(),
    })
}
