use super::{DAY, FailureEstimator, Mtbf, Prior};
use crate::rng::Rng;
use proptest::prelude::*;

#[test]
fn a_job_on_more_nodes_fails_more_often() {
    let job = |nodes| Mtbf::Nodes {
        nodes,
        node_mtbf: 5_000.0 * 3_600.0,
    };
    assert_eq!(job(1).seconds(0.0), 18e6);
    assert_eq!(job(1_000).seconds(0.0), 18_000.0);
    assert_eq!(job(0).seconds(0.0), 18e6);
    assert_eq!(Mtbf::Declared(600.0).seconds(7.0), 600.0);
}

#[test]
fn posterior_mean_is_that_of_the_design() {
    let mut estimator = FailureEstimator::new(Prior::default(), 1_000.0);
    assert_eq!(estimator.mtbf(1_000.0), DAY);
    for at in [1_600.0, 2_200.0, 2_800.0] {
        estimator.restarted(at);
    }
    // (1 + 3) / (86400 + 3600)
    assert!((estimator.rate(4_600.0) - 4.0 / 90_000.0).abs() < 1e-15);
    assert_eq!(estimator.restarts(), 3);
    let resumed = FailureEstimator::resumed(Prior::default(), 3, 3_600.0, 9e9);
    assert_eq!(resumed.rate(9e9), estimator.rate(4_600.0));
}

#[test]
fn a_clock_that_steps_back_loses_no_observation() {
    let mut estimator = FailureEstimator::new(Prior::default(), 1_000.0);
    estimator.restarted(2_000.0);
    estimator.restarted(500.0);
    assert_eq!(estimator.observed(500.0), 1_000.0);
    assert_eq!(estimator.observed(2_500.0), 1_500.0);
    assert_eq!(estimator.restarts(), 2);
}

#[test]
fn declared_values_do_not_learn() {
    let mut declared = Mtbf::Declared(60.0);
    declared.restarted(1.0);
    assert_eq!(declared, Mtbf::Declared(60.0));
    let mut estimated = Mtbf::Estimated(FailureEstimator::new(Prior::default(), 0.0));
    let before = estimated.seconds(60.0);
    estimated.restarted(60.0);
    assert!(estimated.seconds(60.0) < before);
}

#[test]
fn interval_is_close_to_the_exact_quantiles() {
    // Quantiles 5 % and 95 % of the Gamma distribution with scale 1.
    let exact = [
        (1, 0.051_293, 2.995_732, 0.25),
        (2, 0.355_362, 4.743_865, 0.03),
        (3, 0.817_691, 6.295_794, 0.01),
        (10, 5.425_406, 15.705_216, 0.01),
        (100, 84.139_277, 116.997_134, 0.001),
    ];
    for (shape, low, high, bound) in exact {
        let prior = Prior {
            restarts: 1.0,
            seconds: 1.0,
        };
        let estimator = FailureEstimator::resumed(prior, shape - 1, 0.0, 0.0);
        let found = estimator.interval(0.0);
        assert!((found.0 / low - 1.0).abs() < bound, "{shape}: {found:?}");
        assert!((found.1 / high - 1.0).abs() < bound, "{shape}: {found:?}");
    }
}

#[test]
fn estimate_converges_and_its_interval_covers_the_truth() {
    let (mut covered, draws) = (0, 400);
    let mut draw = Rng::new(25);
    for _ in 0..draws {
        // Draw the true failure rate from the prior, which is an exponential distribution.
        let mut exponential = || -(1.0 - draw.next_u32() as f64 / 2f64.powi(32)).ln();
        let truth = exponential() / DAY;
        let (mut at, until) = (0.0, 20.0 * DAY);
        let mut estimator = FailureEstimator::new(Prior::default(), 0.0);
        loop {
            at += exponential() / truth;
            if at > until {
                break;
            }
            estimator.restarted(at);
        }
        let (low, high) = estimator.interval(until);
        covered += u32::from((low..=high).contains(&truth));
    }
    let part = f64::from(covered) / f64::from(draws);
    assert!((0.85..=0.95).contains(&part), "{part}");
}

proptest! {
    #[test]
    fn every_mtbf_is_positive(
        declared in proptest::num::f64::ANY,
        nodes in any::<u64>(),
        restarts in any::<u64>(),
        at in proptest::num::f64::ANY,
    ) {
        let prior = Prior { restarts: declared, seconds: declared };
        let estimator = FailureEstimator::resumed(prior, restarts, 0.0, 0.0);
        for mtbf in [
            Mtbf::Declared(declared),
            Mtbf::Nodes { nodes, node_mtbf: declared },
            Mtbf::Estimated(estimator),
        ] {
            prop_assert!(mtbf.seconds(at) > 0.0, "{:?}", mtbf);
        }
    }

    #[test]
    fn a_restart_shortens_the_mtbf_and_time_without_one_lengthens_it(
        restarts in 0u64..1_000,
        seconds in 0.0f64..1e7,
    ) {
        let mut estimator =
            FailureEstimator::resumed(Prior::default(), restarts, seconds, 0.0);
        let before = estimator.mtbf(1_000.0);
        prop_assert!(estimator.mtbf(2_000.0) > before);
        estimator.restarted(1_000.0);
        prop_assert!(estimator.mtbf(1_000.0) < before);
    }
}
