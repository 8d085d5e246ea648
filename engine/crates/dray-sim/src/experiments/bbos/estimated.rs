//! BBOS with an estimate of the data written per period (DWPP), compared with BBOS that knows DWPP
//! in advance.
//!
//! The sizes of the applications differ by a factor of ten. The size of each checkpoint changes from
//! period to period, and some applications skip a period.

use super::model::{Demotes, Job, Known, Model, Parameters, Run};
use super::{CAPACITY, Congestion, LOADS, PERIOD, figures, rounded, tier};
use dray_sched::rng::Rng;
use dray_sched::tiers::policy::{Bbos, EvenBbos, Tier, TierPolicy};
use dray_sched::tiers::written::PeriodEstimator;
use serde_json::{Value, json};

/// Number of random sets of sizes.
const SETS: u64 = 10;

/// Number of applications.
const APPLICATIONS: usize = 40;

/// Number of periods in a run.
const PERIODS: usize = 12;
/// Number of first periods that are not measured, because the estimates have little history.
const WARM: usize = 4;

/// Largest change of a checkpoint's size from period to period, as a fraction.
const CHANGE: f64 = 0.15;

/// In each period, about one of this many applications writes no checkpoint.
const SKIPS: u64 = 25;

/// Results of both variants in the measured periods.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Compared {
    /// Mean throughput in bytes per second with known DWPP.
    pub oracle: f64,
    /// Mean throughput in bytes per second with estimated DWPP.
    pub estimated: f64,
    /// Seconds that writes waited for space, with known DWPP.
    pub oracle_stopped: f64,
    /// Seconds that writes waited for space, with estimated DWPP.
    pub estimated_stopped: f64,
    /// Mean latency in seconds with known DWPP.
    pub oracle_latency: f64,
    /// Mean latency in seconds with estimated DWPP.
    pub estimated_latency: f64,
}

/// Returns the jobs of each period. `load` is the mean load as a multiple of S.
#[must_use]
pub fn periods(seed: u64, load: f64, congestion: Congestion) -> Vec<Vec<Job>> {
    let mut draw = Rng::new(seed ^ 0xe571_3a7e);
    let mut unit = move || f64::from(draw.next_u32()) / 4_294_967_296.0;
    let sizes: Vec<f64> = (0..APPLICATIONS).map(|_| 10f64.powf(unit())).collect();
    let scale = load * CAPACITY / sizes.iter().sum::<f64>();
    let interval = PERIOD / APPLICATIONS as f64 * congestion.factor();
    (0..PERIODS)
        .map(|_| {
            let mut jobs = Vec::new();
            for (application, size) in sizes.iter().enumerate() {
                let bytes = size * scale * (1.0 + CHANGE * (2.0 * unit() - 1.0));
                if unit() * SKIPS as f64 >= 1.0 {
                    jobs.push(Job {
                        application,
                        arrives: application as f64 * interval,
                        bytes,
                    });
                }
            }
            jobs
        })
        .collect()
}

/// Runs both variants of a policy.
#[must_use]
pub fn compared(policy: &dyn TierPolicy, seed: u64, load: f64, congestion: Congestion) -> Compared {
    let periods = periods(seed, load, congestion);
    let largest = (periods.iter().flatten())
        .map(|job| job.bytes)
        .fold(0.0, f64::max);
    let run_all = |mut estimator: Option<PeriodEstimator>| {
        let parameters = Parameters {
            tier: Tier {
                largest,
                ..tier(Demotes::Complete)
            },
            policy,
            demotes: Demotes::Complete,
            bypass: None,
            mtbf: Vec::new(),
        };
        let mut model = Model::new(parameters);
        let mut all = Run::default();
        for (at, jobs) in periods.iter().enumerate() {
            let dwpp = jobs.iter().map(|job| job.bytes).sum();
            let known = estimator
                .as_mut()
                .map_or(Known::Oracle(dwpp), Known::Estimated);
            let run = model.period(jobs, known);
            if at >= WARM {
                all.jobs.extend(run.jobs);
            }
        }
        figures(&all)
    };
    let oracle = run_all(None);
    let estimated = run_all(Some(PeriodEstimator::default()));
    Compared {
        oracle: oracle.throughput,
        estimated: estimated.throughput,
        oracle_stopped: oracle.stopped,
        estimated_stopped: estimated.stopped,
        oracle_latency: oracle.latency,
        estimated_latency: estimated.latency,
    }
}

/// Returns the results of all loads and congestions.
#[must_use]
pub fn results() -> Value {
    let mut rows = Vec::new();
    for policy in [&Bbos::default() as &dyn TierPolicy, &EvenBbos] {
        for load in LOADS {
            for congestion in Congestion::ALL {
                rows.push(row(policy, load, congestion));
            }
        }
    }
    json!({
        "sets": SETS,
        "applications": APPLICATIONS,
        "periods": PERIODS - WARM,
        "change": CHANGE,
        "skips": SKIPS,
        "rows": rows,
    })
}

/// Returns the means over all sets, and the lowest ratio and the longest stops of a set.
fn row(policy: &dyn TierPolicy, load: f64, congestion: Congestion) -> Value {
    let all: Vec<Compared> = (0..SETS)
        .map(|seed| compared(policy, seed, load, congestion))
        .collect();
    let mean =
        |of: fn(&Compared) -> f64| rounded(all.iter().map(of).sum::<f64>() / all.len() as f64);
    let ratios = all.iter().map(|one| one.estimated / one.oracle);
    let stops = all.iter().map(|one| one.estimated_stopped);
    json!({
        "policy": policy.name(),
        "load": load,
        "congestion": congestion.name(),
        "oracle_gb_s": mean(|one| one.oracle / 1e9),
        "estimated_gb_s": mean(|one| one.estimated / 1e9),
        "ratio_min": rounded(ratios.fold(f64::INFINITY, f64::min)),
        "oracle_latency_s": mean(|one| one.oracle_latency),
        "estimated_latency_s": mean(|one| one.estimated_latency),
        "oracle_stopped_s": mean(|one| one.oracle_stopped),
        "estimated_stopped_s_max": rounded(stops.fold(0.0, f64::max)),
    })
}
