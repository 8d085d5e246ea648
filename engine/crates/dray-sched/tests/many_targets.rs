//! Measures the processor time and the memory that the scheduler needs to choose objects. Each end
//! has 100 storage targets. The source target and the sink target of each object are pseudo-random.
//! The test drives the scheduler as the source machine does: the number of buffers and the sink's
//! credit limit the objects in transit.

use dray_core::options::Order;
use dray_core::{FileIndex, Layout, RangeSet, TargetId, Time};
use dray_sched::congestion::Moved;
use dray_sched::objects::{Assignment, Limits, Objects, Work, grid};
use std::alloc::{GlobalAlloc, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

const OBJECT: u64 = 1 << 20;
const TARGETS: u64 = 100;
const BUFFERS: usize = 256;

/// Heap that counts the bytes in use, and their maximum.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "a counting allocator")]
// SAFETY: all calls go to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: std::alloc::Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// Returns a layout whose stripes are on pseudo-random targets.
fn hashed(seed: u64, stripes: u64) -> Layout {
    let target = |stripe: u64| {
        let mixed = (stripe ^ (seed << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        TargetId(((mixed >> 32) % TARGETS) as u32)
    };
    Layout::of_stripes(OBJECT, (0..stripes).map(target))
}

/// Returns the processor time of this thread in nanoseconds. Other programs do not affect it.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split_whitespace().next().expect("a number");
    first.parse().expect("a number")
}

struct Course {
    picks: u64,
    /// Nanoseconds of scheduling for each object.
    each: f64,
    /// Maximum number of bytes that the scheduler and its layouts have taken.
    heap: usize,
}

/// Sends `files` files of `stripes` objects. Source target 7 is slow: a read on it ends only in
/// every twentieth turn of the loop, or when no other read is in progress.
fn run(files: u64, stripes: u64) -> Course {
    let before = IN_USE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let limits = Limits {
        pack_bytes_max: OBJECT,
        segments_max: 4096,
        reads_max: 4,
        pieces_max: 1 << 16,
        striped_max: 1 << 18,
    };
    let mut objects = Objects::new(Order::Layout, limits);
    for target in 0..TARGETS as u32 {
        objects.grant(TargetId(target), 2);
    }
    let began = processor_time();
    for index in 0..files {
        let size = stripes * OBJECT;
        objects.add(Work {
            index: FileIndex(index),
            grid: grid(size, OBJECT),
            source: hashed(2 * index, stripes),
            sink: hashed(2 * index + 1, stripes),
            wanted: RangeSet::full(size),
            ordered_window: None,
            dataset: None,
        });
    }
    let mut reading: VecDeque<Assignment> = VecDeque::new();
    let mut writing: VecDeque<Assignment> = VecDeque::new();
    let (mut picks, mut turns) = (0, 0u64);
    loop {
        while reading.len() + writing.len() < BUFFERS {
            let Some(assignment) = objects.pick(Time::ZERO) else {
                std::hint::black_box(objects.starving());
                break;
            };
            picks += 1;
            reading.push_back(assignment);
        }
        std::hint::black_box((objects.lack(), objects.is_idle()));
        turns += 1;
        if let Some(read) = reading.pop_front() {
            if read.source == TargetId(7) && turns % 20 != 0 && !reading.is_empty() {
                reading.push_back(read);
            } else {
                let moved = Moved {
                    bytes: OBJECT,
                    files: 1,
                };
                objects.read_ended(read.source, Time::ZERO, Some(moved), Time::ZERO);
                writing.push_back(read);
            }
        }
        if writing.len() > BUFFERS / 2 || reading.is_empty() {
            let Some(written) = writing.pop_front() else {
                break;
            };
            for (index, _) in &written.parts {
                objects.settled(*index);
            }
            objects.grant(written.sink, 1);
        }
    }
    let nanoseconds = processor_time() - began;
    Course {
        picks,
        each: nanoseconds as f64 / picks as f64,
        heap: MOST.load(Ordering::Relaxed) - before,
    }
}

/// Run with `cargo test --release -p dray-sched --test many_targets -- --nocapture`.
#[test]
fn a_hundred_targets_at_each_end_are_bounded() {
    for (files, stripes) in [(1, 4096), (64, 1024), (16, 1 << 14), (2, 1 << 17)] {
        let course = run(files, stripes);
        println!(
            "{files} files of {stripes} objects, {TARGETS} x {TARGETS} targets: {:.0} ns an \
                object, {:.1} MB",
            course.each,
            course.heap as f64 / 1e6,
        );
        assert_eq!(course.picks, files * stripes);
    }
}
