use super::{MEGA, at};
use crate::broker::fill::{self, Fill};
use crate::broker::interior;
use crate::broker::need::{Demand, Grid, Hold, Need};
use crate::broker::plan::{self, Flaw};
use crate::broker::{TransferKey, bytes_bound, search};
use crate::rng::Rng;
use dray_core::Time;

fn demand(key: u64, megas: u64, from: u64, until: u64, resources: &[usize]) -> Demand {
    Demand {
        key: TransferKey(key),
        bytes: megas * MEGA,
        from: at(from),
        until: at(until),
        ceiling: None,
        resources: resources.to_vec(),
    }
}

fn need(capacities: &[u64], demands: Vec<Demand>) -> Need {
    Need {
        now: Time::ZERO,
        capacities: capacities.iter().map(|rate| Some(rate * MEGA)).collect(),
        demands,
        holds: Vec::new(),
    }
}

/// Returns true if a plan is found, and checks that plan.
fn finds(need: &Need) -> bool {
    let Some(plan) = search::find(need) else {
        return false;
    };
    assert_eq!(plan::check(need, &plan), Ok(()), "{need:?}");
    true
}

fn solves(need: &Need) -> bool {
    let grid = Grid::new(need);
    let Some(plan) = interior::plan(need, &grid) else {
        return false;
    };
    assert_eq!(plan::check(need, &plan), Ok(()), "{need:?}");
    true
}

#[test]
fn a_demand_of_all_capacity_is_planned_and_a_larger_one_is_not() {
    let demands = vec![
        demand(1, 500, 0, 5, &[0]),
        demand(2, 400, 0, 10, &[0]),
        demand(3, 100, 9, 10, &[0]),
    ];
    assert!(finds(&need(&[100], demands.clone())));
    let mut more = demands;
    more[1].bytes += MEGA;
    assert!(!finds(&need(&[100], more)));
}

#[test]
fn held_capacity_is_not_planned() {
    let mut need = need(&[100], vec![demand(1, 600, 0, 10, &[0])]);
    need.holds.push(Hold {
        key: TransferKey(2),
        rate: 40 * MEGA,
        from: at(0),
        until: None,
        resources: vec![0],
    });
    assert!(finds(&need));
    need.holds[0].rate = 41 * MEGA;
    assert!(!finds(&need));
    // If the rate is reserved for half of the time only, the need fits again.
    need.holds[0].until = Some(at(5));
    assert!(finds(&need));
    need.holds[0].rate = 101 * MEGA;
    need.demands.clear();
    assert!(!finds(&need), "more is held than there is");
}

/// The third demand needs both links, and the second demand occupies the second link after 10 s. So
/// the third demand needs the first link before 10 s. Filling gives this time to the first demand,
/// which is due earlier.
#[test]
fn the_interior_point_method_finds_a_plan_that_filling_misses() {
    let due_first = demand(1, 900, 0, 19, &[0]);
    let late = demand(2, 1_000, 10, 20, &[1]);
    let both = demand(3, 1_000, 0, 20, &[0, 1]);
    let need = need(&[100, 100], vec![due_first, late, both]);
    let grid = Grid::new(&need);
    for fill in [Fill::Even, Fill::Earliest] {
        assert!(fill::plan(&need, &grid, fill).is_none());
    }
    assert!(finds(&need));
}

#[test]
fn the_checker_finds_every_kind_of_flaw() {
    let mut need = need(
        &[100],
        vec![demand(1, 300, 1, 5, &[0]), demand(2, 100, 0, 5, &[0])],
    );
    need.demands[0].ceiling = Some(90 * MEGA);
    let plan = search::find(&need).expect("fits");
    assert_eq!(plan::check(&need, &plan), Ok(()));
    let with = |demand: usize, interval: usize, bytes: u64| {
        let mut plan = plan.clone();
        plan.amounts[demand][interval] = bytes;
        plan::check(&need, &plan).expect_err("broken")
    };
    let short = plan::short_max(300 * MEGA);
    let first = plan.amounts[0][1];
    assert_eq!(
        with(0, 1, first - short - 7),
        Flaw::Short(TransferKey(1), 7)
    );
    assert_eq!(with(0, 0, 1), Flaw::Window(TransferKey(1)));
    assert_eq!(with(0, 1, 360 * MEGA + 1), Flaw::Ceiling(TransferKey(1), 1));
    assert_eq!(with(1, 1, 400 * MEGA + 1 - first), Flaw::Overdrawn(0, 1));
    let mut other = plan.clone();
    other.keys.swap(0, 1);
    assert_eq!(plan::check(&need, &other), Err(Flaw::Shape));
}

#[test]
fn parts_with_nothing_in_common_are_planned_apart() {
    let mut whole = need(
        &[100, 100, 100],
        vec![
            demand(1, 100, 0, 10, &[0]),
            demand(2, 100, 0, 20, &[1]),
            demand(3, 100, 0, 30, &[0, 2]),
        ],
    );
    whole.capacities.push(None);
    whole.demands.push(demand(4, 100, 0, 40, &[3, 1]));
    whole.demands.push(demand(5, 100, 0, 50, &[3]));
    let keys = |part: &Need| {
        part.demands
            .iter()
            .map(|demand| demand.key.0)
            .collect::<Vec<_>>()
    };
    let parts: Vec<_> = whole.parts().iter().map(keys).collect();
    assert_eq!(parts.len(), 3, "what nobody knows the size of joins nobody");
    for part in [vec![1, 3], vec![2, 4], vec![5]] {
        assert!(parts.contains(&part), "{part:?} of {parts:?}");
    }
}

/// Builds a need that has a plan: draws the amounts of the plan first, and derives windows and
/// bytes from them.
fn planted(draw: &mut Rng, resources: usize) -> Need {
    let intervals = 2 + draw.below(5) as usize;
    let mut cuts = vec![0u64];
    for _ in 0..intervals {
        cuts.push(cuts[cuts.len() - 1] + 1 + draw.below(30));
    }
    let capacities: Vec<u64> = (0..resources).map(|_| 1_000 + draw.below(9_000)).collect();
    let mut room: Vec<Vec<u64>> = (capacities.iter())
        .map(|rate| {
            cuts.windows(2)
                .map(|pair| rate * (pair[1] - pair[0]))
                .collect()
        })
        .collect();
    let mut demands = Vec::new();
    for key in 0..3 + draw.below(12) {
        let from = draw.below(intervals as u64) as usize;
        let until = from + 1 + draw.below((intervals - from) as u64) as usize;
        let mut uses: Vec<usize> = (0..resources).filter(|_| draw.below(2) == 0).collect();
        if uses.is_empty() {
            uses.push(draw.below(resources as u64) as usize);
        }
        let ceiling = (draw.below(3) == 0).then(|| 200 + draw.below(3_000));
        let mut bytes = 0;
        for interval in from..until {
            let nanos = cuts[interval + 1] - cuts[interval];
            let free = uses.iter().map(|at| room[*at][interval]).min().unwrap_or(0);
            let free = free.min(ceiling.map_or(u64::MAX, |rate| rate * nanos));
            // Use all free capacity or a part of it, because full intervals are the hard case.
            let part = match draw.below(3) {
                0 => 0,
                1 => free,
                _ => draw.below(free + 1),
            };
            for at in &uses {
                room[*at][interval] -= part;
            }
            bytes += part;
        }
        if bytes > 0 {
            let mut demand = demand(key, bytes, cuts[from], cuts[until], &uses);
            demand.ceiling = ceiling.map(|rate| rate * MEGA);
            demands.push(demand);
        }
    }
    need(&capacities, demands)
}

#[test]
fn an_existing_plan_is_found() {
    let (mut by_filling, mut by_program) = (0, 0);
    for seed in 0..3_000 {
        let mut draw = Rng::new(seed);
        let resources = 1 + draw.below(5) as usize;
        let need = planted(&mut draw, resources);
        if need.demands.is_empty() {
            continue;
        }
        assert!(finds(&need), "seed {seed}: {need:?}");
        let grid = Grid::new(&need);
        if fill::plan(&need, &grid, Fill::Earliest).is_some() {
            by_filling += 1;
        } else {
            by_program += 1;
        }
    }
    // Check that both filling and linear programming found plans.
    assert!(
        by_program > 100 && by_filling > 300,
        "{by_filling} {by_program}"
    );
}

/// Filling is exact on one resource without ceilings, so linear programming must give the same
/// answer there. On several resources it must never refuse a need that filling can plan.
#[test]
fn the_program_and_filling_agree_where_filling_is_exact() {
    let (mut fit, mut unfit) = (0, 0);
    for seed in 0..2_000 {
        let mut draw = Rng::new(10_000 + seed);
        let resources = 1 + draw.below(2) as usize;
        let mut need = planted(&mut draw, resources);
        for demand in &mut need.demands {
            demand.bytes = demand.bytes / 1_000 * (850 + draw.below(300));
            if resources == 1 {
                demand.ceiling = None;
            }
        }
        if need.demands.is_empty() {
            continue;
        }
        let grid = Grid::new(&need);
        let is_filled = fill::plan(&need, &grid, Fill::Earliest).is_some();
        let mut less = need.clone();
        for demand in &mut less.demands {
            demand.bytes -= demand.bytes / 1_000;
        }
        if !is_filled && fill::plan(&less, &grid, Fill::Earliest).is_some() {
            continue;
        }
        let is_solved = solves(&need);
        if is_filled {
            assert!(is_solved, "seed {seed}: {need:?}");
        } else if resources == 1 {
            assert!(!is_solved, "seed {seed}: {need:?}");
        }
        if fill::is_impossible(&need, &grid) {
            assert!(!is_solved, "seed {seed}: {need:?}");
        }
        if is_filled { fit += 1 } else { unfit += 1 }
    }
    assert!(fit > 300 && unfit > 300, "{fit} {unfit}");
}

#[test]
fn the_bound_is_the_maximum_number_of_bytes() {
    // The demands have 1,500 MB, but only 1,000 MB fit: 100 MB/s for ten seconds.
    let wanted = need(
        &[100],
        vec![demand(1, 900, 0, 10, &[0]), demand(2, 600, 0, 10, &[0])],
    );
    let bound = bytes_bound(&wanted).expect("something moves");
    assert!((bound / 1e6 - 1_000.0).abs() < 0.1, "{bound}");
    // All bytes fit, so the bound equals the demand.
    let wanted = need(&[100, 50], vec![demand(1, 400, 0, 10, &[0, 1])]);
    let bound = bytes_bound(&wanted).expect("something moves");
    assert!((bound / 1e6 - 400.0).abs() < 0.1, "{bound}");
    // The bound is never below the number of bytes in a plan.
    for seed in 0..300 {
        let mut draw = Rng::new(50_000 + seed);
        let mut need = planted(&mut draw, 3);
        let planned: u64 = need.demands.iter().map(|demand| demand.bytes).sum();
        for demand in &mut need.demands {
            demand.bytes += draw.below(demand.bytes + 1);
        }
        if need.demands.is_empty() {
            continue;
        }
        let bound = bytes_bound(&need).expect("something moves");
        assert!(bound >= planned as f64 * (1.0 - 1e-6), "seed {seed}");
    }
}

#[test]
fn the_largest_program_is_solved() {
    let mut draw = Rng::new(7);
    let capacities = [1_000, 700, 400, 900];
    let demands = (0..40)
        .map(|key| {
            let from = draw.below(1_000);
            let until = from + 10 + draw.below(400);
            let uses = [draw.below(2) as usize, 2 + draw.below(2) as usize];
            demand(key, 2_000 + draw.below(9_000), from, until, &uses)
        })
        .collect();
    let need = need(&capacities, demands);
    let bound = bytes_bound(&need).expect("something moves");
    let wanted: u64 = need.demands.iter().map(|demand| demand.bytes).sum();
    assert!(bound > 0.5 * wanted as f64 && bound < wanted as f64 + 1.0);
}
