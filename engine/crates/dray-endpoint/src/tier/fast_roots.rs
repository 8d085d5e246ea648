//! Observes the fast roots of a tier: their free space, and whether they can be reached. Each fast
//! root is a device.
//!
//! Invariant owned here: if a fast root cannot be reached, no version on it is deleted, demoted or
//! forgotten. The work on the other fast roots continues.

use super::{Round, Tier, Tiers, identity};
use dray_api::api_path::ApiPath;
use dray_api::{TierDevice, TierVersionState as At};
use dray_core::lock::LockExt;
use dray_core::{End, Error, ErrorKind, RelPath, Result};
use dray_queue::TierVersion;
use dray_sched::tiers::placement::{Candidate, choose};
use std::collections::BTreeMap;

/// A fast root as of the last round.
#[derive(Debug, Clone, Default)]
pub(super) struct FastRoot {
    pub(super) name: String,
    /// Free bytes of its file system. 0 if the root cannot be reached.
    pub(super) free: u64,
    /// Bytes of the versions and staged copies on it.
    pub(super) used: u64,
    /// Bytes of the fast copies that may be deleted now.
    pub(super) clean: u64,
    /// Reason for which the root cannot be reached.
    pub(super) error: Option<String>,
    /// True if the root had the tier's file (`identity`), or a fast copy, since the endpoint
    /// started.
    is_known: bool,
    /// True if the root had the tier's file since the endpoint started.
    has_file: bool,
}

impl FastRoot {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Describes the root for the API.
    pub(super) fn answer(&self) -> TierDevice {
        TierDevice {
            root: self.name.clone(),
            used: self.used,
            free: self.free,
            error: self.error.clone(),
        }
    }
}

/// Returns true if `inner` is the path `outer` or an entry below it.
pub(super) fn is_within(inner: &str, outer: &str) -> bool {
    let rest = inner.strip_prefix(outer.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn root_of(path: &str) -> &str {
    path.trim_start_matches('/')
        .split('/')
        .next()
        .unwrap_or_default()
}

/// Returns the reason for which the fast root of a path cannot be reached.
pub(super) fn lost<'f>(roots: &'f [FastRoot], path: &str) -> Option<&'f str> {
    let own = roots.iter().find(|one| one.name == root_of(path))?;
    own.error.as_deref()
}

/// Returns the index of the fast root of a path.
pub(super) fn home(roots: &[FastRoot], path: &str) -> usize {
    let own = roots.iter().position(|one| one.name == root_of(path));
    own.unwrap_or(usize::MAX)
}

impl Round<'_> {
    /// Reads the free space of the fast roots. Before a scan, also recognises each root.
    pub(super) fn reach(&mut self, rows: &[TierVersion], is_scan: bool) -> Result<()> {
        let mut all = std::mem::take(&mut self.memory.fast);
        for one in &mut all {
            let before = one.error.clone();
            let root = self.all.roots.named(&one.name)?;
            if is_scan || !one.is_known {
                one.error = self.recognise(one, rows).err().map(|error| said(&error));
            }
            one.free = match root.store().free_space(&RelPath::root()) {
                Ok(space) if one.error.is_none() => space.free_bytes,
                Ok(_) => 0,
                Err(error) => {
                    one.error.get_or_insert_with(|| said(&error));
                    0
                }
            };
            let tier = self.name();
            match (&before, &one.error) {
                (None, Some(error)) => {
                    tracing::error!(tier, "cannot reach the fast root /{}: {error}", one.name);
                }
                (Some(_), None) => tracing::info!(tier, "/{} can be reached again", one.name),
                _ => {}
            }
        }
        self.memory.fast = all;
        Ok(())
    }

    fn recognise(&self, one: &mut FastRoot, rows: &[TierVersion]) -> Result<()> {
        let is_here = |row: &&TierVersion| {
            let has_copy = match row.state {
                At::Written | At::Demoting | At::Demoted | At::Deleting => true,
                At::Slow => false,
            };
            has_copy && root_of(&row.fast_path) == one.name
        };
        let here: Vec<&TierVersion> = rows.iter().filter(is_here).collect();
        let owner = self.tier.config.owner.as_ref();
        let Some(owner) = owner.or(here.first().map(|row| &row.owner)) else {
            return Ok(());
        };
        let copies: Vec<ApiPath> = here
            .iter()
            .map(|row| ApiPath::parse(&row.fast_path))
            .collect::<Result<_>>()?;
        match identity::check_fast(self.all, &self.tier.config, &one.name, owner, &copies) {
            Ok(has_file) => {
                one.is_known = true;
                one.has_file |= has_file;
                Ok(())
            }
            // The root had fast copies, but the tier could not create its own file there. The
            // applications may since have deleted all copies. So an empty root is not an error.
            Err(error) if error.kind == ErrorKind::NotFound && one.is_known && !one.has_file => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes second fast copies of versions that have a slow copy. A version has a second fast
    /// copy if it was restored to another fast root while its own fast root could not be reached.
    pub(super) fn free_second_copies(&mut self, rows: &[TierVersion]) -> Result<()> {
        for (fast_path, key) in std::mem::take(&mut self.memory.second) {
            let is_own = |row: &&TierVersion| (&row.application, row.version) == (&key.0, key.1);
            let is_written = |path: &String| is_within(&fast_path, path);
            let Some(row) = rows.iter().find(is_own) else {
                continue;
            };
            let has_slow = matches!(row.state, At::Demoted | At::Slow);
            if has_slow && !self.memory.granted.iter().any(is_written) {
                let second = TierVersion {
                    fast_path,
                    ..row.clone()
                };
                self.delete(&second, "a second fast copy of the version")?;
            }
        }
        Ok(())
    }
}

/// Returns the cause of an error, or the whole error without one.
fn said(error: &Error) -> String {
    match error.cause.is_empty() {
        true => error.to_string(),
        false => error.cause.clone(),
    }
}

impl Tiers {
    /// Returns `version` with the fast path from which its application will restart: see
    /// [`Tier::located`]. If the tier that `version` names does not exist, returns `version`
    /// unchanged.
    ///
    /// # Errors
    /// The errors of [`Tier::located`].
    pub fn located(&self, version: TierVersion) -> Result<TierVersion> {
        match self.tier(&version.tier) {
            Ok(tier) => tier.located(version),
            Err(_) => Ok(version),
        }
    }
}

impl Tier {
    /// Returns the fast roots as of the last round. Before the first round, all can be reached.
    fn fast_roots(&self) -> Vec<FastRoot> {
        let seen = self.seen.lock_unpoisoned();
        match seen.fast.is_empty() {
            false => seen.fast.clone(),
            true => {
                let names = self.config.fast.iter();
                names.map(|name| FastRoot::new(name.as_str())).collect()
            }
        }
    }

    /// Returns the name of the fast root for `bytes` of new data. `loads` has the bytes that are
    /// already requested on each root.
    pub(super) fn place(&self, bytes: u64, loads: &BTreeMap<String, u64>) -> String {
        let roots = self.fast_roots();
        let candidates: Vec<Candidate> = roots
            .iter()
            .map(|one| {
                let load = loads.get(&one.name).copied().unwrap_or(0);
                let available = one.free.saturating_add(one.clean);
                Candidate {
                    is_reachable: one.error.is_none(),
                    available: available.saturating_sub(load),
                    load,
                }
            })
            .collect();
        let chosen = choose(&candidates, bytes).and_then(|index| roots.get(index));
        chosen.map_or_else(String::new, |one| one.name.clone())
    }

    /// Returns `version` with the fast path that the application will read. If the version has no
    /// fast copy, or if its fast root cannot be reached, this is a path on a fast root with space,
    /// preferably on the present fast root of the version.
    ///
    /// # Errors
    /// `Busy` if only a root that cannot be reached has the version.
    fn located(&self, version: TierVersion) -> Result<TierVersion> {
        let roots = self.fast_roots();
        let why = lost(&roots, &version.fast_path);
        match (version.state, why) {
            (At::Written | At::Demoting, Some(why)) => {
                return Err(Error::new(ErrorKind::Busy, End::Here, "stage the version")
                    .cause(format!(
                        "only the fast root /{} has the version, and it cannot be reached: {why}",
                        root_of(&version.fast_path)
                    ))
                    .remedy("repair the device of the root, or name an older version"));
            }
            (At::Demoted | At::Deleting, Some(_)) => {}
            // A restore that was requested already continues at its path.
            (At::Slow, _) if version.transfer.is_none() => {}
            _ => return Ok(version),
        }
        let others = roots.iter().map(|one| {
            let is_own = one.name == root_of(&version.fast_path);
            (one.name.clone(), u64::from(!is_own))
        });
        let path = ApiPath {
            root: self.place(version.bytes, &others.collect()),
            ..ApiPath::parse(&version.fast_path)?
        };
        Ok(TierVersion {
            fast_path: path.text(),
            state: At::Slow,
            transfer: None,
            ..version
        })
    }
}
