//! Refresh of the placement: when to ask the cluster, and for what.
//!
//! Only monitors are asked. The manager also knows the OSDs of all placement groups, but a command
//! to the manager (`rados_mgr_command`) that times out leaves librados 16 with pointers to
//! variables of the call that has ended. A later answer of the manager then crashes the process.

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
}

/// Time between two comparisons of the epoch.
const CHECK: Duration = Duration::from_secs(1);

/// Time between two refreshes while a group has no OSD, for example because its OSDs are down.
const WITHOUT_OSD: Duration = Duration::from_secs(5);

/// Minimum time between two refreshes, if errors occur.
const AFTER_ERRORS: Duration = Duration::from_millis(200);

/// Largest number of groups for which one refresh asks a monitor. A command takes about 1 ms.
const GROUPS_AT_ONCE: usize = 256;

const OSD_STAT: &str = r#"{"prefix":"osd stat","format":"json"}"#;
pub(super) const OSD_DUMP: &str = r#"{"prefix":"osd dump","format":"json"}"#;

/// Keeps the placement of one pool up to date.
#[derive(Debug)]
pub struct Refresher {
    pool: String,
    current: Placement,
    /// Time of the last question to the cluster.
    checked: Option<Duration>,
    /// Time of the last question for the placement.
    asked: Duration,
    /// True after an error of a request to an OSD.
    is_doubtful: bool,
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
            is_doubtful: false,
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
        let is_complete = self.current.unknown_groups(&self.pool).is_empty();
        if !is_complete && now >= self.asked.saturating_add(WITHOUT_OSD) {
            return Some(Question::Everything);
        }
        (since >= CHECK).then_some(Question::Epoch)
    }

    /// Asks the cluster, if a question is due at the time `now`. Returns true if the placement has
    /// changed. After an error the former placement remains.
    ///
    /// # Errors
    /// Errors of the monitors.
    pub fn refresh(&mut self, now: Duration, cluster: &dyn Commands) -> Result<bool> {
        let Some(question) = self.question(now) else {
            return Ok(false);
        };
        self.checked = Some(now);
        if question == Question::Epoch {
            let epoch = answers::epoch(&cluster.monitor(OSD_STAT)?)?;
            if epoch == self.current.epoch() {
                return Ok(false);
            }
        }
        self.is_doubtful = false;
        self.asked = now;
        let found = self.ask(cluster)?;
        let is_other = found != self.current;
        self.current = found;
        Ok(is_other)
    }

    fn ask(&self, cluster: &dyn Commands) -> Result<Placement> {
        let mut found = Placement::read(&cluster.monitor(OSD_DUMP)?)?;
        found.keep_known(&self.current);
        let unknown = found.unknown_groups(&self.pool);
        for group in unknown.iter().take(GROUPS_AT_ONCE) {
            let command = format!(r#"{{"prefix":"pg map","pgid":"{group}","format":"json"}}"#);
            found.add_group(&cluster.monitor(&command)?)?;
        }
        Ok(found)
    }
}
