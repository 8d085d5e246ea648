//! Threads that belong to storage targets: a slow one holds up its own and nobody else's.

use crossbeam_channel::{Receiver, Sender, unbounded};
use dray_core::TargetId;

/// Targets that get threads of their own; further ones share theirs.
const GROUPS_MAX: usize = 64;

/// The threads of each target, by the channel that their jobs come through. They end when this is
/// gone.
pub(crate) struct Groups<J>(Vec<(TargetId, Sender<J>)>);

impl<J> Groups<J> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Where the jobs of a target go. `start` starts its threads, when it is first met.
    pub(crate) fn of(&mut self, target: TargetId, start: impl FnOnce(Receiver<J>)) -> &Sender<J> {
        let known = self.0.iter().position(|(other, _)| *other == target);
        let place = known.unwrap_or_else(|| {
            if self.0.len() >= GROUPS_MAX {
                return target.0 as usize % GROUPS_MAX;
            }
            let (jobs, taken) = unbounded();
            start(taken);
            self.0.push((target, jobs));
            self.0.len() - 1
        });
        &self.0[place].1
    }
}

#[cfg(test)]
mod tests {
    use super::{GROUPS_MAX, Groups};
    use dray_core::TargetId;

    #[test]
    fn each_target_has_its_own_up_to_a_bound() {
        let mut groups = Groups::new();
        let mut started = Vec::new();
        for _ in 0..2 {
            for target in 0..100 {
                let jobs = groups.of(TargetId(target), |jobs| started.push(jobs));
                jobs.send(target).expect("somebody takes it");
            }
        }
        assert_eq!(started.len(), GROUPS_MAX);
        let taken: Vec<Vec<u32>> = started
            .iter()
            .map(|jobs| jobs.try_iter().collect())
            .collect();
        assert_eq!(taken.iter().map(Vec::len).sum::<usize>(), 200);
        assert_eq!(taken[63], [63, 63], "its own");
        assert_eq!(taken[0], [0, 64, 0, 64], "one past the bound shares");
    }
}
