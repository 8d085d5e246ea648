//! The simulator: the session's two machines, the scheduler, the log and the wire, as they ship, on a
//! virtual clock with models of link, disk and faults.
//!
//! A [`world::World`] is made from a seed and a planted defect or none; it runs one request against
//! one destination, session after session, until everything is there and no fault is left. Workload
//! ([`workload`]), fault model ([`faults`], [`inject`], [`disk`], [`link`]) and checkers
//! ([`checkers`]) are apart. The checkers carry the names of the promises in docs/design; what they
//! assume is written in docs/design/failure-model.md.
//!
//! What takes hours and many transfers, rates and admission above all, is tried in [`fluid`]: without
//! objects, by the same decisions; published [`experiments`] are done again there.
//!
//! Non-goals: real time, threads, speed. Nothing here is random but for the seed, so a seed replays.

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
