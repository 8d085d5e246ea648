//! The demonstration in Lu et al., *BigData Express*, with three tasks: a best-effort task that
//! uses the whole capacity, and two tasks with deadlines that arrive while it runs.
//!
//! The rates in the paper correspond to one shared resource of about 10.5 Gbit/s. The text of the
//! paper describes other hardware: two tasks share a 10 Gbit/s network card of one host, and the
//! third task starts from another host. This module runs both variants, with the broker and with
//! rules that ignore deadlines.

use super::rounded;
use crate::fluid::{
    Admission, Brokered, Load, Plain, Report, Resource, ResourceIndex, Sizes, Transfer,
    TransferIndex, run, wish,
};
use dray_core::Time;
use dray_core::rate::Class;
use dray_sched::broker::{Config, TransferKey};
use serde_json::{Value, json};
use std::time::Duration;

const GB: u64 = 1_000_000_000;

/// One Gbit/s in bytes per second.
const GBIT: f64 = 1e9 / 8.0;

/// Total rate of the three tasks, read from the paper's figure, in bytes per second.
const SHARED: f64 = 10.5 * GBIT;

/// The three tasks in the order of the paper: name, size in GB, arrival in seconds, and time from
/// arrival to deadline in seconds.
pub const TASKS: [(&str, u64, u64, Option<u64>); 3] = [
    ("T1", 300, 60, Some(1_800)),
    ("T2", 200, 200, Some(300)),
    ("T3", 800, 0, None),
];

/// A fourth task that cannot be promised. Alone, the task would meet its deadline, but the promise
/// to T2 uses capacity that the task needs.
pub const FOURTH: (&str, u64, u64, Option<u64>) = ("T4", 200, 210, Some(200));

/// Resources that the tasks use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// All tasks share one resource.
    Shared,
    /// T1 and T3 share a 10 Gbit/s card. T2 uses the card of another host. All three share the 40
    /// Gbit/s card of the other site and a circuit of 20 Gbit/s.
    Cards,
}

impl Topology {
    /// Both topologies.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Cards];

    /// Returns the name of the topology in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Cards => "cards",
        }
    }

    /// Returns a load of the three [`TASKS`]. If `fourth` is given, the load also contains the task
    /// [`FOURTH`], with its deadline `fourth` seconds after its arrival.
    #[must_use]
    pub fn load(self, fourth: Option<u64>) -> Load {
        let mut load = Load::default();
        let resources: [Vec<ResourceIndex>; 2] = match self {
            Self::Shared => {
                let all = load.share(Resource::steady("all", SHARED));
                [vec![all], vec![all]]
            }
            Self::Cards => {
                let one = load.share(Resource::steady("dtn3", 10.0 * GBIT));
                let two = load.share(Resource::steady("dtn2", 10.0 * GBIT));
                let circuit = load.share(Resource::steady("circuit", 20.0 * GBIT));
                let sink = load.share(Resource::steady("sink", 40.0 * GBIT));
                [vec![one, circuit, sink], vec![two, circuit, sink]]
            }
        };
        for task in TASKS {
            let used = if task.0 == "T2" {
                &resources[1]
            } else {
                &resources[0]
            };
            load.submit(made(task, used));
        }
        if let Some(within) = fourth {
            let (name, gigas, comes, _) = FOURTH;
            load.submit(made((name, gigas, comes, Some(within)), &resources[1]));
        }
        load
    }
}

fn made(
    (name, gigas, comes, within): (&str, u64, u64, Option<u64>),
    resources: &[ResourceIndex],
) -> Transfer {
    let arrives = Time::ZERO + Duration::from_secs(comes);
    let mut transfer = Transfer::new(name, arrives, gigas * GB, resources);
    if let Some(within) = within {
        transfer.class = Class::Deadline;
        transfer.deadline = Some(arrives + Duration::from_secs(within));
    }
    transfer
}

/// Runs the tasks under the broker. If `fourth` is given, the load contains the fourth task, with
/// this number of seconds until its deadline.
///
/// # Panics
/// If the broker orders rates that are not feasible.
#[must_use]
pub fn brokered(topology: Topology, fourth: Option<u64>) -> (Report, Brokered) {
    let load = topology.load(fourth);
    let broker = Brokered::new(
        &load,
        Config::default(),
        Admission::Tested,
        Sizes::Configured,
    );
    let mut conductor = broker.keeping_rates();
    let report = run(&load, &mut conductor)
        .expect("the broker makes only decisions that can be carried out");
    (report, conductor)
}

/// Runs the tasks under a plain rule.
///
/// # Panics
/// Never: plain rules order feasible rates only.
#[must_use]
pub fn plain(topology: Topology, mut rule: Plain) -> Report {
    run(&topology.load(None), &mut rule)
        .expect("the policy makes only decisions that can be carried out")
}

/// Returns the deadline that the broker offers for the refused fourth task, in seconds from its
/// submission.
///
/// # Panics
/// If the task is not refused, or if the broker makes no offer.
#[must_use]
pub fn offer(topology: Topology) -> u64 {
    let within = FOURTH.3;
    let (_, conductor) = brokered(topology, within);
    let load = topology.load(within);
    let key = wish(TransferIndex(3), &load.transfers[3]).key;
    let (_, at, refusal) =
        (conductor.refusals.first()).expect("the broker refuses the fourth transfer");
    let offer = refusal
        .offer
        .as_ref()
        .expect("the refusal contains a later deadline");
    let of_it = offer.iter().find(|(of, _)| *of == key);
    of_it
        .expect("the report of the broker contains all four transfers")
        .1
        .since(*at)
        .as_secs()
}

/// Returns, for each task that has a deadline, true if the task met it.
#[must_use]
pub fn is_met(report: &Report, load: &Load) -> Vec<bool> {
    let tasks = report.transfers.iter().zip(&load.transfers);
    tasks
        .filter_map(|(record, task)| {
            let finished = record.finished?;
            Some(finished <= task.deadline?)
        })
        .collect()
}

/// Returns the rate in Gbit/s that the broker gave a task at a time in seconds.
#[must_use]
pub fn rate_at(conductor: &Brokered, task: usize, seconds: u64) -> f64 {
    let time = Time::ZERO + Duration::from_secs(seconds);
    let last = conductor.rates.iter().rev().find(|(at, _)| *at <= time);
    let key = TransferKey(task as u64);
    let given = last.and_then(|(_, rates)| rates.given(key));
    given.map_or(0.0, |rate| rate.0 as f64 / GBIT)
}

/// Returns all results.
#[must_use]
pub fn results() -> Value {
    let mut runs = Vec::new();
    for topology in Topology::ALL {
        let (report, conductor) = brokered(topology, None);
        let curves: Vec<Vec<[f64; 2]>> = (0..3).map(|task| curve(&conductor, task)).collect();
        let mut brokered = told(topology, "broker", &report);
        brokered["gbit_per_second"] = json!(curves);
        brokered["changes"] = json!(conductor.changes);
        runs.push(brokered);
        for rule in Plain::ALL {
            runs.push(told(topology, rule.name(), &plain(topology, rule)));
        }
    }
    let fourth: Vec<Value> = Topology::ALL
        .iter()
        .map(|topology| {
            let offered = offer(*topology);
            let (report, conductor) = brokered(*topology, Some(offered));
            json!({
                "place": topology.name(),
                "asked_seconds": FOURTH.3,
                "offered_seconds": offered,
                "is_taken_on": conductor.refusals.is_empty(),
                "took_seconds": report.of(TransferIndex(3)).seconds().map(rounded),
                "are_met": is_met(&report, &topology.load(Some(offered))),
            })
        })
        .collect();
    json!({
        "tasks": TASKS.map(|(name, gigas, comes, within)| json!({
            "name": name, "gigabytes": gigas, "comes_seconds": comes, "within_seconds": within,
        })),
        "shared_gbit_per_second": SHARED / GBIT,
        "runs": runs,
        "fourth": fourth,
    })
}

fn told(topology: Topology, rule: &str, report: &Report) -> Value {
    let seconds = report
        .transfers
        .iter()
        .map(|record| record.seconds().map(rounded));
    json!({
        "place": topology.name(),
        "rule": rule,
        "seconds": seconds.collect::<Vec<_>>(),
        "are_met": is_met(report, &topology.load(None)),
        "idle_seconds": rounded(report.idle_seconds),
    })
}

/// Returns the rate of a task as steps: time in seconds, and rate in Gbit/s.
fn curve(conductor: &Brokered, task: usize) -> Vec<[f64; 2]> {
    let key = TransferKey(task as u64);
    let mut points: Vec<[f64; 2]> = Vec::new();
    for (at, rates) in &conductor.rates {
        let seconds = rounded(at.since(Time::ZERO).as_secs_f64());
        let rate = rates.given(key).map_or(0.0, |rate| rate.0 as f64 / GBIT);
        let rate = rounded(rate);
        match points.last() {
            Some([_, last]) if (last - rate).abs() < 0.05 => {}
            Some(&[_, last]) => points.extend([[seconds, last], [seconds, rate]]),
            None => points.push([seconds, rate]),
        }
    }
    points
}
