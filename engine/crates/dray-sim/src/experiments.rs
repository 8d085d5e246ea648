//! Experiments in the simulator, which makes all decisions with the code of the engine. Some
//! experiments repeat an experiment of a published paper.
//!
//! Each experiment returns one JSON value with its assumptions and its results. If it repeats a
//! published experiment, the value also contains the published results. `integration/simulation`
//! generates pages from this value.

pub mod bbos;
pub mod bbos_restarts;
pub mod bde;
pub mod datasets;
pub mod liu;
pub mod loads;
pub mod slow_target;
pub mod tuner;

use serde_json::Value;

/// Names of all experiments.
pub const ALL: [&str; 8] = [
    "liu",
    "bde",
    "loads",
    "datasets",
    "slow-target",
    "tuner",
    "bbos",
    "bbos-restarts",
];

/// Runs an experiment. Returns `None` if no experiment has this name.
#[must_use]
pub fn run(name: &str) -> Option<Value> {
    match name {
        "liu" => Some(liu::results()),
        "datasets" => Some(datasets::results()),
        "slow-target" => Some(slow_target::results().unwrap_or_else(failed)),
        "bbos" => Some(bbos::results()),
        "bde" => Some(bde::results()),
        "loads" => Some(loads::results()),
        "tuner" => Some(tuner::results()),
        "bbos-restarts" => Some(bbos_restarts::results()),
        _ => None,
    }
}

/// Returns the result for an experiment in which a promise was broken.
fn failed(cause: String) -> Value {
    serde_json::json!({ "failed": cause })
}

/// Rounds seconds to the millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
