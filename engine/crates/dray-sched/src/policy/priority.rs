//! Policy `priority`: strict priority with preemption.

use super::{
    Candidates, Decision, Entry, Lines, MaxRunning, PRIORITY_MAX, Phase, Policy, Slots, Transfer,
    View, keep_above, settle,
};
use dray_core::Time;
use dray_core::rate::Class;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const ENTRY: Entry = Entry {
    description: "The highest class first; within a class, the highest priority (9 before 0). A \
        transfer of higher priority displaces a running transfer of lower priority after at most \
        one object.",
    precedence: "transfers of a higher class, or of a higher priority in the same class, \
        move first",
    max_running: MaxRunning::Default(1),
    candidates: |_, load| Some(Candidates::first(Lines::Ages, load.running_max)),
    make: |settings| Box::new(Priority::new(settings.running_max(), settings.aging)),
};

/// Dynamic priority (Liu et al., 2010). The transfer with the highest priority runs. It preempts a
/// transfer with a lower priority at the end of the current object.
///
/// The priority of a waiting transfer rises by one step per `aging`, even beyond 9 and into the
/// next class, so that no transfer waits forever. A transfer that was started because of its rise
/// keeps the rise for one more `aging`. In that time, the started transfer is not preempted by a
/// transfer whose priority has only risen. Otherwise two transfers would preempt each other
/// endlessly.
#[derive(Debug, Clone)]
pub struct Priority {
    max_running: usize,
    aging: Duration,
    /// For each running transfer that was started because of its rise: the number of steps, and the
    /// time until which the rise counts.
    risen: BTreeMap<String, (u64, Time)>,
}

impl Priority {
    /// Creates the policy with a maximum number of concurrent transfers. An `aging` of zero counts
    /// as one nanosecond.
    #[must_use]
    pub const fn new(max_running: usize, aging: Duration) -> Self {
        Self {
            max_running,
            aging,
            risen: BTreeMap::new(),
        }
    }

    fn step(&self) -> u64 {
        u64::try_from(self.aging.as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// Returns the priority of a transfer. Adds the rise with which the transfer was started, as
    /// long as this rise counts.
    fn kept(&self, one: &Transfer<'_>, now: Time) -> u64 {
        let risen = self.risen.get(one.id).filter(|(_, until)| now < *until);
        base(one).saturating_add(risen.map_or(0, |(steps, _)| *steps))
    }

    /// Returns the number of steps by which the priority of a transfer has risen.
    fn rise(&self, one: &Transfer<'_>, now: Time) -> u64 {
        if one.phase == Phase::Running {
            return self.kept(one, now) - base(one);
        }
        let waited = now.since(one.waits_since());
        u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX) / self.step()
    }

    fn level(&self, one: &Transfer<'_>, now: Time) -> u64 {
        base(one).saturating_add(self.rise(one, now))
    }

    /// Returns the time at which the priority of a waiting transfer will have risen above `level`.
    fn time_above(&self, one: &Transfer<'_>, level: u64) -> Time {
        let steps = (level + 1).saturating_sub(base(one));
        let nanos = self.step().saturating_mul(steps);
        one.waits_since() + Duration::from_nanos(nanos)
    }
}

/// Returns the priority before any rise by waiting. Every priority of a higher class exceeds all
/// priorities of a lower class.
fn base(one: &Transfer<'_>) -> u64 {
    let class = match one.class {
        Class::Realtime => 2,
        Class::Deadline => 1,
        Class::Background => 0,
    };
    class * u64::from(PRIORITY_MAX + 1) + u64::from(one.priority.min(PRIORITY_MAX))
}

impl Policy for Priority {
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        let ready = view.transfers.iter().filter(|one| one.is_ready(now));
        let (kept, mut order): (Vec<_>, Vec<_>) =
            ready.partition(|one| one.phase == Phase::Running && self.rise(one, now) > 0);
        order.sort_by_key(|one| (Reverse(self.level(one, now)), one.age()));
        for one in kept {
            let level = self.level(one, now);
            let before = order
                .iter()
                .rposition(|other: &&Transfer<'_>| base(other).max(self.kept(other, now)) > level);
            order.insert(before.map_or(0, |last| last + 1), one);
        }
        keep_above(&mut order);
        let mut slots = Slots::new(view.limits, self.max_running);
        let run = slots.fill(order.iter().copied());
        let mut decision = settle(view, &run, now);
        // A transfer that starts now because of its rise keeps the rise for one `aging`.
        let mut risen = BTreeMap::new();
        for one in &run {
            let height = match one.phase {
                Phase::Running => self.risen.remove(one.id).filter(|(_, until)| now < *until),
                _ => Some((self.rise(one, now), now + self.aging)).filter(|(steps, _)| *steps > 0),
            };
            if let Some(height) = height {
                risen.insert(one.id.to_owned(), height);
            }
        }
        self.risen = risen;
        let lowest = run.iter().map(|one| self.kept(one, now)).min();
        let waiting = order.iter().filter(|one| !decision.run.contains(&one.id));
        let above = waiting.map(|one| self.time_above(one, lowest.unwrap_or(0)));
        // A transfer that has already risen above `lowest` waits because of a limit, so a further
        // rise does not help it.
        let above = above.filter(|time| *time > now).min();
        if decision.run.len() < order.len() {
            decision.look_by(self.risen.values().map(|(_, until)| *until).min());
        }
        decision.look_by(above);
        decision
    }
}
