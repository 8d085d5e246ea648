//! One of eight storage targets has a tenth of its normal speed (section 4 of the paper on LADS).
//! The experiment measures how much data bypasses the slow target, and how much the slow target
//! delays the others. The state machines of source and sink, the wire format and the log are the
//! shipped code. Targets and the link are simulated as queues with service times.

use super::rounded;
use crate::timing::{At, Slow, Timing, Written};
use crate::workload::{Setup, Source, SourceFile, Tree};
use crate::world::World;
use dray_core::options::{Durability, Options, Order};
use dray_core::{Error, Layout, LogForm, Name, RangeSet, RelPath, TargetId, Time};
use dray_sched::rng::Rng;
use serde_json::{Value, json};
use std::time::Duration;

/// Number of storage targets at each end.
pub const TARGETS: u32 = 8;

/// Number of files on each target.
const FILES: u32 = 12;
/// Number of objects in each file.
const OBJECTS: u64 = 12;

/// Object size in bytes in the simulation.
const OBJECT_BYTES: u64 = 256;
/// Time in which a target serves an object: that of 1 MiB at 100 MiB/s.
const OBJECT: Duration = Duration::from_millis(10);

/// Number of buffers in the pool of each end: half of the number that the readers of all targets
/// could use.
pub const BUFFERS: u32 = 16;

/// In runs with a moving congestion: the time after which the congestion moves to the next target.
pub const PERIOD: Duration = Duration::from_millis(250);

/// The bottleneck of the transfer if no target is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The targets: the link can carry twice the total rate of all targets.
    Targets,
    /// The link: it can carry three quarters of the total rate of all targets.
    Link,
}

/// Measurements of one run. Times are counted from the start of the run.
#[derive(Debug, Clone)]
pub struct Course {
    timing: Timing,
}

impl Course {
    /// Returns the time at which all data of the chosen targets was written.
    fn done(&self, is_meant: impl Fn(u32) -> bool) -> Time {
        let meant = self
            .timing
            .written
            .iter()
            .filter(|one| is_meant(target(one)));
        meant.map(|one| one.at).max().unwrap_or(Time::ZERO)
    }

    /// Returns the time in seconds until all data was written.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        seconds(self.done(|_| true))
    }

    /// Returns the time in seconds until all data of the targets other than `slow` was written.
    #[must_use]
    pub fn others(&self, slow: u32) -> f64 {
        seconds(self.done(|target| target != slow))
    }

    /// Returns the maximum number of objects in progress on a target within a period.
    #[must_use]
    pub fn crowd(&self, target: u32, between: [Duration; 2]) -> usize {
        let [from, until] = between.map(|length| Time::ZERO + length);
        let meant = self.timing.crowd.iter().filter(|(at, end, other, _)| {
            (from..until).contains(at) && *end == self.timing.end && *other == target
        });
        meant.map(|(.., count)| *count).max().unwrap_or(0)
    }

    /// Returns the rate in objects per second until the other targets finished. The time after that
    /// is left out, because only the slow target causes it.
    #[must_use]
    pub fn rate_until_tail(&self, slow: u32) -> f64 {
        let until = self.done(|target| target != slow);
        let before = self.timing.written.iter().filter(|one| one.at <= until);
        let bytes: u64 = before.map(|one| one.bytes).sum();
        (bytes / OBJECT_BYTES) as f64 / seconds(until)
    }
}

fn target(written: &Written) -> u32 {
    (written.file.0 % u64::from(TARGETS)) as u32
}

fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

/// Runs a transfer with the target `slow` at the end `end`.
///
/// # Errors
/// A description of the violation that a checker of the simulator has found.
pub fn run(order: Order, end: At, bound: Bound, slow: Slow) -> Result<Course, String> {
    run_with(BUFFERS, order, end, bound, slow)
}

/// As [`run`], with pools of `buffers` buffers.
///
/// # Errors
/// A description of the violation that a checker of the simulator has found.
pub fn run_with(
    buffers: u32,
    order: Order,
    end: At,
    bound: Bound,
    slow: Slow,
) -> Result<Course, String> {
    let targets_alone = OBJECT / TARGETS;
    let link = match bound {
        Bound::Targets => targets_alone / 2,
        Bound::Link => targets_alone * 4 / 3,
    };
    let setup = setup(buffers, order);
    let tree = tree().map_err(|error| error.to_string())?;
    let timing = Timing::new(OBJECT, link, end, slow);
    let timing = World::timed(setup, tree, timing)
        .run_timed()
        .map_err(|violation| format!("{}: {}", violation.checker, violation.detail))?;
    let timing = timing.ok_or("no times were measured")?;
    Ok(Course { timing })
}

fn setup(buffers: u32, order: Order) -> Setup {
    Setup {
        options: Options {
            durability: Durability::None,
            order,
            object_bytes: OBJECT_BYTES,
            ..Options::default()
        },
        buffers,
        buffer_bytes: OBJECT_BYTES,
        reads_max: 4,
        segments_max: 8,
        live_entries_max: 1024,
        sync_group_bytes: 1 << 20,
        unlogged_groups: 1,
        sync_interval: Duration::from_millis(50),
        syncs_apart: true,
        logs_apart: false,
        log_form: LogForm::default(),
        writes_durably: false,
        ordered_window: None,
        holes: true,
        streams: 4,
        source_targets: TARGETS,
        sink_targets: TARGETS,
        in_turn: true,
        sink_drives: false,
        announces_early: false,
    }
}

/// Returns a tree in which consecutive files lie on different targets, so that a reader in file
/// order uses all targets.
fn tree() -> Result<Tree, Error> {
    let mut draw = Rng::new(7);
    let mut tree = Tree::default();
    for number in 0..FILES * TARGETS {
        let name = Name::new(format!("{number:04}").as_bytes())?;
        let size = OBJECTS * OBJECT_BYTES;
        let file = SourceFile {
            bytes: (0..size).map(|_| draw.next_u32() as u8).collect(),
            holes: RangeSet::new(),
            modified: tree.tick(),
            layout: Layout::Single(TargetId(number % TARGETS)),
        };
        let path = RelPath::root().join(&name)?;
        let versions = tree.versions.entry(path.clone()).or_default();
        versions.insert(file.modified, file.bytes.clone());
        tree.entries.insert(path, Source::File(file));
    }
    Ok(tree)
}

/// Returns the minimum duration in seconds of a transfer during which one target after the other is
/// slow. At each time one target has a tenth of its normal speed. `alone` is the duration of the
/// transfer in seconds if no target is slow.
#[must_use]
pub fn least_with_moving(alone: f64) -> f64 {
    alone / (1.0 - 0.9 / f64::from(TARGETS))
}

/// Returns the results of all runs.
///
/// # Errors
/// A description of the violation that a checker of the simulator has found.
pub fn results() -> Result<Value, String> {
    let slow = TARGETS - 3;
    let mut rows = Vec::new();
    for end in [At::Source, At::Sink] {
        for bound in [Bound::Targets, Bound::Link] {
            let free = run(Order::Layout, end, bound, Slow::Nowhere)?;
            let fixed = run(Order::Layout, end, bound, Slow::Fixed(slow))?;
            let by_file = run(Order::File, end, bound, Slow::Fixed(slow))?;
            let moving = Slow::Moving(TARGETS, PERIOD);
            let moves = run(Order::Layout, end, bound, moving)?;
            let moves_by_file = run(Order::File, end, bound, moving)?;
            rows.push(json!({
                "end": match end { At::Source => "source", At::Sink => "sink" },
                "bound": match bound { Bound::Targets => "targets", Bound::Link => "link" },
                "free_seconds": rounded(free.seconds()),
                "fixed": {
                    "rate_until_tail": rounded(fixed.rate_until_tail(slow)),
                    "rate_until_tail_by_file": rounded(by_file.rate_until_tail(slow)),
                    "times_file_order":
                        rounded(fixed.rate_until_tail(slow) / by_file.rate_until_tail(slow)),
                    "others_seconds": rounded(fixed.others(slow)),
                    "others_seconds_free": rounded(free.others(slow)),
                    "others_times_free": rounded(fixed.others(slow) / free.others(slow)),
                    "seconds": rounded(fixed.seconds()),
                },
                "moving": {
                    "seconds": rounded(moves.seconds()),
                    "seconds_by_file": rounded(moves_by_file.seconds()),
                    "times_free": rounded(moves.seconds() / free.seconds()),
                    "least_times_free": rounded(match bound {
                        Bound::Targets => least_with_moving(1.0),
                        Bound::Link => 1.0,
                    }),
                    "times_file_order": rounded(moves_by_file.seconds() / moves.seconds()),
                },
            }));
        }
    }
    Ok(json!({
        "targets": TARGETS,
        "files": FILES * TARGETS,
        "objects": u64::from(FILES * TARGETS) * OBJECTS,
        "object_seconds": rounded(OBJECT.as_secs_f64()),
        "buffers": BUFFERS,
        "slow_times": 10,
        "period_seconds": rounded(PERIOD.as_secs_f64()),
        "runs": rows,
    }))
}
