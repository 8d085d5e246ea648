//! Published experiments in the fluid model. The tests check the numbers of the papers, the
//! required improvements of dray, and that the published pages contain the current results.

use dray_core::Time;
use dray_sched::policy::Name;
use dray_sim::experiments::{self, liu};
use liu::{Engine, TABLE_2, preemption, seconds, turns, two_pairs, two_sets};
use std::path::Path;

#[test]
fn liu_table_2_comes_out_within_8_percent() {
    for (policy, paper) in TABLE_2 {
        let fluid = seconds(&two_sets(Engine::Fluid, policy));
        let theirs = seconds(&two_sets(Engine::Theirs, policy));
        // Dray's engine differs from the paper's, so compare it with the fluid model instead.
        let ours = seconds(&two_sets(Engine::Ours, policy));
        for at in 0..3 {
            for (model, bound) in [(fluid, 0.08), (theirs, 0.07)] {
                let off = model[at] / paper[at] - 1.0;
                assert!(
                    off.abs() <= bound,
                    "{policy:?}: {} for {}",
                    model[at],
                    paper[at]
                );
            }
            assert!(ours[at] <= 1.005 * fluid[at], "{policy:?}: {}", ours[at]);
        }
    }
}

#[test]
fn liu_their_round_robin_is_explained_by_saved_turns() {
    // The model was fitted to the total time, but not to the end of tray05.
    let [_, tray05, wall] = seconds(&two_sets(Engine::Theirs, Name::RoundRobin));
    assert!((wall / 1043.0 - 1.0).abs() < 0.001, "{wall}");
    assert!((tray05 / 677.0 - 1.0).abs() < 0.035, "{tray05}");
}

#[test]
fn liu_priority_preempts_within_one_object_s_time() {
    let report = two_sets(Engine::Ours, Name::Priority);
    let object = 1_048_576.0 / (415e6 / 8.0);
    let cut = preemption(&report).as_secs_f64();
    assert!(cut > 0.0 && cut <= object, "{cut} of {object}");
    // The urgent transfer ran without interruption until its end.
    let urgent = &report.transfers[1];
    assert_eq!((urgent.turns.len(), urgent.preemptions), (1, 0));
    assert_eq!(report.transfers[0].preemptions, 1);
}

#[test]
fn liu_round_robin_costs_a_hundredth_at_most_and_moves_a_quota_in_each_turn() {
    let [_, _, fcfs] = seconds(&two_sets(Engine::Ours, Name::Fcfs));
    let report = two_sets(Engine::Ours, Name::RoundRobin);
    let [_, _, wall] = seconds(&report);
    assert!(wall <= 1.01 * fcfs, "{wall} after {fcfs}");
    let turns = turns(&report);
    assert!(turns.len() >= 90, "{}", turns.len());
    let object = 1_048_576.0;
    assert!(
        turns.iter().all(|bytes| (bytes - 400e6).abs() <= object),
        "{turns:?}"
    );
    let mean = turns.iter().sum::<f64>() / turns.len() as f64;
    assert!((mean / 400e6 - 1.0).abs() < 1e-3, "{mean}");
}

#[test]
fn liu_figure_13_two_pairs_take_as_long_as_the_longer() {
    for engine in Engine::ALL {
        let [short, long, wall] = seconds(&two_pairs(engine, Name::Pairs));
        assert!(wall <= 1.05 * long.max(short), "{engine:?}");
        let alone = 58e9 / (415e6 / 8.0);
        assert!(wall <= 1.05 * alone, "{engine:?}: {wall}, alone {alone}");
        // A client that runs one pair after the other needs the sum of both times.
        let one_by_one = two_pairs(engine, Name::Fcfs);
        let sum = 93e9 / (415e6 / 8.0);
        let [_, _, wall] = seconds(&one_by_one);
        assert!(
            (wall / sum - 1.0).abs() < 0.01,
            "{engine:?}: {wall} for {sum}"
        );
        let [first, second] = [&one_by_one.transfers[0], &one_by_one.transfers[1]];
        assert_eq!(second.started.max(Some(Time::ZERO)), first.finished);
    }
}

#[test]
fn nothing_is_idle_in_any_run() {
    for engine in Engine::ALL {
        for (policy, _) in TABLE_2 {
            let report = two_sets(engine, policy);
            assert!(report.idle_bytes < 1.0, "{engine:?} {policy:?}");
        }
        assert!(
            two_pairs(engine, Name::Pairs).idle_bytes < 1.0,
            "{engine:?}"
        );
    }
}

#[test]
fn the_pages_show_what_comes_out() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    // The experiment "loads" takes minutes. tests/broker.rs runs a part of it.
    for name in experiments::ALL.into_iter().filter(|name| *name != "loads") {
        let results = experiments::run(name).expect("it is there");
        let path = root.join(format!("docs/explanation/experiments/{name}.json"));
        let shown = std::fs::read_to_string(&path).unwrap_or_default();
        let is_shown = shown == format!("{results:#}\n");
        let module = name.replace('-', "_");
        assert!(
            is_shown,
            "python -m integration.simulation.{module} writes {}",
            path.display()
        );
    }
    assert_eq!(experiments::run("nothing"), None);
}
