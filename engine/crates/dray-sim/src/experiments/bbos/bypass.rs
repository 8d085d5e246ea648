//! Checkpoints that bypass the fast tier (BBOS, Figure 5.6).
//!
//! The mean times between failures (MTBFs) of the applications are random from 0 to 100 minutes,
//! and the period is one hour. The dissertation does not say how much colder than the other
//! versions a checkpoint must be to bypass the fast tier, nor whether the tier holds versions of an
//! earlier period. So the experiment uses three thresholds (`colder_than`). The experiment measures
//! the first period, in which the tier has no versions of an earlier period, and the last period,
//! in which it has such versions.

use super::model::{Demotes, Known, Model, Parameters};
use super::{CHECKPOINT, Congestion, LOADS, count, figures, jobs, rounded, tier};
use dray_sched::rng::Rng;
use dray_sched::tiers::bypass::BypassRule;
use dray_sched::tiers::policy::{Bbos, Tier};
use serde_json::{Value, json};

/// Number of random sets of MTBFs.
const SEEDS: u64 = 20;

/// Number of periods of each set. The last one is measured.
const PERIODS: usize = 3;

/// Period in seconds.
const HOUR: f64 = 3_600.0;

/// Maximum MTBF in seconds.
const MTBF_MAX: f64 = 6_000.0;

/// Result of a bypass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bypassed {
    /// Demoted bytes of the first period as a fraction of DWPP, the data written per period.
    pub first: f64,
    /// Demoted bytes of the last period as a fraction of DWPP, the data written per period.
    pub last: f64,
    /// Mean throughput in the last period in bytes per second of the writes to the fast tier.
    pub throughput: f64,
    /// Seconds that writes waited for space in the last period.
    pub stopped: f64,
}

/// Runs one set of MTBFs.
#[must_use]
pub fn run(seed: u64, load: f64, rule: Option<BypassRule>) -> Bypassed {
    let mut draw = Rng::new(seed ^ 0xb1_9a55);
    let count = count(load);
    let mut unit = || f64::from(draw.next_u32()) / 4_294_967_296.0;
    let mtbf = (0..count).map(|_| MTBF_MAX * unit()).collect();
    let parameters = Parameters {
        tier: Tier {
            period: HOUR,
            ..tier(Demotes::Written)
        },
        policy: &Bbos::default(),
        demotes: Demotes::Written,
        bypass: rule,
        mtbf,
    };
    let mut model = Model::new(parameters);
    let jobs = jobs(count, Congestion::Medium);
    let dwpp = count as f64 * CHECKPOINT;
    let mut runs: Vec<_> = (0..PERIODS)
        .map(|_| model.period(&jobs, Known::Oracle(dwpp)))
        .collect();
    let first = runs[0].demoted / dwpp;
    let last = &mut runs[PERIODS - 1];
    let demoted = last.demoted / dwpp;
    last.jobs.retain(|job| !job.is_direct);
    let figures = figures(last);
    Bypassed {
        first,
        last: demoted,
        throughput: figures.throughput,
        stopped: figures.stopped,
    }
}

/// Returns the reduction of the demoted bytes in percent.
#[must_use]
pub fn results() -> Value {
    let mut rows = Vec::new();
    for load in LOADS {
        for colder_than in [1.0, 0.75, 0.5] {
            let rule = BypassRule {
                colder_than,
                ..BypassRule::default()
            };
            let runs: Vec<Bypassed> = (0..SEEDS).map(|seed| run(seed, load, Some(rule))).collect();
            let without = run(0, load, None);
            let mean = |of: &dyn Fn(&Bypassed) -> f64| {
                runs.iter().map(of).sum::<f64>() / runs.len() as f64
            };
            let least =
                |of: &dyn Fn(&Bypassed) -> f64| runs.iter().map(of).fold(f64::INFINITY, f64::min);
            rows.push(json!({
                "load": load,
                "colder_than": colder_than,
                "first_percent": rounded(100.0 * (1.0 - mean(&|run| run.first))),
                "last_percent": rounded(100.0 * (1.0 - mean(&|run| run.last))),
                "last_percent_max": rounded(100.0 * (1.0 - least(&|run| run.last))),
                "throughput_gb_s": rounded(mean(&|run| run.throughput) / 1e9),
                "throughput_without_gb_s": rounded(without.throughput / 1e9),
                "stopped_s": rounded(mean(&|run| run.stopped)),
            }));
        }
    }
    json!({ "seeds": SEEDS, "paper_percent_max": 38, "rows": rows })
}
