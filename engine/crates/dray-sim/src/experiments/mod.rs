//! Published experiments, done again in the fluid model with the decisions that ship.
//!
//! Each gives one JSON value: what was assumed, what came out, and what the paper has. Pages are made
//! from it by integration/simulation.

pub mod liu;

use serde_json::Value;

/// Names of all experiments.
pub const ALL: [&str; 1] = ["liu"];

/// Runs an experiment; `None` when there is none of that name.
#[must_use]
pub fn run(name: &str) -> Option<Value> {
    match name {
        "liu" => Some(liu::results()),
        _ => None,
    }
}

/// Seconds, to the millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}
