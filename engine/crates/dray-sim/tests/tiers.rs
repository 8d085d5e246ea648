//! A tier under faults. No rule of docs/design/tiers.md may be broken, and each planted defect must
//! be detected.

use dray_sim::tiers::{Mutant, run_seed};
use std::collections::BTreeMap;

const SEEDS: u64 = 400;

#[test]
fn no_rule_of_a_tier_is_broken() {
    let mut counts = [0; 8];
    for seed in 0..SEEDS {
        let report = run_seed(seed, None);
        assert_eq!(report.violation, None, "seed {seed}");
        let found = [
            report.demoted,
            report.deleted,
            report.kills,
            report.failed,
            report.refused,
            report.replicated,
            report.rewritten,
            report.differed,
        ];
        for (count, found) in counts.iter_mut().zip(found) {
            *count += found;
        }
    }
    assert!(counts.iter().all(|count| *count * 8 > SEEDS), "{counts:?}");
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
    let rules = [
        "demoted_before_deleted",
        "demoted_is_durable",
        "newest_survives",
        "pinned_stays",
        "replica_is_durable",
    ];
    assert_eq!(checkers.into_keys().collect::<Vec<_>>(), rules);
}
