//! Policies: decide which transfers run, which are held, and in what order.
//!
//! A [`Policy`] sees all transfers that could run and decides which of them do. The caller asks it
//! whenever a transfer is added, ends or changes, and at the time or amount that its last
//! [`Decision`] named. It decides about starts and holds, never about rates. Each policy is one
//! file and one line of the table `policies!`, from which the names of the API, the configuration
//! and the candidates follow. A [`Scheduler`] owns the chosen policy and can change it while
//! transfers run.
//!
//! Non-goals: rates (`shares`), objects (`objects`), the meaning of a hold on the wire.
//!
//! Invariants owned here: no decision exceeds the [`Limits`]; no transfer starts before its
//! `not_before`; a running transfer is not held for one of a lower class; no transfer waits for
//! ever, if its class does not wait without bound for others; a new policy loses no transfer,
//! because it needs only the [`View`].

mod entry;
mod fair;
mod fcfs;
mod pairs;
mod priority;
mod round;
mod round_robin;
mod slots;

pub use entry::{Candidates, Lines, Load, MaxRunning};
pub use round_robin::RoundRobinBy;

use entry::{Entry, policies};
use slots::{Slots, keep_above, settle};

policies! {
    Fair => fair,
    Fcfs => fcfs,
    Priority => priority,
    RoundRobin => round_robin,
    Pairs => pairs,
}

use dray_core::Time;
use dray_core::rate::Class;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The highest priority of a transfer; the lowest is 0.
pub const PRIORITY_MAX: u8 = 9;

/// State of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It has a session and transfers data.
    Running,
    /// It has a session and transfers no data.
    Held,
    /// It has no session.
    Waiting,
}

/// The two endpoints of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair<'a> {
    /// Endpoint that reads.
    pub source: &'a str,
    /// Endpoint that writes.
    pub sink: &'a str,
}

/// A transfer that could run or does. Times are points on one clock, chosen by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// Identifier.
    pub id: &'a str,
    /// Owner.
    pub owner: &'a str,
    /// Activity; empty if none was given.
    pub activity: &'a str,
    /// Its endpoints.
    pub pair: Pair<'a>,
    /// The other endpoint, if there is one.
    pub peer: Option<&'a str>,
    /// Class of service.
    pub class: Class,
    /// 0 to [`PRIORITY_MAX`]; larger values count as that.
    pub priority: u8,
    /// Time by which it must finish.
    pub deadline: Option<Time>,
    /// Earliest start.
    pub not_before: Option<Time>,
    /// Number in the order of submission.
    pub submitted: u64,
    /// Present state.
    pub phase: Phase,
    /// Time since which it has been in `phase`.
    pub since: Time,
    /// Total bytes moved.
    pub served: u64,
}

impl<'a> Transfer<'a> {
    /// Creates a background transfer without owner, within one endpoint, that waits from the
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

    /// Returns true if the transfer runs, or could run now.
    fn is_ready(&self, now: Time) -> bool {
        self.phase == Phase::Running || self.not_before.is_none_or(|time| time <= now)
    }

    /// Returns the time since which the transfer could have run but has not.
    fn waits_since(&self) -> Time {
        self.not_before
            .map_or(self.since, |time| time.max(self.since))
    }

    /// Sort key: running transfers first, then held ones, then by order of submission.
    fn age(&self) -> (Phase, u64, &'a str) {
        (self.phase, self.submitted, self.id)
    }
}

/// Rules for one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRules {
    /// Weight of the owner's turns against other owners'. Zero counts as one.
    pub weight: u32,
    /// Maximum number of running transfers; `None` for the general limit.
    pub running_max: Option<usize>,
    /// Weights of activities against this owner's others, if different from the default.
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

/// Limits on running transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum in total.
    pub running_max: usize,
    /// Maximum per owner, unless `owners` has a rule.
    pub owner_max: usize,
    /// Maximum per peer.
    pub peer_max: usize,
    /// Maximum number of held transfers that keep their session: each has buffers and a connection.
    pub held_max: usize,
    /// Owners with their own rules.
    pub owners: BTreeMap<String, OwnerRules>,
}

impl Limits {
    /// Creates limits with a maximum in total, and no other bound.
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

/// Input of a policy.
#[derive(Debug, Clone, Copy)]
pub struct View<'v, 'a> {
    /// Running, held and waiting transfers, in any order.
    pub transfers: &'v [Transfer<'a>],
    /// Transfers that ended since the last decision, with all their moved bytes.
    pub ended: &'v [Transfer<'a>],
    /// Limits that no decision exceeds.
    pub limits: &'v Limits,
}

/// Output of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision<'a> {
    /// All transfers that must run from now on, including running ones, in order of precedence.
    pub run: Vec<&'a str>,
    /// Running transfers to hold.
    pub hold: Vec<&'a str>,
    /// Transfers, held already or from this decision, that must give up their session and wait
    /// again.
    pub release: Vec<&'a str>,
    /// Time of the next required decision, even if no transfer is added or ends.
    pub look_again: Option<Time>,
    /// Additional triggers of the next decision: a transfer, and its total moved bytes.
    pub look_after: Vec<(&'a str, u64)>,
}

impl Decision<'_> {
    /// Requests the next decision no later than `time`.
    fn look_by(&mut self, time: Option<Time>) {
        self.look_again = [self.look_again, time].into_iter().flatten().min();
    }
}

/// Decides which transfers run.
pub trait Policy: Send + std::fmt::Debug {
    /// Decides from the present transfers, and from what the policy remembers of earlier views.
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a>;
}

/// Choice of a policy, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the policy.
    pub name: Name,
    /// Maximum number of concurrent transfers, within the limits; `None` for the policy's default:
    /// one for [`Name::Priority`] and [`Name::RoundRobin`], otherwise as many as the limits allow.
    pub max_running: Option<usize>,
    /// Bytes per turn ([`Name::RoundRobin`]).
    pub quota: u64,
    /// Parties that take turns ([`Name::RoundRobin`]).
    pub round_robin_by: RoundRobinBy,
    /// Interval in which a waiting transfer rises one step ([`Name::Priority`]).
    pub aging: Duration,
    /// One start per interval of this length goes to the transfer that has waited longest, if it
    /// has waited longer than this ([`Name::Fair`]).
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: Name::Fair,
            max_running: None,
            // Liu et al., 2010, figure 14.
            quota: 400_000_000,
            round_robin_by: RoundRobinBy::Owners,
            // Nine steps are 45 minutes, so that urgent transfers keep precedence for that time
            // (guess, revisit).
            aging: Duration::from_secs(300),
            // At most four starts per hour are out of order (guess, revisit).
            patience: Duration::from_secs(900),
        }
    }
}

impl Name {
    /// Parses a name written by [`Name::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }

    /// Returns one line that describes the policy, without its name.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.entry().description
    }

    /// Returns the transfers that move before one that the policy holds, as the subject and verb of
    /// a message.
    #[must_use]
    pub const fn precedence(self) -> &'static str {
        self.entry().precedence
    }

    /// Returns the effect of [`Settings::max_running`].
    #[must_use]
    pub const fn max_running(self) -> MaxRunning {
        self.entry().max_running
    }
}

impl Settings {
    /// Returns the default settings of a policy.
    #[must_use]
    pub fn of(name: Name) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Creates the policy, without memory of earlier views.
    #[must_use]
    pub fn make(&self) -> Box<dyn Policy> {
        (self.name.entry().make)(self)
    }

    /// Returns the maximum number of transfers that the policy runs concurrently.
    #[must_use]
    pub fn running_max(&self) -> usize {
        match self.name.entry().max_running {
            MaxRunning::Ignored => usize::MAX,
            MaxRunning::Default(count) => self.max_running.unwrap_or(count),
        }
    }

    /// Returns the waiting transfers that the next decision must see; `None` if no waiting transfer
    /// could change it.
    #[must_use]
    pub fn candidates(&self, load: &Load) -> Option<Candidates> {
        (self.name.entry().candidates)(self, load)
    }
}

/// Owner of the chosen policy.
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
    /// Creates a scheduler with a policy.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let policy = settings.make();
        Self { settings, policy }
    }

    /// Changes the policy or its parameters. Ask for a decision right after.
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

#[cfg(test)]
mod tests;
