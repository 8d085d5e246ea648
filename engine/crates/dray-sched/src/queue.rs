//! Which queued transfer begins next.
//!
//! Class first, then priority; among those of the same class and priority owners take turns by
//! weight, and of one owner's transfers the earlier deadline goes first, then the earlier
//! submission. Turns are start-time fair queuing (Goyal, Vin and Cheng, 1996): each start costs its
//! owner a step of the length 1/weight, and who stands the farthest back is next.

use dray_core::Time;
use dray_core::rate::Class;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// The highest priority of a transfer; the lowest is 0.
pub const PRIORITY_MAX: u8 = 9;

/// A step of an owner of weight one. Divisible by many weights, and large against all of them.
const STEP: u64 = 5_040 * 1_000_000;

/// A transfer that could begin. Times are points on one clock, whichever the caller uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// The transfer.
    pub id: &'a str,
    /// Whose it is.
    pub owner: &'a str,
    /// The other endpoint, where there is one.
    pub peer: Option<&'a str>,
    /// What it is owed.
    pub class: Class,
    /// 0 to [`PRIORITY_MAX`]; more counts as that.
    pub priority: u8,
    /// When it must be done.
    pub deadline: Option<Time>,
    /// When it may begin at the earliest.
    pub not_before: Option<Time>,
    /// Its number in the order of submission.
    pub submitted: u64,
}

/// A transfer that has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running<'a> {
    /// Whose it is.
    pub owner: &'a str,
    /// The other endpoint, where there is one.
    pub peer: Option<&'a str>,
}

/// What one owner has of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerRules {
    /// Turns against other owners'. Zero counts as one.
    pub weight: u32,
    /// Transfers at a time; `None` for what holds for everybody.
    pub running_max: Option<usize>,
}

impl Default for OwnerRules {
    fn default() -> Self {
        Self {
            weight: crate::shares::WEIGHT_DEFAULT,
            running_max: None,
        }
    }
}

/// How many may run at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub running_max: usize,
    /// Of one owner, where `owners` says nothing else.
    pub owner_max: usize,
    /// With one peer.
    pub peer_max: usize,
    /// Owners with rules of their own.
    pub owners: BTreeMap<String, OwnerRules>,
}

impl Limits {
    fn rules(&self, owner: &str) -> OwnerRules {
        self.owners.get(owner).copied().unwrap_or_default()
    }

    fn owner_max(&self, owner: &str) -> usize {
        self.rules(owner).running_max.unwrap_or(self.owner_max)
    }
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice<'a> {
    /// Transfers to begin, the first first.
    pub start: Vec<&'a str>,
    /// When to ask again though nothing has come or ended: the earliest `not_before` ahead.
    pub look_again: Option<Time>,
}

type Level = (Class, Reverse<u8>);

/// Whose turn it is; the only thing that is remembered from one choice to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turns {
    /// Each class and priority has turns of its own, so that what goes on above moves nobody below.
    levels: BTreeMap<Level, Round>,
}

/// Owners of one class and priority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Round {
    /// Where the last one stood who was served. Nobody stands behind it: who was away, or held up
    /// by a limit, has saved no turns.
    front: u64,
    /// Where owners stand who are ahead of that, by one step at the most.
    ahead: BTreeMap<String, u64>,
}

impl Round {
    fn place(&self, owner: &str) -> u64 {
        self.ahead.get(owner).copied().unwrap_or(self.front)
    }

    fn serve(&mut self, owner: &str, weight: u32) {
        self.front = self.place(owner);
        let place = (self.front).saturating_add(STEP / u64::from(weight.max(1)));
        self.ahead.insert(owner.to_owned(), place);
        let front = self.front;
        self.ahead.retain(|_, place| *place > front);
    }
}

/// One owner's transfers of one class and priority, the next in front.
type Line<'b, 'a> = VecDeque<&'b Waiting<'a>>;

impl Turns {
    /// Chooses what begins now. A transfer that cannot begin yet, for its time, its owner's limit or
    /// its peer's, holds nobody up. Ask whenever one comes, changes or ends.
    ///
    /// O(n log n) of what waits, and for each start O(owners).
    pub fn choose<'a>(
        &mut self,
        waiting: &[Waiting<'a>],
        running: &[Running<'_>],
        limits: &Limits,
        now: Time,
    ) -> Choice<'a> {
        let mut of_owner: BTreeMap<&str, usize> = BTreeMap::new();
        let mut with_peer: BTreeMap<&str, usize> = BTreeMap::new();
        for one in running {
            *of_owner.entry(one.owner).or_default() += 1;
            if let Some(peer) = one.peer {
                *with_peer.entry(peer).or_default() += 1;
            }
        }
        let mut choice = Choice::default();
        let mut levels: BTreeMap<Level, BTreeMap<&str, Line<'_, 'a>>> = BTreeMap::new();
        for one in waiting {
            let level = (one.class, Reverse(one.priority.min(PRIORITY_MAX)));
            let lines = levels.entry(level).or_default();
            if let Some(time) = one.not_before.filter(|time| *time > now) {
                choice.look_again = Some(choice.look_again.map_or(time, |first| first.min(time)));
                continue;
            }
            lines.entry(one.owner).or_default().push_back(one);
        }
        let mut free = limits.running_max.saturating_sub(running.len());
        self.levels.retain(|level, _| levels.contains_key(level));
        for (level, lines) in &mut levels {
            let round = self.levels.entry(*level).or_default();
            for line in lines.values_mut() {
                line.make_contiguous().sort_by_key(|one| order(one));
            }
            while free > 0 {
                lines.retain(|owner, line| {
                    // A peer that is full stays full in this round.
                    let is_open = |one: &&Waiting<'_>| {
                        one.peer.is_none_or(|peer| {
                            with_peer.get(peer).copied().unwrap_or(0) < limits.peer_max
                        })
                    };
                    while line.front().is_some_and(|one| !is_open(one)) {
                        line.pop_front();
                    }
                    let running = of_owner.get(owner).copied().unwrap_or(0);
                    !line.is_empty() && running < limits.owner_max(owner)
                });
                let next = lines.iter_mut().min_by_key(|(owner, line)| {
                    (round.place(owner), line.front().map(|one| order(one)))
                });
                let Some((owner, one)) =
                    next.and_then(|(owner, line)| Some((*owner, line.pop_front()?)))
                else {
                    break;
                };
                choice.start.push(one.id);
                free -= 1;
                *of_owner.entry(owner).or_default() += 1;
                if let Some(peer) = one.peer {
                    *with_peer.entry(peer).or_default() += 1;
                }
                round.serve(owner, limits.rules(owner).weight);
            }
        }
        choice
    }
}

/// Within one owner's transfers of one class and priority.
fn order<'a>(one: &Waiting<'a>) -> (bool, Option<Time>, u64, &'a str) {
    (one.deadline.is_none(), one.deadline, one.submitted, one.id)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
