//! Datasets on links of which one stalls. The dataset closest to completion comes first, and
//! objects on the stalled link are read from their replicas.

use dray_sim::experiments::datasets::{SEEDS, Way, run};

#[test]
fn datasets_are_complete_a_quarter_sooner_for_two_percent_of_extra_bytes() {
    for seed in SEEDS {
        let fcfs = run(Way::Fcfs, seed);
        let nearest = run(Way::Nearest, seed);
        let ours = run(Way::Ours, seed);
        let part = ours.mean() / fcfs.mean();
        assert!(part <= 0.75, "seed {seed}: {part} of the mean");
        assert!(ours.extra() <= 0.02, "seed {seed}: {}", ours.extra());
        assert!(
            ours.objects.1 > 0,
            "seed {seed}: nothing was under way on the stuck link"
        );
        // The gain of the order alone, without reading from replicas.
        let part = nearest.mean() / fcfs.mean();
        assert!(part <= 0.95, "seed {seed}: {part} by the order alone");
        assert_eq!(nearest.objects.1, 0);
        assert_eq!(run(Way::Ours, seed).completed, ours.completed);
    }
}
