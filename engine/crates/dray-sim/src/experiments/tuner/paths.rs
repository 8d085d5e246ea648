//! Four network paths for testing a tuner, and random disturbances ("weather").
//!
//! A path has a link, storage at the sink, and a number of streams or writers above which the other
//! end fails. In each step the throughput is the lower of the streams' and the writers' rates,
//! multiplied by noise. From time to time a competing transfer uses a part of the bottleneck for
//! some seconds.

use dray_sched::rng::Rng;
use dray_sched::tuner::{Bottleneck, Errors, Knob, Sample, Setting};
use std::time::Duration;

/// Time between two samples.
pub const STEP: Duration = Duration::from_millis(250);

/// Number of samples of a run.
pub const STEPS: usize = 320;

const MEGA: f64 = 1e6;

/// Standard deviation of the noise, in the logarithm of a sample.
const NOISE: f64 = 0.15;
/// Correlation of the noise of a sample with that of the next sample.
const STAYS: f64 = 0.6;

/// Mean time in seconds from the end of a competing transfer to the start of the next.
const NEIGHBOUR_AFTER: f64 = 20.0;
/// Minimum and maximum duration of a competing transfer in seconds.
const NEIGHBOUR_STAYS: (f64, f64) = (2.0, 8.0);
/// Minimum and maximum share of the bottleneck that a competing transfer takes.
const NEIGHBOUR_TAKES: (f64, f64) = (0.2, 0.6);

/// Mean time in seconds between losses of a stream that are independent of the setting.
const ACCIDENT_AFTER: f64 = 120.0;

/// Throughput while the other end fails, as a fraction of the normal throughput.
const FAILING: f64 = 0.3;

/// Number of errors per second for each stream or writer above the limit of the other end.
const FAILS: f64 = 2.0;

/// A network path with its storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Name of the path.
    pub name: &'static str,
    /// Description of the path's bottleneck.
    pub about: &'static str,
    /// The knob that limits the throughput of this path.
    pub knob: Knob,
    /// Rate of the link in bytes per second.
    pub link: f64,
    /// Maximum rate of one stream in bytes per second.
    pub stream: f64,
    /// Fraction of the throughput that is lost for each additional stream.
    pub stream_cost: f64,
    /// If the streams could send more than the link carries: fraction of the excess that is lost
    /// and sent again.
    pub overload: f64,
    /// Time in seconds until a new stream reaches most of its rate.
    pub ramp: f64,
    /// Rate of one writer in bytes per second.
    pub writer: f64,
    /// Number of writers above which the throughput of the storage decreases.
    pub writers_best: f64,
    /// Value of the knob above which the other end fails.
    pub fails_above: u64,
}

/// All four paths.
pub const PATHS: [Path; 4] = [
    Path {
        name: "clean",
        about: "10 Gbit/s, 0.1 ms. Two streams fill the link. Each further stream lowers the \
                throughput by 0.4 %",
        knob: Knob::Streams,
        link: 1_250.0 * MEGA,
        stream: 700.0 * MEGA,
        stream_cost: 0.004,
        overload: 0.0,
        ramp: 0.05,
        writer: 500.0 * MEGA,
        writers_best: 64.0,
        fails_above: 64,
    },
    Path {
        name: "far",
        about: "2.5 Gbit/s, 100 ms. The TCP window limits a stream to 8 MB/s",
        knob: Knob::Streams,
        link: 312.5 * MEGA,
        stream: 8.0 * MEGA,
        stream_cost: 0.001,
        overload: 0.02,
        ramp: 0.4,
        writer: 500.0 * MEGA,
        writers_best: 64.0,
        fails_above: 48,
    },
    Path {
        name: "lossy",
        about: "1 Gbit/s, 50 ms. One packet in 10 000 is lost, so a stream reaches 3.6 MB/s (Mathis)",
        knob: Knob::Streams,
        link: 125.0 * MEGA,
        stream: 3.6 * MEGA,
        stream_cost: 0.001,
        overload: 0.3,
        ramp: 0.3,
        writer: 500.0 * MEGA,
        writers_best: 64.0,
        fails_above: 40,
    },
    Path {
        name: "storage",
        about: "up to 6 writers reach 60 MB/s each; with more writers, their total rate falls",
        knob: Knob::Writers,
        link: 1_250.0 * MEGA,
        stream: 700.0 * MEGA,
        stream_cost: 0.0,
        overload: 0.0,
        ramp: 0.05,
        writer: 60.0 * MEGA,
        writers_best: 6.0,
        fails_above: 24,
    },
];

/// Returns a random path whose bottleneck is the network or the storage. The best value of its knob
/// is between 1 and 48. The other end fails above a random limit, which is 1.15 to 2.65 times the
/// best value and at least 6.
#[must_use]
pub fn drawn(seed: u64) -> Path {
    let mut draw = Rng::new(seed ^ 0xd4a7);
    let link = MEGA * 20.0 * 100f64.powf(unit(&mut draw));
    let best = 48f64.powf(unit(&mut draw));
    let fails_above = (best * between((1.15, 2.65), &mut draw)).ceil().max(6.0) as u64;
    let is_network = draw.below(2) == 0;
    let small = |draw: &mut Rng| unit(draw) * unit(draw);
    if is_network {
        return Path {
            name: "network",
            about: "",
            knob: Knob::Streams,
            link,
            stream: link / best,
            stream_cost: 0.01 * small(&mut draw),
            overload: 0.5 * small(&mut draw),
            ramp: between((0.05, 0.65), &mut draw),
            writer: link,
            writers_best: 64.0,
            fails_above,
        };
    }
    let writers_best = best.round().max(1.0);
    Path {
        name: "storage",
        about: "",
        knob: Knob::Writers,
        link: 4.0 * link,
        stream: 2.0 * link,
        stream_cost: 0.0,
        overload: 0.0,
        ramp: 0.05,
        writer: link / writers_best,
        writers_best,
        fails_above,
    }
}

impl Path {
    /// Returns the throughput in bytes per second without disturbances, when all streams have
    /// reached their full rate. Also returns the bottleneck.
    #[must_use]
    pub fn carries(&self, streams: f64, writers: f64) -> (f64, Bottleneck) {
        let could = streams * self.stream;
        let beyond = (could / self.link - 1.0).max(0.0);
        let costs =
            (1.0 + self.stream_cost * (streams - 1.0).max(0.0)) * (1.0 + self.overload * beyond);
        let network = could.min(self.link) / costs;
        let beyond = (writers / self.writers_best - 1.0).max(0.0);
        let storage = writers.min(self.writers_best) * self.writer / (1.0 + 0.7 * beyond);
        if storage < network {
            (storage, Bottleneck::Write)
        } else {
            (network, Bottleneck::Network)
        }
    }
}

/// Disturbances in one step. They do not depend on the tuner.
#[derive(Debug, Clone, Copy)]
struct Hour {
    /// Available fraction of the bottleneck, after noise and competing transfers.
    there: f64,
    /// Fraction of the received bytes that is counted before the end of the step.
    counted: f64,
    has_accident: bool,
    /// Random number that decides whether a stream or writer above the limit fails.
    chance: f64,
}

/// The disturbances of all steps of a run.
#[derive(Debug, Clone)]
pub struct Weather(Vec<Hour>);

impl Weather {
    /// Returns the disturbances for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut draw = Rng::new(seed ^ 0x70e5);
        let step = STEP.as_secs_f64();
        let mut drift = 0.0;
        let mut neighbour = 1.0;
        let mut left = -NEIGHBOUR_AFTER * unit(&mut draw).max(1e-9).ln();
        let mut hours = Vec::with_capacity(STEPS);
        for _ in 0..STEPS {
            left -= step;
            if left < 0.0 && neighbour < 1.0 {
                neighbour = 1.0;
                left = -NEIGHBOUR_AFTER * unit(&mut draw).max(1e-9).ln();
            } else if left < 0.0 {
                neighbour = 1.0 - between(NEIGHBOUR_TAKES, &mut draw);
                left = between(NEIGHBOUR_STAYS, &mut draw);
            }
            // The sum of twelve uniform random numbers is close enough to a normal distribution.
            let normal = (0..12).map(|_| unit(&mut draw)).sum::<f64>() - 6.0;
            drift = STAYS * drift + (1.0 - STAYS * STAYS).sqrt() * normal;
            hours.push(Hour {
                there: neighbour * (NOISE * drift).exp(),
                counted: between((0.6, 1.0), &mut draw),
                has_accident: unit(&mut draw) < step / ACCIDENT_AFTER,
                chance: unit(&mut draw),
            });
        }
        Self(hours)
    }
}

fn unit(draw: &mut Rng) -> f64 {
    f64::from(draw.next_u32()) / 4_294_967_296.0
}

fn between((from, to): (f64, f64), draw: &mut Rng) -> f64 {
    from + (to - from) * unit(draw)
}

/// Measurements of one run.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// Number of bytes received in each step.
    pub bytes: Vec<f64>,
    /// Setting in force in each step.
    pub settings: Vec<Setting>,
    /// For each step, true if the number was above the limit of the other end.
    pub failing: Vec<bool>,
}

/// Runs a path. `told` receives each sample and returns the next setting.
pub fn run(
    path: &Path,
    weather: &Weather,
    start: Setting,
    mut told: impl FnMut(&Sample) -> Setting,
) -> Course {
    let step = STEP.as_secs_f64();
    let mut course = Course::default();
    let mut setting = start;
    let (mut warm, mut uncounted) = (0.0, 0.0);
    for hour in &weather.0 {
        let streams = f64::from(setting.streams);
        warm = streams.min(streams - (streams - warm) * (-step / path.ramp).exp());
        let (carried, bottleneck) = path.carries(warm, f64::from(setting.writers));
        let too_many = setting.at(path.knob).saturating_sub(path.fails_above) as f64;
        let errs = hour.chance < 1.0 - (-FAILS * step * too_many).exp();
        let bytes = carried * hour.there * step * if errs { FAILING } else { 1.0 };
        uncounted += bytes;
        let counted = uncounted * hour.counted;
        uncounted -= counted;
        course.bytes.push(bytes);
        course.settings.push(setting);
        course.failing.push(too_many > 0.0);
        // One error for each stream or writer above the limit.
        let errors = if errs { too_many as u32 } else { 0 };
        let mut all = Errors {
            streams: u32::from(hour.has_accident),
            ..Errors::default()
        };
        match path.knob {
            Knob::Writers => all.writes = errors,
            _ => all.streams += errors,
        }
        setting = told(&Sample {
            bytes: counted as u64,
            took: STEP,
            errors: all,
            bottleneck: Some(bottleneck),
        });
    }
    course
}
