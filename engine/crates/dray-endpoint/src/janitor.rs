//! Orphaned partial data goes: by age, and sooner while space is short. Never silently.
//!
//! Not for: finding and removing it (`dray_runtime::sweep`, whose rules nobody here can loosen).
//!
//! Invariant owned here: nothing is removed that the audit log has not been told of before.

mod choice;

pub use choice::{Orphan, Policy, Reason, choose};

use crate::audit::Audit;
use crate::metrics::Metrics;
use crate::roots::{Root, Roots};
use dray_core::path::escape;
use dray_core::{Error, ErrorKind, ModifiedTime, RelPath, Result, TransferId};
use dray_runtime::sweep::{self, Found, Met, Place, Removed};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// After a start the transfers of before come first.
const FIRST_LOOK: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(3_600);

/// Orphans of one root that are thought of in one look, the oldest: the others are there in an hour.
const ORPHANS_MAX: usize = 10_000;

/// Things that could not be looked at, of which one look says so many.
const UNREADABLE_MAX: u32 = 20;

/// Work without a rest, and the rest after it: a quarter of one thread's time, and so of what it asks
/// of the storage (guess, revisit).
const WORK: Duration = Duration::from_millis(20);
/// See [`WORK`].
const REST: Duration = Duration::from_millis(60);

/// Whether a transfer has not ended: its data is no orphan, however old.
pub type IsWanted = Box<dyn Fn(&TransferId) -> Result<bool> + Send + Sync>;

/// See the module's head.
pub struct Janitor {
    roots: Roots,
    policy: Policy,
    audit: Arc<Audit>,
    metrics: Arc<Metrics>,
    is_wanted: IsWanted,
    /// What a dry run has said already: root, path, when it was touched.
    said: Mutex<BTreeSet<(String, RelPath, ModifiedTime)>>,
}

impl Janitor {
    /// For these roots.
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

    /// Looks once an hour, until `sleep` says that it is time to stop: it waits, and returns false then.
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

    /// Looks through all roots as of `now`. `rest` is called between folders and removals; when it
    /// returns false it is time to stop.
    pub fn look(&self, now: SystemTime, rest: &mut dyn FnMut() -> bool) {
        let mut said = BTreeSet::new();
        for root in self.roots.iter().filter(|root| !root.is_read_only) {
            if let Err(error) = self.look_in(root, now, rest, &mut said) {
                tracing::warn!(root = root.name(), "the janitor cannot look: {error}");
            }
        }
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    fn look_in(
        &self,
        root: &Root,
        now: SystemTime,
        rest: &mut dyn FnMut() -> bool,
        said: &mut BTreeSet<(String, RelPath, ModifiedTime)>,
    ) -> Result<()> {
        // The janitor looks in folders of this host only.
        let Some(path) = root.path() else {
            return Ok(());
        };
        let place = Place::new(Arc::clone(root.export.store()), path)?;
        let Some(found) = self.find(root, &place, now, rest)? else {
            return Ok(());
        };
        let orphan = |one: &Found| Orphan {
            age: one.age(now),
            bytes: one.bytes,
        };
        let orphans: Vec<Orphan> = found.iter().map(orphan).collect();
        let free = root.export.store().free_space(&RelPath::root())?.free_bytes;
        for (index, reason) in choose(&orphans, free, &self.policy) {
            let one = &found[index];
            let line = line(root, one, reason, now);
            if self.policy.is_dry_run {
                let key = (root.name().to_owned(), one.path.clone(), one.changed);
                let before = self.said.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The oldest orphans of a root; nothing when it is time to stop.
    fn find(
        &self,
        root: &Root,
        place: &Place,
        now: SystemTime,
        rest: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<Found>>> {
        let mut oldest: BTreeMap<(ModifiedTime, RelPath), Found> = BTreeMap::new();
        let (mut unreadable, mut goes_on) = (0_u32, true);
        sweep::walk(place, now, &mut |met| {
            match met {
                Met::Folder => goes_on = rest(),
                Met::Found(found) if found.is_orphan(now) && !self.is_kept(&found) => {
                    oldest.insert((found.changed, found.path.clone()), found);
                    if oldest.len() > ORPHANS_MAX {
                        oldest.pop_last();
                    }
                }
                Met::Found(_) | Met::Young(_) => {}
                Met::Unreadable(error) => {
                    unreadable += 1;
                    if unreadable <= UNREADABLE_MAX {
                        tracing::warn!(
                            root = root.name(),
                            "the janitor leaves what it cannot read: {error}"
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

    /// Whether a transfer of ours still wants it; one that cannot be asked about does.
    fn is_kept(&self, found: &Found) -> bool {
        let asked = found
            .transfer
            .as_ref()
            .map(|transfer| (self.is_wanted)(transfer));
        asked.is_some_and(|wanted| wanted.unwrap_or(true))
    }

    fn remove(&self, place: &Place, one: &Found, now: SystemTime, line: &Value) -> Result<()> {
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

fn line(root: &Root, one: &Found, reason: Reason, now: SystemTime) -> Value {
    json!({
        "root": root.name(),
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
