//! Several transfers write one destination concurrently, each with a log and a lease of its own.
//! They run the shipped rules of neighbours (docs/design/object-log.md) on the simulated disk, one
//! step at a time in any order, with kills and crashes in between.
//!
//! Not for: one transfer's session (`world`).

mod adopt;
mod checks;
mod host;
mod logs;

pub use host::Writer;

use crate::disk::Disk;
use crate::world::Violation;
use dray_core::{RelPath, Result};
use dray_sched::rng::Rng;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes of an object.
pub const OBJECT_BYTES: u64 = 8;

/// Steps after which a world counts as endless.
const STEPS_MAX: u64 = 6_000;

/// A planted defect that a checker has to notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A transfer that ends removes the partial files of all logs without a holder.
    CleansAll,
    /// A writer does not read the other logs after it has begun a file.
    NoSecondLook,
    /// If two writers begin a file, the one with the smaller log name writes immediately.
    DoesNotWait,
    /// The other log ends the file before our own records are durable.
    EndsFirst,
    /// Files of held logs are adopted too.
    TakesHeld,
    /// No file is adopted.
    NeverAdopts,
}

impl Mutant {
    /// All of them.
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
    pub disk: Rc<RefCell<Disk>>,
    /// Expected files, by path.
    pub files: BTreeMap<RelPath, Vec<u8>>,
    /// Logs whose lease is held, with the holding transfer.
    pub held: BTreeMap<RelPath, usize>,
    /// Transfers that may write a file now.
    pub writing: BTreeMap<RelPath, BTreeSet<usize>>,
    /// Objects that a log has made durable, of files without a final name.
    pub durable: BTreeSet<(RelPath, u64)>,
    /// The sink host's boot.
    pub boot: u64,
    /// Planted defect, if any.
    pub mutant: Option<Mutant>,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Number of adopted files, and of refused files.
    pub adopted: u64,
    /// See [`Self::adopted`].
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
    /// Files that were adopted from another transfer.
    pub adopted: u64,
    /// Files that were refused because another transfer wrote them.
    pub refused: u64,
    /// Transfers that were killed in the middle.
    pub kills: u64,
}

/// Runs one seed: two to four transfers of overlapping files, killed now and then, until all have ended.
#[must_use]
pub fn run_seed(seed: u64, mutant: Option<Mutant>) -> Report {
    let mut draw = Rng::new(seed ^ 0x3a17_e750);
    let mut kills = 0;
    let mut destination = Destination {
        disk: Rc::default(),
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
        // In a different order for each writer.
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
            destination.violate("session_ends", format!("never for {left} of them"));
        }
    }
    Ok(())
}
