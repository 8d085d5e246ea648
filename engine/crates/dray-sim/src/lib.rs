//! The simulator. It runs the shipped code of the two session machines, the scheduler, the log and
//! the wire format on a virtual clock, with models of the link, the disk and faults.
//!
//! A [`world::World`] is created from a seed and an optional planted defect. Each world runs one
//! transfer request to one destination, session after session, until all files have arrived and all
//! planned faults have occurred. The workload ([`workload`]), the fault model ([`faults`],
//! [`inject`], [`disk`], [`link`]) and the checkers ([`checkers`]) are separate modules. The
//! checkers have the names of the promises in docs/design. docs/design/failure-model.md states the
//! assumptions of the promises.
//!
//! [`fluid`] serves experiments with many transfers over hours, mainly on rates and admission.
//! [`fluid`] uses the same code for decisions, but does not simulate objects. [`tiers`] runs the
//! placement of checkpoints on two tiers under faults. [`experiments`] repeats published results.
//!
//! Non-goals: real time, threads, speed. The seed is the only random input, so the same seed gives
//! the same run.

pub mod acts;
pub mod checkers;
pub mod disk;
pub mod event;
pub mod experiments;
pub mod faults;
pub mod fluid;
pub mod inject;
pub mod link;
pub mod log_file;
pub mod mutants;
pub mod session;
pub mod sink_acts;
pub mod sink_host;
pub mod source_host;
pub mod tiers;
pub mod timing;
pub mod workload;
pub mod world;
pub mod writers;

use mutants::Mutant;
use world::{Report, RunOptions, Violation, World};

/// Runs one seed with a random number of faults.
#[must_use]
pub fn run_seed(seed: u64, mutant: Option<Mutant>, traces: bool) -> Report {
    let options = RunOptions {
        mutant,
        traces,
        faults: None,
    };
    run_seed_with(seed, &options)
}

/// Runs one seed.
#[must_use]
pub fn run_seed_with(seed: u64, options: &RunOptions) -> Report {
    match World::new(seed, options) {
        Ok(world) => world.run(),
        Err(error) => Report {
            violation: Some(Violation {
                checker: "no_panic",
                detail: error.to_string(),
            }),
            log_form: dray_core::LogForm::default(),
            coverage: faults::Coverage::default(),
            sessions: 0,
            events: 0,
            trace: Vec::new(),
        },
    }
}
