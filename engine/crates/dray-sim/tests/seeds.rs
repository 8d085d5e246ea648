//! Seeds for the everyday test run. No promise may be broken, the same seed must give the same
//! trace, and every planted defect must be detected. `make sim` runs more seeds.

use dray_session::mutants::Mutant as MachineMutant;
use dray_sim::faults::{Coverage, FAULTS_MIN};
use dray_sim::mutants::Mutant;
use dray_sim::world::RunOptions;
use dray_sim::{run_seed, run_seed_with};

/// Number of seeds. A debug build runs a quick set. A release build runs the full set, in which
/// every possible combination of fault and phase must occur.
const SEEDS: u64 = if cfg!(debug_assertions) { 200 } else { 2000 };

/// Minimum number of times that each possible combination must occur in the full set.
const HITS_MIN: u64 = 20;

#[test]
fn no_promise_is_broken() {
    let mut coverage = Coverage::default();
    for seed in 0..SEEDS {
        let report = run_seed(seed, None, false);
        if let Some(violation) = report.violation {
            panic!(
                "seed {seed}: {}: {}\nreplay: cargo run --release -p dray-sim -- --seed {seed} \
                 --trace",
                violation.checker, violation.detail
            );
        }
        let faults = report.coverage.total();
        assert!(faults >= FAULTS_MIN, "seed {seed} met {faults} faults");
        coverage.add(&report.coverage);
    }
    println!("{}", coverage.table());
    if SEEDS >= 2000 {
        assert_eq!(coverage.missing(HITS_MIN), [], "cells of the table");
    }
}

/// Seeds of runs with ten faults that broke a promise before a correction.
const CORRECTED: [u64; 6] = [1661, 2534, 5316, 7169, 9567, 9836];

#[test]
fn corrected_seeds_break_no_promise() {
    let options = RunOptions {
        faults: Some(10),
        ..RunOptions::default()
    };
    for seed in CORRECTED {
        let violation = run_seed_with(seed, &options).violation;
        assert_eq!(violation, None, "seed {seed}");
    }
}

#[test]
fn a_seed_replays() {
    for seed in [1, 7, 40] {
        let (once, again) = (run_seed(seed, None, true), run_seed(seed, None, true));
        assert!(!once.trace.is_empty());
        assert!(once.trace == again.trace, "seed {seed}");
    }
}

#[test]
fn every_planted_defect_is_noticed() {
    for mutant in Mutant::ALL {
        let caught = (0..100).any(|seed| run_seed(seed, Some(mutant), false).violation.is_some());
        assert!(caught, "{} is noticed by no seed of 100", mutant.name());
    }
}

#[test]
fn the_state_of_a_machine_shows_each_broken_rule() {
    for mutant in MachineMutant::ALL {
        let planted = Some(Mutant::Machine(mutant));
        let violation = (0..100).find_map(|seed| run_seed(seed, planted, false).violation);
        let violation = violation.unwrap_or_else(|| panic!("{}: in no seed", mutant.name()));
        assert_eq!(violation.checker, mutant.invariant(), "{}", mutant.name());
        assert!(violation.detail.ends_with("'s state"), "{violation:?}");
        println!("{}: {}", mutant.name(), violation.checker);
    }
}
