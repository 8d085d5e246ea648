//! Chooses the abandoned data to remove: by age, and the oldest of the rest while space is short.
//!
//! Non-goals: finding the data, and deciding that nothing needs it any more.
//!
//! Invariant owned here: no orphan younger than [`Rules::age_min`] is removed, and no orphan is
//! removed for space while enough is free.

use std::time::Duration;

/// The limits by which orphans are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Orphans that have not changed for this long are removed.
    pub age: Duration,
    /// No orphan younger than this is removed, for whatever reason.
    pub age_min: Duration,
    /// Younger orphans are removed, oldest first, while fewer bytes than this are free.
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
    /// Returns the word of the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Space => "space",
        }
    }
}

/// The facts about an orphan that the choice depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// Time since the last change.
    pub age: Duration,
    /// Bytes that its removal frees.
    pub bytes: u64,
}

/// Returns the indices of the `orphans` to remove when `free` bytes are free, the oldest first,
/// each with its reason.
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
        // Removal by age frees twenty bytes.
        assert_eq!(choose(&orphans, 30, &rules(30, Some(50))), [age(1), age(4)]);
        assert_eq!(
            choose(&orphans, 30, &rules(30, Some(51))),
            [age(1), age(4), space(2)]
        );
        let all = [age(1), age(4), space(2), space(0)];
        assert_eq!(choose(&orphans, 0, &rules(30, Some(u64::MAX))), all);
        // A limit of zero days does not remove data younger than an hour either.
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
