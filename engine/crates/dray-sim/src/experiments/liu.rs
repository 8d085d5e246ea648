//! Liu, Tieman, Kettimuthu and Foster, *A data transfer framework for large-scale science
//! experiments*, 2010. This module repeats Table 2 (completion times of two data sets under each
//! policy), Figure 13 (two pairs of endpoints) and Figure 14 (turns of round robin).
//!
//! Three engines run the same transfers: a fluid model without costs, a model of the authors'
//! engine as far as the published numbers show it, and a model of dray.

use super::rounded;
use crate::fluid::{Load, Record, Report, Resource, Ruled, Switching, Transfer, run};
use dray_core::Time;
use dray_sched::policy::{Decision, Limits, Name, Phase, Policy, Settings, View};
use serde_json::{Value, json};
use std::time::Duration;

const GB: u64 = 1_000_000_000;

/// Rate of the line in bytes per second. Derived from the paper: first come, first served moved 53
/// GB in 1022 s.
const LINE: f64 = 415e6 / 8.0;

/// Rate of a network card in bytes per second. In the paper both ends had a card of 1 Gbit/s.
const CARD: f64 = 1e9 / 8.0;

/// Pause of the authors' engine when it changes to another transfer. Derived from the paper: with
/// 82 changes, round robin took 21 s longer than first come, first served.
const THEIR_PAUSE: Duration = Duration::from_millis(256);

/// Number of bytes of a turn, in all engines.
const QUOTA: u64 = 400_000_000;

/// Object size in dray's engine, in bytes.
const OBJECT: u64 = 1 << 20;

/// Round-trip time of the paths. After a gate opens, the first byte arrives one round trip later.
const ROUND_TRIP: Duration = Duration::from_millis(33);

/// Time from the submission of the first data set to that of the second.
const SECOND_COMES: Duration = Duration::from_secs(60);

/// Table 2 of Liu et al., in seconds: duration of tray03, duration of tray05 from its submission,
/// and duration of both together.
pub const TABLE_2: [(Name, [f64; 3]); 3] = [
    (Name::Fcfs, [683.0, 962.0, 1022.0]),
    (Name::Priority, [1019.0, 392.0, 1019.0]),
    (Name::RoundRobin, [1043.0, 677.0, 1043.0]),
];

/// Model of the engine that runs the transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// No costs, with dray's policies.
    Fluid,
    /// The engine of Liu et al. Each change to another transfer costs [`THEIR_PAUSE`]. In round
    /// robin, a data set that arrives later gets extra turns: as many as it missed before its
    /// arrival. With this rule, the model gives the published times.
    Theirs,
    /// Dray's engine and policies. Objects of 1 MiB in flight are completed. A change costs one
    /// round trip, and a new session costs three.
    Ours,
}

impl Engine {
    /// All engines.
    pub const ALL: [Self; 3] = [Self::Fluid, Self::Theirs, Self::Ours];

    /// Returns the name of the engine in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fluid => "fluid",
            Self::Theirs => "theirs",
            Self::Ours => "ours",
        }
    }

    fn switching(self) -> Switching {
        match self {
            Self::Fluid => Switching::default(),
            Self::Theirs => Switching {
                object_bytes: 0,
                begin: THEIR_PAUSE,
                resume: THEIR_PAUSE,
            },
            Self::Ours => Switching {
                object_bytes: OBJECT,
                begin: 3 * ROUND_TRIP,
                resume: ROUND_TRIP,
            },
        }
    }

    fn policy(self, name: Name) -> Box<dyn Policy> {
        if self == Self::Theirs && name == Name::RoundRobin {
            return Box::new(LeastServed { current: None });
        }
        // Run one data set at a time under every policy, because the engine of Liu et al. gave all
        // its threads to one data set.
        let settings = Settings {
            max_running: Some(1),
            quota: QUOTA,
            ..Settings::of(name)
        };
        settings.make()
    }
}

/// Round robin in which a transfer accumulates turns while it is absent: the transfer that has
/// moved the fewest bytes gets the next turn.
#[derive(Debug)]
struct LeastServed {
    /// The transfer whose turn it is, and its total number of bytes at the end of the turn.
    current: Option<(String, u64)>,
}

impl Policy for LeastServed {
    fn decide<'a>(&mut self, view: &View<'_, 'a>, _: Time) -> Decision<'a> {
        let goes_on = self.current.take().filter(|(id, until)| {
            let mut others = view.transfers.iter();
            others.any(|one| one.id == id && one.served < *until)
        });
        let next = match &goes_on {
            Some((id, _)) => view.transfers.iter().find(|one| one.id == id),
            None => view
                .transfers
                .iter()
                .min_by_key(|one| (one.served, one.submitted)),
        };
        let Some(next) = next else {
            return Decision::default();
        };
        let until = goes_on.map_or(next.served + QUOTA, |(_, until)| until);
        self.current = Some((next.id.to_owned(), until));
        let others = view.transfers.iter().filter(|one| one.id != next.id);
        Decision {
            run: vec![next.id],
            hold: others
                .filter(|one| one.phase == Phase::Running)
                .map(|one| one.id)
                .collect(),
            look_after: vec![(next.id, until)],
            ..Decision::default()
        }
    }
}

/// Runs the experiment of Table 2 of Liu et al.: the data set tray05 arrives a minute after the
/// data set tray03, and both use one network line.
///
/// # Panics
/// If the policy orders rates that are not feasible.
#[must_use]
pub fn two_sets(engine: Engine, policy: Name) -> Report {
    let mut load = Load {
        switching: engine.switching(),
        ..Load::default()
    };
    let line = load.share(Resource::steady("line", LINE));
    let set = |name: &str, arrives, bytes, priority| Transfer {
        owner: name.to_owned(),
        priority,
        ..Transfer::new(name, arrives, bytes, &[line])
    };
    load.submit(set("tray03", Time::ZERO, 34 * GB, 3));
    load.submit(set("tray05", Time::ZERO + SECOND_COMES, 19 * GB, 9));
    play(&load, engine.policy(policy))
}

/// Runs the experiment of Figure 13 of Liu et al.: two data sets between two pairs of endpoints.
/// The paper does not name the two data sets of the figure. The data sets used here occur elsewhere
/// in the paper, and their sizes have the same ratio as in the figure.
///
/// # Panics
/// If the policy orders rates that are not feasible.
#[must_use]
pub fn two_pairs(engine: Engine, policy: Name) -> Report {
    let mut load = Load {
        switching: engine.switching(),
        ..Load::default()
    };
    let card = load.share(Resource::steady("card", CARD));
    for (name, bytes) in [("jason_sam02", 35 * GB), ("tomo_2048", 58 * GB)] {
        let path = load.share(Resource::steady(name, LINE));
        load.submit(Transfer {
            source: "detector".to_owned(),
            sink: name.to_owned(),
            ..Transfer::new(name, Time::ZERO, bytes, &[card, path])
        });
    }
    let settings = Settings {
        max_running: Some(if policy == Name::Pairs { 2 } else { 1 }),
        ..Settings::of(policy)
    };
    play(&load, settings.make())
}

fn play(load: &Load, policy: Box<dyn Policy>) -> Report {
    let mut conductor = Ruled::new(load, policy, Limits::of(9));
    match run(load, &mut conductor) {
        Ok(report) => report,
        Err(fault) => panic!("a policy made an impossible decision: {fault}"),
    }
}

/// Returns three durations in seconds: of the first transfer, of the second transfer, and from the
/// first submission to the last end.
#[must_use]
pub fn seconds(report: &Report) -> [f64; 3] {
    let of = |at: usize| report.transfers[at].seconds().unwrap_or(f64::NAN);
    [of(0), of(1), report.ended.since(Time::ZERO).as_secs_f64()]
}

/// Returns the time for which the first transfer continued to move after the second arrived.
#[must_use]
pub fn preemption(report: &Report) -> Duration {
    let arrived = report.transfers[1].arrived;
    let turns = report.transfers[0].turns.iter();
    let cut = turns.map(|turn| turn.to).find(|to| *to >= arrived);
    cut.map_or(Duration::ZERO, |to| to.since(arrived))
}

/// Returns the number of bytes of each complete turn while both transfers were present.
#[must_use]
pub fn turns(report: &Report) -> Vec<f64> {
    let [first, second] = [&report.transfers[0], &report.transfers[1]];
    let last = first.finished.min(second.finished);
    let mut turns: Vec<_> = (first.turns.iter().chain(&second.turns))
        .filter(|turn| turn.from >= second.arrived && Some(turn.to) < last)
        .collect();
    turns.sort_by_key(|turn| turn.from);
    turns.into_iter().map(|turn| turn.bytes).collect()
}

/// Returns all results for the published pages.
#[must_use]
pub fn results() -> Value {
    let rows = TABLE_2.iter().flat_map(|(policy, paper)| {
        Engine::ALL.map(|engine| {
            let report = two_sets(engine, *policy);
            let preemptions: usize = report.transfers.iter().map(|one| one.preemptions).sum();
            json!({
                "policy": policy.as_str(),
                "engine": engine.name(),
                "seconds": seconds(&report).map(rounded),
                "paper": paper,
                "holds": preemptions,
                "curves": match engine {
                    Engine::Ours => report.transfers.iter().map(curve).collect::<Vec<_>>(),
                    Engine::Fluid | Engine::Theirs => Vec::new(),
                },
            })
        })
    });
    let figure_13 = Engine::ALL.into_iter().flat_map(|engine| {
        [Name::Pairs, Name::Fcfs].map(|policy| {
            let report = two_pairs(engine, policy);
            json!({
                "policy": policy.as_str(),
                "engine": engine.name(),
                "seconds": seconds(&report).map(rounded),
            })
        })
    });
    let round_robin = two_sets(Engine::Ours, Name::RoundRobin);
    let cut = preemption(&two_sets(Engine::Ours, Name::Priority));
    json!({
        "line_bytes_per_second": LINE,
        "their_pause_seconds": THEIR_PAUSE.as_secs_f64(),
        "quota_bytes": QUOTA,
        "object_bytes": OBJECT,
        "round_trip_seconds": ROUND_TRIP.as_secs_f64(),
        "table_2": rows.collect::<Vec<_>>(),
        "figure_13": figure_13.collect::<Vec<_>>(),
        "figure_14": turns(&round_robin),
        "preempted_after_seconds": cut.as_secs_f64(),
        "object_seconds": OBJECT as f64 / LINE,
    })
}

/// Returns the progress of a transfer as points (seconds, gigabytes), one for each change of its
/// rate.
fn curve(record: &Record) -> Vec<[f64; 2]> {
    let points = record.curve.iter();
    points
        .map(|(time, bytes)| [rounded(time.as_nanos() as f64 / 1e9), rounded(bytes / 1e9)])
        .collect()
}
