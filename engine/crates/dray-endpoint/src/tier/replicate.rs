//! Copies demoted versions to the other roots of the replication group.
//!
//! Invariant owned here: a replica counts as complete only if it was copied after the version's
//! last demotion.

use super::demote::{LABEL, RATE_MIN};
use super::demoted::Ended;
use super::plan::{self, Planned};
use super::{AGAIN, Round};
use crate::staging::{Copy, between};
use dray_access::OWN_PRINCIPAL;
use dray_api::api_path::ApiPath;
use dray_api::{StagedDirection, TierVersionState as At};
use dray_core::{Result, TransferId};
use dray_queue::{TierReplica, TierVersion};
use dray_sched::tiers::victims::{self, Version};
use std::collections::BTreeMap;
use std::time::Instant;

/// Returns the text that changes with each demotion of a version.
pub(crate) fn demotion(row: &TierVersion) -> String {
    row.demoted_at
        .map_or_else(String::new, |at| at.as_ms().to_string())
}

/// Returns the replica of a version on a root.
pub(super) fn replica_of<'r>(
    replicas: &'r [TierReplica],
    row: &TierVersion,
    root: &str,
) -> Option<&'r TierReplica> {
    replicas.iter().find(|replica| {
        replica.application == row.application
            && replica.version == row.version
            && replica.root == root
    })
}

/// Returns true if a replica is durable and has the contents of the last demotion.
pub(crate) fn is_complete(replica: &TierReplica, row: &TierVersion) -> bool {
    replica.replicated_at.is_some() && replica.stamp == demotion(row)
}

/// Returns the path of the replica of a version on a root.
fn path_of(row: &TierVersion, root: &str) -> Result<ApiPath> {
    Ok(ApiPath {
        root: root.to_owned(),
        ..ApiPath::parse(&row.slow_path)?
    })
}

impl Round<'_> {
    /// Records the ends of replications. Then starts the next replication to each root in
    /// `replicas` of the tier. A root that cannot be reached delays neither the other roots nor
    /// demotions and deletions.
    pub(super) fn replicate(
        &mut self,
        rows: &[TierVersion],
        versions: &[Version],
        planned: &Planned,
    ) -> Result<()> {
        let config = &self.tier.config;
        if config.replicas.is_empty() {
            return Ok(());
        }
        let mut replicas = self.all.queue.tiers().replicas(self.name())?;
        if self.follow_replicas(&replicas)? {
            replicas = self.all.queue.tiers().replicas(self.name())?;
        }
        // A replication that reads the fast copy shares the bandwidth of demotions.
        let demotes = |row: &TierVersion| matches!(row.state, At::Written | At::Demoting);
        let is_idle = !self.memory.is_writing() && !rows.iter().any(demotes);
        let rate = match is_idle {
            true => planned.read,
            false => self.tier.device.read_min,
        };
        let rate = plan::whole(rate.max(RATE_MIN));
        let has_changed = self.memory.replica_rate != Some(rate);
        self.memory.replica_rate = Some(rate);
        for root in &config.replicas {
            let root = root.as_str();
            let is_here = |replica: &&TierReplica| replica.root == root && replica.is_running();
            if let Some(running) = replicas.iter().find(is_here) {
                if let Some(id) = running.transfer.as_deref().filter(|_| has_changed) {
                    self.change_rate(id, rate)?;
                }
                continue;
            }
            let of_root: Vec<TierReplica> = replicas
                .iter()
                .filter(|replica| replica.root == root)
                .cloned()
                .collect();
            if let Some(row) = self.next(rows, versions, &of_root, root)? {
                let from_fast = (is_idle && row.state == At::Demoted).then_some(rate);
                let known = replica_of(&of_root, row, root);
                self.submit_replica(row, known, root, from_fast)?;
            }
        }
        Ok(())
    }

    /// Returns the next version to replicate to a root, in the R-order of docs/design/tiers.md. A
    /// version whose replication has just failed is not a candidate.
    fn next<'r>(
        &self,
        rows: &'r [TierVersion],
        versions: &[Version],
        replicas: &[TierReplica],
        root: &str,
    ) -> Result<Option<&'r TierVersion>> {
        let mut candidates = versions.get(..rows.len()).unwrap_or(versions).to_vec();
        for (version, row) in candidates.iter_mut().zip(rows) {
            let known = replica_of(replicas, row, root);
            let is_later = self.memory.later.contains_key(&path_of(row, root)?.text());
            let is_done = known.is_some_and(|replica| is_complete(replica, row));
            version.is_replicated = is_done || is_later;
        }
        Ok(victims::next_replication(&candidates).and_then(|index| rows.get(index)))
    }

    fn submit_replica(
        &mut self,
        row: &TierVersion,
        known: Option<&TierReplica>,
        root: &str,
        from_fast: Option<u64>,
    ) -> Result<()> {
        let from = match from_fast {
            Some(_) => ApiPath::parse(&row.fast_path)?,
            None => ApiPath::parse(&row.slow_path)?,
        };
        let to = path_of(row, root)?;
        let stamp = demotion(row);
        // If the last transfer of this replica failed and had the same source, use its id again, so
        // that the transfer continues.
        let failed = known.filter(|replica| replica.error.is_some() && replica.stamp == stamp);
        let id = match failed.and_then(|replica| replica.transfer.as_deref()) {
            Some(id) if self.reads(id, &from) => TransferId::new(id)?,
            _ => dray_open::prepare::new_transfer_id()?,
        };
        let copy = Copy {
            id: &id,
            version: row,
            direction: StagedDirection::Out,
            principal: OWN_PRINCIPAL,
            labels: BTreeMap::from([(LABEL.to_owned(), row.tier.clone())]),
        };
        let mut submission = between(&copy, &from, &to)?;
        submission.request.rate_max = from_fast;
        let mut replica = TierReplica {
            tier: row.tier.clone(),
            application: row.application.clone(),
            version: row.version,
            root: root.to_owned(),
            path: to.text(),
            stamp,
            transfer: Some(id.to_string()),
            replicated_at: None,
            error: None,
        };
        let submitted = self.all.queue.submit_replica(submission, replica.clone());
        if let Err(refused) = submitted {
            replica.transfer = None;
            self.note_failed(&mut replica, refused.error.to_string());
            self.all.queue.tiers().change_replicas(vec![replica])?;
        }
        Ok(())
    }

    /// Returns true if the transfer `id` reads the copy at `from`.
    pub(super) fn reads(&self, id: &str, from: &ApiPath) -> bool {
        let transfer = self.all.queue.show(&super::demoted::endpoint(), id);
        transfer.is_ok_and(|transfer| {
            let source = transfer.request.sources.first();
            source.is_some_and(|place| place.url.trim_end_matches('/') == from.text())
        })
    }

    fn note_failed(&mut self, replica: &mut TierReplica, why: String) {
        let (path, tier) = (&replica.path, self.name());
        if replica.error.as_ref() != Some(&why) {
            tracing::warn!(tier, "the replication to {path} failed: {why}");
        }
        self.tier.counters.replication_failed();
        self.memory
            .later
            .insert(path.clone(), Instant::now() + AGAIN);
        replica.error = Some(why);
    }

    /// Records the ends of replications. Returns true if a row changed.
    fn follow_replicas(&mut self, replicas: &[TierReplica]) -> Result<bool> {
        let mut changed = Vec::new();
        for replica in replicas.iter().filter(|replica| replica.is_running()) {
            let Some(id) = replica.transfer.as_deref() else {
                continue;
            };
            let mut new = replica.clone();
            match self.all.ended(id)? {
                Ended::NotYet => continue,
                Ended::Done(at) => {
                    new.replicated_at = Some(at.unwrap_or(self.now));
                    self.tier.counters.replicated();
                }
                Ended::Failed(why) => self.note_failed(&mut new, why),
            }
            changed.push(new);
        }
        let has_changed = !changed.is_empty();
        self.all.queue.tiers().change_replicas(changed)?;
        Ok(has_changed)
    }
}
