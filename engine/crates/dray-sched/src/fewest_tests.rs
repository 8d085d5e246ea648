//! Reads of one source in virtual time: a line that carries one after the other, at the end of a way, with
//! disks behind it.

use super::{Fewest, LEAST};
use crate::draw::Draw;
use dray_core::Time;
use proptest::prelude::*;
use std::time::Duration;

const OBJECT: u64 = 4 << 20;

/// Where reads come from.
#[derive(Debug, Clone, Copy)]
struct Source {
    /// There and back, and whatever else each read takes by itself.
    way: Duration,
    /// What the line takes for one.
    line: Duration,
    /// What reads beyond so many cost the line beside, in percent: they leave the cache.
    cached: (u32, u32),
    /// Times differ by so many percent.
    noise: u32,
}

/// A copy of so many reads.
struct Copy {
    took: Duration,
    /// How many were under way, on average of all reads.
    under_way: f64,
    last: u32,
}

impl Source {
    fn copy(self, reads: u32, mut fewest: Option<Fewest>, most: u32) -> Copy {
        let mut draw = Draw::new(7);
        let mut now = Time::ZERO;
        let mut line_free = Time::ZERO;
        let mut ends: Vec<Time> = Vec::new();
        let (mut begun, mut ended, mut sum) = (0, 0, 0.0);
        while ended < reads {
            let count = fewest.as_ref().map_or(most, Fewest::count);
            while begun < reads && (ends.len() as u32) < count {
                let mut took = self.line;
                if ends.len() as u32 >= self.cached.0 {
                    took += took * self.cached.1 / 100;
                }
                took += took * draw.below(self.noise.into()) as u32 / 100;
                line_free = (now + self.way).max(line_free) + took;
                ends.push(line_free);
                begun += 1;
            }
            let first = (0..ends.len()).min_by_key(|at| ends[*at]).expect("some");
            sum += ends.len() as f64;
            now = ends.swap_remove(first);
            ended += 1;
            if let Some(fewest) = &mut fewest {
                fewest.ended(OBJECT, ends.len() as u32, now);
            }
        }
        Copy {
            took: now.since(Time::ZERO),
            under_way: sum / f64::from(reads),
            last: fewest.map_or(most, |fewest| fewest.count()),
        }
    }
}

const NEAR: Source = Source {
    way: Duration::from_micros(100),
    line: Duration::from_micros(1200),
    cached: (2, 15),
    noise: 20,
};

const FAR: Source = Source {
    way: Duration::from_millis(50),
    line: Duration::from_millis(8),
    cached: (u32::MAX, 0),
    noise: 5,
};

#[test]
fn a_near_source_is_left_with_two_and_a_copy_is_as_fast_as_with_two_from_the_first() {
    let found = NEAR.copy(1024, Some(Fewest::new(4, 16, Time::ZERO)), 16);
    let (two, all) = (NEAR.copy(1024, None, 2), NEAR.copy(1024, None, 16));
    assert!(
        found.last <= 4 && found.under_way < 3.0,
        "{} {}",
        found.last,
        found.under_way
    );
    assert!(
        found.took < two.took.mul_f64(1.03),
        "{:?} {:?}",
        found.took,
        two.took
    );
    assert!(
        found.took < all.took.mul_f64(0.92),
        "{:?} {:?}",
        found.took,
        all.took
    );
}

#[test]
fn a_far_source_keeps_what_its_way_holds_and_loses_next_to_nothing() {
    for reads in [64, 256, 1024, 4096] {
        let found = FAR.copy(reads, Some(Fewest::new(4, 16, Time::ZERO)), 16);
        let all = FAR.copy(reads, None, 16);
        assert!(found.last >= 8, "{} of {reads} reads", found.last);
        let most = all.took.mul_f64(1.02) + FAR.way;
        assert!(found.took < most, "{:?} {:?}", found.took, all.took);
    }
}

#[test]
fn where_each_waits_for_itself_alone_all_are_under_way_soon() {
    // Far ones from the first read on; of near ones it is seen as it runs.
    for (millis, reads, most) in [(40, 64, 1.3), (40, 1024, 1.04), (5, 1024, 1.25)] {
        let disks = Source {
            way: Duration::from_millis(millis),
            line: Duration::from_micros(1),
            ..FAR
        };
        let found = disks.copy(reads, Some(Fewest::new(4, 16, Time::ZERO)), 16);
        let all = disks.copy(reads, None, 16);
        assert_eq!(found.last, 16);
        let most = all.took.mul_f64(most);
        assert!(found.took <= most, "{:?} {:?}", found.took, all.took);
    }
}

#[test]
fn a_way_that_becomes_long_has_more_again() {
    let mut fewest = Fewest::new(4, 16, Time::ZERO);
    let mut now = Time::ZERO;
    for _ in 0..400 {
        now = now + Duration::from_millis(1);
        fewest.ended(OBJECT, fewest.count() - 1, now);
    }
    assert_eq!(fewest.count(), LEAST);
    // From now on each takes 50 ms, however many there are.
    let mut reads = 0;
    while fewest.count() < 16 {
        for _ in 0..fewest.count() {
            fewest.ended(OBJECT, fewest.count() - 1, now);
            reads += 1;
        }
        now = now + Duration::from_millis(50);
        assert!(reads < 2000, "{reads}");
    }
}

#[test]
fn one_stays_one() {
    let mut fewest = Fewest::new(0, 0, Time::ZERO);
    for millis in 1..1000 {
        fewest.ended(1, 0, Time::ZERO + Duration::from_millis(millis));
        assert_eq!(fewest.count(), 1);
    }
}

proptest! {
    #[test]
    fn it_never_leaves_its_bounds(
        first in 0..300_u32,
        most in 1..300_u32,
        ends in proptest::collection::vec((0..=OBJECT, 0..300_u32, 0..100_000_u64), 0..2000),
    ) {
        let mut fewest = Fewest::new(first, most, Time::ZERO);
        let mut now = Time::ZERO;
        for (bytes, others, micros) in ends {
            now = now + Duration::from_micros(micros);
            fewest.ended(bytes, others, now);
            prop_assert!((LEAST.min(first).min(most)..=most).contains(&fewest.count()));
        }
    }
}
