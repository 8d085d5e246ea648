//! Required results of the experiments with the broker.

use dray_sim::experiments::bde::{self, FOURTH, TASKS, Topology};
use dray_sim::experiments::loads::{self, Many};
use dray_sim::fluid::{Plain, TransferIndex};

#[test]
fn bde_both_deadlines_are_met_and_the_third_task_is_throttled_and_idle_never() {
    for topology in Topology::ALL {
        let (report, conductor) = bde::brokered(topology, None);
        assert_eq!(
            bde::is_met(&report, &topology.load(None)),
            [true, true],
            "{topology:?}"
        );
        assert!(conductor.refusals.is_empty() && conductor.foretold.is_empty());
        assert!(
            report.idle_seconds < 0.01,
            "{topology:?}: {}",
            report.idle_seconds
        );
        let rate = |task, seconds| bde::rate_at(&conductor, task, seconds);
        // Alone, the third task gets the whole rate. Together with the other two tasks, the third
        // task gets a small part, but never zero.
        let alone = rate(2, 30);
        assert!(alone > 9.9, "{alone}");
        assert!((0.1..0.2 * alone).contains(&rate(2, 95)), "{}", rate(2, 95));
        assert!(
            (0.1..0.2 * alone).contains(&rate(2, 250)),
            "{}",
            rate(2, 250)
        );
        // From its first moment, each task gets at least the rate that its deadline requires:
        // remaining bytes divided by remaining time.
        assert!(rate(0, 95) >= 1.33 && rate(1, 201) >= 5.33);
    }
}

#[test]
fn bde_the_shared_resource_shows_the_paper_s_order_of_rates() {
    let (_, conductor) = bde::brokered(Topology::Shared, None);
    let rate = |task, seconds| bde::rate_at(&conductor, task, seconds);
    // Rates in the paper, in Gbit/s: at 95 s, T1 has 6 and T3 has 2. At 200 s, T2 has 8, T1 has 2
    // and T3 has 0.5.
    assert!(rate(0, 95) > rate(2, 95));
    assert!((6.5..8.5).contains(&rate(1, 205)), "{}", rate(1, 205));
    assert!((1.5..3.0).contains(&rate(0, 205)), "{}", rate(0, 205));
    assert!((0.3..0.7).contains(&rate(2, 205)), "{}", rate(2, 205));
}

#[test]
fn bde_equal_shares_and_first_come_miss_the_second_task() {
    let load = Topology::Shared.load(None);
    for rule in [Plain::Fair, Plain::Fcfs] {
        let report = bde::plain(Topology::Shared, rule);
        assert_eq!(bde::is_met(&report, &load), [true, false], "{rule:?}");
    }
    // 200 GB at a third of 10.5 Gbit/s take 457 s.
    let seconds = bde::plain(Topology::Shared, Plain::Fair).transfers[1].seconds();
    let third = seconds.expect("it ends");
    assert!((third - 457.1).abs() < 1.0, "{third}");
}

#[test]
fn bde_a_fourth_task_is_refused_and_taken_on_with_what_it_is_offered() {
    for topology in Topology::ALL {
        let (report, conductor) = bde::brokered(topology, FOURTH.3);
        assert_eq!(conductor.refusals.len(), 1, "{topology:?}");
        assert!(report.of(TransferIndex(3)).is_refused);
        assert_eq!(bde::is_met(&report, &topology.load(FOURTH.3)), [true, true]);
        let offered = bde::offer(topology);
        assert!(offered > FOURTH.3.expect("it has a deadline"));
        // The offered deadline is hardly later than necessary: `both` is the time that the second
        // and the fourth task together need, and the offer adds a few seconds.
        let rate = if topology == Topology::Shared {
            10.5
        } else {
            10.0
        };
        let both = f64::from(u32::try_from(TASKS[1].1 + FOURTH.1).expect("small")) * 8.0 / rate;
        assert!(
            (offered as f64) < both + 15.0,
            "{topology:?}: {offered} of {both}"
        );
        let (report, conductor) = bde::brokered(topology, Some(offered));
        assert!(conductor.refusals.is_empty(), "{topology:?}");
        let load = topology.load(Some(offered));
        assert_eq!(
            bde::is_met(&report, &load),
            [true, true, true],
            "{topology:?}"
        );
    }
}

/// Runs a part of the experiment that `dray-sim experiment loads` runs completely.
#[test]
fn loads_nothing_promised_is_late_little_is_refused_and_noise_harms_the_broker_least() {
    const SEEDS: u64 = 4;
    let (mut steady, mut of_best, mut ahead) = (0, 0.0, 0.0);
    let mut noisy = [0; 3];
    for seed in 0..SEEDS {
        let one = loads::outcome(seed, Many::Usual);
        assert!(one.of_best <= 1.001, "seed {seed}: above the bound");
        steady += one.late_steady;
        of_best += one.of_best / SEEDS as f64;
        ahead += loads::ahead(seed)[0] / SEEDS as f64;
        for (sum, late) in noisy.iter_mut().zip(one.late_noisy) {
            *sum += late;
        }
    }
    assert_eq!(steady, 0);
    assert!(of_best >= 0.95 && ahead >= 0.95, "{of_best} {ahead}");
    let [broker, edf, fair] = noisy;
    assert!(2 * broker <= edf && 3 * broker <= fair, "{noisy:?}");
}
