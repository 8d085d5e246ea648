//! Policies, which decide which transfers run, which are held, and in what order. A held transfer
//! has a session but moves no data.
//!
//! A [`Policy`] sees all transfers that could run, and decides which of them run. The caller asks
//! for a decision whenever a transfer is added, ends or changes, and at the time or byte count that
//! the last [`Decision`] gave. A policy decides about starts and holds, never about rates. Each
//! policy consists of one file and one line in the table `policies!`. The names of the policies in
//! the API and in the configuration come from this table. The table also gives the rule by which a
//! policy selects the waiting transfers for the next decision ([`Settings::candidates`]). A
//! [`Scheduler`] owns the current policy, and can replace it while transfers run.
//!
//! Non-goals: rates (`shares`), objects (`objects`), the meaning of a hold in the wire protocol.
//!
//! Invariants owned here:
//!
//! - No decision exceeds the [`Limits`].
//! - No transfer starts before its `not_before`.
//! - A running transfer is not held for a transfer of a lower class.
//! - No transfer waits forever, unless higher classes always have transfers to run.
//! - If the policy is replaced, no transfer is lost, because a policy needs only the [`View`].

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

/// The highest priority of a transfer. The lowest is 0.
pub const PRIORITY_MAX: u8 = 9;

/// State of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The transfer has a session and moves data.
    Running,
    /// The transfer has a session and moves no data.
    Held,
    /// The transfer has no session.
    Waiting,
}

/// The two endpoints of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair<'a> {
    /// Endpoint that reads the data.
    pub source: &'a str,
    /// Endpoint that writes the data.
    pub sink: &'a str,
}

/// A transfer that runs or could run. All times come from one clock, which the caller chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// Identifier of the transfer.
    pub id: &'a str,
    /// Owner of the transfer.
    pub owner: &'a str,
    /// Activity of the transfer. Empty if the owner gave none.
    pub activity: &'a str,
    /// The two endpoints of the transfer.
    pub pair: Pair<'a>,
    /// The other endpoint. `None` for a transfer within one endpoint.
    pub peer: Option<&'a str>,
    /// Class of service.
    pub class: Class,
    /// Priority from 0 to [`PRIORITY_MAX`]. A larger value counts as [`PRIORITY_MAX`].
    pub priority: u8,
    /// Time by which the transfer must have finished.
    pub deadline: Option<Time>,
    /// Earliest time at which the transfer may start.
    pub not_before: Option<Time>,
    /// Position of the transfer in the order of submission.
    pub submitted: u64,
    /// Current state of the transfer.
    pub phase: Phase,
    /// Time since which the transfer has been in `phase`.
    pub since: Time,
    /// Total number of bytes moved.
    pub served: u64,
}

impl<'a> Transfer<'a> {
    /// Creates a background transfer within one endpoint, without owner, that has waited since the
    /// start of the clock.
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

    /// Returns true if the transfer runs or may start now.
    fn is_ready(&self, now: Time) -> bool {
        self.phase == Phase::Running || self.not_before.is_none_or(|time| time <= now)
    }

    /// Returns the time since which the transfer has waited although it could have started.
    fn waits_since(&self) -> Time {
        self.not_before
            .map_or(self.since, |time| time.max(self.since))
    }

    /// Sort key: running transfers first, then held transfers, then waiting ones, each in the order
    /// of submission.
    fn age(&self) -> (Phase, u64, &'a str) {
        (self.phase, self.submitted, self.id)
    }
}

/// Rules for one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerRules {
    /// Weight of the owner in turns among owners. Zero counts as one.
    pub weight: u32,
    /// Maximum number of running transfers of the owner. `None` for the general limit.
    pub running_max: Option<usize>,
    /// Weights of the owner's activities among each other, if different from the default.
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
    /// Maximum number of running transfers in total.
    pub running_max: usize,
    /// Maximum number of running transfers per owner. A rule in `owners` can replace it.
    pub owner_max: usize,
    /// Maximum number of running transfers per peer.
    pub peer_max: usize,
    /// Maximum number of held transfers that keep their session. Each such session occupies buffers
    /// and a connection.
    pub held_max: usize,
    /// Owners with rules of their own.
    pub owners: BTreeMap<String, OwnerRules>,
}

impl Limits {
    /// Creates limits with a maximum in total and no other limit.
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
    /// Transfers that have ended since the last decision, with their total bytes moved.
    pub ended: &'v [Transfer<'a>],
    /// Limits that a decision must not exceed.
    pub limits: &'v Limits,
}

/// Output of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision<'a> {
    /// All transfers that must run from now on, in order of precedence. Includes transfers that
    /// already run.
    pub run: Vec<&'a str>,
    /// Running transfers that must be held.
    pub hold: Vec<&'a str>,
    /// Held transfers that must give up their session and wait again. They may be newly held.
    pub release: Vec<&'a str>,
    /// Time of the next decision, even if no transfer is added or ends before.
    pub look_again: Option<Time>,
    /// Byte counts that require a decision: a transfer, and its total number of bytes moved.
    pub look_after: Vec<(&'a str, u64)>,
}

impl Decision<'_> {
    /// Requests the next decision at `time` at the latest.
    fn look_by(&mut self, time: Option<Time>) {
        self.look_again = [self.look_again, time].into_iter().flatten().min();
    }
}

/// Decides which transfers run.
pub trait Policy: Send + std::fmt::Debug {
    /// Decides from the present transfers. A policy may also use its memory of earlier views.
    fn decide<'a>(&mut self, view: &View<'_, 'a>, now: Time) -> Decision<'a>;
}

/// Choice of a policy, and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the policy.
    pub name: Name,
    /// Maximum number of concurrent transfers, within the limits. `None` selects the policy's
    /// default: 1 for [`Name::Priority`] and [`Name::RoundRobin`], otherwise as many as the limits
    /// allow.
    pub max_running: Option<usize>,
    /// Number of bytes per turn ([`Name::RoundRobin`]).
    pub quota: u64,
    /// Parties among which turns rotate ([`Name::RoundRobin`]).
    pub round_robin_by: RoundRobinBy,
    /// A waiting transfer rises by one step of priority per interval of this length
    /// ([`Name::Priority`]).
    pub aging: Duration,
    /// A transfer that has waited longer than this time is started first. At most one transfer per
    /// interval of this length is started in this way ([`Name::Fair`]).
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: Name::Fair,
            max_running: None,
            // Quota of Liu et al., 2010, figure 14.
            quota: 400_000_000,
            round_robin_by: RoundRobinBy::Owners,
            // A rise by nine steps takes 45 minutes. Urgent transfers keep their precedence for
            // that time. The value is estimated, not measured.
            aging: Duration::from_secs(300),
            // At most four starts per hour do not follow the order. The value is estimated, not
            // measured.
            patience: Duration::from_secs(900),
        }
    }
}

impl Name {
    /// Parses a name in the form of [`Name::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }

    /// Returns a description of the policy in one line, without its name.
    #[must_use]
    pub const fn description(self) -> &'static str {
        self.entry().description
    }

    /// Returns a clause for messages that says which transfers move before a transfer that the
    /// policy holds, such as "other transfers move first".
    #[must_use]
    pub const fn precedence(self) -> &'static str {
        self.entry().precedence
    }

    /// Returns how [`Settings::max_running`] affects the policy.
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

    /// Returns the maximum number of transfers that the policy runs concurrently, before limits.
    #[must_use]
    pub fn running_max(&self) -> usize {
        match self.name.entry().max_running {
            MaxRunning::Ignored => usize::MAX,
            MaxRunning::Default(count) => self.max_running.unwrap_or(count),
        }
    }

    /// Returns which waiting transfers the next decision must see. Returns `None` if no waiting
    /// transfer could change the decision.
    #[must_use]
    pub fn candidates(&self, load: &Load) -> Option<Candidates> {
        (self.name.entry().candidates)(self, load)
    }
}

/// Owns the current policy.
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

    /// Changes the policy or its parameters. Ask for a decision directly afterwards.
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
