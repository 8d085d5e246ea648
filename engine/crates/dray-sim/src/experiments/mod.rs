//! Published experiments, done again in the fluid model with the decisions that ship; and ours.
//!
//! Each gives one JSON value: what was assumed, what came out, and what the paper has. Pages are made
//! from it by integration/simulation.

pub mod bde;
pub mod datasets;
pub mod liu;
pub mod loads;
pub mod slow_target;
pub mod tuner;

use serde_json::Value;

/// Names of all experiments.
pub const ALL: [&str; 6] = ["liu", "bde", "loads", "datasets", "slow-target", "tuner"];

/// Runs an experiment; `None` when there is none of that name.
#[must_use]
pub fn run(name: &str) -> Option<Value> {
    match name {
        "liu" => Some(liu::results()),
        "datasets" => Some(datasets::results()),
        "slow-target" => Some(slow_target::results().unwrap_or_else(failed)),
        "bde" => Some(bde::results()),
        "loads" => Some(loads::results()),
        "tuner" => Some(tuner::results()),
        _ => None,
    }
}

/// What an experiment that broke a promise has instead of results.
fn failed(cause: String) -> Value {
    serde_json::json!({ "failed": cause })
}

/// Seconds, to the millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
