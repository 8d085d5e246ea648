//! Refresh of the placement: when to ask the cluster, and for what.

use crate::placement::{Placement, answers};
use dray_core::Result;
use std::time::Duration;

/// Commands to a cluster. The implementation sends them; this module only decides.
pub trait Commands {
    /// Sends a command (JSON) to a monitor, and returns its answer.
    ///
    /// # Errors
    /// Errors of the cluster.
    fn monitor(&self, command: &str) -> Result<Vec<u8>>;

    /// Sends a command (JSON) to the manager, and returns its answer.
    ///
    /// # Errors
    /// Errors of the cluster. Clusters without a running manager, and users without rights at the
    /// manager, are usual.
    fn manager(&self, command: &str) -> Result<Vec<u8>>;
}

/// Time between two comparisons of the epoch.
const CHECK: Duration = Duration::from_secs(1);

/// Time between two refreshes while a group has no OSD, for example because its OSDs are down.
const WITHOUT_OSD: Duration = Duration::from_secs(5);

/// Minimum time between two refreshes, if errors occur.
const AFTER_ERRORS: Duration = Duration::from_millis(200);

/// Times of further refreshes, counted from a change of the map. The manager knows the places of
/// moved groups only after the OSDs have reported them, which takes seconds.
const SETTLES: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];

/// Time for which a manager that does not answer is not asked again.
const WITHOUT_MANAGER: Duration = Duration::from_secs(60);

/// Largest number of groups for which one refresh asks a monitor. A command takes about 1 ms.
const GROUPS_AT_ONCE: usize = 256;

const OSD_STAT: &str = r#"{"prefix":"osd stat","format":"json"}"#;
pub(super) const OSD_DUMP: &str = r#"{"prefix":"osd dump","format":"json"}"#;
const MGR_STAT: &str = r#"{"prefix":"mgr stat","format":"json"}"#;
pub(super) const PG_DUMP: &str =
    r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"],"format":"json"}"#;

/// Keeps the placement of one pool up to date.
#[derive(Debug)]
pub struct Refresher {
    pool: String,
    current: Placement,
    /// Time of the last question to the cluster.
    checked: Option<Duration>,
    /// Time of the last question for the placement.
    asked: Duration,
    /// Time of the last change of the map, and the number of refreshes since then.
    changed: (Duration, usize),
    /// True after an error of a request to an OSD.
    is_doubtful: bool,
    /// Time of the next question to the manager.
    manager_after: Duration,
}

/// The next question to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Compare the epoch; ask for the placement only after a change.
    Epoch,
    /// Ask for the placement.
    Everything,
}

impl Refresher {
    /// Creates a refresher that knows nothing about the pool yet.
    #[must_use]
    pub fn new(pool: impl Into<String>) -> Self {
        Self {
            pool: pool.into(),
            current: Placement::default(),
            checked: None,
            asked: Duration::ZERO,
            changed: (Duration::ZERO, SETTLES.len()),
            is_doubtful: false,
            manager_after: Duration::ZERO,
        }
    }

    /// Returns the placement that is known so far.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.current
    }

    /// Tells the refresher that a request to an OSD failed or timed out, so the placement may be
    /// out of date.
    pub fn doubt(&mut self) {
        self.is_doubtful = true;
    }

    /// Returns true if [`Self::refresh`] would ask the cluster at the time `now`. The time is
    /// counted from any fixed moment.
    #[must_use]
    pub fn is_due(&self, now: Duration) -> bool {
        self.question(now).is_some()
    }

    fn question(&self, now: Duration) -> Option<Question> {
        let Some(checked) = self.checked else {
            return Some(Question::Everything);
        };
        let since = now.saturating_sub(checked);
        if self.is_doubtful && since >= AFTER_ERRORS {
            return Some(Question::Everything);
        }
        let (changed, refreshes) = self.changed;
        let settle = SETTLES.get(refreshes);
        if settle.is_some_and(|after| now >= changed.saturating_add(*after)) {
            return Some(Question::Everything);
        }
        let is_complete = self.current.unknown_groups(&self.pool).is_empty();
        if !is_complete && now >= self.asked.saturating_add(WITHOUT_OSD) {
            return Some(Question::Everything);
        }
        (since >= CHECK).then_some(Question::Epoch)
    }

    /// Asks the cluster, if a question is due at the time `now`. Returns true if the placement is
    /// another one afterwards. After an error the former placement remains.
    ///
    /// # Errors
    /// Errors of the monitors. Errors of the manager are not reported: the monitors then answer for
    /// each group.
    pub fn refresh(&mut self, now: Duration, cluster: &dyn Commands) -> Result<bool> {
        let Some(question) = self.question(now) else {
            return Ok(false);
        };
        let is_settle = !self.is_doubtful && self.checked.is_some();
        self.checked = Some(now);
        if question == Question::Epoch {
            let epoch = answers::epoch(&cluster.monitor(OSD_STAT)?)?;
            if epoch == self.current.epoch() {
                return Ok(false);
            }
        }
        self.is_doubtful = false;
        self.asked = now;
        let found = self.ask(now, cluster)?;
        if found.epoch() != self.current.epoch() {
            self.changed = (now, 0);
        } else if is_settle {
            self.count_settles(now);
        }
        let is_other = found != self.current;
        self.current = found;
        Ok(is_other)
    }

    /// Counts the times of further refreshes that have passed.
    fn count_settles(&mut self, now: Duration) {
        let (changed, _) = self.changed;
        let passed = |after: &&Duration| now >= changed.saturating_add(**after);
        self.changed.1 = SETTLES.iter().take_while(passed).count();
    }

    fn ask(&mut self, now: Duration, cluster: &dyn Commands) -> Result<Placement> {
        let mut found = Placement::read(&cluster.monitor(OSD_DUMP)?)?;
        if let Some(answer) = self.manager_groups(now, cluster) {
            // The monitors answer for the groups that the manager does not know.
            let _ = found.add_groups(&answer);
        }
        found.keep_known(&self.current);
        let unknown = found.unknown_groups(&self.pool);
        for group in unknown.iter().take(GROUPS_AT_ONCE) {
            let command = format!(r#"{{"prefix":"pg map","pgid":"{group}","format":"json"}}"#);
            found.add_group(&cluster.monitor(&command)?)?;
        }
        Ok(found)
    }

    /// Asks the manager for all groups. A question to a missing manager waits for a timeout, so the
    /// monitors are asked first whether a manager is there.
    fn manager_groups(&mut self, now: Duration, cluster: &dyn Commands) -> Option<Vec<u8>> {
        if now < self.manager_after {
            return None;
        }
        let status = cluster.monitor(MGR_STAT).ok();
        let is_there = status.is_some_and(|answer| answers::has_manager(&answer));
        let groups = is_there.then(|| cluster.manager(PG_DUMP).ok()).flatten();
        if groups.is_none() {
            self.manager_after = now.saturating_add(WITHOUT_MANAGER);
        }
        groups
    }
}
