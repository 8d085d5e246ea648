//! Compares tuners on four network paths. The experiment measures the throughput relative to the
//! best fixed number of streams or writers under the same disturbances. It also measures the time
//! that a tuner spends at numbers of streams or writers that make the other end fail.

pub mod paths;

use super::rounded;
use dray_sched::tuner::dtl::{self, Dtl};
use dray_sched::tuner::{Bounds, Knob, Remembered, Sample, Setting, Tuner};
use paths::{Course, PATHS, Path, STEP, STEPS, Weather, drawn, run};
use serde_json::{Value, json};

/// Number of runs of each path. Each run has different disturbances.
pub const SEEDS: u64 = 200;

/// Number of random paths, each run once.
const DRAWN: u64 = 400;

/// Time in seconds from which the throughput is compared with the best fixed number.
pub const FROM: usize = 20;

/// Seed of the runs that the pictures show.
const SHOWN: u64 = 1;

/// Fixed numbers. A tuner is compared with the best of these numbers.
const FIXED: [u64; 26] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 34, 36, 38, 40, 44, 48, 56, 64,
];

/// Default setting at the start of a transfer.
pub const START: Setting = Setting {
    streams: 4,
    readers: 4,
    writers: 4,
    object_bytes: 1 << 20,
};

/// Bounds of the tuners. An endpoint grants 64 streams. The object size is not tuned in this
/// experiment.
pub const BOUNDS: Bounds = Bounds {
    least: Setting {
        streams: 1,
        readers: 1,
        writers: 1,
        object_bytes: 1 << 20,
    },
    most: Setting {
        streams: 64,
        readers: 64,
        writers: 64,
        object_bytes: 1 << 20,
    },
};

/// The tuner used in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// No tuner: the setting stays at [`START`].
    Nobody,
    /// The rule of Liu and others.
    Dtl,
    /// The tuner of dray, for a pair of endpoints without history.
    Ours,
    /// The tuner of dray, without information about the bottleneck.
    Blind,
    /// The tuner of dray, with the result of another run.
    Recalled,
}

impl Who {
    /// All tuners.
    pub const ALL: [Self; 5] = [
        Self::Nobody,
        Self::Dtl,
        Self::Ours,
        Self::Blind,
        Self::Recalled,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Dtl => "dtl",
            Self::Ours => "ours",
            Self::Blind => "blind",
            Self::Recalled => "recalled",
        }
    }
}

/// Runs a path with the disturbances of this seed.
#[must_use]
pub fn course(path: &Path, seed: u64, who: Who) -> Course {
    let weather = Weather::new(seed);
    match who {
        Who::Nobody => run(path, &weather, START, |_| START),
        Who::Dtl => {
            let mut dtl = Dtl::new(BOUNDS, dtl::START);
            let start = dtl.setting();
            run(path, &weather, start, |sample| dtl.told(sample))
        }
        Who::Ours => ours(path, &weather).0,
        Who::Blind => {
            let mut tuner = Tuner::new(&BOUNDS, START);
            run(path, &weather, START, |sample| {
                tuner.told(&Sample {
                    bottleneck: None,
                    ..*sample
                })
            })
        }
        Who::Recalled => {
            // Recall the setting that a run with other disturbances has found.
            let (_, known) = ours(path, &Weather::new(seed + SEEDS));
            let mut tuner = Tuner::recall(&BOUNDS, &known);
            let start = tuner.setting();
            run(path, &weather, start, |sample| tuner.told(sample))
        }
    }
}

fn ours(path: &Path, weather: &Weather) -> (Course, Remembered) {
    let mut tuner = Tuner::new(&BOUNDS, START);
    let course = run(path, weather, START, |sample| tuner.told(sample));
    (course, tuner.remembered())
}

/// Returns the value of the path's knob that moves the most bytes without a change of the value,
/// and the number of bytes that it moves from [`FROM`] on. The disturbances are those of `seed`.
#[must_use]
pub fn best_fixed(path: &Path, seed: u64) -> (u64, f64) {
    let weather = Weather::new(seed);
    let runs = FIXED.into_iter().map(|value| {
        let setting = START.with(path.knob, value);
        (value, carried(&run(path, &weather, setting, |_| setting)))
    });
    runs.fold(
        (0, 0.0),
        |best, other| {
            if other.1 > best.1 { other } else { best }
        },
    )
}

/// Returns the number of bytes moved from [`FROM`] on.
#[must_use]
pub fn carried(course: &Course) -> f64 {
    course.bytes.iter().skip(FROM * per_second()).sum()
}

const fn per_second() -> usize {
    (1000 / STEP.as_millis()) as usize
}

/// Results of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Came {
    /// Bytes moved, as a fraction of the bytes that the best fixed number moves.
    pub part: f64,
    /// Time in seconds until the tuner chose a number that, without disturbances, would reach nine
    /// tenths of the maximum throughput. `None` if the tuner never chose such a number.
    pub seconds: Option<f64>,
    /// Number of changes from a number at which the other end works to a number at which the other
    /// end fails.
    pub entries: usize,
    /// Longest continuous time in seconds at numbers at which the other end fails.
    pub longest: f64,
    /// Total time in seconds at numbers at which the other end fails.
    pub failing: f64,
}

/// Evaluates a run.
#[must_use]
pub fn came(path: &Path, course: &Course, best: f64) -> Came {
    let step = STEP.as_secs_f64();
    let carries = |setting: &Setting| {
        path.carries(f64::from(setting.streams), f64::from(setting.writers))
            .0
    };
    let most = (FIXED.iter())
        .map(|value| carries(&START.with(path.knob, *value)))
        .fold(0.0, f64::max);
    let first = (course.settings.iter()).position(|setting| carries(setting) >= 0.9 * most);
    let stays = course.failing.chunk_by(|a, b| a == b).filter(|run| run[0]);
    let lengths: Vec<usize> = stays.map(<[bool]>::len).collect();
    Came {
        part: carried(course) / best,
        seconds: first.map(|steps| steps as f64 * step),
        entries: lengths.len(),
        longest: lengths.iter().max().copied().unwrap_or(0) as f64 * step,
        failing: lengths.iter().sum::<usize>() as f64 * step,
    }
}

/// Returns the results of `seeds` runs on one path.
#[must_use]
pub fn all(path: &Path, who: Who, seeds: u64) -> Vec<Came> {
    (0..seeds)
        .map(|seed| came(path, &course(path, seed, who), best_fixed(path, seed).1))
        .collect()
}

/// Returns the results of runs on random paths whose bottleneck is `name`. Each run has a different
/// path and different disturbances.
#[must_use]
pub fn of_drawn(name: &str, who: Who, seeds: u64) -> Vec<Came> {
    (0..seeds)
        .map(|seed| (seed, drawn(seed)))
        .filter(|(_, path)| path.name == name)
        .map(|(seed, path)| {
            let best = best_fixed(&path, seed).1;
            came(&path, &course(&path, seed, who), best)
        })
        .collect()
}

/// Returns the quantile of the values at `hundredths` percent.
#[must_use]
pub fn quantile(values: impl Iterator<Item = f64>, hundredths: usize) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values
        .get(last * hundredths / 100)
        .copied()
        .unwrap_or(f64::NAN)
}

/// Returns all results.
#[must_use]
pub fn results() -> Value {
    let paths: Vec<Value> = PATHS.iter().map(told).collect();
    let drawn: Vec<Value> = ["network", "storage"]
        .into_iter()
        .map(|name| {
            let runs = [Who::Nobody, Who::Dtl, Who::Ours];
            let runs = runs.map(|who| summed(who, &of_drawn(name, who, DRAWN)));
            json!({ "name": name, "runs": runs })
        })
        .collect();
    json!({
        "seeds": SEEDS,
        "from_seconds": FROM,
        "seconds": STEPS / per_second(),
        "start": START.streams,
        "dtl_start": dtl::START,
        "paths": paths,
        "drawn": drawn,
    })
}

fn told(path: &Path) -> Value {
    let best: Vec<(u64, f64)> = (0..SEEDS).map(|seed| best_fixed(path, seed)).collect();
    let runs = Who::ALL.map(|who| {
        let runs: Vec<Came> = (0..SEEDS)
            .zip(&best)
            .map(|(seed, (_, best))| came(path, &course(path, seed, who), *best))
            .collect();
        summed(who, &runs)
    });
    let curves = [Who::Ours, Who::Dtl].map(|who| {
        let course = course(path, SHOWN, who);
        json!({ "who": who.name(), "points": curve(path.knob, &course) })
    });
    json!({
        "name": path.name,
        "about": path.about,
        "knob": match path.knob { Knob::Writers => "writers", _ => "streams" },
        "fails_above": path.fails_above,
        "best_fixed": quantile(best.iter().map(|(value, _)| *value as f64), 50),
        "best_fixed_shown": best_fixed(path, SHOWN).0,
        "runs": runs,
        "curves": curves,
    })
}

fn summed(who: Who, runs: &[Came]) -> Value {
    let parts = || runs.iter().map(|run| run.part);
    let good = parts().filter(|part| *part >= 0.9).count();
    let seconds = || runs.iter().map(|run| run.seconds.unwrap_or(f64::INFINITY));
    let told = |value: f64| value.is_finite().then(|| rounded(value));
    let mean = |total: f64| rounded(total / runs.len() as f64);
    json!({
        "who": who.name(),
        "runs": runs.len(),
        "good": good,
        "median": rounded(quantile(parts(), 50)),
        "twentieth": rounded(quantile(parts(), 5)),
        "worst": rounded(quantile(parts(), 0)),
        "seconds_median": told(quantile(seconds(), 50)),
        "seconds_slow": told(quantile(seconds(), 95)),
        "entries": mean(runs.iter().map(|run| run.entries as f64).sum()),
        "failing_longest": rounded(quantile(runs.iter().map(|run| run.longest), 100)),
        "failing_seconds": mean(runs.iter().map(|run| run.failing).sum()),
    })
}

/// Returns a curve of the value that the tuner set for `knob`: the points of a step function, each
/// with a time in seconds and a value.
fn curve(knob: Knob, course: &Course) -> Vec<[f64; 2]> {
    let mut points: Vec<[f64; 2]> = Vec::new();
    let mut last = None;
    for (at, setting) in course.settings.iter().enumerate() {
        let seconds = rounded(at as f64 * STEP.as_secs_f64());
        let value = setting.at(knob) as f64;
        if last != Some(value) {
            points.extend(last.map(|last| [seconds, last]));
            points.push([seconds, value]);
            last = Some(value);
        }
    }
    let end = STEPS as f64 * STEP.as_secs_f64();
    points.extend(last.map(|last| [end, last]));
    points
}
