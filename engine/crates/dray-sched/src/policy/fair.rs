//! Turns by weight.

use super::round::Round;
use super::{Decision, Limits, PRIORITY_MAX, Phase, Places, Policy, Transfer, View, settle};
use dray_core::Time;
use dray_core::rate::Class;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Class first, then priority; among those of the same class and priority owners take turns by weight,
/// and an owner's activities by theirs; of one activity's transfers the earlier deadline goes first,
/// then what is held, then the order of submission. What runs is not held: rates are the broker's.
///
/// That alone would let a stream of urgent transfers keep all others waiting for ever. So one start in
/// each `patience` goes to what has waited longest, whatever it is, if that is longer than `patience`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fair {
    /// Each class and priority has turns of its own, so that what goes on above moves nobody below.
    levels: BTreeMap<Level, Turns>,
    patience: Duration,
    /// When something was begun last because it had waited so long.
    relieved: Option<Time>,
}

type Level = (Class, Reverse<u8>);

/// Of one class and priority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Turns {
    owners: Round,
    /// Of each owner who has something waiting.
    activities: BTreeMap<String, Round>,
}

/// What waits of one owner in one class and priority, by activity, the next in front.
type Lines<'s, 'a> = BTreeMap<&'a str, VecDeque<&'s Transfer<'a>>>;

impl Fair {
    /// One start in each `patience` goes to what has waited longest.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self {
            levels: BTreeMap::new(),
            patience,
            relieved: None,
        }
    }

    /// What has waited longest, if it is time for it.
    fn relieve<'s, 'a>(
        &mut self,
        view: &View<'s, 'a>,
        places: &Places<'_, 'a>,
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
            .filter(|one| one.phase != Phase::Running && one.is_ready(now) && places.has(one));
        let longest = waiting.min_by_key(|one| (one.waits_since(), one.submitted, one.id))?;
        if now.since(longest.waits_since()) <= self.patience {
            return None;
        }
        self.relieved = Some(now);
        Some(longest)
    }
}

impl Turns {
    /// The owner whose turn it is, the activity, and its first transfer.
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
    /// O(n log n) of what waits, and for each start O(owners and their activities).
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        let mut places = Places::new(view.limits, usize::MAX);
        let mut run: Vec<&Transfer<'a>> = Vec::new();
        for one in view
            .transfers
            .iter()
            .filter(|one| one.phase == Phase::Running)
        {
            places.give(one);
            run.push(one);
        }
        run.sort_by_key(|one| one.age());
        let relieved = self.relieve(view, &places, now);
        if let Some(one) = relieved {
            places.give(one);
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
            while places.left > 0 {
                owners.retain(|owner, lines| {
                    lines.retain(|_, line| {
                        // A peer that is full stays full in this decision.
                        while line.front().is_some_and(|one| places.is_peer_full(one)) {
                            line.pop_front();
                        }
                        !line.is_empty()
                    });
                    !lines.is_empty() && !places.is_owner_full(owner)
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
                places.give(one);
                turns.serve(one, view.limits);
                run.push(one);
            }
        }
        settle(view, &run, now)
    }
}

/// Within one activity's transfers of one class and priority.
fn order<'a>(one: &Transfer<'a>) -> (bool, Option<Time>, Phase, u64, &'a str) {
    (
        one.deadline.is_none(),
        one.deadline,
        one.phase,
        one.submitted,
        one.id,
    )
}
