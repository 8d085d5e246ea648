//! Burst Buffer Over-Subscription (BBOS), section 5.3 of the dissertation on Mulconn and BBOS:
//! utilisation, throughput and latency of writes (Figures 5.3 to 5.5), and the bypass (Figure 5.6).
//!
//! The bandwidths, the period and the checkpoint size are those of the dissertation. The
//! dissertation does not state the capacity S. This module uses 2.2 TB. With this value, MaxBW can
//! serve applications that write 1.9 S in each period, as in section 5.3.2.

pub mod bypass;
pub mod estimated;
pub mod model;

use super::rounded;
use dray_sched::tiers::device::DeviceModel;
use dray_sched::tiers::policy::{Bbos, DataWarp, EvenBbos, MaxBw, MaxEff, Tier, TierPolicy};
use dray_sched::tiers::ramp::{EquationForm, Ramp};
use model::{Demotes, Job, Known, Model, Parameters, Run};
use serde_json::{Value, json};

/// One gigabyte in bytes.
pub const GIGA: f64 = 1e9;

/// Capacity S of the fast tier in bytes.
pub const CAPACITY: f64 = 2_200.0 * GIGA;

/// Size of a checkpoint in bytes.
pub const CHECKPOINT: f64 = 80.0 * GIGA;

/// Period in seconds.
pub const PERIOD: f64 = 3_800.0;

/// A wait for space counts as a stop only if it takes at least this time in seconds, in total.
/// Shorter waits are artefacts of the simulation's time steps.
pub const STOP_MIN: f64 = 0.1;

/// Loads of Figures 5.3 and 5.4: the data written per period (DWPP) as a multiple of the capacity
/// S.
pub const LOADS: [f64; 3] = [1.3, 1.6, 1.9];

/// Interval between requests as a fraction of the interval of evenly distributed requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// Requests are evenly distributed over the period.
    Low,
    /// Half of the interval of `Low`.
    Medium,
    /// A tenth of the interval of `Low`.
    High,
    /// All requests arrive at the start of the period, which is the worst case.
    Burst,
}

impl Congestion {
    /// Congestions of Figures 5.3 and 5.4.
    pub const ALL: [Self; 3] = [Self::Low, Self::Medium, Self::High];

    const fn factor(self) -> f64 {
        match self {
            Self::Low => 1.0,
            Self::Medium => 0.5,
            Self::High => 0.1,
            Self::Burst => 0.0,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Burst => "burst",
        }
    }
}

/// Returns the tier of the BBOS dissertation. `demotes` selects if versions are demoted while they
/// are written or only after they are complete.
///
/// # Panics
/// Never: the bandwidths of the dissertation are valid.
#[must_use]
pub fn tier(demotes: Demotes) -> Tier {
    let giga = |rate: f64| rate * GIGA;
    let device = DeviceModel::new(giga(3.56), giga(3.0), giga(1.6), giga(0.08));
    Tier {
        device: device.expect("bandwidths of the paper"),
        capacity: CAPACITY,
        largest: match demotes {
            Demotes::Written => 0.0,
            Demotes::Complete => CHECKPOINT,
        },
        period: PERIOD,
    }
}

/// Returns a number of checkpoints, each of another application.
#[must_use]
pub fn jobs(count: usize, congestion: Congestion) -> Vec<Job> {
    let interval = PERIOD / count as f64 * congestion.factor();
    (0..count)
        .map(|application| Job {
            application,
            arrives: application as f64 * interval,
            bytes: CHECKPOINT,
        })
        .collect()
}

/// Returns the number of checkpoints of a load, rounded to the nearest number.
#[must_use]
pub fn count(load: f64) -> usize {
    (load * CAPACITY / CHECKPOINT).round() as usize
}

/// Runs one period on an empty tier. The policy knows the data written per period in advance.
#[must_use]
pub fn run(policy: &dyn TierPolicy, demotes: Demotes, jobs: &[Job]) -> Run {
    let parameters = Parameters {
        tier: tier(demotes),
        policy,
        demotes,
        bypass: None,
        mtbf: Vec::new(),
    };
    let dwpp = jobs.iter().map(|job| job.bytes).sum();
    Model::new(parameters).period(jobs, Known::Oracle(dwpp))
}

/// Largest number of checkpoints that a policy serves in a period if all are requested at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// All are written and demoted in the period.
    pub in_period: usize,
    /// In addition, no write waits for space.
    pub without_stop: usize,
}

/// Returns the number of checkpoints that a policy serves.
#[must_use]
pub fn served(policy: &dyn TierPolicy, demotes: Demotes) -> Served {
    let most = |serves: &dyn Fn(&Run) -> bool| {
        let (mut low, mut high) = (0, 2 * count(2.0));
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            let run = run(policy, demotes, &jobs(middle, Congestion::Burst));
            let is_over = !policy.serializes() && middle as f64 * CHECKPOINT > CAPACITY;
            if !is_over && run.drained <= PERIOD && serves(&run) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    };
    Served {
        in_period: most(&|_| true),
        without_stop: most(&|run| run.stopped() < STOP_MIN),
    }
}

/// Means over the jobs of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Mean throughput of a write without its waits, in bytes per second.
    pub throughput: f64,
    /// Mean latency in seconds.
    pub latency: f64,
    /// Maximum latency in seconds.
    pub latency_max: f64,
    /// Seconds that jobs waited for space.
    pub stopped: f64,
}

/// Returns the means of one run.
#[must_use]
pub fn figures(run: &Run) -> Figures {
    let mean = |of: &dyn Fn(&model::Record) -> f64| {
        run.jobs.iter().map(of).sum::<f64>() / run.jobs.len() as f64
    };
    Figures {
        throughput: mean(&|job| job.bytes / job.executed()),
        latency: mean(&model::Record::latency),
        latency_max: run
            .jobs
            .iter()
            .map(model::Record::latency)
            .fold(0.0, f64::max),
        stopped: run.stopped(),
    }
}

/// Returns the number of the first job that waits for space, counted from one.
#[must_use]
pub fn first_stop(run: &Run) -> Option<usize> {
    let at = run.jobs.iter().position(|job| job.stopped > STOP_MIN)?;
    Some(at + 1)
}

/// Returns all results.
#[must_use]
pub fn results() -> Value {
    json!({
        "assumptions": {
            "capacity_gb": CAPACITY / GIGA,
            "checkpoint_gb": CHECKPOINT / GIGA,
            "period_s": PERIOD,
            "bw_max": 3.56, "bw_min": 3.0, "br_max": 1.6, "br_min": 0.08,
        },
        "thresholds": thresholds(),
        "utilisation": utilisation(),
        "overflow": overflow(),
        "writes": writes(),
        "waits": waits(),
        "bypass": bypass::results(),
        "estimated": estimated::results(),
    })
}

/// Returns the thresholds of equation 5.2 as multiples of S.
fn thresholds() -> Value {
    let device = tier(Demotes::Written).device;
    let row = |load: f64| {
        let plan = |form| Ramp::plan(&device, 1.0, load, form).ok();
        let text = plan(EquationForm::Text);
        json!({
            "load": load,
            "start": text.map(|ramp| rounded(ramp.start)),
            "start_printed": plan(EquationForm::Printed).map(|ramp| rounded(ramp.start)),
            "full": text.map(|ramp| rounded(ramp.full)),
        })
    };
    let rows: Vec<Value> = [1.0, 1.2, 1.3, 1.4, 1.6, 1.9, 2.1].map(row).into();
    json!({ "bound": rounded(device.admissible(1.0)), "rows": rows })
}

/// Returns the results of section 5.3.2: the load that each policy serves.
fn utilisation() -> Value {
    let percent = |count: usize| rounded(100.0 * count as f64 * CHECKPOINT / CAPACITY);
    let row = |policy: &dyn TierPolicy, paper: u32| {
        let served = served(policy, Demotes::Written);
        let complete = self::served(policy, Demotes::Complete);
        json!({
            "policy": policy.name(),
            "in_period": percent(served.in_period),
            "without_stop": percent(served.without_stop),
            "complete_without_stop": percent(complete.without_stop),
            "admitted": rounded(100.0 * policy.bound(&tier(Demotes::Written)) / CAPACITY),
            "paper": paper,
        })
    };
    json!([
        row(&DataWarp, 100),
        row(&MaxBw, 190),
        row(&MaxEff, 210),
        row(&Bbos::default(), 210),
        row(&EvenBbos, 210),
    ])
}

/// Returns the fill level and the stops if all checkpoints up to a policy's bound arrive together.
fn overflow() -> Value {
    let mut rows = Vec::new();
    for (policy, demotes) in [
        (&Bbos::default() as &dyn TierPolicy, Demotes::Written),
        (&Bbos::default(), Demotes::Complete),
        (&EvenBbos, Demotes::Complete),
    ] {
        let most = (policy.bound(&tier(demotes)) / CHECKPOINT).floor() as usize;
        let runs: Vec<Run> = ((1..=most).rev())
            .step_by(4)
            .map(|count| run(policy, demotes, &jobs(count, Congestion::Burst)))
            .collect();
        let used = runs.iter().map(|run| run.most_used).fold(0.0, f64::max);
        rows.push(json!({
            "policy": policy.name(),
            "demotes": if demotes == Demotes::Written { "written" } else { "complete" },
            "checkpoints": most,
            "load": rounded(most as f64 * CHECKPOINT / CAPACITY),
            "used": rounded(used / CAPACITY),
            "stopped_s": rounded(runs.iter().map(Run::stopped).sum()),
        }));
    }
    json!(rows)
}

/// Returns the results for Figures 5.3 and 5.4.
fn writes() -> Value {
    let mut rows = Vec::new();
    let mut row = |policy: &dyn TierPolicy, load: f64, congestion: Congestion| {
        // DataWarp stores whole checkpoints only, so it gets the largest number of checkpoints that
        // fits.
        let count = if policy.serializes() {
            count(load)
        } else {
            (load * CAPACITY / CHECKPOINT) as usize
        };
        let run = run(policy, Demotes::Written, &jobs(count, congestion));
        let figures = figures(&run);
        rows.push(json!({
            "policy": policy.name(),
            "load": load,
            "congestion": congestion.name(),
            "checkpoints": count,
            "throughput_gb_s": rounded(figures.throughput / GIGA),
            "latency_s": rounded(figures.latency),
            "latency_max_s": rounded(figures.latency_max),
            "stopped_s": rounded(figures.stopped),
        }));
    };
    for congestion in Congestion::ALL {
        row(&DataWarp, 1.0, congestion);
    }
    for load in LOADS {
        for congestion in Congestion::ALL {
            for policy in [
                &MaxBw as &dyn TierPolicy,
                &MaxEff,
                &Bbos::default(),
                &EvenBbos,
            ] {
                row(policy, load, congestion);
            }
        }
    }
    json!(rows)
}

/// Returns Figure 5.5: the waits of each job if the data of a period is 1.9 times the capacity S,
/// with medium congestion.
fn waits() -> Value {
    let mut rows = Vec::new();
    for policy in [
        &MaxBw as &dyn TierPolicy,
        &MaxEff,
        &Bbos::default(),
        &EvenBbos,
    ] {
        let run = run(
            policy,
            Demotes::Written,
            &jobs(count(1.9), Congestion::Medium),
        );
        let waits: Vec<f64> = run.jobs.iter().map(|job| rounded(job.waited())).collect();
        rows.push(json!({
            "policy": policy.name(),
            "first_stop": first_stop(&run),
            "waits_s": waits,
        }));
    }
    json!({ "paper_stops_after": 36, "rows": rows })
}
