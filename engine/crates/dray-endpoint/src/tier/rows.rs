//! Keeps the rows of a tier in agreement with the fast roots and with the transfers.

use super::demoted::Ended;
use super::fast_roots::lost;
use super::{Incomplete, Round, scan};
use crate::tier::scan::{Found, Measure};
use dray_api::api_path::ApiPath;
use dray_api::{TierVersionState as At, Timestamp};
use dray_config::ManagedTier;
use dray_config::roots::Root;
use dray_core::{End, Error, ErrorKind, Result};
use dray_queue::TierVersion;
use dray_sched::tiers::device::ModelError;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// Maximum number of rows of one application for versions that only the slow root has. This number
/// suffices for the estimate of the application's period.
const SLOW_KEPT: usize = 64;

/// Returns the latest end of the pins that apply to the fast copy at `fast_path`. These are pins of
/// the copy, of a folder above the copy, or of an entry below the copy.
pub(super) fn pin(pins: &BTreeMap<String, Timestamp>, fast_path: &str) -> Option<Timestamp> {
    let is_within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let applies = |pinned: &str| is_within(pinned, fast_path) || is_within(fast_path, pinned);
    let ends = pins.iter().filter(|(pinned, _)| applies(pinned));
    ends.map(|(_, until)| *until).max()
}

/// Returns the error about bandwidths that contradict each other.
pub(super) fn invalid(tier: &ManagedTier, error: &ModelError) -> Error {
    let operation = format!("open the tier {}", tier.name);
    Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(error.to_string())
        .remedy("correct write_max, write_min, read_max and read_min of the tier")
}

/// A version that a scan has looked at on a fast root, with its row in the database if it has one.
struct Look<'r> {
    row: Option<&'r TierVersion>,
    found: Found,
    fast: ApiPath,
    measure: Option<Measure>,
}

/// Reasons by fast path.
type Reasons = BTreeMap<String, String>;

type Changes = Vec<(Option<At>, TierVersion)>;

impl Round<'_> {
    fn slow_sets_times(&self) -> bool {
        let root = self.all.roots.named(self.tier.config.slow.as_str());
        root.is_ok_and(|root| root.store().capabilities().sets_times)
    }

    /// Records the ends of demotions and of restored copies. Returns true if a row changed.
    pub(super) fn follow(&mut self, rows: &[TierVersion]) -> Result<bool> {
        let mut has_changed = self.all.record_demotions(self.tier, rows)?;
        let mut changes = Changes::new();
        for row in rows {
            let Some(id) = row.transfer.as_deref() else {
                continue;
            };
            let is_copied = match row.state {
                At::Demoting | At::Slow => self.all.ended(id)?,
                At::Written | At::Demoted | At::Deleting => continue,
            };
            let mut new = row.clone();
            match (is_copied, row.state) {
                (Ended::NotYet, _) => continue,
                // `record_demotions` has changed the row.
                (Ended::Done(_), At::Demoting) => continue,
                // The transfer read a replica, because the slow copy was not complete. So the
                // version must be demoted again.
                (Ended::Done(_), _) if !self.reads(id, &ApiPath::parse(&row.slow_path)?) => {
                    new.state = At::Written;
                    new.stamp = String::new();
                    new.demoted_at = None;
                }
                (Ended::Done(_), _) => {
                    new.state = At::Demoted;
                    // Files that are restored from a server that keeps no times get other times.
                    if !self.slow_sets_times() {
                        new.stamp = String::new();
                    }
                }
                (Ended::Failed(why), At::Demoting) => {
                    let (path, tier) = (&row.fast_path, self.name());
                    tracing::warn!(tier, "the demotion of {path} failed: {why}");
                    self.tier.counters.demotion_failed();
                    self.memory
                        .later
                        .insert(path.clone(), Instant::now() + super::AGAIN);
                    new.state = At::Written;
                    new.error = Some(why);
                }
                (Ended::Failed(_), _) => new.transfer = None,
            }
            changes.push((Some(row.state), new));
        }
        has_changed |= !changes.is_empty();
        self.all.queue.tiers().change(changes)?;
        Ok(has_changed)
    }

    /// Scans the fast roots: measures known versions, and finds new ones. Returns true if a row
    /// changed.
    pub(super) fn scan(&mut self, rows: &[TierVersion]) -> Result<bool> {
        let (looks, unreadable) = self.look(rows)?;
        // Keep the last known size of an unreadable version. Otherwise all its bytes would count as
        // growth when the version is readable again.
        let mut sizes: HashMap<String, u64> = unreadable
            .keys()
            .filter_map(|path| Some((path.clone(), *self.memory.sizes.get(path)?)))
            .collect();
        self.note_unreadable(unreadable);
        self.watch(&looks);
        let (mut changes, mut gone) = (Changes::new(), Vec::new());
        self.memory.incomplete.clear();
        for look in looks {
            let fast = look.fast.text();
            let Some(measure) = &look.measure else {
                // The application has deleted the fast copy.
                match look.row.map(|row| (row.state, row)) {
                    Some((At::Written, row)) => gone.push(row.clone()),
                    Some((At::Demoted | At::Deleting, row)) => changes.push(to(row, At::Slow)),
                    _ => {}
                }
                continue;
            };
            let is_restored = look
                .row
                .is_some_and(|row| row.state == At::Slow && row.transfer.is_some());
            let before = self.memory.sizes.get(&fast).copied();
            let grown = measure.bytes.saturating_sub(before.unwrap_or(0));
            if grown > 0 && !is_restored {
                self.memory
                    .estimator
                    .add(&look.found.application, grown as f64);
                self.memory.grown = Some(Instant::now());
            }
            sizes.insert(fast, measure.bytes);
            if !is_restored {
                self.judge(&look, measure, &mut changes, &mut gone);
            }
        }
        // Forget the size of a deleted fast copy. If its path appears again, it is written anew.
        self.memory.sizes = sizes;
        gone.extend(outdated(rows));
        let has_changed = !gone.is_empty() || !changes.is_empty();
        self.all.queue.tiers().forget(gone)?;
        self.all.queue.tiers().change(changes)?;
        Ok(has_changed)
    }

    /// Watches the fast roots, the folders above versions, and the versions without a row.
    fn watch(&mut self, looks: &[Look<'_>]) {
        let mut folders = BTreeSet::new();
        for name in &self.tier.config.fast {
            let root = self.all.roots.named(name.as_str());
            folders.extend(
                root.ok()
                    .and_then(|root| root.path())
                    .map(Path::to_path_buf),
            );
        }
        for look in looks {
            let root = self.all.roots.find(&look.fast);
            let Some(top) = root.ok().and_then(|root| root.path()) else {
                continue;
            };
            let mut at = match look.row {
                None => Some(look.fast.path.clone()),
                Some(_) => look.fast.path.parent(),
            };
            while let Some(path) = at.filter(|path| !path.is_root()) {
                folders.insert(top.join(std::ffi::OsStr::from_bytes(path.as_bytes())));
                at = path.parent();
            }
        }
        self.memory.watch.set(&folders);
    }

    /// Logs each version that has become unreadable, and keeps the reasons for the API.
    fn note_unreadable(&mut self, unreadable: BTreeMap<String, String>) {
        for (path, error) in &unreadable {
            if self.memory.unreadable.get(path) != Some(error) {
                tracing::warn!(
                    tier = self.name(),
                    "cannot read the version {path}: {error}"
                );
            }
        }
        self.memory.unreadable = unreadable;
    }

    /// Compares a version on a fast root with its row.
    fn judge(
        &mut self,
        look: &Look<'_>,
        measure: &Measure,
        changes: &mut Changes,
        gone: &mut Vec<TierVersion>,
    ) {
        let stamp = measure.stamp();
        let now = i128::from(self.now.as_ms()) * 1_000_000;
        let rule = self.tier.config.complete.as_ref();
        match look.row {
            // While a transfer copies the version, the version's row does not change. After the
            // transfer, the stamp in the row shows whether the files have changed.
            Some(row) if row.state == At::Demoting => {}
            // An eviction was refused or interrupted before it removed a file.
            Some(row) if row.state == At::Deleting && row.stamp == stamp => {
                changes.push(to(row, At::Demoted));
            }
            // No file is younger than the slow copy: the files remain from an interrupted deletion.
            Some(row) if row.state == At::Deleting && !measure.is_younger(row.demoted_at) => {}
            // A staging call has declared the version before it was measured.
            Some(row) if row.stamp.is_empty() => {
                let new = TierVersion {
                    stamp,
                    bytes: measure.bytes,
                    ..row.clone()
                };
                changes.push((Some(row.state), new));
            }
            Some(row) if row.stamp == stamp && row.state != At::Slow => {}
            Some(row) if row.stamp == stamp => changes.push(to(row, At::Demoted)),
            known => {
                let is_granted = self.memory.granted.contains(&look.fast.text());
                if !is_granted && rule.is_some_and(|rule| measure.is_complete(rule, now)) {
                    let new = self.written(look, measure, stamp);
                    changes.push((known.map(|row| row.state), new));
                    return;
                }
                // Without a template, only a staging call can declare the new files complete.
                let Some(_) = rule else {
                    return;
                };
                self.memory.incomplete.push(Incomplete {
                    application: look.found.application.clone(),
                    version: look.found.version,
                    fast_path: look.fast.text(),
                    bytes: measure.bytes,
                });
                match known.map(|row| (row.state, row)) {
                    Some((At::Written, row)) => gone.push(row.clone()),
                    Some((At::Demoted, row)) => changes.push(to(row, At::Slow)),
                    _ => {}
                }
            }
        }
    }

    fn written(&self, look: &Look<'_>, measure: &Measure, stamp: String) -> TierVersion {
        let config = &self.tier.config;
        let slow = ApiPath {
            root: config.slow.to_string(),
            ..look.fast.clone()
        };
        let known = look.row;
        TierVersion {
            tier: config.name.to_string(),
            application: look.found.application.clone(),
            version: look.found.version,
            owner: match known {
                Some(row) => row.owner.clone(),
                None => config.owner.clone().unwrap_or_default(),
            },
            fast_path: look.fast.text(),
            slow_path: known.map_or_else(|| slow.text(), |row| row.slow_path.clone()),
            is_folder: measure.is_folder,
            bytes: measure.bytes,
            stamp,
            state: At::Written,
            written_at: self.now,
            demoted_at: None,
            used_at: self.now,
            mtbf_seconds: known.and_then(|row| row.mtbf_seconds),
            nodes: known.and_then(|row| row.nodes),
            period_seconds: known.and_then(|row| row.period_seconds),
            transfer: known.and_then(|row| row.transfer.clone()),
            error: None,
        }
    }

    /// Measures the known versions and the paths that fit the template, with the accounts of their
    /// owners. One unreadable version must not stop the scan of the others. So the function also
    /// returns, for the fast path of each unreadable version, the reason.
    fn look<'r>(&mut self, rows: &'r [TierVersion]) -> Result<(Vec<Look<'r>>, Reasons)> {
        let config = &self.tier.config;
        let by_path: HashMap<&str, &TierVersion> = rows
            .iter()
            .map(|row| (row.fast_path.as_str(), row))
            .collect();
        let mut taken: HashSet<(String, u64)> = HashSet::new();
        let mut paths: Vec<(Option<&TierVersion>, Found, ApiPath)> = Vec::new();
        let (mut looks, mut unreadable) = (Vec::new(), Reasons::new());
        for row in rows {
            taken.insert((row.application.clone(), row.version));
            if let Some(why) = lost(&self.memory.fast, &row.fast_path) {
                if row.state != At::Slow {
                    unreadable.insert(row.fast_path.clone(), unreached(why));
                }
                continue;
            }
            let fast = ApiPath::parse(&row.fast_path)?;
            let found = Found {
                application: row.application.clone(),
                version: row.version,
                path: fast.path.clone(),
            };
            paths.push((Some(row), found, fast));
        }
        self.memory.second.clear();
        if let (Some(template), Some(owner)) = (&config.versions, &config.owner) {
            for name in &config.fast {
                if lost(&self.memory.fast, name.as_str()).is_some() {
                    continue;
                }
                let root = self.all.roots.named(name.as_str())?;
                let accounts = &self.all.accounts;
                let all = accounts.act_as(owner, || scan::find(&*accounts.root(root)?, template));
                // The versions on the other fast roots must still be found.
                let all = all.unwrap_or_else(|error| {
                    unreadable.insert(format!("/{name}"), error.to_string());
                    Vec::new()
                });
                for found in all {
                    let fast = ApiPath {
                        root: name.to_string(),
                        path: found.path.clone(),
                        is_folder: false,
                    };
                    if by_path.contains_key(fast.text().as_str()) {
                        continue;
                    }
                    let key = (found.application.clone(), found.version);
                    if taken.insert(key.clone()) {
                        paths.push((None, found, fast));
                    } else {
                        let path = fast.text();
                        tracing::debug!("{path} is ignored: another path has the same version");
                        self.memory.second.push((path, key));
                    }
                }
            }
        }
        let owner = config.owner.as_deref().unwrap_or_default();
        let rule = config.complete.as_ref();
        for (row, found, fast) in paths {
            let accounts = &self.all.accounts;
            let owner = row.map_or(owner, |row| row.owner.as_str());
            let measured = self.all.roots.find(&fast).and_then(|root| {
                accounts.act_as(owner, || {
                    scan::measure(&*accounts.root(root)?, &fast.path, rule)
                })
            });
            match measured {
                Ok(measure) => looks.push(Look {
                    row,
                    found,
                    fast,
                    measure,
                }),
                Err(error) => {
                    unreadable.insert(fast.text(), error.to_string());
                }
            }
        }
        Ok((looks, unreadable))
    }
}

fn unreached(why: &str) -> String {
    format!("the fast root of the version cannot be reached: {why}")
}

/// Refuses a slow root if its server neither keeps times nor computes checksums. Fast copies could
/// then never be compared with slow copies.
///
/// # Errors
/// `InvalidRequest`.
pub(super) fn check_slow(tier: &ManagedTier, root: &Root) -> Result<()> {
    let can = root.store().capabilities();
    if can.sets_times || can.compares_sums {
        return Ok(());
    }
    let cause = format!(
        "the server of the root {} neither keeps the times of files nor computes a checksum of a \
         kind that dray supports, so no fast copy could ever be deleted",
        root.name()
    );
    let operation = format!("open the tier {}", tier.name);
    Err(Error::new(ErrorKind::InvalidRequest, End::Here, operation)
        .cause(cause)
        .remedy(
            "have the server compute adler32 or crc32c (xrootd.chksum), or choose another root",
        ))
}

/// Returns the change of a row to another state. In the state `slow`, the field `transfer` is for
/// the transfer that restores the fast copy. So the new row does not keep the transfer of the
/// demotion.
pub(super) fn to(row: &TierVersion, state: At) -> (Option<At>, TierVersion) {
    let transfer = row.transfer.clone().filter(|_| state != At::Slow);
    let new = TierVersion {
        state,
        transfer,
        ..row.clone()
    };
    (Some(row.state), new)
}

/// Returns the rows that the tier no longer needs: for each application, the rows of old versions
/// that only the slow root has. `rows` is sorted by application, the newest version first.
fn outdated(rows: &[TierVersion]) -> Vec<TierVersion> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let old = rows.iter().filter(|row| {
        let count = counts.entry(row.application.as_str()).or_default();
        *count += 1;
        *count > SLOW_KEPT && row.state == At::Slow && row.transfer.is_none()
    });
    old.cloned().collect()
}
