//! Several transfers write to one destination concurrently, each with a log and a lease of its own.
//! They run the shipped rules for concurrent transfers to one destination
//! (docs/design/object-log.md) on the simulated disk. Their steps are interleaved in a random
//! order, with kills and crashes in between.
//!
//! Non-goals: the session of a single transfer (`world`).

mod adopt;
mod checks;
mod host;
mod logs;

pub use host::Writer;

use crate::disk::SharedDisk;
use crate::world::Violation;
use dray_core::{RelPath, Result};
use dray_sched::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Object size in bytes.
pub const OBJECT_BYTES: u64 = 8;

/// Maximum number of steps in a world. A world with more steps counts as endless.
const STEPS_MAX: u64 = 6_000;

/// A planted defect that a checker must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A transfer that ends removes the partial files of all logs that are not in use.
    CleansAll,
    /// After a writer has begun a file, it does not read the other logs again.
    NoSecondLook,
    /// If two writers begin the same file, the one with the smaller log name writes immediately.
    DoesNotWait,
    /// The other log ends an inherited file before the records in the inheriting log are durable.
    EndsFirst,
    /// Files are inherited even from logs that are in use.
    TakesHeld,
    /// No file is inherited.
    NeverAdopts,
}

impl Mutant {
    /// All defects.
    pub const ALL: [Self; 6] = [
        Self::CleansAll,
        Self::NoSecondLook,
        Self::DoesNotWait,
        Self::EndsFirst,
        Self::TakesHeld,
        Self::NeverAdopts,
    ];
}

/// State that all writers share.
pub struct Destination {
    /// The destination's disk.
    pub disk: SharedDisk,
    /// Content that each file must have, by path.
    pub files: BTreeMap<RelPath, Vec<u8>>,
    /// Logs that are in use, each with the transfer that holds the lease.
    pub held: BTreeMap<RelPath, usize>,
    /// Transfers that may write a file now, by path.
    pub writing: BTreeMap<RelPath, BTreeSet<usize>>,
    /// Objects that a log lists as durable, of files that have no final name yet.
    pub durable: BTreeSet<(RelPath, u64)>,
    /// Number of times that the sink's host has booted.
    pub boot: u64,
    /// Planted defect, if any.
    pub mutant: Option<Mutant>,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Number of files that a transfer has inherited from another transfer's log.
    pub adopted: u64,
    /// Number of files that were refused because another transfer was writing them.
    pub refused: u64,
}

impl Destination {
    /// Records the first broken promise.
    pub fn violate(&mut self, checker: &'static str, detail: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { checker, detail });
        }
    }
}

/// Result of a seed.
#[derive(Debug)]
pub struct Report {
    /// The broken promise, if any.
    pub violation: Option<Violation>,
    /// Number of files that a transfer has inherited from another transfer's log.
    pub adopted: u64,
    /// Number of files that were refused because another transfer was writing them.
    pub refused: u64,
    /// Number of times that a transfer was killed.
    pub kills: u64,
}

/// Runs one seed: two to four transfers with overlapping files. Kills of transfers and crashes of
/// the host interrupt them, and they run again. The run lasts until all transfers have ended.
#[must_use]
pub fn run_seed(seed: u64, mutant: Option<Mutant>) -> Report {
    let mut draw = Rng::new(seed ^ 0x3a17_e750);
    let mut kills = 0;
    let mut destination = Destination {
        disk: SharedDisk::default(),
        files: BTreeMap::new(),
        held: BTreeMap::new(),
        writing: BTreeMap::new(),
        durable: BTreeSet::new(),
        boot: 1,
        mutant,
        violation: None,
        adopted: 0,
        refused: 0,
    };
    if let Err(error) = run(&mut destination, &mut draw, &mut kills) {
        destination.violate("no_panic", error.to_string());
    }
    Report {
        violation: destination.violation,
        adopted: destination.adopted,
        refused: destination.refused,
        kills,
    }
}

fn run(destination: &mut Destination, draw: &mut Rng, kills: &mut u64) -> Result<()> {
    let count = 2 + draw.below(4);
    for number in 0..count {
        let path = RelPath::parse(format!("f{number}").as_bytes())?;
        let objects = 1 + draw.below(6);
        let bytes = (0..objects * OBJECT_BYTES).map(|_| draw.next() as u8);
        let bytes = bytes.collect();
        destination.files.insert(path, bytes);
    }
    host::prepare(destination)?;
    let mut writers = Vec::new();
    for number in 0..2 + draw.below(3) as usize {
        let mut wanted: Vec<RelPath> = destination.files.keys().cloned().collect();
        wanted.retain(|_| draw.below(3) > 0);
        // Each writer processes its files in a different order.
        let turn = draw.below(wanted.len().max(1) as u64) as usize;
        wanted.rotate_left(turn);
        writers.push(Writer::new(number, wanted)?);
    }
    let mut faults = draw.below(16);
    for step in 0..STEPS_MAX {
        let at = draw.below(writers.len() as u64) as usize;
        if faults > 0 && draw.below(12) == 0 {
            faults -= 1;
            *kills += 1;
            if draw.below(4) == 0 {
                destination.disk.borrow_mut().crash(draw);
                destination.boot += 1;
                for writer in &mut writers {
                    writer.die(destination, draw.below(60));
                }
            } else {
                writers[at].die(destination, draw.below(200));
            }
            continue;
        }
        writers[at].step(destination, draw)?;
        if destination.violation.is_some() {
            return Ok(());
        }
        if writers.iter().all(Writer::is_done) {
            return checks::at_the_end(destination, writers.iter().flat_map(Writer::wanted));
        }
        if step + 1 == STEPS_MAX {
            let left = writers.iter().filter(|one| !one.is_done()).count();
            destination.violate("session_ends", format!("{left} transfers did not end"));
        }
    }
    Ok(())
}
