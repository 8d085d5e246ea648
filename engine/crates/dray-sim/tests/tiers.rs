//! A tier under faults. No rule of docs/design/tiers.md may be broken, and each planted defect must
//! be detected.

use dray_sim::tiers::{Mutant, run_seed};
use std::collections::BTreeMap;

const SEEDS: u64 = 400;

#[test]
fn no_rule_of_a_tier_is_broken() {
    let (mut demoted, mut deleted, mut kills, mut failed, mut refused) = (0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let report = run_seed(seed, None);
        assert_eq!(report.violation, None, "seed {seed}");
        demoted += report.demoted;
        deleted += report.deleted;
        kills += report.kills;
        failed += report.failed;
        refused += report.refused;
    }
    let counts = [demoted, deleted, kills, failed, refused];
    assert!(counts.iter().all(|count| *count > 2 * SEEDS), "{counts:?}");
}

#[test]
fn each_rule_has_a_defect_that_its_checker_detects() {
    let mut checkers: BTreeMap<&str, u64> = BTreeMap::new();
    for mutant in Mutant::ALL {
        let mut by: BTreeMap<&str, u64> = BTreeMap::new();
        for seed in 0..SEEDS {
            if let Some(violation) = run_seed(seed, Some(mutant)).violation {
                *by.entry(violation.checker).or_default() += 1;
            }
        }
        println!("{mutant:?}: {by:?}");
        assert!(
            by.values().sum::<u64>() * 100 >= SEEDS,
            "{mutant:?}: {by:?}"
        );
        for (checker, count) in by {
            *checkers.entry(checker).or_default() += count;
        }
    }
    let rules = ["demoted_before_deleted", "newest_survives", "pinned_stays"];
    assert_eq!(checkers.into_keys().collect::<Vec<_>>(), rules);
}
