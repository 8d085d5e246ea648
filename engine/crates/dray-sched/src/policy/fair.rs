//! Policy `fair`: turns by weight.

use super::round::Round;
use super::{
    Candidates, Decision, Entry, Limits, MaxRunning, PRIORITY_MAX, Phase, Policy, Slots, Transfer,
    View, settle,
};
use dray_core::Time;
use dray_core::rate::Class;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of the oldest waiting transfers that the policy sees, in addition to the first transfers
/// in the queue of each owner and activity. If one of the oldest transfers has waited too long, the
/// policy starts this transfer first. A few oldest transfers suffice, unless their owners are at
/// their limit of sessions. The value is estimated, not measured.
const OLDEST: usize = 50;

pub(super) const ENTRY: Entry = Entry {
    description: "The highest class first; within a class, the highest priority; within a \
        priority, owners and activities by weight. Never holds a running transfer.",
    precedence: "other transfers move first",
    max_running: MaxRunning::Ignored,
    candidates: |_, load| {
        // This policy never holds a running transfer. So if no slot is free, and no transfer is
        // held from an earlier policy, a decision changes nothing.
        (load.free > 0 || load.held > 0).then(|| Candidates {
            lines: super::Lines::Deadlines,
            per_line: load.free.max(1),
            oldest: OLDEST,
        })
    },
    make: |settings| Box::new(Fair::new(settings.patience)),
};

/// Starts waiting transfers in this order: a higher class first, and within a class a higher
/// priority. Within a class and priority, owners take turns in proportion to their weights, and so
/// do the activities of an owner. Within an activity, transfers with a deadline come first, sorted
/// by deadline. Transfers with the same deadline, and transfers without one, are sorted by state
/// (held before waiting), then by the order of submission. The policy never holds a running
/// transfer, because the broker regulates the rates.
///
/// With this order alone, a stream of urgent transfers could block all other transfers forever. So
/// at most once per `patience`, the policy first starts the transfer that has waited longest,
/// whatever its class, if this transfer has waited longer than `patience`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fair {
    /// Turns for each level (class and priority). Each level has its own turns, so that starts at
    /// one level do not change the turns at another level.
    levels: BTreeMap<Level, Turns>,
    patience: Duration,
    /// Time at which the policy last started the longest-waiting transfer first.
    relieved: Option<Time>,
}

type Level = (Class, Reverse<u8>);

/// Turns within one class and priority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Turns {
    owners: Round,
    /// Turns of an owner's activities, for each owner with waiting transfers.
    activities: BTreeMap<String, Round>,
}

/// Waiting transfers of one owner in one class and priority, by activity. The next transfer to
/// start is at the front of its queue.
type Lines<'s, 'a> = BTreeMap<&'a str, VecDeque<&'s Transfer<'a>>>;

impl Fair {
    /// Creates the policy. [`Fair`] describes `patience`.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self {
            levels: BTreeMap::new(),
            patience,
            relieved: None,
        }
    }

    /// Returns the transfer that has waited longest, if it must be started first now.
    fn relieve<'s, 'a>(
        &mut self,
        view: &View<'s, 'a>,
        slots: &Slots<'_, 'a>,
        now: Time,
    ) -> Option<&'s Transfer<'a>> {
        if self
            .relieved
            .is_some_and(|time| now.since(time) < self.patience)
        {
            return None;
        }
        let waiting = view
            .transfers
            .iter()
            .filter(|one| one.phase != Phase::Running && one.is_ready(now) && slots.has(one));
        let longest = waiting.min_by_key(|one| (one.waits_since(), one.submitted, one.id))?;
        if now.since(longest.waits_since()) <= self.patience {
            return None;
        }
        self.relieved = Some(now);
        Some(longest)
    }
}

impl Turns {
    /// Returns the owner whose turn is next, and the activity of this owner whose turn is next.
    fn next<'s, 'a>(
        &self,
        owners: &BTreeMap<&'a str, Lines<'s, 'a>>,
    ) -> Option<(&'a str, &'a str)> {
        let of_owner = owners.iter().filter_map(|(owner, lines)| {
            let round = self.activities.get(*owner);
            let fronts = lines.iter().filter_map(|(activity, line)| {
                let place = round.map_or(0, |round| round.place(activity));
                Some((place, order(line.front()?), *activity))
            });
            let (_, first, activity) = fronts.min()?;
            Some((self.owners.place(owner), first, *owner, activity))
        });
        of_owner
            .min()
            .map(|(_, _, owner, activity)| (owner, activity))
    }

    fn serve(&mut self, one: &Transfer<'_>, limits: &Limits) {
        self.owners.serve(one.owner, limits.weight(one.owner));
        let round = self.activities.entry(one.owner.to_owned()).or_default();
        round.serve(
            one.activity,
            limits.activity_weight(one.owner, one.activity),
        );
    }
}

impl Policy for Fair {
    /// O(n log n) in the number of waiting transfers, and O(owners and their activities) for each
    /// start.
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        let mut slots = Slots::new(view.limits, usize::MAX);
        let mut run: Vec<&Transfer<'a>> = Vec::new();
        for one in view
            .transfers
            .iter()
            .filter(|one| one.phase == Phase::Running)
        {
            slots.give(one);
            run.push(one);
        }
        run.sort_by_key(|one| one.age());
        let relieved = self.relieve(view, &slots, now);
        if let Some(one) = relieved {
            slots.give(one);
            run.push(one);
        }
        let mut levels: BTreeMap<Level, BTreeMap<&'a str, Lines<'_, 'a>>> = BTreeMap::new();
        for one in view.transfers {
            if one.phase == Phase::Running || relieved.is_some_and(|other| other.id == one.id) {
                continue;
            }
            let level = (one.class, Reverse(one.priority.min(PRIORITY_MAX)));
            let owners = levels.entry(level).or_default();
            if one.is_ready(now) {
                let lines = owners.entry(one.owner).or_default();
                lines.entry(one.activity).or_default().push_back(one);
            }
        }
        self.levels.retain(|level, _| levels.contains_key(level));
        for (level, owners) in &mut levels {
            let turns = self.levels.entry(*level).or_default();
            turns
                .activities
                .retain(|owner, _| owners.contains_key(owner.as_str()));
            for line in owners.values_mut().flat_map(BTreeMap::values_mut) {
                line.make_contiguous().sort_by_key(|one| order(one));
            }
            while slots.left > 0 {
                owners.retain(|owner, lines| {
                    lines.retain(|_, line| {
                        // A peer that is at its limit stays at its limit during this decision.
                        while line.front().is_some_and(|one| slots.is_peer_full(one)) {
                            line.pop_front();
                        }
                        !line.is_empty()
                    });
                    !lines.is_empty() && !slots.is_owner_full(owner)
                });
                let Some((owner, activity)) = turns.next(owners) else {
                    break;
                };
                let line = owners
                    .get_mut(owner)
                    .and_then(|lines| lines.get_mut(activity));
                let Some(one) = line.and_then(VecDeque::pop_front) else {
                    break;
                };
                slots.give(one);
                turns.serve(one, view.limits);
                run.push(one);
            }
        }
        settle(view, &run, now)
    }
}

/// Sort key of a transfer among the transfers of one activity with the same class and priority.
fn order<'a>(one: &Transfer<'a>) -> (bool, Option<Time>, Phase, u64, &'a str) {
    (
        one.deadline.is_none(),
        one.deadline,
        one.phase,
        one.submitted,
        one.id,
    )
}
