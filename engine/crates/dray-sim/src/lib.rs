//! The simulator: the session's two machines, the scheduler, the log and the wire, as shipped, on a
//! virtual clock with models of link, disk and faults.
//!
//! A [`world::World`] is made from a seed and an optional planted defect. It runs one request
//! against one destination, session after session, until all files have arrived and no fault is
//! left. Workload ([`workload`]), fault model ([`faults`], [`inject`], [`disk`], [`link`]) and
//! checkers ([`checkers`]) are separate. The checkers carry the names of the promises in
//! docs/design; their assumptions are in docs/design/failure-model.md.
//!
//! Experiments with hours and many transfers, above all on rates and admission, run in [`fluid`]:
//! without objects, with the same decisions; published [`experiments`] are repeated there.
//!
//! Non-goals: real time, threads, speed. The seed is the only random input, so a seed replays.

pub mod acts;
pub mod checkers;
pub mod disk;
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
pub mod timing;
pub mod workload;
pub mod world;
pub mod writers;

use mutants::Mutant;
use world::{Report, Violation, World};

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, mutant: Option<Mutant>, traces: bool) -> Report {
    match World::new(seed, mutant, traces) {
        Ok(world) => world.run(),
        Err(error) => Report {
            violation: Some(Violation {
                checker: "no_panic",
                detail: error.to_string(),
            }),
            coverage: faults::Coverage::default(),
            sessions: 0,
            events: 0,
            trace: Vec::new(),
        },
    }
}
