//! Deletes fast copies of demoted versions.

use super::fast_roots::{home, lost};
use super::{AGAIN, Round};
use crate::staging::{self, Copy, copy};
use dray_access::OWN_PRINCIPAL;
use dray_api::{StagedDirection, TierVersionState as At};
use dray_core::lock::LockExt;
use dray_core::{Error, Result, TransferId};
use dray_queue::TierVersion;
use dray_sched::tiers::placement::{Need, deletions};
use dray_sched::tiers::victims::{self, Version, VersionState};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Id of the row that is passed to an eviction. The eviction does not store the row.
const EVICTION: &str = "tier-eviction";

/// The result of the deletions of a round.
pub(super) struct Freed {
    /// Number of freed bytes.
    pub(super) bytes: u64,
    /// Bytes that are still needed.
    pub(super) left: Need,
    /// Reasons for which other fast copies are kept, by fast path.
    pub(super) kept: BTreeMap<String, String>,
}

impl Round<'_> {
    /// Completes interrupted deletions, and deletes the fast copies that became useless when their
    /// demotion ended. Then deletes further fast copies until the bytes in `need` are free.
    pub(super) fn free(
        &mut self,
        rows: &[TierVersion],
        versions: &[Version],
        need: Need,
    ) -> Result<Freed> {
        // `versions` ends with the incomplete versions, which have no rows. Their space counts as
        // used, but they are never deleted.
        let mut complete = versions.get(..rows.len()).unwrap_or(versions).to_vec();
        let mut freed = Freed {
            bytes: 0,
            left: need,
            kept: BTreeMap::new(),
        };
        for row in rows.iter().filter(|row| row.state == At::Deleting) {
            self.delete_for(row, "an earlier deletion was interrupted", &mut freed)?;
        }
        let useless = self.tier.useless.lock_unpoisoned().clone();
        for (row, version) in rows.iter().zip(&mut complete) {
            let is_useless = useless.contains(&row.fast_path);
            if is_useless && row.state == At::Demoted && victims::kept_because(version).is_none() {
                let bytes = self.delete_for(row, "an older version", &mut freed)?;
                // Either the fast copy is deleted, or it must stay for the present.
                version.state = match bytes {
                    0 if self.memory.failed.contains_key(&row.fast_path) => VersionState::OnFast,
                    _ => VersionState::SlowOnly,
                };
            }
        }
        // A copy that cannot be deleted now must not prevent the deletion of other copies.
        for (row, version) in rows.iter().zip(&mut complete) {
            let is_later = self.memory.later.contains_key(&row.fast_path);
            let is_lost = lost(&self.memory.fast, &row.fast_path).is_some();
            if version.state == VersionState::Demoted && (is_later || is_lost) {
                version.state = VersionState::OnFast;
            }
        }
        let homes: Vec<usize> = rows
            .iter()
            .map(|row| home(&self.memory.fast, &row.fast_path))
            .collect();
        let found = deletions(&complete, &homes, &freed.left, self.tier.order());
        for index in &found.indices {
            if let Some(row) = rows.get(*index) {
                self.delete_for(row, "space", &mut freed)?;
            }
        }
        for (index, reason) in found.kept {
            if let Some(row) = rows.get(index) {
                let reason = reason.text().to_owned();
                freed.kept.insert(row.fast_path.clone(), reason);
            }
        }
        let is_there = |path: &String| {
            rows.iter().any(|row| {
                row.fast_path == *path && matches!(row.state, At::Demoted | At::Deleting)
            })
        };
        self.memory.failed.retain(|path, _| is_there(path));
        freed.kept.extend(self.memory.failed.clone());
        freed.kept.extend(self.memory.unreadable.clone());
        Ok(freed)
    }

    /// Deletes one fast copy, and counts its bytes. Returns the number of freed bytes.
    fn delete_for(&mut self, row: &TierVersion, reason: &str, freed: &mut Freed) -> Result<u64> {
        let bytes = self.delete(row, reason)?;
        freed.bytes += bytes;
        let device = home(&self.memory.fast, &row.fast_path);
        freed.left.freed(device, bytes);
        Ok(bytes)
    }

    /// Deletes one fast copy. Returns the number of freed bytes, which is 0 if the copy must stay.
    pub(super) fn delete(&mut self, row: &TierVersion, reason: &str) -> Result<u64> {
        let is_lost = lost(&self.memory.fast, &row.fast_path).is_some();
        if is_lost || self.memory.later.contains_key(&row.fast_path) {
            return Ok(0);
        }
        let id = TransferId::new(EVICTION)?;
        let (_, staged) = copy(&Copy {
            id: &id,
            version: row,
            direction: StagedDirection::Out,
            principal: OWN_PRINCIPAL,
            labels: BTreeMap::new(),
        })?;
        self.tell(row, "removes", 0, reason, None)?;
        let all = self.all;
        let removed = staging::evict(&all.queue, &all.roots, &all.accounts, &staged, self.given);
        match removed {
            Ok(count) => {
                self.tell(row, "removed", count, reason, None)?;
                self.tier.counters.deleted(row.bytes);
                self.memory.failed.remove(&row.fast_path);
                self.tier.useless.lock_unpoisoned().remove(&row.fast_path);
                self.memory.sizes.remove(&row.fast_path);
                Ok(row.bytes)
            }
            Err(error) => {
                let (path, tier) = (row.fast_path.clone(), self.name());
                tracing::warn!(tier, "cannot delete the fast copy {path}: {}", error.cause);
                self.tell(row, "left", 0, reason, Some(&error))?;
                self.tier.counters.deletion_failed();
                self.memory.failed.insert(path.clone(), error.cause.clone());
                self.memory.later.insert(path, Instant::now() + AGAIN);
                Ok(0)
            }
        }
    }

    fn tell(
        &self,
        row: &TierVersion,
        did: &str,
        entries: u64,
        reason: &str,
        error: Option<&Error>,
    ) -> Result<()> {
        self.all.audit.swept(json!({
            "did": did,
            "what": "tier",
            "path": row.fast_path,
            "owner": row.owner,
            "transfer": row.transfer,
            "entries": entries,
            "reason": reason,
            "error": error.map(ToString::to_string),
        }))
    }
}
