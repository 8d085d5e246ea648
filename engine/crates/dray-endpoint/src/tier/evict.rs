//! Deletes fast copies of demoted versions.

use super::{AGAIN, Round};
use crate::staging::{self, Copy, copy};
use dray_access::OWN_PRINCIPAL;
use dray_api::{StagedDirection, TierVersionState as At};
use dray_core::{Error, Result, TransferId};
use dray_queue::TierVersion;
use dray_sched::tiers::victims::{self, Version, VersionState};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Id of the row that an eviction gets. The eviction does not store it.
const EVICTION: &str = "tier-eviction";

impl Round<'_> {
    /// Deletes fast copies for `short` bytes of space, and the fast copies that became useless with
    /// their demotion. Returns the number of freed bytes, and the reasons for which other fast
    /// copies are kept, by fast path.
    pub(super) fn free(
        &mut self,
        rows: &[TierVersion],
        versions: &[Version],
        short: u64,
    ) -> Result<(u64, BTreeMap<String, String>)> {
        // Incomplete versions are in no row. Their space is counted, and they are never deleted.
        let mut complete = versions.get(..rows.len()).unwrap_or(versions).to_vec();
        let mut freed = self.resume_deletions(rows)?;
        for (row, version) in rows.iter().zip(&mut complete) {
            let is_useless = self.memory.useless.contains(&row.fast_path);
            if is_useless && row.state == At::Demoted && victims::kept_because(version).is_none() {
                let bytes = self.delete(row, "an older version")?;
                freed += bytes;
                // Either the fast copy is deleted, or it must stay for the present.
                version.state = match bytes {
                    0 if self.memory.failed.contains_key(&row.fast_path) => VersionState::OnFast,
                    _ => VersionState::SlowOnly,
                };
            }
        }
        let found = victims::deletions(&complete, short.saturating_sub(freed), self.tier.order());
        for index in &found.indices {
            if let Some(row) = rows.get(*index) {
                freed += self.delete(row, "space")?;
            }
        }
        let mut kept = BTreeMap::new();
        for (index, reason) in found.kept {
            if let Some(row) = rows.get(index) {
                kept.insert(row.fast_path.clone(), reason.text().to_owned());
            }
        }
        let is_there = |path: &String| {
            rows.iter().any(|row| {
                row.fast_path == *path && matches!(row.state, At::Demoted | At::Deleting)
            })
        };
        self.memory.failed.retain(|path, _| is_there(path));
        kept.extend(self.memory.failed.clone());
        kept.extend(self.memory.unreadable.clone());
        Ok((freed, kept))
    }

    /// Deletes the rest of fast copies whose deletion was interrupted. Returns the number of freed
    /// bytes.
    fn resume_deletions(&mut self, rows: &[TierVersion]) -> Result<u64> {
        let mut freed = 0;
        for row in rows.iter().filter(|row| row.state == At::Deleting) {
            freed += self.delete(row, "its deletion was interrupted")?;
        }
        Ok(freed)
    }

    /// Deletes one fast copy. Returns the number of freed bytes, which is 0 if the copy must stay.
    fn delete(&mut self, row: &TierVersion, reason: &str) -> Result<u64> {
        if self.memory.later.contains_key(&row.fast_path) {
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
                self.memory.useless.remove(&row.fast_path);
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
