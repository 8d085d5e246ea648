//! Measures the two devices of a tier with real reads and writes: the slow device alone, and the
//! fast device with reads at several rates during writes at full speed.
//!
//! The page cache does not make the measured rates too high. Files are opened with `O_DIRECT`, so
//! that each byte moves between the device and this program. On a file system without direct I/O,
//! written bytes count after `fdatasync(2)`, and the pages of the files to read are dropped before
//! each read. All times end after an `fdatasync(2)`, which also empties the write cache of a
//! device.
//!
//! Non-goals: the model of the device, which is in `dray_sched::tiers::calibration`.
//!
//! Invariant owned here: the files have no name after they are open. The kernel frees their space
//! when the program ends in any way.

mod files;

use crate::calibrate::files::{BLOCK, Bench};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, Result};
use dray_link::threads::refused;
use dray_sched::tiers::calibration::read_rates;
use dray_sched::tiers::device::Sample;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of concurrent writers and of concurrent readers, as in a transfer.
pub const THREADS: usize = 4;

/// Minimum of [`Measurement::bytes`].
pub const BYTES_MIN: u64 = 64 << 20;

/// Maximum delay that later reads make up for. A longer delay is cut to this value.
const CATCH_UP: Duration = Duration::from_millis(200);

/// Longest sleep between two checks for an interruption.
const NAP: Duration = Duration::from_millis(50);

/// A measurement of two folders.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Folder on the fast device.
    pub fast: PathBuf,
    /// Folder on the slow device.
    pub slow: PathBuf,
    /// Maximum number of bytes in files of each folder.
    pub bytes: u64,
    /// Duration of each sample.
    pub duration: Duration,
    /// Number of samples for each read rate.
    pub rounds: u32,
}

/// A step of a measurement that begins now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Writes to the slow device.
    SlowWrites,
    /// Writes of the files that the samples read.
    Prepare,
    /// Writes to the fast device beside reads at a rate in bytes per second, which may be zero.
    Beside(f64),
}

/// Results of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Rate of writes to the slow device in bytes per second. It limits demotions.
    pub slow_write: f64,
    /// Samples of the fast device, in the order of their measurement.
    pub samples: Vec<Sample>,
    /// True if the fast device was measured with direct I/O.
    pub fast_is_direct: bool,
    /// True if the slow device was measured with direct I/O.
    pub slow_is_direct: bool,
    /// True if the fast folder and the slow folder are on one file system. A demotion then reads
    /// and writes the same device.
    pub is_one_file_system: bool,
}

impl Measurement {
    /// Returns the number of steps.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let of_round = 2 + read_rates(1.0).count() as u64;
        2 + of_round * u64::from(self.rounds)
    }

    /// Takes all samples. Calls `seen` before each step. Ends early when `stop` becomes true.
    ///
    /// # Errors
    /// Errors of the file systems, also if a folder has less free space than the files need.
    /// `Cancelled` after `stop`.
    pub fn run(&self, stop: &AtomicBool, seen: &mut dyn FnMut(Step)) -> Result<Measured> {
        let slow = Bench::open(&self.slow, self.bytes, THREADS)?;
        let fast = Bench::open(&self.fast, self.bytes, 2 * THREADS)?;
        let is_one_file_system = fast.device == slow.device;
        let (fast_is_direct, slow_is_direct) = (fast.is_direct(), slow.is_direct());
        seen(Step::SlowWrites);
        let slow_write = sample(&slow, self.duration, None, stop)?.write;
        drop(slow);
        seen(Step::Prepare);
        let end = Instant::now() + self.duration * 10;
        let prepare = |at: usize| fast.prepare(at, end, stop);
        all((THREADS..2 * THREADS).map(|at| move || prepare(at)))?;
        interrupted(stop)?;
        let mut samples = Vec::new();
        let mut take = |rate: f64, seen: &mut dyn FnMut(Step)| {
            seen(Step::Beside(rate));
            let taken = sample(&fast, self.duration, Some(rate), stop)?;
            samples.push(taken);
            Ok::<_, Error>(taken)
        };
        for _ in 0..self.rounds {
            take(0.0, seen)?;
            let fastest = take(slow_write, seen)?.read;
            for rate in read_rates(fastest) {
                take(rate, seen)?;
            }
        }
        Ok(Measured {
            slow_write,
            samples,
            fast_is_direct,
            slow_is_direct,
            is_one_file_system,
        })
    }
}

fn interrupted(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(
            Error::new(ErrorKind::Cancelled, End::Here, "measure the devices")
                .cause("interrupted")
                .remedy(
                    "run the same command again; the measurement then starts from the beginning",
                ),
        ),
    }
}

/// Runs the functions concurrently, each on a thread, and returns the sum of their bytes.
fn all<F>(tasks: impl Iterator<Item = F>) -> Result<u64>
where
    F: FnOnce() -> Result<u64> + Send,
{
    thread::scope(|scope| {
        let spawn = |task| thread::Builder::new().spawn_scoped(scope, task);
        let started: Vec<_> = tasks.map(spawn).collect();
        let mut sum = 0;
        for thread in started {
            let thread = thread.map_err(|error| refused(&error))?;
            let bytes = thread.join().map_err(|_| {
                Error::new(ErrorKind::Internal, End::Here, "measure the devices")
                    .cause("a thread of the measurement ended unexpectedly")
            })?;
            sum += bytes?;
        }
        Ok(sum)
    })
}

/// Writes for the given time at full speed. With a rate, also reads at this rate in bytes per
/// second.
fn sample(
    bench: &Bench,
    duration: Duration,
    rate: Option<f64>,
    stop: &AtomicBool,
) -> Result<Sample> {
    let begun = Instant::now();
    let end = begun + duration;
    let pace = Pace::new(rate.unwrap_or(0.0), begun);
    let seconds = |since: Instant| since.elapsed().as_secs_f64().max(f64::EPSILON);
    let (read, written) = thread::scope(|scope| {
        let reads = || {
            let reader = |at| {
                let pace = &pace;
                move || bench.read(at, end, stop, &mut || pace.wait(end, stop))
            };
            let bytes = match pace.rate > 0.0 {
                true => all((THREADS..2 * THREADS).map(reader))?,
                false => 0,
            };
            Ok::<_, Error>(bytes as f64 / seconds(begun))
        };
        let reads = thread::Builder::new().spawn_scoped(scope, reads);
        let bytes = all((0..THREADS).map(|at| move || bench.write(at, end, stop)));
        let written = bytes.map(|bytes| bytes as f64 / seconds(begun));
        let read = match reads {
            Ok(reads) => reads.join().unwrap_or(Ok(0.0)),
            Err(error) => Err(refused(&error)),
        };
        (read, written)
    });
    interrupted(stop)?;
    Ok(Sample {
        read: read?,
        write: written?,
    })
}

/// Spaces the reads of all threads evenly.
struct Pace {
    rate: f64,
    next: Mutex<Instant>,
}

impl Pace {
    const fn new(rate: f64, begun: Instant) -> Self {
        Self {
            rate,
            next: Mutex::new(begun),
        }
    }

    /// Returns the number of bytes of a read: a block, or less at a rate of few blocks per second.
    fn block(&self) -> usize {
        let tenth = (self.rate / 10.0) as usize / files::ALIGNMENT * files::ALIGNMENT;
        tenth.clamp(16 * files::ALIGNMENT, BLOCK)
    }

    /// Waits for the turn of the next read, and returns its number of bytes. Returns `None` at the
    /// end of the sample.
    fn wait(&self, end: Instant, stop: &AtomicBool) -> Option<usize> {
        let block = self.block();
        let turn = {
            let mut next = self.next.lock_unpoisoned();
            let oldest = Instant::now().checked_sub(CATCH_UP);
            let turn = oldest.map_or(*next, |oldest| oldest.max(*next));
            *next = turn + Duration::from_secs_f64(block as f64 / self.rate);
            turn
        };
        loop {
            let now = Instant::now();
            if now >= end || turn >= end || stop.load(Ordering::Relaxed) {
                return None;
            }
            if now >= turn {
                return Some(block);
            }
            thread::sleep(turn.saturating_duration_since(now).min(NAP));
        }
    }
}

#[cfg(test)]
mod tests;
