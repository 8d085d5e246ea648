//! Twenty datasets of different sizes over fifty links, of which one (2 %) stalls for some time.
//! Each dataset is useful only when complete. The experiment compares first come, first served with
//! the shipped order.
//!
//! A *link* is a storage target of the source together with its network path. Each file lies on one
//! link and has a replica on another link. All links share one *line*, a network connection.
//! `dray-sched` makes the decisions, and this module simulates the links and the line.

use super::rounded;
use dray_core::options::Order;
use dray_core::{FileIndex, Layout, RangeSet, TargetId, Time};
use dray_sched::congestion::{Moved, Pace};
use dray_sched::objects::{Dataset, Limits, Objects, Work, grid};
use dray_sched::rng::Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Number of datasets.
pub const DATASETS: u64 = 20;

/// Number of links.
pub const LINKS: u32 = 50;
/// Number of links that stall.
const STUCK: u32 = 1;

/// Maximum number of concurrent reads on a link.
const READERS: u32 = 2;
/// Duration of a read.
const READ: Duration = Duration::from_millis(100);

/// Time in which the line carries one object. All links together can deliver objects five times as
/// fast as the line carries them.
const LINE: Duration = Duration::from_millis(5);

/// Number of buffers of the source.
const BUFFERS: usize = 64;

/// Start of the stall.
const STUCK_FROM: Duration = Duration::from_secs(2);
/// End of the stall.
const STUCK_UNTIL: Duration = Duration::from_secs(120);

/// Maximum fraction of objects that may be sent twice, in percent.
const EXTRA_PERCENT_MAX: u64 = 2;

const OBJECT_BYTES: u64 = 1 << 20;

/// Order of the objects, and handling of a stalled link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// First come, first served; busy links are skipped. Objects on the stalled link wait until it
    /// recovers.
    Fcfs,
    /// The shipped order. Objects on the stalled link wait until it recovers.
    Nearest,
    /// The shipped order: the dataset closest to completion comes first. Objects on the stalled
    /// link are read from their replicas, within the limit on objects sent twice.
    Ours,
}

impl Way {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Fcfs, Self::Nearest, Self::Ours];

    const fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Nearest => "nearest",
            Self::Ours => "ours",
        }
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct Course {
    /// Completion time of each dataset in seconds.
    pub completed: Vec<f64>,
    /// Number of objects, and number of objects that were sent twice.
    pub objects: (u64, u64),
}

impl Course {
    /// Returns the mean completion time of the datasets in seconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.completed.iter().sum::<f64>() / self.completed.len() as f64
    }

    /// Returns the fraction of objects that were sent twice.
    #[must_use]
    pub fn extra(&self) -> f64 {
        self.objects.1 as f64 / self.objects.0 as f64
    }
}

/// A file that consists of one object.
#[derive(Debug, Clone, Copy)]
struct File {
    dataset: u64,
    link: u32,
    copy: u32,
}

/// Returns the files of all datasets, with 20 to 580 files each, dataset after dataset in a random
/// order.
fn files(seed: u64) -> Vec<File> {
    let mut draw = Rng::new(seed);
    let mut sizes: Vec<u64> = (0..DATASETS).map(|number| 20 + number * 560 / 19).collect();
    for last in (1..sizes.len()).rev() {
        sizes.swap(last, draw.below(last as u64 + 1) as usize);
    }
    let of = |(dataset, size): (u64, u64)| (0..size).map(move |_| dataset);
    let datasets = (0..DATASETS).zip(sizes).flat_map(of);
    let place = |dataset| {
        let link = draw.below(u64::from(LINKS)) as u32;
        let apart = 1 + draw.below(u64::from(LINKS) - 1) as u32;
        File {
            dataset,
            link,
            copy: (link + apart) % LINKS,
        }
    };
    datasets.map(place).collect()
}

/// The rule that chooses the next object.
enum Chooser {
    /// Numbers of the waiting files, and the number of reads in progress on each link.
    Line(VecDeque<usize>, BTreeMap<u32, u32>),
    Objects(Box<Objects>),
}

impl Chooser {
    fn new(way: Way, files: &[File]) -> Self {
        if way == Way::Fcfs {
            return Self::Line((0..files.len()).collect(), BTreeMap::new());
        }
        let limits = Limits {
            // With a limit of zero no file counts as small, so each file is one object.
            pack_bytes_max: 0,
            segments_max: 1,
            reads_max: READERS,
            pieces_max: 1 << 16,
            striped_max: 1 << 18,
        };
        let mut objects = Objects::new(Order::Layout, limits);
        objects.grant(TargetId(0), u32::MAX);
        for (number, file) in files.iter().enumerate() {
            objects.add(Work {
                index: FileIndex(number as u64),
                grid: grid(OBJECT_BYTES, OBJECT_BYTES),
                source: Layout::Single(TargetId(file.link)),
                sink: Layout::Single(TargetId(0)),
                wanted: RangeSet::full(OBJECT_BYTES),
                ordered_window: None,
                dataset: Some(Dataset(file.dataset)),
            });
        }
        Self::Objects(Box::new(objects))
    }

    fn pick(&mut self, files: &[File], now: Time) -> Option<(usize, u32)> {
        match self {
            Self::Line(line, reading) => {
                let busy = |link| reading.get(&link).copied().unwrap_or(0) >= READERS;
                let place = line.iter().position(|file| !busy(files[*file].link))?;
                let file = line.remove(place)?;
                *reading.entry(files[file].link).or_default() += 1;
                Some((file, files[file].link))
            }
            Self::Objects(objects) => {
                let taken = objects.pick(now)?;
                let (index, _) = taken.parts.first()?;
                Some((index.0 as usize, taken.source.0))
            }
        }
    }

    fn read_ended(&mut self, link: u32, began: Time, now: Time) {
        match self {
            Self::Line(_, reading) => {
                reading.entry(link).and_modify(|count| *count -= 1);
            }
            Self::Objects(objects) => {
                let moved = Moved {
                    bytes: OBJECT_BYTES,
                    files: 1,
                };
                objects.read_ended(TargetId(link), began, Some(moved), now);
            }
        }
    }
}

/// Reads in progress, by end time and sequence number. The value contains the file, the link and
/// the start time.
type Reads = BTreeMap<(Time, u64), (usize, u32, Time)>;

/// Runs one variant with the datasets of this seed.
#[must_use]
pub fn run(way: Way, seed: u64) -> Course {
    let files = files(seed);
    let mut chooser = Chooser::new(way, &files);
    let mut left: BTreeMap<u64, u64> = BTreeMap::new();
    for file in &files {
        *left.entry(file.dataset).or_default() += 1;
    }
    let (mut now, mut number, mut line_free) = (Time::ZERO, 0, Time::ZERO);
    let mut reads = Reads::new();
    // A buffer is free again when the line has sent its object.
    let mut on_the_line: BTreeSet<(Time, u64)> = BTreeSet::new();
    let mut arrived = vec![false; files.len()];
    let mut completed = vec![0.0; DATASETS as usize];
    let (mut extra, mut given_up) = (0, BTreeSet::new());
    loop {
        if way == Way::Ours {
            extra += give_up(&mut chooser, &files, &reads, &mut given_up, (now, extra));
        }
        while reads.len() + on_the_line.len() < BUFFERS {
            let Some((file, link)) = chooser.pick(&files, now) else {
                break;
            };
            number += 1;
            reads.insert((read_until(link, now), number), (file, link, now));
        }
        let next_read = reads.keys().next().copied();
        let next_sent = on_the_line.first().copied();
        let Some(next) = next_read.into_iter().chain(next_sent).min() else {
            break;
        };
        now = now.max(next.0);
        if on_the_line.remove(&next) {
            continue;
        }
        let Some((file, link, began)) = reads.remove(&next) else {
            break;
        };
        chooser.read_ended(link, began, now);
        if arrived[file] {
            continue;
        }
        arrived[file] = true;
        line_free = line_free.max(now) + LINE;
        on_the_line.insert((line_free, next.1));
        let dataset = files[file].dataset;
        let open = left.entry(dataset).or_default();
        *open -= 1;
        if *open == 0 {
            completed[dataset as usize] = line_free.since(Time::ZERO).as_secs_f64();
        }
    }
    Course {
        completed,
        objects: (files.len() as u64, extra),
    }
}

/// Returns the end time of a read that begins now.
fn read_until(link: u32, now: Time) -> Time {
    let (from, until) = (Time::ZERO + STUCK_FROM, Time::ZERO + STUCK_UNTIL);
    let is_hit = link < STUCK && now < until && now + READ > from;
    if is_hit { until + READ } else { now + READ }
}

/// Stops using stalled links: waiting files are read from their replicas. Files in progress are
/// read again from their replicas, as long as at most [`EXTRA_PERCENT_MAX`] percent of all objects
/// are sent twice. Returns the number of objects sent twice.
fn give_up(
    chooser: &mut Chooser,
    files: &[File],
    reads: &Reads,
    given_up: &mut BTreeSet<u32>,
    (now, extra): (Time, u64),
) -> u64 {
    let Chooser::Objects(objects) = chooser else {
        return 0;
    };
    let stuck: Vec<u32> = (0..LINKS)
        .filter(|link| !given_up.contains(link))
        .filter(|link| objects.pace(TargetId(*link), now) == Pace::Stuck)
        .collect();
    let mut twice = 0;
    for link in stuck {
        given_up.insert(link);
        for (number, file) in files
            .iter()
            .enumerate()
            .filter(|(_, file)| file.link == link)
        {
            let copy = Layout::Single(TargetId(file.copy));
            objects.move_source(FileIndex(number as u64), copy);
        }
        for (file, ..) in reads.values().filter(|(_, other, _)| *other == link) {
            if (extra + twice + 1) * 100 <= files.len() as u64 * EXTRA_PERCENT_MAX {
                twice += 1;
                let whole = RangeSet::full(OBJECT_BYTES);
                for run in whole.iter() {
                    objects.put_back(FileIndex(*file as u64), run);
                }
            }
        }
    }
    twice
}

/// Seeds of the runs in the published results.
pub const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// Returns the results of all runs.
#[must_use]
pub fn results() -> Value {
    let runs = SEEDS.map(|seed| {
        let courses = Way::ALL.map(|way| {
            let course = run(way, seed);
            let last = course.completed.iter().copied().fold(0.0, f64::max);
            json!({
                "way": way.name(),
                "mean_seconds": rounded(course.mean()),
                "last_seconds": rounded(last),
                "extra_percent": rounded(100.0 * course.extra()),
            })
        });
        json!({ "seed": seed, "ways": courses })
    });
    json!({
        "datasets": DATASETS,
        "objects": files(SEEDS[0]).len(),
        "links": LINKS,
        "stuck_links": STUCK,
        "stuck_from_seconds": rounded(STUCK_FROM.as_secs_f64()),
        "stuck_until_seconds": rounded(STUCK_UNTIL.as_secs_f64()),
        "read_seconds": rounded(READ.as_secs_f64()),
        "line_seconds": rounded(LINE.as_secs_f64()),
        "runs": runs,
    })
}
