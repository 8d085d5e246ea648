//! Random loads that need 0.5 to 1.2 times the capacity. The experiment measures the broker's
//! admissions and its missed promises. It also measures the deadlines that EDF and fair shares miss
//! with the same transfers.
//!
//! A load uses the network cards of several sites and their shared link for an hour. It contains
//! transfers of all sizes. The deadline of a transfer allows one and a half to six times the time
//! that the transfer would need alone. Some transfers are submitted before they may begin, some
//! have ceilings, and background transfers use the remaining capacity.

use super::rounded;
use crate::fluid::{
    Admission, Brokered, Load, Plain, Report, Resource, ResourceIndex, Sizes, Transfer,
    TransferIndex, run, wish,
};
use dray_core::Time;
use dray_core::rate::Class;
use dray_sched::broker::{Broker, Config, Demand, Need, ResourceId, TransferKey, bytes_bound};
use dray_sched::rng::Rng;
use serde_json::{Value, json};
use std::time::Duration;

/// Number of loads in the complete experiment.
pub const LOADS: u64 = 1_000;

/// Number of loads with fewer and larger transfers.
const FEW_LOADS: u64 = 200;

/// Earliest submission in seconds. Capacities are measured before this time.
const BEFORE: u64 = 600;

/// Period in which transfers arrive, in seconds.
const HOUR: u64 = 3_600;

const SECOND: u64 = 1_000_000_000;
const MEGA: u64 = 1_000_000;

/// Amplitude of a varying capacity, as a fraction.
const NOISE: f64 = 0.3;

/// Duration in seconds of each value of a varying capacity: the minimum duration, and the length of
/// the range above the minimum.
const NOISE_LASTS: (u64, u64) = (20, 100);

/// The time at which the broker learns of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// The broker learns of a transfer at its submission.
    Online,
    /// The broker knows all transfers from the start, as advance reservations.
    Ahead,
}

/// Number of transfers in a load. The total number of bytes is the same for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Many {
    /// 40 to 80 transfers.
    Usual,
    /// 20 to 40 transfers, each twice as large.
    Few,
}

impl Many {
    const fn least(self) -> u64 {
        match self {
            Self::Usual => 40,
            Self::Few => 20,
        }
    }
}

/// A random load with its demand.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// The load.
    pub load: Load,
    /// Demand of the transfers with deadlines on the resource with the highest demand, as a
    /// fraction of the capacity of that resource in one hour.
    pub part: f64,
}

/// Returns the load for this seed.
#[must_use]
pub fn drawn(seed: u64, known: Known, many: Many) -> Drawn {
    let mut draw = Rng::new(seed ^ 0x10ad);
    let part = 0.5 + 0.7 * unit(&mut draw);
    let mut load = Load::default();
    let sites = 2 + draw.below(3);
    let mut capacities = Vec::new();
    for site in 0..=sites {
        // The cards have 0.8 to 2.5 GB/s. The last resource is the shared link.
        let card = MEGA as f64 * (800.0 + 1_700.0 * unit(&mut draw));
        let capacity = if site == sites { card * 1.5 } else { card };
        load.share(Resource::steady(&format!("r{site}"), capacity.floor()));
        capacities.push(capacity.floor());
    }
    let link = usize::try_from(sites).expect("few");
    let count = many.least() * (100 + draw.below(101)) / 100;
    let mut shapes = Vec::new();
    for _ in 0..count {
        let from = index(&mut draw, sites);
        let to = (from + 1 + index(&mut draw, sites - 1)) % link;
        let mut used = vec![from, to];
        if draw.below(2) == 0 {
            used.push(link);
        }
        // Sizes differ by a factor of up to 100, and their logarithms are distributed uniformly.
        let size = 100f64.powf(unit(&mut draw));
        let comes = BEFORE + draw.below(HOUR * 3 / 4);
        shapes.push((used, size, comes, draw.clone()));
        let _ = draw.next();
    }
    // Scale the sizes so that the resource with the highest demand is used for the fraction `part`
    // of an hour.
    let asked = |at: usize| -> f64 {
        let of = shapes.iter().filter(|(used, ..)| used.contains(&at));
        of.map(|(_, size, ..)| *size).sum::<f64>() / (capacities[at] * HOUR as f64)
    };
    let most = (0..=link).map(asked).fold(0.0, f64::max);
    for (at, (used, size, comes, mut draw)) in shapes.into_iter().enumerate() {
        let bytes = (size * part / most).max(1e6) as u64;
        let resources: Vec<ResourceIndex> = used.iter().copied().map(ResourceIndex).collect();
        let mut alone = (used.iter().map(|at| capacities[*at])).fold(f64::INFINITY, f64::min);
        let arrives = match known {
            Known::Online => comes,
            Known::Ahead => 0,
        };
        let arrives = Time::from_nanos(arrives * SECOND);
        let mut transfer = Transfer::new(&format!("t{at}"), arrives, bytes, &resources);
        transfer.owner = format!("o{}", draw.below(4));
        transfer.class = Class::Deadline;
        if draw.below(4) == 0 {
            alone *= 0.2 + 0.6 * unit(&mut draw);
            transfer.ceiling = Some(alone.floor());
        }
        let announced = if draw.below(4) == 0 {
            draw.below(600)
        } else {
            0
        };
        let begins = comes + announced;
        if known == Known::Ahead || announced > 0 {
            transfer.not_before = Some(Time::from_nanos(begins * SECOND));
        }
        let slack = 1.5 + 4.5 * unit(&mut draw);
        let within = Duration::from_secs_f64((bytes as f64 / alone * slack).max(10.0));
        transfer.deadline = Some(Time::from_nanos(begins * SECOND) + within);
        load.submit(transfer);
    }
    for at in 0..4 {
        let used = [ResourceIndex(at % link), ResourceIndex(link)];
        let bytes = (capacities[link] * HOUR as f64 / 20.0) as u64;
        let arrives = Time::from_nanos((BEFORE + draw.below(HOUR / 2)) * SECOND);
        load.submit(Transfer::new(&format!("b{at}"), arrives, bytes, &used));
    }
    Drawn { load, part }
}

fn unit(draw: &mut Rng) -> f64 {
    f64::from(draw.next_u32()) / 4_294_967_296.0
}

fn index(draw: &mut Rng, bound: u64) -> usize {
    usize::try_from(draw.below(bound)).expect("small")
}

/// Returns the load with varying capacities, for a time that is longer than any run.
#[must_use]
pub fn noisy(load: &Load, seed: u64) -> Load {
    let mut draw = Rng::new(seed ^ 0x0153);
    let mut load = load.clone();
    for resource in &mut load.resources {
        let mut seconds = 0;
        while seconds < 8 * HOUR {
            let factor = 1.0 - NOISE + 2.0 * NOISE * unit(&mut draw);
            let capacity = (resource.capacity * factor).floor();
            resource
                .changes
                .push((Time::from_nanos(seconds * SECOND), capacity));
            seconds += NOISE_LASTS.0 + draw.below(NOISE_LASTS.1);
        }
    }
    load
}

/// Returns a load that contains only the transfers admitted in `report`.
#[must_use]
pub fn accepted(load: &Load, report: &Report) -> Load {
    let mut kept = load.clone();
    let mut records = report.transfers.iter();
    kept.transfers
        .retain(|_| records.next().is_some_and(|record| !record.is_refused));
    kept
}

/// Returns the number of admitted transfers that missed their deadline.
#[must_use]
pub fn misses(report: &Report, load: &Load) -> usize {
    let all = report.transfers.iter().zip(&load.transfers);
    all.filter(|(record, transfer)| {
        let is_late = |deadline| record.finished.is_none_or(|finished| finished > deadline);
        !record.is_refused && transfer.deadline.is_some_and(is_late)
    })
    .count()
}

/// Returns the number of bytes of admitted transfers with a deadline.
#[must_use]
pub fn bytes_taken(report: &Report, load: &Load) -> u64 {
    let all = report.transfers.iter().zip(&load.transfers);
    all.filter(|(record, transfer)| !record.is_refused && transfer.deadline.is_some())
        .map(|(_, transfer)| transfer.bytes)
        .sum()
}

/// Returns an upper bound for the number of bytes that can arrive before their deadlines, whatever
/// transfers are admitted, and even if all transfers are known from the start. The bound is a
/// linear relaxation, in which parts of transfers count too.
#[must_use]
pub fn bytes_at_best(load: &Load) -> f64 {
    let demands = load
        .transfers
        .iter()
        .enumerate()
        .filter_map(|(at, transfer)| {
            let from = transfer.not_before.unwrap_or(transfer.arrives);
            Some(Demand {
                key: TransferKey(at as u64),
                bytes: transfer.bytes,
                from: from.max(transfer.arrives),
                until: transfer.deadline?,
                ceiling: transfer.ceiling.map(|rate| rate as u64),
                resources: transfer.resources.iter().map(|at| at.0).collect(),
            })
        });
    let need = Need {
        now: Time::ZERO,
        capacities: (load.resources.iter().map(|one| Some(one.capacity as u64))).collect(),
        demands: demands.collect(),
        holds: Vec::new(),
    };
    bytes_bound(&need).unwrap_or(0.0)
}

/// Results for one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Demand of the load, as in [`Drawn::part`].
    pub part: f64,
    /// Number of transfers with a deadline.
    pub wished: usize,
    /// Number of admitted transfers with a deadline.
    pub taken: usize,
    /// Bytes of admitted transfers, as a fraction of the upper bound.
    pub of_best: f64,
    /// Number of late transfers with constant capacities.
    pub late_steady: usize,
    /// Number of late transfers with varying capacities: under the broker, under earliest deadline
    /// first (EDF), and with fair sharing.
    pub late_noisy: [usize; 3],
    /// Number of late transfers whose miss the broker reported before their deadline.
    pub foretold: usize,
}

/// Runs one load: with the broker and steady capacities, and with varying capacities under the
/// broker, EDF and fair sharing.
///
/// # Panics
/// If a rule orders rates that are not feasible.
#[must_use]
pub fn outcome(seed: u64, many: Many) -> Outcome {
    let Drawn { load, part } = drawn(seed, Known::Online, many);
    let mut broker = Brokered::new(
        &load,
        Config::default(),
        Admission::Tested,
        Sizes::Configured,
    );
    let steady =
        run(&load, &mut broker).expect("the broker makes only decisions that can be carried out");
    let kept = accepted(&load, &steady);
    let noisy = noisy(&kept, seed);
    let mut broker = Brokered::new(&noisy, Config::default(), Admission::Given, Sizes::Measured);
    let ours =
        run(&noisy, &mut broker).expect("the broker makes only decisions that can be carried out");
    let theirs = |mut rule: Plain| {
        run(&noisy, &mut rule).expect("the policy makes only decisions that can be carried out")
    };
    let wished = load
        .transfers
        .iter()
        .filter(|one| one.deadline.is_some())
        .count();
    let refused = steady
        .transfers
        .iter()
        .filter(|record| record.is_refused)
        .count();
    let foretold = broker.foretold.iter().filter(|(index, at)| {
        let record = ours.of(*index);
        let deadline = noisy.transfers[index.0].deadline;
        deadline.is_some_and(|deadline| {
            *at < deadline && record.finished.is_none_or(|end| end > deadline)
        })
    });
    Outcome {
        part,
        wished,
        taken: wished - refused,
        of_best: bytes_taken(&steady, &load) as f64 / bytes_at_best(&load),
        late_steady: misses(&steady, &load),
        late_noisy: [
            misses(&ours, &noisy),
            misses(&theirs(Plain::Edf), &noisy),
            misses(&theirs(Plain::Fair), &noisy),
        ],
        foretold: foretold.count(),
    }
}

/// Requests all transfers in advance. Returns two results for two orders of the requests: the order
/// of the load, and the largest transfers first. A result is the fraction of the upper bound that
/// the admitted bytes reach.
#[must_use]
pub fn ahead(seed: u64) -> [f64; 2] {
    let Drawn { load, .. } = drawn(seed, Known::Ahead, Many::Usual);
    let best = bytes_at_best(&load);
    let mut order: Vec<usize> = (0..load.transfers.len())
        .filter(|at| load.transfers[*at].deadline.is_some())
        .collect();
    let taken = |order: &[usize]| {
        let mut broker = Broker::new(Config::default());
        for (id, resource) in (0..).zip(&load.resources) {
            let rate = dray_core::rate::BytesPerSecond(resource.capacity as u64);
            broker.set_resource(ResourceId(id), Some(rate));
        }
        let mut bytes = 0;
        for at in order {
            let wish = wish(TransferIndex(*at), &load.transfers[*at]);
            if broker.take_on(&[wish], Time::ZERO).is_some() {
                bytes += load.transfers[*at].bytes;
            }
        }
        bytes as f64 / best
    };
    let listed = taken(&order);
    order.sort_by_key(|at| std::cmp::Reverse(load.transfers[*at].bytes));
    [listed, taken(&order)]
}

/// Returns all results.
#[must_use]
pub fn results() -> Value {
    let mut all = table(0..LOADS);
    // Also run loads of fewer and larger transfers, in which fewer transfers can be late.
    let few = (0..FEW_LOADS).map(|seed| outcome(seed, Many::Few));
    let mut late = [0; 3];
    for one in few {
        for (sum, late) in late.iter_mut().zip(one.late_noisy) {
            *sum += late;
        }
    }
    let [broker, edf, fair] = late;
    all["few"] = json!({
        "loads": FEW_LOADS,
        "late_noisy": { "broker": broker, "edf": edf, "fair": fair },
    });
    all
}

/// Returns the results for these seeds, grouped by demand.
#[must_use]
pub fn table(seeds: std::ops::Range<u64>) -> Value {
    let outcomes: Vec<Both> = seeds
        .map(|seed| (outcome(seed, Many::Usual), ahead(seed)))
        .collect();
    let classes = (0..7).map(|at| (0.5 + 0.1 * f64::from(at), 0.6 + 0.1 * f64::from(at)));
    let rows: Vec<Value> = classes
        .map(|(low, high)| {
            let of = outcomes
                .iter()
                .filter(|(one, _)| (low..high).contains(&one.part));
            row(low, high, &of.collect::<Vec<_>>())
        })
        .collect();
    json!({
        "loads": outcomes.len(),
        "all": row(0.5, 1.2, &outcomes.iter().collect::<Vec<_>>()),
        "rows": rows,
        "noise": NOISE,
    })
}

/// Results of a load, and its admitted fractions with advance requests.
type Both = (Outcome, [f64; 2]);

fn row(low: f64, high: f64, outcomes: &[&Both]) -> Value {
    let sum =
        |of: &dyn Fn(&Outcome) -> usize| outcomes.iter().map(|(one, _)| of(one)).sum::<usize>();
    let mean = |of: &dyn Fn(&Both) -> f64| {
        let all: f64 = outcomes.iter().map(|one| of(one)).sum();
        rounded(all / outcomes.len().max(1) as f64)
    };
    json!({
        "from": rounded(low),
        "to": rounded(high),
        "loads": outcomes.len(),
        "wished": sum(&|one| one.wished),
        "taken": sum(&|one| one.taken),
        "of_best": mean(&|(one, _)| one.of_best),
        "of_best_ahead": mean(&|(_, ahead)| ahead[0]),
        "of_best_ahead_largest_first": mean(&|(_, ahead)| ahead[1]),
        "late_steady": sum(&|one| one.late_steady),
        "late_noisy": {
            "broker": sum(&|one| one.late_noisy[0]),
            "edf": sum(&|one| one.late_noisy[1]),
            "fair": sum(&|one| one.late_noisy[2]),
        },
        "foretold": sum(&|one| one.foretold),
    })
}
