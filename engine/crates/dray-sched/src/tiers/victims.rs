//! Chooses the versions of checkpoints to demote, to delete and to replicate. Also chooses the
//! version from which an application restarts. The rules are those of BBOS (section 5.1.2, Table
//! 5.1 and Algorithm 5.2).
//!
//! Non-goals: the start and the rate of a demotion ([`super`] has other modules for both), and the
//! times at which space is needed.
//!
//! Invariant owned here: the fast copy of a version is deleted only if the slow copy is durable and
//! the version is not pinned. So the newest complete version of an application exists on at least
//! one tier.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Place and progress of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionState {
    /// The application still writes the version.
    Incomplete,
    /// The version is complete, and only the fast tier has it.
    OnFast,
    /// The version is complete on the fast tier, and its demotion runs.
    Demoting,
    /// Both tiers have the version. The slow copy is durable and its checksum agrees.
    Demoted,
    /// Only the slow tier has the version. The slow copy is durable.
    SlowOnly,
}

impl VersionState {
    /// Returns true if an application can restart from the version.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        !matches!(self, Self::Incomplete)
    }

    /// Returns true if the version uses space on the fast tier.
    #[must_use]
    pub const fn is_on_fast(self) -> bool {
        !matches!(self, Self::SlowOnly)
    }

    /// Returns true if the slow tier has a durable copy.
    #[must_use]
    pub const fn is_durable_on_slow(self) -> bool {
        matches!(self, Self::Demoted | Self::SlowOnly)
    }
}

/// One checkpoint of one application: a set of files that is complete or absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// Name of the application.
    pub application: String,
    /// Number of the version. The newest version of an application has the highest number.
    pub number: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Time in seconds at which the version was complete.
    pub written_at: f64,
    /// Time in seconds of the last write or restart. At least `written_at`.
    pub used_at: f64,
    /// Time in seconds at which the slow copy was durable.
    pub demoted_at: Option<f64>,
    /// Mean time between failures of the application in seconds.
    pub mtbf: f64,
    /// Place and progress.
    pub state: VersionState,
    /// True if the fast copy must stay, because a user pinned it or a restart reads it now.
    pub is_pinned: bool,
    /// True if the replication group has a copy.
    pub is_replicated: bool,
    /// Time in seconds until which the slow copy was promised.
    pub deadline: Option<f64>,
}

/// An order of victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// BBOS: the E-order, then the V-order ([`next_demotion`]).
    Bbos,
    /// The V-order for all versions, old or new: highest MTBF first. The baseline of Figure 5.8.
    MtbfOnly,
    /// Least recently used first.
    Lru,
    /// First written first.
    Fifo,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::Bbos, Self::MtbfOnly, Self::Lru, Self::Fifo];

    /// Returns the name of the order.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bbos => "bbos",
            Self::MtbfOnly => "mtbf-only",
            Self::Lru => "lru",
            Self::Fifo => "fifo",
        }
    }

    /// Returns true if older versions are chosen before newest versions.
    const fn is_version_aware(self) -> bool {
        matches!(self, Self::Bbos)
    }
}

/// The next version to demote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demotion {
    /// Index of the version.
    pub index: usize,
    /// True if the fast copy must be deleted once the slow copy is durable: the version is older
    /// than the newest complete version of its application (E-order), and it is not pinned. Before
    /// the deletion, ask [`kept_because`] again, because a user may have pinned the version
    /// meanwhile.
    pub delete_after: bool,
}

/// The reason for which a fast copy is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The application still writes the version.
    Incomplete,
    /// The slow tier has no copy yet.
    NotDemoted,
    /// The slow copy is not durable yet.
    Demoting,
    /// The version is pinned.
    Pinned,
    /// Other deletions free enough space.
    EnoughFreed,
}

impl Reason {
    /// Returns the reason as text for messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Incomplete => "still being written",
            Self::NotDemoted => "not yet demoted",
            Self::Demoting => "being demoted",
            Self::Pinned => "pinned",
            Self::EnoughFreed => "enough space is free",
        }
    }
}

/// Fast copies to delete, and fast copies to keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deletions {
    /// Indices of the versions to delete, in this order.
    pub indices: Vec<usize>,
    /// Number of bytes that the deletions free.
    pub freed: u64,
    /// Indices of all other versions with a fast copy, ascending, each with its reason.
    pub kept: Vec<(usize, Reason)>,
}

/// Returns the version to demote next, or `None` if no complete version waits for its demotion.
///
/// With [`Order::Bbos`], versions older than the newest complete version of their application come
/// first, the oldest first. Then come the newest complete versions, those of the application with
/// the highest MTBF first. In every order, the version with the earlier deadline comes first if two
/// versions are equal.
#[must_use]
pub fn next_demotion(versions: &[Version], order: Order) -> Option<Demotion> {
    let waits = |version: &Version| version.state == VersionState::OnFast;
    if !versions.iter().any(waits) {
        return None;
    }
    let ranking = Ranking::new(versions, order);
    let waiting = versions
        .iter()
        .enumerate()
        .filter(|(_, version)| waits(version));
    let (index, _) = waiting.min_by(|(left, _), (right, _)| ranking.compare(*left, *right))?;
    let is_victim = ranking.is_outdated(index);
    Some(Demotion {
        index,
        delete_after: is_victim && !versions[index].is_pinned,
    })
}

/// Returns the indices of all complete versions that wait for their demotion, in the order in which
/// [`next_demotion`] returns them if the versions do not change.
#[must_use]
pub fn demotion_order(versions: &[Version], order: Order) -> Vec<usize> {
    let ranking = Ranking::new(versions, order);
    let waits = |index: &usize| versions[*index].state == VersionState::OnFast;
    let mut waiting: Vec<usize> = (0..versions.len()).filter(waits).collect();
    waiting.sort_by(|left, right| ranking.compare(*left, *right));
    waiting
}

/// Returns the fast copies to delete for `bytes_needed` bytes of space.
///
/// Only demoted versions without a pin are deleted, in the given order. If these versions do not
/// free enough space, all of them are deleted, and [`Deletions::kept`] tells why the other versions
/// are kept.
#[must_use]
pub fn deletions(versions: &[Version], bytes_needed: u64, order: Order) -> Deletions {
    let mut found = Deletions::default();
    for (index, version) in versions.iter().enumerate() {
        if let Some(reason) = kept_because(version) {
            found.kept.push((index, reason));
        }
    }
    let clean = clean_order(versions, order);
    for index in clean {
        if found.freed >= bytes_needed {
            found.kept.push((index, Reason::EnoughFreed));
        } else {
            found.freed = found.freed.saturating_add(versions[index].bytes);
            found.indices.push(index);
        }
    }
    found.kept.sort_unstable();
    found
}

/// Returns the indices of the versions whose fast copy may be deleted, in the order of deletion.
#[must_use]
pub(super) fn clean_order(versions: &[Version], order: Order) -> Vec<usize> {
    let ranking = Ranking::new(versions, order);
    let is_clean = |index: &usize| {
        let version = &versions[*index];
        version.state.is_on_fast() && kept_because(version).is_none()
    };
    let mut clean: Vec<usize> = (0..versions.len()).filter(is_clean).collect();
    clean.sort_by(|left, right| ranking.compare(*left, *right));
    clean
}

/// Returns the reason for which the fast copy of a version must not be deleted. Returns `None` if
/// it may be deleted, or if the fast tier has no copy.
#[must_use]
pub const fn kept_because(version: &Version) -> Option<Reason> {
    match version.state {
        VersionState::Incomplete => Some(Reason::Incomplete),
        VersionState::OnFast => Some(Reason::NotDemoted),
        VersionState::Demoting => Some(Reason::Demoting),
        VersionState::Demoted if version.is_pinned => Some(Reason::Pinned),
        VersionState::Demoted | VersionState::SlowOnly => None,
    }
}

/// Returns the index of the version to replicate next (R-order): the version that was demoted
/// first, among the versions that are durable on the slow tier and not replicated.
#[must_use]
pub fn next_replication(versions: &[Version]) -> Option<usize> {
    let waiting = versions
        .iter()
        .enumerate()
        .filter(|(_, version)| version.state.is_durable_on_slow() && !version.is_replicated);
    let demoted_at = |version: &Version| version.demoted_at.unwrap_or(f64::NEG_INFINITY);
    waiting
        .min_by(|(_, left), (_, right)| {
            let by_time = demoted_at(left).total_cmp(&demoted_at(right));
            by_time.then_with(|| identity(left).cmp(&identity(right)))
        })
        .map(|(index, _)| index)
}

/// Returns the index of the version from which an application restarts: its complete version with
/// the highest number. If two entries have this number, the entry on the fast tier is returned.
#[must_use]
pub fn newest_complete(versions: &[Version], application: &str) -> Option<usize> {
    let complete = versions
        .iter()
        .enumerate()
        .filter(|(_, each)| each.application == application && each.state.is_complete());
    complete
        .max_by_key(|(_, version)| (version.number, version.state.is_on_fast()))
        .map(|(index, _)| index)
}

/// Returns the key that decides between versions of equal rank.
fn identity(version: &Version) -> (&str, u64) {
    (&version.application, version.number)
}

/// The order of the versions of a tier.
struct Ranking<'a> {
    versions: &'a [Version],
    /// For each version: true if its application has a newer complete version. Empty if the order
    /// does not depend on version numbers.
    outdated: Vec<bool>,
    order: Order,
}

impl<'a> Ranking<'a> {
    fn new(versions: &'a [Version], order: Order) -> Self {
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        let mut outdated = Vec::new();
        if order.is_version_aware() {
            for version in versions.iter().filter(|each| each.state.is_complete()) {
                let number = newest
                    .entry(version.application.as_str())
                    .or_insert(version.number);
                *number = version.number.max(*number);
            }
            outdated.extend(versions.iter().map(|version| {
                let number = newest.get(version.application.as_str());
                number.is_some_and(|newest| version.number < *newest)
            }));
        }
        Self {
            versions,
            outdated,
            order,
        }
    }

    fn is_outdated(&self, index: usize) -> bool {
        self.outdated.get(index).copied().unwrap_or(false)
    }

    /// Returns `Less` if the left version is chosen before the right one.
    fn compare(&self, left: usize, right: usize) -> Ordering {
        let [a, b] = [&self.versions[left], &self.versions[right]];
        let first = match self.order {
            Order::Bbos => {
                let [old_a, old_b] = [self.is_outdated(left), self.is_outdated(right)];
                old_b.cmp(&old_a).then_with(|| {
                    if old_a {
                        a.written_at.total_cmp(&b.written_at)
                    } else {
                        b.mtbf.total_cmp(&a.mtbf)
                    }
                })
            }
            Order::MtbfOnly => b.mtbf.total_cmp(&a.mtbf),
            Order::Lru => a.used_at.total_cmp(&b.used_at),
            Order::Fifo => a.written_at.total_cmp(&b.written_at),
        };
        let deadline = |version: &Version| version.deadline.unwrap_or(f64::INFINITY);
        first
            .then_with(|| deadline(a).total_cmp(&deadline(b)))
            .then_with(|| a.written_at.total_cmp(&b.written_at))
            .then_with(|| identity(a).cmp(&identity(b)))
            .then(left.cmp(&right))
    }
}

#[cfg(test)]
mod tests;
