//! Writes to a tier under BBOS and under the policies that section 5.3 of its paper compares.

use dray_sched::tiers::policy::{Bbos, DataWarp, EvenBbos, MaxBw, MaxEff, TierPolicy};
use dray_sched::tiers::ramp::EquationForm;
use dray_sim::experiments::bbos::bypass;
use dray_sim::experiments::bbos::model::{Demotes, Run};
use dray_sim::experiments::bbos::{
    CAPACITY, CHECKPOINT, Congestion, Figures, GIGA, LOADS, STOP_MIN, count, estimated, figures,
    first_stop, jobs, run, served, tier,
};

fn percent(count: usize) -> f64 {
    100.0 * count as f64 * CHECKPOINT / CAPACITY
}

fn is_close(value: f64, paper: f64) -> bool {
    (value / paper - 1.0).abs() <= 0.05
}

fn writes(policy: &dyn TierPolicy, load: f64, congestion: Congestion) -> Figures {
    figures(&run(
        policy,
        Demotes::Written,
        &jobs(count(load), congestion),
    ))
}

#[test]
fn utilisation_is_that_of_the_paper() {
    let own = served(&DataWarp, Demotes::Written);
    assert!(is_close(percent(own.in_period), 100.0), "{own:?}");
    let apart = served(&MaxBw, Demotes::Written);
    assert!(is_close(percent(apart.in_period), 190.0), "{apart:?}");
    for policy in [&MaxEff as &dyn TierPolicy, &Bbos::default(), &EvenBbos] {
        for demotes in [Demotes::Written, Demotes::Complete] {
            let found = served(policy, demotes);
            let name = policy.name();
            assert!(
                is_close(percent(found.without_stop), 210.0),
                "{name} {found:?}"
            );
        }
    }
}

#[test]
fn a_burst_below_the_bound_never_fills_the_tier() {
    for demotes in [Demotes::Written, Demotes::Complete] {
        for policy in [&Bbos::default() as &dyn TierPolicy, &EvenBbos] {
            let most = (policy.bound(&tier(demotes)) / CHECKPOINT).floor() as usize;
            for count in (20..=most).step_by(3).chain([most]) {
                let run = run(policy, demotes, &jobs(count, Congestion::Burst));
                assert!(
                    run.most_used <= CAPACITY * (1.0 + 1e-6),
                    "{count}: {}",
                    run.most_used
                );
                assert!(run.stopped() < STOP_MIN, "{count}: {}", run.stopped());
            }
        }
    }
    // The printed equation starts too late, and the tier is full.
    let printed = Bbos {
        form: EquationForm::Printed,
    };
    let run = run(&printed, Demotes::Written, &jobs(33, Congestion::Burst));
    assert!(run.stopped() > STOP_MIN, "{}", run.stopped());
}

#[test]
fn throughput_and_latency_have_the_order_of_the_paper() {
    let own = writes(&DataWarp, 27.0 * CHECKPOINT / CAPACITY, Congestion::High);
    for load in LOADS {
        for congestion in Congestion::ALL {
            let bandwidth = writes(&MaxBw, load, congestion);
            let efficiency = writes(&MaxEff, load, congestion);
            let ours = writes(&Bbos::default(), load, congestion);
            let at = format!("{load} {congestion:?}");
            assert!(efficiency.throughput < ours.throughput, "{at}");
            assert!(ours.throughput < bandwidth.throughput, "{at}");
            assert!(own.throughput < efficiency.throughput, "{at}");
            assert!(ours.latency < efficiency.latency, "{at}");
            assert!(ours.stopped < STOP_MIN, "{at}");
            let is_stopped =
                congestion == Congestion::High || (congestion == Congestion::Medium && load > 1.6);
            assert_eq!(bandwidth.stopped > STOP_MIN, is_stopped, "{at}");
            assert_eq!(ours.latency < bandwidth.latency, is_stopped, "{at}");
            // Demotions in idle time speed up later writes.
            let even = writes(&EvenBbos, load, congestion);
            let gain = if congestion == Congestion::High {
                0.995
            } else {
                1.06
            };
            assert!(even.throughput > gain * ours.throughput, "{at}: {even:?}");
        }
    }
}

/// Returns true if no write starts before the end of an earlier one (`no_overlap`).
fn has_no_overlap(run: &Run) -> bool {
    let mut jobs: Vec<_> = run.jobs.iter().filter(|job| !job.is_direct).collect();
    jobs.sort_by(|one, other| one.started.total_cmp(&other.started));
    (jobs.windows(2)).all(|pair| pair[1].started >= pair[0].finished - 1e-6)
}

#[test]
fn writes_never_overlap_on_a_device() {
    let policies = [
        &MaxBw as &dyn TierPolicy,
        &MaxEff,
        &Bbos::default(),
        &EvenBbos,
    ];
    for policy in policies {
        for congestion in Congestion::ALL {
            let run = run(policy, Demotes::Complete, &jobs(count(1.9), congestion));
            assert!(has_no_overlap(&run), "{} {congestion:?}", policy.name());
        }
    }
    // The check finds the overlaps of DataWarp, which does not schedule writes.
    let own = run(&DataWarp, Demotes::Written, &jobs(27, Congestion::High));
    assert!(!has_no_overlap(&own));
}

#[test]
fn max_bw_stops_near_job_36_and_bbos_never() {
    let jobs = jobs(count(1.9), Congestion::Medium);
    let stop = first_stop(&run(&MaxBw, Demotes::Written, &jobs)).expect("it stops");
    // Jobs after number 36 stop in the paper.
    assert!(is_close(stop as f64, 37.0), "{stop}");
    for policy in [&Bbos::default() as &dyn TierPolicy, &MaxEff, &EvenBbos] {
        assert_eq!(first_stop(&run(policy, Demotes::Written, &jobs)), None);
    }
}

#[test]
fn a_bypass_lowers_the_demoted_bytes_more_at_higher_loads() {
    use dray_sched::tiers::bypass::BypassRule;
    let rule = BypassRule {
        colder_than: 0.5,
        ..BypassRule::default()
    };
    let mean = |load| {
        (0..10)
            .map(|seed| bypass::run(seed, load, Some(rule)).last)
            .sum::<f64>()
            / 10.0
    };
    let means = LOADS.map(mean);
    assert!(means[0] > means[1] && means[1] > means[2], "{means:?}");
    // In the paper, the bypass saves up to 38 percent of the demoted bytes.
    assert!((0.58..0.72).contains(&means[2]), "{means:?}");
    let without = bypass::run(0, 1.9, None);
    assert!((without.last - 1.0).abs() < 1e-6);
    assert!(bypass::run(0, 1.9, Some(rule)).throughput > without.throughput);
}

#[test]
fn an_estimated_dwpp_costs_at_most_3_percent_of_the_throughput() {
    for policy in [&Bbos::default() as &dyn TierPolicy, &EvenBbos] {
        for (seed, load) in [(2, 1.3), (3, 1.3), (2, 1.6), (2, 1.9), (3, 1.9)] {
            let found = estimated::compared(policy, seed, load, Congestion::Medium);
            assert!(found.estimated >= 0.97 * found.oracle, "{load}: {found:?}");
            assert!(found.oracle < 3.56 * GIGA);
            assert!(found.estimated_stopped < STOP_MIN, "{load}: {found:?}");
        }
    }
}
