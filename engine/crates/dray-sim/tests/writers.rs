//! Several transfers write to one destination. No run without a planted defect may violate an
//! invariant, and each planted defect must be detected.

use dray_sim::writers::{Mutant, run_seed};
use std::collections::BTreeMap;

const SEEDS: u64 = 400;

#[test]
fn many_writers_keep_to_their_own() {
    let (mut adopted, mut refused, mut kills) = (0, 0, 0);
    for seed in 0..SEEDS {
        let report = run_seed(seed, None);
        assert_eq!(report.violation, None, "seed {seed}");
        adopted += report.adopted;
        refused += report.refused;
        kills += report.kills;
    }
    assert!(
        adopted > SEEDS / 4 && refused > SEEDS / 4 && kills > SEEDS,
        "{adopted} adopted, {refused} refused, {kills} killed"
    );
}

#[test]
fn planted_defects_are_noticed() {
    for mutant in Mutant::ALL {
        let mut by: BTreeMap<&str, u64> = BTreeMap::new();
        for seed in 0..SEEDS {
            if let Some(violation) = run_seed(seed, Some(mutant)).violation {
                *by.entry(violation.checker).or_default() += 1;
            }
        }
        let caught: u64 = by.values().sum();
        println!("{mutant:?}: {by:?}");
        assert!(caught * 200 >= SEEDS, "{mutant:?} is caught by {by:?}");
    }
}
