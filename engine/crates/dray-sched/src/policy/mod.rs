//! Which transfers run, which are held, and in what order.
//!
//! A [`Policy`] looks at all transfers that could run and says which do. It is asked whenever one
//! comes, ends or changes, and when its last [`Decision`] named a time or an amount; it decides about
//! starts and holds, never about rates. Each policy is one file; a [`Scheduler`] holds the one that is
//! chosen and can change it while transfers run.
//!
//! Non-goals: rates (`shares`), objects (`objects`), what a hold means on the wire.
//!
//! Invariants owned here: no decision exceeds the [`Limits`]; nobody is begun before their time;
//! what runs in a class is not held for one below it; of
//! transfers that wait without a bound on others, none waits for ever; a new policy loses nobody, for
//! it needs nothing but the [`View`].

mod fair;
mod fcfs;
mod pairs;
mod priority;
mod round;
mod round_robin;

pub use fair::Fair;
pub use fcfs::Fcfs;
pub use pairs::Pairs;
pub use priority::Priority;
pub use round_robin::{RoundRobin, TurnsOf};

use dray_core::Time;
use dray_core::rate::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The highest priority of a transfer; the lowest is 0.
pub const PRIORITY_MAX: u8 = 9;

/// Where a transfer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has a session and moves.
    Running,
    /// It has a session and moves nothing.
    Held,
    /// It has no session.
    Waiting,
}

/// The two endpoints of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair<'a> {
    /// Where it is read.
    pub source: &'a str,
    /// Where it is written.
    pub sink: &'a str,
}

/// A transfer that could run or does. Times are points on one clock, whichever the caller uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The transfer.
    pub id: &'a str,
    /// Whose it is.
    pub owner: &'a str,
    /// What it is for; empty where nobody said.
    pub activity: &'a str,
    /// Between which endpoints.
    pub pair: Pair<'a>,
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
    /// Where it stands.
    pub phase: Phase,
    /// Since when it stands there.
    pub since: Time,
    /// Bytes it has moved in all.
    pub served: u64,
}

impl<'a> Transfer<'a> {
    /// A background transfer of nobody in particular, within one endpoint, that waits from the
    /// clock's start on.
    #[must_use]
    pub const fn new(id: &'a str, submitted: u64) -> Self {
        Self {
            id,
            owner: "",
            activity: "",
            pair: Pair {
                source: "",
                sink: "",
            },
            peer: None,
            class: Class::Background,
            priority: 3,
            deadline: None,
            not_before: None,
            submitted,
            phase: Phase::Waiting,
            since: Time::ZERO,
            served: 0,
        }
    }

    /// Whether it moves or could at once.
    fn is_ready(&self, now: Time) -> bool {
        self.phase == Phase::Running || self.not_before.is_none_or(|time| time <= now)
    }

    /// Since when it could have moved and does not.
    fn waits_since(&self) -> Time {
        self.not_before
            .map_or(self.since, |time| time.max(self.since))
    }

    /// What runs first, then what has a session, then the order of submission.
    fn age(&self) -> (Phase, u64, &'a str) {
        (self.phase, self.submitted, self.id)
    }
}

/// What one owner has of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRules {
    /// Turns against other owners'. Zero counts as one.
    pub weight: u32,
    /// Transfers at a time; `None` for what holds for everybody.
    pub running_max: Option<usize>,
    /// Turns of an activity against this owner's others, where it is not the usual weight.
    pub activities: BTreeMap<String, u32>,
}

impl Default for OwnerRules {
    fn default() -> Self {
        Self {
            weight: crate::shares::WEIGHT_DEFAULT,
            running_max: None,
            activities: BTreeMap::new(),
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
    /// Held ones that keep their session: each has buffers and a connection.
    pub held_max: usize,
    /// Owners with rules of their own.
    pub owners: BTreeMap<String, OwnerRules>,
}

impl Limits {
    /// So many in all, and no other bound.
    #[must_use]
    pub const fn of(running_max: usize) -> Self {
        Self {
            running_max,
            owner_max: usize::MAX,
            peer_max: usize::MAX,
            held_max: usize::MAX,
            owners: BTreeMap::new(),
        }
    }

    fn weight(&self, owner: &str) -> u32 {
        let rules = self.owners.get(owner);
        rules.map_or(crate::shares::WEIGHT_DEFAULT, |rules| rules.weight)
    }

    fn activity_weight(&self, owner: &str, activity: &str) -> u32 {
        let rules = self.owners.get(owner);
        let weight = rules.and_then(|rules| rules.activities.get(activity));
        weight.copied().unwrap_or(crate::shares::WEIGHT_DEFAULT)
    }

    fn owner_max(&self, owner: &str) -> usize {
        let own = self.owners.get(owner).and_then(|rules| rules.running_max);
        own.unwrap_or(self.owner_max)
    }
}

/// All that a policy sees.
#[derive(Debug, Clone, Copy)]
pub struct View<'v, 'a> {
    /// What runs, is held, or waits, in any order.
    pub transfers: &'v [Transfer<'a>],
    /// What has ended since the last decision, with all it moved.
    pub ended: &'v [Transfer<'a>],
    /// What is never exceeded.
    pub limits: &'v Limits,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision<'a> {
    /// All that is to run from now on, what runs already included, the first first.
    pub run: Vec<&'a str>,
    /// What runs and is to be held.
    pub hold: Vec<&'a str>,
    /// What is held, or is now to be, and gives up its session: it waits again.
    pub let_go: Vec<&'a str>,
    /// When to ask again at the latest, though nothing has come or ended.
    pub look_again: Option<Time>,
    /// When to ask again too: as soon as one of these has moved so many bytes in all.
    pub look_after: Vec<(&'a str, u64)>,
}

impl Decision<'_> {
    /// Asks to be asked again by then.
    fn look_by(&mut self, time: Option<Time>) {
        self.look_again = [self.look_again, time].into_iter().flatten().min();
    }
}

/// Decides which transfers run.
pub trait Policy: Send + std::fmt::Debug {
    /// Decides from what is there now, and from what it remembers of earlier views.
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a>;
}

/// Which policy, and what it goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which one.
    pub name: Name,
    /// Transfers that it runs side by side, within the limits; `None` for what suits the policy: one
    /// for [`Name::Priority`] and [`Name::RoundRobin`], else as many as the limits allow.
    pub at_once: Option<usize>,
    /// Bytes of one turn ([`Name::RoundRobin`]).
    pub quota: u64,
    /// Who takes turns ([`Name::RoundRobin`]).
    pub turns_of: TurnsOf,
    /// What waits rises one step in each ([`Name::Priority`]).
    pub aging: Duration,
    /// One start in each goes to what has waited longest, and longer than this
    /// ([`Name::Fair`]).
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: Name::default(),
            at_once: None,
            // Liu et al., 2010, figure 14.
            quota: 400_000_000,
            turns_of: TurnsOf::Owners,
            // Nine steps are 45 minutes: what is urgent has its time first (guess, revisit).
            aging: Duration::from_secs(300),
            // At the most four starts of an hour are out of order (guess, revisit).
            patience: Duration::from_secs(900),
        }
    }
}

/// A policy's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Name {
    /// [`Fcfs`].
    Fcfs,
    /// [`Priority`].
    Priority,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`Pairs`].
    Pairs,
    /// [`Fair`].
    #[default]
    Fair,
}

impl Name {
    /// All there are.
    pub const ALL: [Self; 5] = [
        Self::Fcfs,
        Self::Priority,
        Self::RoundRobin,
        Self::Pairs,
        Self::Fair,
    ];

    /// As it is written in configurations.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
            Self::RoundRobin => "round_robin",
            Self::Pairs => "pairs",
            Self::Fair => "fair",
        }
    }

    /// Reads [`Name::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl Settings {
    /// The usual settings of a policy.
    #[must_use]
    pub fn of(name: Name) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// The policy, with nothing to remember yet.
    #[must_use]
    pub fn make(&self) -> Box<dyn Policy> {
        match self.name {
            Name::Fcfs => Box::new(Fcfs::new(self.at_once.unwrap_or(usize::MAX))),
            Name::Priority => Box::new(Priority::new(self.at_once.unwrap_or(1), self.aging)),
            Name::RoundRobin => Box::new(RoundRobin::new(
                self.at_once.unwrap_or(1),
                self.quota,
                self.turns_of,
            )),
            Name::Pairs => Box::new(Pairs::new(self.at_once.unwrap_or(usize::MAX))),
            Name::Fair => Box::new(Fair::new(self.patience)),
        }
    }
}

/// The policy that is chosen now.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    policy: Box<dyn Policy>,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Scheduler {
    /// Begins with a policy.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let policy = settings.make();
        Self { settings, policy }
    }

    /// Changes the policy, or what it goes by. Ask for a decision right after.
    pub fn change(&mut self, settings: Settings) {
        if settings != self.settings {
            *self = Self::new(settings);
        }
    }

    /// See [`Policy::decide`].
    pub fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a> {
        self.policy.decide(view, now)
    }
}

/// Places that are left within the limits.
struct Places<'v, 'a> {
    limits: &'v Limits,
    left: usize,
    of_owner: BTreeMap<&'a str, usize>,
    with_peer: BTreeMap<&'a str, usize>,
}

impl<'v, 'a> Places<'v, 'a> {
    fn new(limits: &'v Limits, at_once: usize) -> Self {
        Self {
            limits,
            left: limits.running_max.min(at_once),
            of_owner: BTreeMap::new(),
            with_peer: BTreeMap::new(),
        }
    }

    fn is_owner_full(&self, owner: &str) -> bool {
        self.of_owner.get(owner).copied().unwrap_or(0) >= self.limits.owner_max(owner)
    }

    fn is_peer_full(&self, one: &Transfer<'_>) -> bool {
        one.peer.is_some_and(|peer| {
            self.with_peer.get(peer).copied().unwrap_or(0) >= self.limits.peer_max
        })
    }

    /// Whether there is one for this transfer.
    fn has(&self, one: &Transfer<'_>) -> bool {
        self.left > 0 && !self.is_owner_full(one.owner) && !self.is_peer_full(one)
    }

    /// Gives one away, whether or not there is one: what runs and is not to be held keeps its own.
    fn give(&mut self, one: &Transfer<'a>) {
        self.left = self.left.saturating_sub(1);
        *self.of_owner.entry(one.owner).or_default() += 1;
        if let Some(peer) = one.peer {
            *self.with_peer.entry(peer).or_default() += 1;
        }
    }

    /// Gives places to those for whom there is one, in their order.
    fn fill<'s>(&mut self, order: impl Iterator<Item = &'s Transfer<'a>>) -> Vec<&'s Transfer<'a>>
    where
        'a: 's,
    {
        let mut run = Vec::new();
        for one in order {
            if self.left == 0 {
                break;
            }
            if self.has(one) {
                self.give(one);
                run.push(one);
            }
        }
        run
    }
}

/// Lets what runs keep its place before all that is owed less: it moves up in the order to before
/// the first of a class below its own. Who waits is not moved.
fn keep_above<'s, 'a>(order: &mut Vec<&'s Transfer<'a>>) {
    let is_owed =
        |one: &&Transfer<'_>| one.phase == Phase::Running && one.class < Class::Background;
    let mut owed: Vec<_> = order.iter().copied().filter(is_owed).collect();
    // What is owed least first: what is owed more then goes before it.
    owed.sort_by_key(|one| std::cmp::Reverse(one.class));
    for one in owed {
        let own = order.iter().position(|other| other.id == one.id);
        let below = order.iter().position(|other| other.class > one.class);
        if let (Some(own), Some(below)) = (own, below)
            && below < own
        {
            order[below..=own].rotate_right(1);
        }
    }
}

/// The decision that these run: what else runs is held, of what is held then the longest held gives
/// up its session when there are too many, and who may not begin yet is looked at in time.
fn settle<'a>(view: &View<'_, 'a>, run: &[&Transfer<'a>], now: Time) -> Decision<'a> {
    let chosen: BTreeSet<&str> = run.iter().map(|one| one.id).collect();
    let others = || view.transfers.iter().filter(|one| !chosen.contains(one.id));
    let mut decision = Decision {
        run: run.iter().map(|one| one.id).collect(),
        ..Decision::default()
    };
    let mut held: Vec<_> = others().filter(|one| one.phase != Phase::Waiting).collect();
    // What runs now is held from now on.
    held.sort_by_key(|one| {
        (
            one.phase == Phase::Running,
            one.since,
            one.submitted,
            one.id,
        )
    });
    let excess = held.len().saturating_sub(view.limits.held_max);
    decision.let_go = held.iter().take(excess).map(|one| one.id).collect();
    let running = others().filter(|one| one.phase == Phase::Running);
    decision.hold = running.map(|one| one.id).collect();
    decision.hold.sort_unstable();
    decision.look_again = others()
        .filter(|one| !one.is_ready(now))
        .filter_map(|one| one.not_before)
        .min();
    decision
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
