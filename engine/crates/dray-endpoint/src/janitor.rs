//! Removes orphaned partial data by age, and younger orphans while storage space is short. Each
//! removal is audited.
//!
//! Not for: choosing the orphans (`dray_sched::cleanup`), or finding and removing them
//! (`dray_runtime::sweep`). The janitor cannot relax the rules of `sweep`.
//!
//! Invariant owned here: the line about a removal is in the audit log before the removal happens.

use crate::audit::Audit;
use crate::metrics::Metrics;
use dray_config::roots::{Root, Roots};
use dray_core::lock::LockExt;
use dray_core::path::escape;
use dray_core::{Error, ErrorKind, ModifiedTime, RelPath, Result, TransferId};
use dray_runtime::sweep::{self, PartialData, Removed, WalkEvent, WalkRoot};
use dray_sched::cleanup::{self, Orphan, Reason};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Time from the start of the endpoint to the first round, so that interrupted transfers can resume
/// first.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// Interval between two rounds of the janitor.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Maximum number of orphans of one root that a round removes. The oldest orphans are removed
/// first, and the next round continues with the remaining orphans.
const ORPHANS_MAX: usize = 10_000;

/// Maximum number of unreadable entries of a root that one round reports.
const UNREADABLE_MAX: u32 = 20;

/// Time that the janitor works before it pauses for [`REST`]. The janitor thus uses a quarter of
/// one thread's time and loads the storage accordingly. The value is estimated, not measured.
const WORK: Duration = Duration::from_millis(20);
/// Pause after each [`WORK`] period.
const REST: Duration = Duration::from_millis(60);

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The limits by which orphans are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Orphans that have not changed for this long are removed.
    pub age: Duration,
    /// While fewer bytes than this are free, younger orphans are removed too, oldest first.
    pub space_min: Option<u64>,
    /// True if the janitor only reports the orphans and removes no data.
    pub is_dry_run: bool,
}

impl From<&dray_config::Janitor> for Policy {
    fn from(written: &dray_config::Janitor) -> Self {
        Self {
            age: DAY.saturating_mul(written.age_days),
            space_min: written.space_min.map(|size| size.0),
            is_dry_run: written.dry_run,
        }
    }
}

impl Policy {
    const fn rules(&self) -> cleanup::Rules {
        cleanup::Rules {
            age: self.age,
            age_min: sweep::AGE_MIN,
            space_min: self.space_min,
        }
    }
}

/// A function that returns true if a transfer has not ended. The data of such a transfer is no
/// orphan, however old it is.
pub type IsWanted = Box<dyn Fn(&TransferId) -> Result<bool> + Send + Sync>;

/// An orphan that a dry run has reported: root, disk, path, and time of the last change.
type Said = (String, Option<Arc<str>>, RelPath, ModifiedTime);

/// Removes orphaned partial data in rounds.
pub struct Janitor {
    roots: Roots,
    policy: Policy,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    is_wanted: IsWanted,
    /// Orphans that a dry run has already reported.
    said: Mutex<BTreeSet<Said>>,
}

impl Janitor {
    /// Creates a janitor for these roots.
    #[must_use]
    pub fn new(
        roots: Roots,
        policy: Policy,
        audit: Arc<Audit>,
        metrics: Arc<Metrics>,
        is_wanted: IsWanted,
    ) -> Self {
        Self {
            roots,
            policy,
            audit,
            metrics,
            is_wanted,
            said: Mutex::default(),
        }
    }

    /// Runs a round every hour until `sleep` returns false. `sleep` waits for the given time, and
    /// returns false when the endpoint stops.
    pub fn run(&self, sleep: &dyn Fn(Duration) -> bool) {
        let mut wait = FIRST_LOOK;
        while sleep(wait) {
            let mut worked = Instant::now();
            let mut rest = || {
                if worked.elapsed() < WORK {
                    return true;
                }
                let goes_on = sleep(REST);
                worked = Instant::now();
                goes_on
            };
            self.look(SystemTime::now(), &mut rest);
            wait = LOOK_INTERVAL;
        }
    }

    /// Runs a round over all roots. `now` is the time from which the ages are counted. Calls `rest`
    /// between folders and between removals, and stops when `rest` returns false.
    pub fn look(&self, now: SystemTime, rest: &mut dyn FnMut() -> bool) {
        let mut said = BTreeSet::new();
        for root in self.roots.iter().filter(|root| !root.is_read_only) {
            if let Err(error) = self.look_in(root, now, rest, &mut said) {
                tracing::warn!(
                    root = root.name(),
                    "the janitor cannot search for leftovers: \
                    {error}"
                );
            }
        }
        *self.said.lock_unpoisoned() = said;
    }

    fn look_in(
        &self,
        root: &Root,
        now: SystemTime,
        rest: &mut dyn FnMut() -> bool,
        said: &mut BTreeSet<Said>,
    ) -> Result<()> {
        let Some(place) = root.export.walk_root()? else {
            return Ok(());
        };
        let Some(found) = self.find(root, &place, now, rest)? else {
            return Ok(());
        };
        let orphan = |one: &PartialData| Orphan {
            age: one.age(now),
            bytes: one.bytes,
        };
        let orphans: Vec<Orphan> = found.iter().map(orphan).collect();
        let free = root.export.store().free_space(&RelPath::root())?.free_bytes;
        for (index, reason) in cleanup::choose(&orphans, free, &self.policy.rules()) {
            let one = &found[index];
            let line = line(root, one, reason, now);
            if self.policy.is_dry_run {
                let (disk, path) = (one.disk.clone(), one.path.clone());
                let key = (root.name().to_owned(), disk, path, one.changed);
                let before = self.said.lock_unpoisoned();
                if !before.contains(&key) {
                    self.tell(&line, "would_remove", None)?;
                }
                said.insert(key);
                continue;
            }
            if !rest() {
                return Ok(());
            }
            self.remove(&place, one, now, &line)?;
        }
        Ok(())
    }

    /// Returns the oldest orphans of a root. `None` if the endpoint is stopping.
    fn find(
        &self,
        root: &Root,
        place: &WalkRoot,
        now: SystemTime,
        rest: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<PartialData>>> {
        let mut oldest = BTreeMap::new();
        let (mut unreadable, mut goes_on) = (0_u32, true);
        sweep::walk(place, now, &mut |met| {
            match met {
                WalkEvent::Folder => goes_on = rest(),
                WalkEvent::PartialData(found) if found.is_orphan(now) && !self.is_kept(&found) => {
                    let (disk, path) = (found.disk.clone(), found.path.clone());
                    oldest.insert((found.changed, path, disk), found);
                    if oldest.len() > ORPHANS_MAX {
                        oldest.pop_last();
                    }
                }
                WalkEvent::PartialData(_) | WalkEvent::Young(_) => {}
                WalkEvent::Unreadable(error) => {
                    unreadable += 1;
                    if unreadable <= UNREADABLE_MAX {
                        tracing::warn!(
                            root = root.name(),
                            "the janitor cannot read a file or folder, so it does not remove it: \
                                {error}"
                        );
                    }
                }
            }
            match goes_on {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(goes_on.then(|| oldest.into_values().collect()))
    }

    /// Returns true if a transfer of this endpoint still needs the data, or if the queue cannot be
    /// read.
    fn is_kept(&self, found: &PartialData) -> bool {
        let asked = found
            .transfer
            .as_ref()
            .map(|transfer| (self.is_wanted)(transfer));
        asked.is_some_and(|wanted| wanted.unwrap_or(true))
    }

    fn remove(
        &self,
        place: &WalkRoot,
        one: &PartialData,
        now: SystemTime,
        line: &Value,
    ) -> Result<()> {
        if self.is_kept(one) {
            return Ok(());
        }
        self.tell(line, "removes", None)?;
        match sweep::remove(place, one, now) {
            Ok(Removed::All { files, bytes }) => {
                self.metrics
                    .janitor_removed
                    .fetch_add(files, Ordering::Relaxed);
                let mut line = line.clone();
                line["files"] = json!(files);
                line["bytes"] = json!(bytes);
                self.tell(&line, "removed", None)
            }
            Ok(Removed::Left) => self.tell(line, "left", None),
            Err(error) if error.kind == ErrorKind::LeaseHeld => {
                self.tell(line, "left", Some(&error))
            }
            Err(error) => self.tell(line, "failed", Some(&error)),
        }
    }

    fn tell(&self, line: &Value, did: &str, error: Option<&Error>) -> Result<()> {
        let mut line = line.clone();
        line["did"] = json!(did);
        line["error"] = json!(error.map(ToString::to_string));
        self.audit.swept(line)
    }
}

fn line(root: &Root, one: &PartialData, reason: Reason, now: SystemTime) -> Value {
    json!({
        "root": root.name(),
        "disk": one.disk.as_deref(),
        "path": one.path.to_string(),
        "what": one.what.name(),
        "owner": one.owner.as_deref().map(escape),
        "transfer": one.transfer.as_ref().map(TransferId::as_str),
        "files": one.files,
        "bytes": one.bytes,
        "age_seconds": one.age(now).as_secs(),
        "reason": reason.name(),
    })
}

#[cfg(test)]
mod tests;
