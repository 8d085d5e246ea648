use super::{ThreadCount, ThreadTuner, Work};
use dray_core::{End, Error, ErrorKind, Time};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(50);
const TUNED: ThreadCount = ThreadCount::Tuned { first: 4, most: 64 };

/// Simulates storage for `seconds`. `carries` returns its throughput in bytes per second for a
/// number of threads. Returns the number of threads at each step.
fn run(
    tuner: &mut ThreadTuner,
    seconds: u32,
    is_short: impl Fn(u32) -> bool,
    carries: impl Fn(u32) -> f64,
) -> Vec<u32> {
    let (mut now, mut bytes) = (tuner.at, tuner.bytes as f64);
    let steps = seconds * 20;
    let counts = (0..steps).map(|_| {
        tuner.stand(is_short(tuner.count()));
        now = now + STEP;
        bytes += carries(tuner.count()) * STEP.as_secs_f64();
        tuner.pass(bytes as u64, now);
        tuner.count()
    });
    counts.collect()
}

#[test]
fn threads_that_each_wait_become_as_many_as_help() {
    for work in [Work::Reading, Work::Writing] {
        let mut tuner = ThreadTuner::new(work, TUNED);
        // The storage can run thirty operations concurrently. More threads do not increase the
        // throughput.
        let carries = |threads: u32| f64::from(threads.min(30)) * 1e6;
        let counts = run(&mut tuner, 40, |_| true, carries);
        let last = &counts[counts.len() / 2..];
        let carried: f64 = last.iter().map(|count| carries(*count)).sum();
        let part = carried / (last.len() as f64 * 30e6);
        assert!(part > 0.9, "{work:?}: {part} of the best; {counts:?}");
    }
}

#[test]
fn storage_that_gets_worse_is_not_driven_into_the_ground() {
    for work in [Work::Reading, Work::Writing] {
        let mut tuner = ThreadTuner::new(work, TUNED);
        // A disk that must seek between readers. One reader gets the full rate. Each doubling of
        // the number of readers reduces the total rate to three quarters.
        let carries = |threads: u32| 1e8 / f64::from(threads).powf(0.4);
        let counts = run(&mut tuner, 60, |_| true, carries);
        assert!(counts.iter().all(|count| *count <= 16), "{counts:?}");
        let last = &counts[counts.len() / 2..];
        let carried: f64 = last.iter().map(|count| carries(*count)).sum();
        assert!(carried / last.len() as f64 > 0.85e8, "{counts:?}");
    }
}

#[test]
fn while_something_else_bounds_nothing_is_concluded() {
    let mut tuner = ThreadTuner::new(Work::Reading, TUNED);
    let counts = run(&mut tuner, 30, |_| false, |_| 1e6);
    assert!(counts.iter().all(|count| *count == 4), "{counts:?}");
    // With eight threads no object waits any more.
    let counts = run(
        &mut tuner,
        30,
        |count| count < 8,
        |count| f64::from(count.min(8)) * 1e6,
    );
    let least = counts.last().copied();
    assert!(
        least.is_some_and(|count| (8..=16).contains(&count)),
        "{counts:?}"
    );
}

#[test]
fn zero_threads_and_a_limit_of_one_give_one_thread() {
    let mut tuner = ThreadTuner::new(Work::Writing, ThreadCount::Fixed(0));
    let counts = run(&mut tuner, 10, |_| true, |count| f64::from(count) * 1e6);
    assert!(counts.iter().all(|count| *count == 1));
    let alone = ThreadCount::Tuned { first: 4, most: 1 };
    let mut tuner = ThreadTuner::new(Work::Writing, alone);
    let counts = run(&mut tuner, 10, |_| true, |count| f64::from(count) * 1e6);
    assert!(counts.iter().all(|count| *count == 1));
}

#[test]
fn storage_that_refuses_is_asked_by_fewer() {
    let mut tuner = ThreadTuner::new(Work::Reading, TUNED);
    let busy = Error::new(ErrorKind::Busy, End::Source, "read the file");
    let gone = Error::new(ErrorKind::NotFound, End::Source, "read the file");
    let (mut now, mut bytes) = (Time::ZERO, 0);
    let mut counts = Vec::new();
    for _ in 0..1_200 {
        tuner.stand(true);
        now = now + STEP;
        bytes += u64::from(tuner.count()) * 50_000;
        // An error for a missing file says nothing about the load of the storage.
        tuner.failed(&gone);
        if tuner.count() > 12 {
            (0..3).for_each(|_| tuner.failed(&busy));
        }
        tuner.pass(bytes, now);
        counts.push(tuner.count());
    }
    let last = &counts[counts.len() / 2..];
    assert!(
        last.iter().all(|count| (8..=12).contains(count)),
        "{counts:?}"
    );
}
