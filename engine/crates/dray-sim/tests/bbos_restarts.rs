//! Restarts from a fast tier, with fewer runs than the published page.

use dray_sched::tiers::failures::Prior;
use dray_sim::experiments::bbos_restarts::{
    LOADS, LOSS_MAX, MIXES, Retained, SPANS, cases, cell, learned, mix_ratios,
};

const SEEDS: u64 = 20;

#[test]
fn versions_come_out_within_5_percent_of_the_paper() {
    for mix in MIXES {
        let found = mix_ratios(&mix, Retained::Three, SEEDS);
        for (found, paper) in found.into_iter().zip(mix.paper) {
            let off = found / paper - 1.0;
            assert!(off.abs() <= 0.05, "{}: {found} for {paper}", mix.ratio);
        }
    }
}

#[test]
fn bbos_is_above_lru_and_fifo_and_gains_with_the_variance() {
    let cells: Vec<_> = cases().iter().map(|case| cell(case, SEEDS)).collect();
    for (case, cell) in cases().iter().zip(&cells) {
        let [bbos, lru, fifo] = cell.ratios;
        assert!(bbos > lru && lru > fifo, "{case:?}: {cell:?}");
        // With FIFO, the fast tier holds the last S bytes that all applications together have
        // written, so the hit ratio is about 1 / load.
        assert!((fifo * case.load - 1.0).abs() < 0.06, "{case:?}: {fifo}");
        // BBOS needs space for one checkpoint that is being written.
        assert!(bbos >= cell.best_fixed - 0.02, "{case:?}: {cell:?}");
        assert!(bbos <= cell.bound, "{case:?}: {cell:?}");
        assert_eq!(cell.stalls, 0, "{case:?}");
    }
    let bbos = |load: usize, span: usize| cells[load * SPANS.len() + span].ratios[0];
    for (at, load) in LOADS.into_iter().enumerate() {
        assert!(bbos(at, 0) < bbos(at, 2), "load {load}");
    }
    for (at, span) in SPANS.into_iter().enumerate() {
        assert!(
            bbos(0, at) > bbos(1, at) && bbos(1, at) > bbos(2, at),
            "{span}"
        );
    }
}

#[test]
fn estimate_is_within_two_points_of_the_truth_after_eight_periods() {
    for span in SPANS {
        let found = learned(span, Prior::default(), SEEDS);
        assert!(found.periods() <= 8, "{span}: {found:?}");
        let [truth, estimate] = [&found.truth, &found.estimate].map(|ratios| {
            let learned = &ratios[8..];
            learned.iter().sum::<f64>() / learned.len() as f64
        });
        assert!(
            truth - estimate <= LOSS_MAX / 2.0,
            "{span}: {truth} {estimate}"
        );
        let all = found.restarts * found.truth.len() as f64;
        let regret = found.regret.last().expect("it ran");
        assert!(*regret <= 0.015 * all, "{span}: {regret} of {all}");
    }
}
