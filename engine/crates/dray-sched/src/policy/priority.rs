//! Strict priority with preemption.

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
    description: "By class, then priority from 0 to 9; a higher one displaces a lower one within an object.",
    precedence: "transfers of a higher priority or class move first",
    max_running: MaxRunning::Default(1),
    candidates: |_, load| Some(Candidates::first(Lines::Ages, load.running_max)),
    make: |settings| Box::new(Priority::new(settings.running_max(), settings.aging)),
};

/// Dynamic priority (Liu et al., 2010): the transfer with the highest priority runs, and preempts a
/// lower one within one object. A waiting transfer rises one step per `aging`, beyond 9 and into
/// the next class if necessary, so that none waits for ever. A transfer that started because it had
/// risen keeps its rise for one `aging`. During that time no other transfer preempts it by its own
/// rise alone; otherwise the two would preempt each other without end.
#[derive(Debug, Clone)]
pub struct Priority {
    max_running: usize,
    aging: Duration,
    /// Rise of each running transfer that started because of it, and the end of its validity.
    risen: BTreeMap<String, (u64, Time)>,
}

impl Priority {
    /// Creates the policy with a maximum number of concurrent transfers; an aging of zero counts as
    /// a nanosecond.
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

    /// Returns the priority, with the rise from before the start that is still valid.
    fn kept(&self, one: &Transfer<'_>, now: Time) -> u64 {
        let risen = self.risen.get(one.id).filter(|(_, until)| now < *until);
        base(one).saturating_add(risen.map_or(0, |(steps, _)| *steps))
    }

    /// Returns the number of steps a transfer has risen.
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

    /// Returns the time at which a waiting transfer will have risen above a level.
    fn time_above(&self, one: &Transfer<'_>, level: u64) -> Time {
        let steps = (level + 1).saturating_sub(base(one));
        let nanos = self.step().saturating_mul(steps);
        one.waits_since() + Duration::from_nanos(nanos)
    }
}

/// Returns the priority without the rise. A class is worth more than all priorities below it.
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
        // A transfer that starts now keeps its rise for a while.
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
        // A transfer that is above already waits for a limit, not for its rise.
        let above = above.filter(|time| *time > now).min();
        if decision.run.len() < order.len() {
            decision.look_by(self.risen.values().map(|(_, until)| *until).min());
        }
        decision.look_by(above);
        decision
    }
}
