//! The load of storage targets, over all running sessions.

use super::{Live, Moving};
use dray_api::{TargetAnswer, TargetEnd, TargetState};
use dray_core::End;
use dray_runtime::observe::TargetLoad;
use dray_sched::congestion::Pace;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of reported targets.
const TARGETS_MAX: usize = 4096;

/// The load of one target over several sessions.
#[derive(Default)]
struct Sum {
    sessions: u32,
    under_way: u32,
    service: Duration,
    /// Number of sessions that have measured the service time.
    measured: u32,
    pace: Option<Pace>,
}

impl Sum {
    fn add(&mut self, load: &TargetLoad) {
        self.sessions += 1;
        self.under_way = self.under_way.saturating_add(load.load.under_way);
        if let Some(service) = load.load.service {
            self.service = self.service.saturating_add(service);
            self.measured += 1;
        }
        self.pace = self.pace.max(Some(load.load.pace));
    }

    fn answer(&self, end: TargetEnd, name: String) -> TargetAnswer {
        let seconds = self.service.as_secs_f64() / f64::from(self.measured.max(1));
        TargetAnswer {
            end,
            name,
            sessions: self.sessions,
            under_way: self.under_way,
            service_seconds: (self.measured > 0).then_some(seconds),
            state: match self.pace {
                None | Some(Pace::Fair) => TargetState::Fair,
                Some(Pace::Congested) => TargetState::Congested,
                Some(Pace::Stuck) => TargetState::Stuck,
            },
        }
    }
}

/// Returns the load of each target over all reports of sessions.
fn joined(reports: &[(End, Vec<TargetLoad>)]) -> Vec<TargetAnswer> {
    let mut sums = BTreeMap::<(TargetEnd, &str), Sum>::new();
    for (end, loads) in reports {
        let end = match end {
            End::Sink => TargetEnd::Sink,
            _ => TargetEnd::Source,
        };
        for load in loads {
            sums.entry((end, &load.name)).or_default().add(load);
        }
    }
    let sums = sums.into_iter().take(TARGETS_MAX);
    sums.map(|((end, name), sum)| sum.answer(end, name.to_owned()))
        .collect()
}

impl Live {
    /// Returns the storage targets of the running sessions for which `is_meant` returns true, by
    /// end and name.
    #[must_use]
    pub fn targets(&self, is_meant: impl Fn(&Moving) -> bool) -> Vec<TargetAnswer> {
        let all = self.all();
        let meant = all.iter().filter(|moving| is_meant(moving));
        let reports: Vec<_> = meant.flat_map(|moving| moving.targets()).collect();
        joined(&reports)
    }
}

#[cfg(test)]
mod tests {
    use super::{TargetEnd, TargetState, joined};
    use dray_core::{End, TargetId};
    use dray_runtime::observe::TargetLoad;
    use dray_sched::congestion::{Load, Pace};
    use std::time::Duration;

    #[test]
    fn loads_of_sessions_are_joined_by_end_and_name() {
        let load = |name: &str, under_way, millis: Option<u64>, pace| TargetLoad {
            name: name.to_owned(),
            load: Load {
                target: TargetId(0),
                under_way,
                service: millis.map(Duration::from_millis),
                bound: None,
                pace,
            },
        };
        let reports = [
            (End::Source, vec![load("a", 2, Some(10), Pace::Fair)]),
            (
                End::Source,
                vec![
                    load("a", 1, Some(30), Pace::Congested),
                    load("b", 0, None, Pace::Fair),
                ],
            ),
            (End::Sink, vec![load("a", 4, Some(5), Pace::Fair)]),
        ];
        let found = joined(&reports);
        let names: Vec<_> = found.iter().map(|one| (one.end, &*one.name)).collect();
        let (source, sink) = (TargetEnd::Source, TargetEnd::Sink);
        assert_eq!(names, [(source, "a"), (source, "b"), (sink, "a")]);
        assert_eq!((found[0].sessions, found[0].under_way), (2, 3));
        assert_eq!(found[0].service_seconds, Some(0.02));
        assert_eq!(found[0].state, TargetState::Congested);
        assert_eq!(found[1].service_seconds, None);
    }
}
