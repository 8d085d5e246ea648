//! The faults of a run with all choices made. The plan and the seed determine the schedule.

use crate::draws::Draws;
use crate::plan::{At, Fault, FaultPlan, Injections, Kind, Plan, Target};
use std::time::Duration;

/// Range of the moments that are drawn, in thousandths of the bytes. The last fifth is left out,
/// because progress is reported once a second and a late fault might miss the copy.
const DRAWN_THOUSANDTHS: (u64, u64) = (50, 800);

/// Range of the drawn steps of clocks, in milliseconds.
const DRAWN_STEP_MS: (u64, u64) = (1_000, 3_600_000);

/// A fault with its target and its moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Number of the fault, from 1, in the order of moments.
    pub number: u32,
    /// Moment of the fault.
    pub at: At,
    /// Program that gets the fault.
    pub target: Target,
    /// The fault with its details.
    pub fault: Fault,
}

/// All faults of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Seed of the random choices.
    pub seed: u64,
    /// The faults, by time and then by share of the bytes.
    pub faults: Vec<Planned>,
}

impl Schedule {
    /// Makes the choices that the plan leaves open.
    #[must_use]
    pub fn draw(plan: &Plan, seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let mut faults: Vec<Planned> = Vec::new();
        for given in &plan.faults {
            faults.extend(choose(plan, given, &mut draws));
        }
        for _ in 0..plan.random {
            let kinds = &plan.random_kinds;
            let Some(kind) = pick(kinds, &mut draws) else {
                break;
            };
            let given = FaultPlan {
                fault: details(kind, &mut draws),
                target: None,
                at: None,
            };
            faults.extend(choose(plan, &given, &mut draws));
        }
        faults.sort_by(|one, other| key(one.at).total_cmp(&key(other.at)));
        for (fault, number) in faults.iter_mut().zip(1..) {
            fault.number = number;
        }
        Self { seed, faults }
    }
}

/// Returns the place of a moment in the printed schedule: times first.
fn key(at: At) -> f64 {
    match at {
        At::Time(time) => time.as_secs_f64() - 1e9,
        At::Share(share) => share,
    }
}

fn pick<T: Copy>(from: &[T], draws: &mut Draws) -> Option<T> {
    let index = draws.below(from.len() as u64);
    from.get(usize::try_from(index).unwrap_or(0)).copied()
}

/// Returns the fault with its open choices drawn, or `None` if no program can be its target.
fn choose(plan: &Plan, given: &FaultPlan, draws: &mut Draws) -> Option<Planned> {
    let (first, last) = DRAWN_THOUSANDTHS;
    // Both numbers are always drawn, so that an edit of one fault keeps the choices of the others.
    let drawn_at = At::Share(draws.between(first, last) as f64 / 1000.0);
    let drawn_target = pick(&plan.drawn_targets(given.fault.kind()), draws);
    let target = given.target.or(drawn_target)?;
    let fault = match given.fault {
        Fault::Kill { .. } if target == Target::Client => Fault::Kill {
            restart_after: Duration::ZERO,
        },
        fault => fault,
    };
    Some(Planned {
        number: 0,
        at: given.at.unwrap_or(drawn_at),
        target,
        fault,
    })
}

/// Draws the details of a fault.
fn details(kind: Kind, draws: &mut Draws) -> Fault {
    let mut milliseconds = |first, last| Duration::from_millis(draws.between(first, last));
    match kind {
        Kind::Kill => Fault::Kill {
            restart_after: milliseconds(100, 1000),
        },
        Kind::Stop => Fault::Stop {
            duration: milliseconds(200, 2000),
        },
        Kind::Cut => Fault::Cut,
        Kind::Delay => Fault::Delay {
            duration: milliseconds(500, 2000),
            delay: milliseconds(5, 50),
            probability: 0.5,
        },
        Kind::Corrupt => Fault::Corrupt(few(draws)),
        Kind::Reorder => Fault::Reorder(few(draws)),
        Kind::Duplicate => Fault::Duplicate(few(draws)),
        Kind::NoSpace => Fault::NoSpace(few(draws)),
        Kind::IoError => Fault::IoError(few(draws)),
        Kind::ShortWrite => Fault::ShortWrite(few(draws)),
        Kind::FailedSync => Fault::FailedSync(few(draws)),
        Kind::ClockStep => {
            let step = draws
                .between(DRAWN_STEP_MS.0, DRAWN_STEP_MS.1)
                .cast_signed();
            Fault::ClockStep {
                step_ms: if draws.below(2) == 0 { step } else { -step },
            }
        }
    }
}

fn few(draws: &mut Draws) -> Injections {
    Injections {
        probability: 0.25,
        count: u32::try_from(draws.between(1, 2)).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::{At, Plan, Schedule};

    fn plan(faults: u32) -> Plan {
        let text = crate::EXAMPLE.replace("faults = 3", &format!("faults = {faults}"));
        Plan::parse("plan", &text).expect("valid")
    }

    #[test]
    fn a_seed_determines_the_schedule() {
        let plan = plan(20);
        assert_eq!(Schedule::draw(&plan, 7), Schedule::draw(&plan, 7));
        assert_ne!(Schedule::draw(&plan, 7), Schedule::draw(&plan, 8));
    }

    #[test]
    fn the_schedule_has_all_faults_in_order_with_drawn_moments_in_their_range() {
        let plan = plan(200);
        let listed = plan.faults.len();
        let schedule = Schedule::draw(&plan, 1);
        assert_eq!(schedule.faults.len(), listed + 200);
        let numbers: Vec<u32> = schedule.faults.iter().map(|fault| fault.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u32).collect::<Vec<_>>());
        let shares: Vec<f64> = (schedule.faults.iter())
            .filter_map(|fault| match fault.at {
                At::Share(share) => Some(share),
                At::Time(_) => None,
            })
            .collect();
        assert!(shares.is_sorted());
        assert!(shares.iter().all(|share| (0.05..=0.8).contains(share)));
        let kinds: Vec<_> = (schedule.faults.iter())
            .map(|fault| fault.fault.kind())
            .collect();
        assert!(plan.random_kinds.iter().all(|kind| kinds.contains(kind)));
    }
}
