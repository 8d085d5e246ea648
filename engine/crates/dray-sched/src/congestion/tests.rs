use super::{Congestion, Moved, PATIENCE_MAX, Pace, SLOW_MIN};
use dray_core::{TargetId, Time};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

#[expect(clippy::unnecessary_wraps, reason = "what is asked for may be nothing")]
fn one(bytes: u64) -> Option<Moved> {
    Some(Moved { bytes, files: 1 })
}

/// Simulated targets, each with a number of disks. Each target is read as often as `congestion`
/// allows. Operations wait while all disks of the target are busy.
struct Bench {
    congestion: Congestion,
    now: Time,
    /// Service time per object in milliseconds, by target.
    service: Vec<u64>,
    bytes: Vec<u64>,
    files: Vec<usize>,
    /// Start time of each operation in progress, by end time, target and sequence number.
    under_way: BTreeMap<(Time, u32, u64), Time>,
    disk_free: Vec<Time>,
    count: Vec<u32>,
    done: Vec<u64>,
    number: u64,
    /// Number of times that the bound of a target has changed.
    changes: u32,
}

impl Bench {
    fn new(service: &[u64]) -> Self {
        Self {
            congestion: Congestion::new(4),
            now: Time::ZERO,
            service: service.to_vec(),
            bytes: vec![MIB; service.len()],
            files: vec![1; service.len()],
            under_way: BTreeMap::new(),
            disk_free: vec![Time::ZERO; service.len()],
            count: vec![0; service.len()],
            done: vec![0; service.len()],
            number: 0,
            changes: 0,
        }
    }

    fn run(&mut self, length: Duration) {
        let until = self.now + length;
        loop {
            self.congestion.look(self.now);
            for target in 0..self.service.len() {
                while self.count[target] < self.bound(target) {
                    self.begin(target);
                }
            }
            let Some(((then, target, number), began)) = self.under_way.pop_first() else {
                return;
            };
            if then > until {
                self.under_way.insert((then, target, number), began);
                self.now = until;
                return;
            }
            self.now = then;
            let at = target as usize;
            self.count[at] -= 1;
            self.done[at] += 1;
            let before = self.bound(at);
            let moved = Moved {
                bytes: self.bytes[at],
                files: self.files[at],
            };
            self.congestion
                .ended(TargetId(target), began, Some(moved), then);
            self.changes += u32::from(self.bound(at) != before);
        }
    }

    fn begin(&mut self, target: usize) {
        let begins = self.disk_free[target].max(self.now);
        let done = begins + millis(self.service[target]);
        self.disk_free[target] = done;
        self.number += 1;
        self.under_way
            .insert((done, target as u32, self.number), self.now);
        self.count[target] += 1;
        self.congestion.began(TargetId(target as u32), self.now);
    }

    fn bound(&self, target: usize) -> u32 {
        self.congestion.bound(TargetId(target as u32))
    }

    fn pace(&self, target: usize) -> Pace {
        self.congestion.pace(TargetId(target as u32), self.now)
    }
}

#[test]
fn a_slow_target_gets_one_operation_and_keeps_its_speed() {
    let mut bench = Bench::new(&[10, 10, 10, 100]);
    bench.run(Duration::from_secs(2));
    assert_eq!((bench.bound(0), bench.bound(3)), (4, 1));
    assert_eq!(bench.pace(3), Pace::Congested);
    let before = bench.done[3];
    bench.run(Duration::from_secs(2));
    assert_eq!(bench.done[3] - before, 20, "one after the other");
}

#[test]
fn a_recovered_target_is_unlimited_within_500_ms() {
    let mut bench = Bench::new(&[10, 10, 10, 100]);
    bench.run(Duration::from_secs(2));
    bench.service[3] = 10;
    bench.run(millis(500));
    assert_eq!(bench.bound(3), 4, "within 500 ms");
    assert_eq!(bench.pace(3), Pace::Fair);
}

#[test]
fn congestion_that_moves_is_followed() {
    let mut bench = Bench::new(&[10; 8]);
    for round in 0..16 {
        let slow = round % 8;
        bench.service = vec![10; 8];
        bench.service[slow] = 100;
        bench.run(millis(1000));
        for target in 0..8 {
            assert_eq!(bench.bound(target) < 4, target == slow, "{round} {target}");
        }
    }
}

#[test]
fn a_target_at_the_threshold_does_not_alternate() {
    // With one concurrent operation, the fourth target is as fast as each other target with four.
    // With four concurrent operations, the fourth target is slower.
    let mut bench = Bench::new(&[10, 10, 10, 40]);
    bench.run(Duration::from_secs(60));
    assert!(bench.changes < 60, "{} changes in a minute", bench.changes);
    let mut inside = Bench::new(&[10, 11, 14, 25]);
    inside.run(Duration::from_secs(60));
    assert_eq!(inside.changes, 0, "not slow enough to mind");
}

#[test]
fn small_objects_beside_large_ones_are_no_congestion() {
    let mut bench = Bench::new(&[4, 40, 4, 40]);
    bench.bytes = vec![4096, 10 * MIB, 4096, 10 * MIB];
    bench.run(Duration::from_secs(10));
    assert_eq!(bench.changes, 0);
}

#[test]
fn packs_of_small_files_beside_large_objects_are_no_congestion() {
    let mut bench = Bench::new(&[3, 120, 3, 3]);
    bench.files[1] = 1000;
    bench.run(Duration::from_secs(20));
    assert_eq!(bench.changes, 0);
    assert_eq!(bench.pace(1), Pace::Fair);
}

#[test]
fn operations_faster_than_slow_min_are_no_congestion() {
    let mut congestion = Congestion::new(4);
    let mut now = Time::ZERO;
    for round in 0..400_u64 {
        let target = TargetId((round % 4) as u32);
        congestion.began(target, now);
        let took = Duration::from_micros(if target.0 == 0 { 900 } else { 10 });
        congestion.ended(target, now, one(MIB), now + took);
        now = now + took;
    }
    assert!(Duration::from_micros(900) < SLOW_MIN);
    assert_eq!(congestion.bound(TargetId(0)), 4);
}

#[test]
fn a_silent_target_is_congested_and_later_stuck() {
    let mut bench = Bench::new(&[10, 10, 10, 10]);
    bench.run(Duration::from_secs(1));
    // From now on, operations on target 2 take an hour.
    bench.disk_free[2] = bench.now + Duration::from_secs(3600);
    bench.service[2] = 3_600_000;
    bench.run(Duration::from_secs(1));
    assert_eq!((bench.bound(2), bench.pace(2)), (1, Pace::Congested));
    bench.run(Duration::from_secs(10));
    assert_eq!((bench.bound(2), bench.pace(2)), (1, Pace::Stuck));
    assert_eq!(bench.bound(0), 4);
}

#[test]
fn a_target_alone_is_never_congested() {
    let mut bench = Bench::new(&[10]);
    bench.run(Duration::from_secs(1));
    bench.service[0] = 5000;
    bench.run(Duration::from_secs(100));
    assert_eq!((bench.bound(0), bench.pace(0)), (4, Pace::Fair));
}

#[test]
fn failed_operations_do_not_limit_their_target() {
    let mut congestion = Congestion::new(4);
    for round in 0..100_u64 {
        let now = Time::ZERO + millis(round * 1000);
        for target in 0..4 {
            congestion.began(TargetId(target), now);
            let (took, bytes) = match target {
                0 => (millis(900), None),
                _ => (millis(5), one(MIB)),
            };
            congestion.ended(TargetId(target), now, bytes, now + took);
        }
    }
    assert_eq!(congestion.bound(TargetId(0)), 4);
}

#[test]
fn a_recovered_target_gets_its_full_bound_in_limited_time() {
    let mut bench = Bench::new(&[10, 10, 10, 40]);
    bench.run(Duration::from_secs(600));
    // After a target has recovered, its bound rises to the maximum within this time, even if the
    // bound was increased too early before.
    bench.service[3] = 10;
    bench.run(millis(10) * (3 * PATIENCE_MAX + 20));
    assert_eq!(bench.bound(3), 4);
}

proptest! {
    /// For all inputs the bound is at least one and at most the maximum, and two runs give the same
    /// result.
    #[test]
    fn the_bound_of_a_target_stays_between_one_and_the_maximum(
        most in 1..9_u32,
        steps in prop::collection::vec((0..5_u32, 0..3_u8, 0..200_u64, 0..3_u64), 0..400),
    ) {
        let mut congestion = Congestion::new(most);
        let mut again = Congestion::new(most);
        let mut now = Time::ZERO;
        let mut began: BTreeMap<u32, Vec<Time>> = BTreeMap::new();
        for (target, kind, wait, bytes) in steps {
            now = now + millis(wait);
            let id = TargetId(target);
            for congestion in [&mut congestion, &mut again] {
                match kind {
                    0 => congestion.began(id, now),
                    1 => {
                        if let Some(began) = began.get(&target).and_then(|list| list.last()) {
                            congestion.ended(id, *began, one(bytes * MIB), now);
                        }
                    }
                    _ => congestion.look(now),
                }
            }
            match kind {
                0 => began.entry(target).or_default().push(now),
                1 => { began.entry(target).or_default().pop(); }
                _ => {}
            }
            for target in 0..5 {
                let id = TargetId(target);
                prop_assert!((1..=most).contains(&congestion.bound(id)));
                prop_assert_eq!(congestion.bound(id), again.bound(id));
                prop_assert_eq!(congestion.pace(id, now), again.pace(id, now));
            }
        }
    }
}

#[test]
fn loads_report_service_times_and_the_congested_target() {
    let mut congestion = Congestion::new(8);
    let millis = |count: u64| Time::ZERO + Duration::from_millis(count);
    let moved = Some(Moved {
        bytes: 1 << 20,
        files: 1,
    });
    for round in 0..20u64 {
        for (target, took) in [(0, 10), (1, 10), (2, 100)] {
            let began = millis(round * 200);
            congestion.began(TargetId(target), began);
            congestion.ended(TargetId(target), began, moved, millis(round * 200 + took));
        }
    }
    congestion.began(TargetId(2), millis(4000));
    let loads = congestion.loads(millis(4001));
    let service: Vec<_> = loads.iter().map(|load| load.service).collect();
    let close = |at: usize, millis: u64| {
        let found = service[at].expect("measured").as_micros() as u64;
        assert!(found.abs_diff(millis * 1000) < 10, "{found}");
    };
    close(0, 10);
    close(2, 100);
    let states: Vec<_> = loads
        .iter()
        .map(|load| (load.under_way, load.pace))
        .collect();
    let (fair, slow) = (Pace::Fair, Pace::Congested);
    assert_eq!(states, [(0, fair), (0, fair), (1, slow)]);
    assert_eq!(loads[2].bound, Some(1));
}
