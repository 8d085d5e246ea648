//! Chooses the orphans to remove. An orphan is the data of an abandoned transfer. Orphans above a
//! maximum age are removed. While space is short, younger orphans are removed too, the oldest
//! first.
//!
//! Non-goals: finding the orphans, and deciding that a transfer is abandoned.
//!
//! Invariant owned here: no orphan younger than [`Rules::age_min`] is removed, and no orphan is
//! removed for space while enough space is free.

use std::time::Duration;

/// The limits by which orphans are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Orphans that have not changed for this time are removed.
    pub age: Duration,
    /// Orphans younger than this are never removed.
    pub age_min: Duration,
    /// While fewer bytes than this are free, younger orphans are removed too, the oldest first.
    pub space_min: Option<u64>,
}

/// The reason for a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The orphan is older than [`Rules::age`].
    Age,
    /// Less space is free than [`Rules::space_min`].
    Space,
}

impl Reason {
    /// Returns the reason as written to the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Space => "space",
        }
    }
}

/// The properties of an orphan on which the choice depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// Time since the orphan last changed.
    pub age: Duration,
    /// Number of bytes that the removal frees.
    pub bytes: u64,
}

/// Returns the indices of the `orphans` to remove while `free` bytes are free. The oldest comes
/// first, each with the reason for its removal.
#[must_use]
pub fn choose(orphans: &[Orphan], mut free: u64, rules: &Rules) -> Vec<(usize, Reason)> {
    let mut order: Vec<usize> = (0..orphans.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(orphans[*index].age));
    let mut chosen = Vec::new();
    for index in order {
        let orphan = &orphans[index];
        let reason = if orphan.age < rules.age_min {
            continue;
        } else if orphan.age >= rules.age {
            Reason::Age
        } else if rules.space_min.is_some_and(|space_min| free < space_min) {
            Reason::Space
        } else {
            break;
        };
        free = free.saturating_add(orphan.bytes);
        chosen.push((index, reason));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::{Orphan, Reason, Rules, choose};
    use proptest::prelude::*;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(24 * 3_600);

    fn rules(days: u32, space_min: Option<u64>) -> Rules {
        Rules {
            age: DAY * days,
            age_min: HOUR,
            space_min,
        }
    }

    fn orphan(age: Duration, bytes: u64) -> Orphan {
        Orphan { age, bytes }
    }

    #[test]
    fn old_orphans_are_removed_and_the_oldest_of_the_rest_while_space_is_short() {
        let orphans = [
            orphan(2 * DAY, 10),
            orphan(40 * DAY, 10),
            orphan(5 * DAY, 10),
            orphan(HOUR / 2, 1_000),
            orphan(31 * DAY, 10),
        ];
        let age = |index| (index, Reason::Age);
        let space = |index| (index, Reason::Space);
        assert_eq!(choose(&orphans, 0, &rules(30, None)), [age(1), age(4)]);
        // The removal by age frees 20 bytes, so 50 bytes are free afterwards.
        assert_eq!(choose(&orphans, 30, &rules(30, Some(50))), [age(1), age(4)]);
        assert_eq!(
            choose(&orphans, 30, &rules(30, Some(51))),
            [age(1), age(4), space(2)]
        );
        let all = [age(1), age(4), space(2), space(0)];
        assert_eq!(choose(&orphans, 0, &rules(30, Some(u64::MAX))), all);
        // Even with a limit of zero days, data younger than an hour is not removed.
        assert_eq!(choose(&orphans[3..4], 0, &rules(0, Some(u64::MAX))), []);
        assert_eq!(choose(&[], 0, &rules(0, Some(1))), []);
    }

    proptest! {
        #[test]
        fn no_more_is_removed_than_age_and_space_require(
            ages in proptest::collection::vec((0_u64..100, 0_u64..1_000), 0..40),
            free in 0_u64..10_000,
            space_min in proptest::option::of(0_u64..10_000),
            days in 0_u32..100,
        ) {
            let orphans: Vec<Orphan> = ages
                .iter()
                .map(|(hours, bytes)| orphan(HOUR * u32::try_from(hours * 12).unwrap_or(0), *bytes))
                .collect();
            let rules = rules(days, space_min);
            let chosen = choose(&orphans, free, &rules);
            let mut free = free;
            for (place, (index, reason)) in chosen.iter().enumerate() {
                let one = &orphans[*index];
                prop_assert!(one.age >= HOUR);
                prop_assert!(place == 0 || orphans[chosen[place - 1].0].age >= one.age);
                prop_assert_eq!(*reason == Reason::Age, one.age >= rules.age);
                if *reason == Reason::Space {
                    prop_assert!(free < space_min.unwrap_or(0));
                }
                free += one.bytes;
            }
            let left = (0..orphans.len()).filter(|index| !chosen.iter().any(|(at, _)| at == index));
            for index in left {
                let one = &orphans[index];
                prop_assert!(one.age < HOUR || one.age < rules.age);
                prop_assert!(one.age < HOUR || free >= space_min.unwrap_or(0));
            }
        }
    }
}
